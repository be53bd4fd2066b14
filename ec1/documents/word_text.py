"""Word files as kreuzberg 4.10 can read them: it drops each `&amp;`, `&lt;` and `&#...;` of a Word file's text, so that
"Smith & Sons" comes out as "Smith Sons".

Each reference is written as a character that XML takes as it is, and taken back in the text that came out.
"""

import io
import re
import zipfile
import zlib

_REFERENCE = re.compile(rb"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7})|#x([0-9a-fA-F]{1,6}));")
_MARKUP = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
# Characters of the private area: no text of a document has them.
_STANDS_FOR = {character: chr(0xF8E0 + number) for number, character in enumerate(_MARKUP.values())}
_BACK = str.maketrans({stand_in: character for character, stand_in in _STANDS_FOR.items()})
_PART = re.compile(r"word/[^/]+\.xml")
_MAX_PART = 64 * 2**20
_STORED = 2**20


def without_references(data: bytes) -> bytes:
    """The same Word file with a character for each reference. What is no such file stays as it is, for the library to
    refuse."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = [
                each
                for each in archive.infolist()
                if _PART.fullmatch(each.filename) and not each.flag_bits & 1 and each.file_size <= _MAX_PART
            ]
            changed = {
                part.filename: _REFERENCE.sub(_character, text)
                for part in parts
                if b"&" in (text := archive.read(part)) and _REFERENCE.search(text)
            }
            if not changed:
                return data
            written = io.BytesIO()
            with zipfile.ZipFile(written, "w", compresslevel=1) as copy:
                # Pictures hold no text, and a bomb stays the library's to find. Packing small parts again is time lost.
                for each in archive.infolist():
                    if each.file_size <= _MAX_PART:
                        text = changed.get(each.filename) or archive.read(each)
                        packing = zipfile.ZIP_DEFLATED if len(text) > _STORED else zipfile.ZIP_STORED
                        copy.writestr(each.filename, text, packing)
            return written.getvalue()
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OSError, EOFError, zlib.error):
        return data


def _character(found: "re.Match[bytes]") -> bytes:
    named, decimal, hexadecimal = found.groups()
    character = _MARKUP[named.decode()] if named else chr(int(decimal or b"0", 10) or int(hexadecimal or b"0", 16))
    # A tab or a line's end is layout; what XML forbids stays for the library to refuse.
    return _STANDS_FOR.get(character, character).encode() if character.isprintable() else found[0]


def with_references(text: str) -> str:
    """The text that came out, with what the references stood for."""
    return text.translate(_BACK)
