"""The process that converts documents: `python -m ec1.documents.converter_process MEGABYTES`.

It says that it is ready, or why it is not. Then it reads requests from standard input (one line of JSON, then the
file's bytes) and answers each with one line of JSON.
It opens no file and keeps nothing. `convert.py` starts it, and kills it when a file takes too long.
"""

import json
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import kreuzberg

from ec1.documents.captions import turns
from ec1.documents.content_type import actual_type
from ec1.documents.form_fields import form_fields
from ec1.documents.limits import PAGE_DONE, READY, limit_process
from ec1.documents.mail_text import mail_text
from ec1.documents.markup import html_text
from ec1.documents.office_parts import beside
from ec1.documents.office_text import READ_AS, as_written, readable
from ec1.documents.outlook_text import html_body
from ec1.documents.page_lines import paragraphs
from ec1.documents.tables import with_whole_names
from ec1.documents.text import decode
from ec1.errors import RejectedError, one_line

_PDF, _BOOK, _OLD_WORD = "application/pdf", "application/epub+zip", "application/msword"
_CAPTIONS = {"text/vtt": "vtt", "application/x-subrip": "srt"}
_MAIL, _OUTLOOK = "message/rfc822", "application/vnd.ms-outlook"
_ESCAPED = re.compile(r"\\([\\*#~`!<>|])")
_TOO_MANY_PAGES = "{:,} pages are more than documents.conversion.max_pages ({:,})"
_SHEET = re.compile(r"^## (.+)$", re.MULTILINE)
_MAX_CHARACTERS = 50_000_000
_Parts = list[list[str]]
"""[place, text] in reading order."""
_LITTLE_TEXT = 64
"""Characters: a scanned page often has a line of text, such as the name of the scanner's program."""


# The least that PDFium takes for a document: one page with nothing on it.
_BLANK_PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj "
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\ntrailer<</Root 1 0 R>>"
)


