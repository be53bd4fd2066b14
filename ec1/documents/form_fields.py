"""What was typed into the fields of a PDF's form, and chosen in its lists, which kreuzberg 4.10 leaves out.

Belongs here: which fields hold words, and how one is written as a line. Does not: the text of the pages.
Format: ISO 32000-2, 12.7 (interactive forms).
"""

import ctypes
import re
from collections.abc import Iterator
from typing import Any

import pypdfium2
from pypdfium2 import raw

_OF_WORDS = frozenset({raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX})
# `topmostSubform[0].Page1[0].company[0]` is `company`; `f1_01` says nothing to a reader.
_NAME = re.compile(r"([^.\[\]]+)(?:\[\d+\])?$")
_SPEAKING = re.compile(r"[^\W\d]+(?:[\s-]+[^\W\d]+)*")


def form_fields(data: bytes) -> list[list[str]]:
    """[place, text] by page: a line `label: value` for each field that is filled in, in the file's order. The text of a
    page, or of a file, whose fields cannot be read is empty, as that of a form that is a program (XFA)."""
    parts: list[list[str]] = []
    try:
        with pypdfium2.PdfDocument(data) as document:
            if document.get_formtype() == raw.FORMTYPE_NONE:
                return []
            if document.get_formtype() == raw.FORMTYPE_XFA_FULL:
                parts.append(["form", ""])
            document.init_forms()
            for number in range(len(document)):
                place = f"form on page {number + 1}"
                try:
                    lines = list(_lines(document, document[number]))
                    parts += [[place, "\n\n".join(lines)]] if lines else []
                except pypdfium2.PdfiumError:
                    parts.append([place, ""])
    except pypdfium2.PdfiumError:
        return [["form", ""]]
    return parts


def _lines(document: Any, page: Any) -> Iterator[str]:
    form = document.formenv.raw
    for index in range(raw.FPDFPage_GetAnnotCount(page)):
        field = raw.FPDFPage_GetAnnot(page, index)
        try:
            is_password = raw.FPDFAnnot_GetFormFieldFlags(form, field) & raw.FPDF_FORMFLAG_TEXT_PASSWORD
            if raw.FPDFAnnot_GetFormFieldType(form, field) not in _OF_WORDS or is_password:
                continue
            if value := _string(raw.FPDFAnnot_GetFormFieldValue, form, field):
                label = _label(form, field)
                yield f"{label}: {value}" if label else value
        finally:
            raw.FPDFPage_CloseAnnot(field)


def _label(form: Any, field: Any) -> str:
    """What a reader sees beside the pointer, or the field's name if it is words."""
    if said := _string(raw.FPDFAnnot_GetFormFieldAlternateName, form, field):
        return said.rstrip(":")
    name = _NAME.search(_string(raw.FPDFAnnot_GetFormFieldName, form, field))
    return name[1].replace("_", " ").strip() if name and _SPEAKING.fullmatch(name[1]) else ""


def _string(of: Any, form: Any, field: Any) -> str:
    """A string of PDFium's: it is asked for its length in bytes first, with the two zeros at its end."""
    size = of(form, field, None, 0)
    buffer = (ctypes.c_ushort * (size // 2 + 1))()
    of(form, field, buffer, size)
    return " ".join(bytes(buffer)[: max(0, size - 2)].decode("utf-16-le", "replace").split())
