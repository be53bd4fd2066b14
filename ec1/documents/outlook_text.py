"""The text of an Outlook mail that is in HTML alone, as programs other than Outlook save it: kreuzberg 4.10 reads such
a body only where it is stored as characters, and Exchange stores bytes ([MS-OXPROPS], `PidTagHtml`).
"""

import io

import olefile

from ec1.documents.markup import html_text

_HTML = "__substg1.0_10130102"
_OTHER_BODIES = ("1000001F", "1000001E", "10090102", "1013001F", "1013001E")
_BROKEN = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


def html_body(data: bytes) -> str:
    """What a mail says in HTML alone; empty if it has another body, or cannot be read."""
    try:
        with olefile.OleFileIO(io.BytesIO(data)) as mail:
            if not mail.exists(_HTML) or any(mail.exists(f"__substg1.0_{each}") for each in _OTHER_BODIES):
                return ""
            return html_text(mail.openstream(_HTML).read())
    except _BROKEN:
        return ""