def main() -> None:
    """Answer until standard input ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        _load_pdfium()
    except (OSError, kreuzberg.KreuzbergError) as error:
        answers.write(f"{one_line(error)}\n".encode("utf-8", "replace"))
        return
    limit_process(int(sys.argv[1]))
    answers.write(READY)
    answers.flush()
    while line := requests.readline():
        header = json.loads(line)
        data = requests.read(header["bytes"])
        answer = json.dumps(_convert(data, header["type"], header["max_pages"], header["ocr"]))
        answers.write(answer.encode("utf-8", "replace") + b"\n")
        answers.flush()


def _load_pdfium() -> None:
    """Load the library for PDFs, which kreuzberg unpacks into the temporary folder when it reads its first one: before
    no file may be written any more, and from a folder of our own, where nobody else can have put another library."""
    with tempfile.TemporaryDirectory(dir=_folder_of_libraries()) as private:
        os.putenv("TMPDIR", private)
        kreuzberg.extract_bytes_sync(_BLANK_PDF, _PDF, config=_config())


def _folder_of_libraries() -> str:
    """Where a library can be written and loaded: hardened machines mount the temporary folder without that right."""
    usual = tempfile.gettempdir()
    for folder in (usual, sys.prefix, "/var/tmp"):
        if os.access(folder, os.W_OK) and not os.statvfs(folder).f_flag & os.ST_NOEXEC:
            return folder
    raise OSError(f"no library can be loaded from {usual}: set TMPDIR to a folder that is not mounted with noexec")


def _convert(data: bytes, media_type: str, max_pages: int, languages: Sequence[str]) -> dict[str, Any]:
    try:
        title, parts = _read(data, media_type, max_pages, languages)
        if sum(len(text) for _, text in parts) > _MAX_CHARACTERS:
            return {"refused": f"more than {_MAX_CHARACTERS:,} characters"}
        return {"title": title, "parts": [[place, with_whole_names(text)] for place, text in parts]}
    except RejectedError as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"refused": "not converted: it takes more memory than documents.conversion.max_memory_mb"}


def _read(data: bytes, media_type: str, max_pages: int, languages: Sequence[str]) -> tuple[str, _Parts]:
    """Title and parts of a file of this type, or of an Office file as what it is by its content. Raises RejectedError
    with the reason."""
    try:
        return _read_as(data, media_type, max_pages, languages)
    except kreuzberg.KreuzbergError as error:
        if (actual := actual_type(data, media_type)) is None:
            raise RejectedError(f"not converted: {_reason(error)}") from None
    try:
        return _read_as(data, actual, max_pages, languages)
    except kreuzberg.KreuzbergError as error:
        raise RejectedError(f"not converted: {_reason(error)}; by its content it is {actual}") from None


def _read_as(data: bytes, media_type: str, max_pages: int, languages: Sequence[str]) -> tuple[str, _Parts]:
    if media_type == _PDF:
        return _pdf(data, max_pages, languages)
    if media_type.startswith("image/"):
        return "", _recognised(data, media_type, languages)
    if media_type in _CAPTIONS:
        return "", turns(data, _CAPTIONS[media_type])
    if media_type.startswith("text/"):
        return "", [["", html_text(data) if media_type == "text/html" else decode(data)]]
    if media_type == _MAIL:
        subject, text = mail_text(data)
        return subject, [["", text]]
    return _office(data, media_type)


def _office(data: bytes, media_type: str) -> tuple[str, _Parts]:
    # Markdown keeps the cells of tables apart, and joins the paragraphs of an old Word file, and lines of a mail.
    form = "plain" if media_type in (_OLD_WORD, _OUTLOOK) else "markdown"
    found = kreuzberg.extract_bytes_sync(
        readable(data, media_type), READ_AS.get(media_type, media_type), config=_config(output_format=form)
    )
    title, content = _title(found.metadata), found.content
    if media_type == _OLD_WORD:
        return title, [["", content.replace("\n", "\n\n")]]
    if media_type == _OUTLOOK:
        headers, _, body = content.partition("\n\n")
        return title, [["", f"{headers}\n\n{html_body(data) or body}"]]
    parts = _sheets(content, found.metadata)
    if media_type != _BOOK:  # Of a book it escapes nothing.
        parts = [[place, _unescaped(text)] for place, text in parts]
    parts = [[place, as_written(text)] for place, text in parts]
    return title, parts + beside(data, "\n".join(text for _, text in parts))


def _config(**settings: Any) -> kreuzberg.ExtractionConfig:
    config = kreuzberg.ExtractionConfig(**{"use_cache": False, "disable_ocr": True, **settings})
    # What a mail holds is a document of its own: converted here, too, it would be thrown away.
    config.max_archive_depth = 0
    return config


def _recognised(data: bytes, media_type: str, languages: Sequence[str], **of: Any) -> _Parts:
    """The text in pictures, by page where there are pages. Raises KreuzbergError for a language that is not here."""
    # What no page can have in it.
    mark = f"<!-- {secrets.token_hex(8)} "
    found = kreuzberg.extract_bytes_sync(
        data,
        media_type,
        config=_config(
            disable_ocr=False,
            ocr=kreuzberg.OcrConfig(
                backend="tesseract",
                language=(tongues := "+".join(languages)),
                # Lines with wide gaps would be rows of a table.
                tesseract_config=kreuzberg.TesseractConfig(language=tongues, enable_table_detection=False),
            ),
            pages=kreuzberg.PageConfig(insert_page_markers=True, marker_format=f"{mark}{{page_num}} -->"),
            **of,
        ),
    )
    first, *pages = found.content.split(mark)
    numbered = [page.partition(" -->") for page in pages]
    return [["", paragraphs(first)], *([f"page {number}", paragraphs(text)] for number, _, text in numbered)]


def _pdf(data: bytes, max_pages: int, languages: Sequence[str]) -> tuple[str, _Parts]:
    # Plain: kreuzberg's Markdown takes the first line of a page for a running header, and drops it.
    by_page = kreuzberg.PageConfig(extract_pages=True)
    notes = kreuzberg.PdfConfig(extract_annotations=True)
    found = kreuzberg.extract_bytes_sync(data, _PDF, config=_config(pages=by_page, pdf_options=notes))
    pages = found.pages or []
    if len(pages) > max_pages:
        raise RejectedError(_TOO_MANY_PAGES.format(len(pages), max_pages))
    parts = [[f"page {page['page_number']}", paragraphs(page["content"])] for page in pages]
    if languages:
        parts = [[place, _with_picture(data, number, text, languages)] for number, (place, text) in enumerate(parts, 1)]
    if not any(text.strip() for _, text in parts):
        how = "nor in pictures of it" if languages else "scanned, perhaps; documents.conversion.ocr reads pictures"
        raise RejectedError(f"no text in {len(pages)} pages: {how}")
    return _title(found.metadata), parts + form_fields(data) + _notes(found.annotations or ())


def _notes(annotations: Sequence[Any]) -> _Parts:
    """What was written onto pages, by page. Apart from their text: a scanned page with a note is not read."""
    by_page: dict[int, list[str]] = {}
    for each in annotations:
        if each.annotation_type != "link" and (said := " ".join((each.content or "").split())):
            by_page.setdefault(each.page_number, []).append(said)
    return [[f"notes on page {number}", "\n\n".join(said)] for number, said in sorted(by_page.items())]


def _with_picture(data: bytes, number: int, text: str, languages: Sequence[str]) -> str:
    """The text of a page, or of the picture of it if that says more. One at a time: a page's picture takes memory."""
    if len(text.strip()) >= _LITTLE_TEXT:
        return text
    recognised = dict(_recognised(data, _PDF, languages, force_ocr_pages=[number]))
    sys.stdout.buffer.write(PAGE_DONE)
    sys.stdout.buffer.flush()
    return max(text, recognised.get(f"page {number}", ""), key=lambda each: len(each.strip()))


def _unescaped(text: str) -> str:
    """Markdown without the backslashes that keep a character from being markup: names are quoted as they stand."""
    return _ESCAPED.sub(r"\1", text)


def _sheets(text: str, metadata: Any) -> _Parts:
    """A workbook's sheets, each with its name as the place; anything else is one part without a place."""
    names = set(metadata.get("sheet_names") or ())
    starts = [match for match in _SHEET.finditer(text) if match[1] in names]
    if not starts:
        return [["", text]]
    ends = [*(match.start() for match in starts[1:]), len(text)]
    return [[f"sheet {match[1]}", text[match.start() : end]] for match, end in zip(starts, ends, strict=True)]


def _title(metadata: Any) -> str:
    title = metadata.get("title") or metadata.get("subject")
    return title if isinstance(title, str) else ""


def _reason(error: Exception) -> str:
    text = str(error).strip().split("\n", 1)[0]
    # It repeats itself: "PDF is password-protected: PDF is password-protected".
    text = text.removeprefix("ParsingError: ")
    half, _, rest = text.partition(": ")
    # Of a library's own name for its error only the words before it say something.
    return (half if half == rest or "LibraryInternalError" in rest else text)[:200]


if __name__ == "__main__":
    main()
