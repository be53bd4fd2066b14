"""Bytes to clean text: encodings, invisible characters, line ends, normal form. Knows no file format.

A file is taken as UTF-8 unless its bytes say otherwise: a byte-order mark, the zero bytes of UTF-16, or bytes that are
not valid UTF-8. Those few that are damaged in a UTF-8 text become U+FFFD; a text that is not UTF-8 at all is read as
Windows-1252, as browsers do, or, where more than a quarter of it is not ASCII, as what charset-normalizer finds among
the encodings of other scripts (it confuses the Latin ones with each other: `Muñoz` became `Muńoz`).
Everything here takes linear time and a small multiple of the text's size, for any input.
"""

import codecs
import functools
import re
import unicodedata

from charset_normalizer import from_bytes

from ec1.errors import RejectedError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_HEAD = 4096
_SAMPLE = 2**16
_HIGH_BYTES = bytes(range(0x80, 0x100))
_OTHER_SCRIPTS = ["cp1251", "cp1253", "cp1255", "cp1256", "koi8_r", "cp932", "euc_jp", "gb18030", "big5", "cp949"]
# Encodings that a document may ask for. Python's list also holds some that are not character sets, or not linear.
_DECLARABLE = re.compile(
    r"utf-16(-[lb]e)?|utf-32(-[lb]e)?|iso8859-\d+|cp\d+|mac-(roman|cyrillic|greek)|koi8-[rut]|tis-620"
    r"|gb2312|gbk|gb18030|big5(hkscs)?|shift_jis|euc_(jp|kr)|johab|iso2022_(jp|kr)"
)

_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffd]")
# Characters that a reader does not see and a model does: terminal colours, controls, soft hyphens, zero-width and
# bidirectional controls, fillers, variation selectors, tags. The joiners U+200C/D stay after the letters of the
# scripts that spell with them (Arabic to Mongolian).
_HIDDEN = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_INVISIBLE = re.compile(f"\x1b\\[[0-9;]{{0,32}}[A-Za-z]|[{_HIDDEN}]|(?<![\u0600-\u18af])[\u200c\u200d]")
# Looking for one of a set of characters is several times faster than for what may begin with one.
_MAY_BE_INVISIBLE = re.compile(f"[{_HIDDEN}\u200c\u200d]")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_MAY_END_LINES = re.compile("[\r\x0b\x0c\x85\u2028\u2029]")


def looks_binary(head: bytes) -> bool:
    """True if a file that starts with `head` holds zero bytes that are not those of UTF-16 or UTF-32."""
    return b"\0" in head and not _wide_encoding(head)


def decode(data: bytes, declared: str | None = None) -> str:
    """Decode a document's bytes; `declared` is the encoding that it asks for, if any. Raises RejectedError (binary)."""
    encoding = _wide_encoding(data) or _declared_encoding(data, declared)
    if encoding:
        text = data.decode(encoding, "replace")
    elif b"\0" in data:
        raise RejectedError("binary")
    else:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = _decode_damaged(data)
    sample = text[:_SAMPLE]
    strange = len(_CONTROLS.findall(sample))
    if strange > 4 and strange > len(sample) // 50:
        raise RejectedError("binary")
    return text


def clean(text: str) -> str:
    """Text with `\\n` line ends, in normal form C, without lone surrogates and without invisible characters."""
    if not text.isascii():
        text = _SURROGATES.sub("\ufffd", text)
    if _MAY_END_LINES.search(text):
        text = _LINE_ENDS.sub("\n", text)
    if _MAY_BE_INVISIBLE.search(text):
        text = _INVISIBLE.sub("", text)
    if not text.isascii():
        long_marks = _long_marks(0x20000 if _ASTRAL.search(text) else 0x10000)
        text = unicodedata.normalize("NFC", long_marks.sub("\\g<0>\u034f", text))
    return text


@functools.cache
def _long_marks(below: int) -> re.Pattern[str]:
    """Runs of combining marks that normalisation would sort in quadratic time: 160,000 of them took 34 s. A set of
    those below U+10000 is looked up in a table, and a larger one is searched.

    Unicode's Stream-Safe Text Format (UAX 15) breaks such runs after 30 with U+034F.
    """
    marks = "".join(mark for mark in map(chr, range(0x300, below)) if unicodedata.combining(mark))
    # The first one apart: what begins with one of a set is found sooner than what begins with a repetition.
    return re.compile(f"[{marks}][{marks}]{{29}}")


def _wide_encoding(data: bytes) -> str | None:
    """The encoding that a byte-order mark or the pattern of zero bytes gives away."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return encoding
    head = data[:_HEAD]
    half = len(head) // 2
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if half and odd > 0.4 * half and even < 0.05 * half:
        return "utf-16-le"
    if half and even > 0.4 * half and odd < 0.05 * half:
        return "utf-16-be"
    return None


def _declared_encoding(data: bytes, declared: str | None) -> str | None:
    try:
        name = codecs.lookup(declared or "").name
    except (LookupError, ValueError):
        return None
    # What is said to be ASCII or Latin-1 is often UTF-8, and else Windows-1252: there the general rule does better.
    if name == "iso8859-1" or not _DECLARABLE.fullmatch(name):
        return None
    if name.startswith("utf-") and b"\0" not in data:
        return None
    return name


def _decode_damaged(data: bytes) -> str:
    high = len(data) - len(data.translate(None, _HIGH_BYTES))
    replaced = data.decode("utf-8", "replace")
    whole = len(data.decode("utf-8", "ignore")) - (len(data) - high)
    damaged = len(replaced) - whole - (len(data) - high)
    if whole and whole >= damaged:
        return replaced
    if high > len(data) // 4:
        best = from_bytes(data[:_SAMPLE], cp_isolation=_OTHER_SCRIPTS, enable_fallback=False).best()
        if best:
            return data.decode(best.encoding, "replace")
    return data.decode("cp1252", "replace")
