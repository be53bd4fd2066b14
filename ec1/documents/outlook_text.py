"""The text of an Outlook mail that is in HTML alone, as programs other than Outlook save it: kreuzberg 4.10 reads such
a body only where it is stored as characters, and takes no more than the tags out of it. Exchange stores bytes
([MS-OXPROPS], `PidTagHtml`).
"""

import io

import olefile

from ec1.documents.markup import html_text, strip_html

_PLAIN = ("__substg1.0_1000001F", "__substg1.0_1000001E")
_BYTES, _CHARACTERS = ("__substg1.0_10130102", "__substg1.0_1013001E"), "__substg1.0_1013001F"
_BROKEN = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


def html_body(data: bytes) -> str:
    """What a mail says in HTML; empty if it says it in plain text, too, or cannot be read."""
    try:
        with olefile.OleFileIO(io.BytesIO(data)) as mail:
            if any(mail.openstream(each).read().strip(b"\0 \r\n") for each in filter(mail.exists, _PLAIN)):
                return ""
            if mail.exists(_CHARACTERS):
                return strip_html(mail.openstream(_CHARACTERS).read().decode("utf-16-le", "replace"))
            found = next(filter(mail.exists, _BYTES), None)
            return html_text(mail.openstream(found).read()) if found else ""
    except _BROKEN:
        return ""
