"""What an Office file is by its content. Programs write RTF, web pages, tables as text and the formats from 2007 on
under the suffixes of the old ones, and Office opens them.

Belongs here: which other type such a file is of. Does not: reading it (`converter_process.py`). kreuzberg looks at the
bytes.
"""

import kreuzberg

from ec1.documents.media_types import MEDIA_TYPES
from ec1.errors import RejectedError

_OLD = frozenset({MEDIA_TYPES[".doc"], MEDIA_TYPES[".xls"], MEDIA_TYPES[".ppt"]})
_OFFICE = _OLD | {MEDIA_TYPES[each] for each in (".docx", ".xlsx", ".pptx", ".odt", ".ods", ".odp", ".rtf")}
_MAIL = MEDIA_TYPES[".eml"]
_COMPOUND_FILE, _ENCRYPTED = b"\xd0\xcf\x11\xe0", "EncryptedPackage".encode("utf-16-le")
_HEAD = 4096


def actual_type(data: bytes, said: str) -> str | None:
    """The media type of what is in a file that cannot be read as the Office format that was said; None if it is no
    other that can be read. Raises RejectedError for one that is encrypted ([MS-OFFCRYPTO])."""
    if said not in _OFFICE:
        return None
    if data.startswith(_COMPOUND_FILE) and _ENCRYPTED in data:
        raise RejectedError("not converted: encrypted")
    try:
        found = kreuzberg.detect_mime_type_from_bytes(data)
    except (kreuzberg.KreuzbergError, RuntimeError):
        return None
    if found in ("text/html", "text/plain") and said in _OLD:
        # Confluence exports pages to Word as web pages in a mail.
        return _MAIL if b"mime-version:" in data[:_HEAD].lower() else found
    return found if found != said and found in _OFFICE | {MEDIA_TYPES[".pdf"]} else None
