"""The media types (RFC 6838) of the files that are converted."""

_OPEN_DOCUMENT = "application/vnd.oasis.opendocument"
_OFFICE = "application/vnd.openxmlformats-officedocument"
MEDIA_TYPES = {
    ".pdf": "application/pdf",
    **dict.fromkeys((".docx", ".docm"), f"{_OFFICE}.wordprocessingml.document"),
    **dict.fromkeys((".pptx", ".pptm"), f"{_OFFICE}.presentationml.presentation"),
    **dict.fromkeys((".xlsx", ".xlsm"), f"{_OFFICE}.spreadsheetml.sheet"),
    ".doc": "application/msword",
    ".ppt": "application/vnd.ms-powerpoint",
    ".xls": "application/vnd.ms-excel",
    ".odt": f"{_OPEN_DOCUMENT}.text",
    ".ods": f"{_OPEN_DOCUMENT}.spreadsheet",
    ".odp": f"{_OPEN_DOCUMENT}.presentation",
    ".rtf": "application/rtf",
    ".epub": "application/epub+zip",
    **dict.fromkeys((".eml", ".mht", ".mhtml"), "message/rfc822"),
    ".msg": "application/vnd.ms-outlook",
    ".vtt": "text/vtt",
    ".srt": "application/x-subrip",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".bmp": "image/bmp",
    ".webp": "image/webp",
}
"""The media type of a file, for each suffix of `ec1.streams.CONVERTED`."""
