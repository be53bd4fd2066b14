"""Whether a value can be a secret: what tells one from a hash, a path, a placeholder, a word and a piece of code.

Belongs here: judgements of a value alone. Does not: where it stands (`secret_contexts`), vendors' formats (`secrets`).
"""

import math
import re
from collections import Counter

# Words count only where no letter or digit joins on: random strings hold every short word now and then.
PLACEHOLDER = re.compile(
    r"<[A-Z_]+\d*>|\$\{?[A-Z_]|\{\{|%\(|%[sdr]|\*{3}|(?i:x{4})|\.{3}|(?<![A-Za-z0-9])(?i:change[_\-]?(?:me|it)|example|"
    r"placeholder|redacted|dummy|your[_\-]\w+|my[_\-]\w+|insert|replace|undefined|null|none|true|false)(?![A-Za-z0-9])"
)
HEX = re.compile(r"(?:0x)?[0-9a-fA-F]+")
UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
HASH_PREFIX = re.compile(r"(?i)(?:sha(?:1|224|256|384|512)|md5|h1)[\-_:=]")
_WORDS = re.compile(r"[A-Za-z]?[a-z]*|[A-Z]+|[0-9]{1,4}")
_CODE = re.compile(
    r"[A-Za-z_][\w]*(?:(?:\.|::|->|/)[A-Za-z_]\w*)+[?!]?|[A-Za-z_]+|[a-z]+(?:[_\-][a-z]+)*\d{0,2}|[A-Z]+(?:_[A-Z]+)*"
)
# A digit in the middle of a word, and the marks that people put into passwords and names seldom hold.
_DIGIT_INSIDE = re.compile(r"[A-Za-z]\d+[a-z]")
_MARK_INSIDE = re.compile(r"[A-Za-z0-9][!#%&*+?^~$][A-Za-z0-9.]|[A-Za-z0-9][!#^~]+$")
_CODE_MARKS = re.compile(r"[(){}\[\]<>|\\`\"']|::|->|==|!=|&&|\*\*|://|^[%&*@+\-]|^\w+[+*%]\w+$|^\w+\.\w+[+*%]")
_NAME_OR_FORMAT = re.compile(r"%[\-0-9.]*[sdrifx]\b|^[a-z_]\w*(?:\.[a-z_]\w*)*$")
# What documentation writes for a password.
OF_EXAMPLES = frozenset(
    ("tiger", "pass", "password", "passwd", "pw", "pwd", "secret", "guest", "admin", "hunter2", "postgres")
)
_PHRASE = re.compile(r"[a-z]{2,12}(?: [a-z]{2,12}){2,7}")
_PHRASE_OF_HELP = re.compile(r"\b(?:the|your|a|an|for|enter|not|is|are|must|pass\w*|key|this|to|and|or|with|if)\b")


def entropy(value: str) -> float:
    """Shannon entropy in bits per character."""
    return -sum(count / len(value) * math.log2(count / len(value)) for count in Counter(value).values())


def made_of_words(value: str) -> bool:
    """True for a path or an identifier: its pieces are words and small numbers."""
    pieces = [piece for piece in re.split(r"[/_\-+=]|(?<=[a-z])(?=[A-Z0-9])|(?<=[0-9])(?=[A-Za-z])", value) if piece]
    return sum(len(piece) for piece in pieces if len(piece) >= 4 and _WORDS.fullmatch(piece)) > len(value) / 2


def is_address(value: str) -> bool:
    """True for what says where something is."""
    return value.startswith(("http://", "https://", "/", "./", "~/", "arn:", "projects/"))


def is_value(value: str) -> bool:
    """A value behind a name that says what it is: anything but a placeholder, a number or a piece of code."""
    if len(value) >= 32 and entropy(value) > 4 and not made_of_words(value):
        return True
    return not (PLACEHOLDER.search(value) or value.replace(":", "").isdigit() or _CODE.fullmatch(value))


def is_password(value: str) -> bool:
    """A value in quotes behind `password` or `secret`. One plain word can be one, or a label in a form: it counts."""
    if PLACEHOLDER.search(value) or re.search(r"(?i)passw|secret|[()\[\]{}\s]", value) or is_address(value):
        return False
    if value in OF_EXAMPLES:
        return False
    return not (value.isdigit() and len(value) < 6) and not re.fullmatch(r"[a-z]+(?:[_.][a-z]+)+", value)


def is_token(value: str) -> bool:
    """A value behind `token` or `key`, in quotes or to the end of a line: letters and digits that are not a hash."""
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    if not has_both or "{" in value or not is_value(value) or is_address(value) or HASH_PREFIX.match(value):
        return False
    return len(value) >= 8 and entropy(value) >= 2.5


def is_random(value: str) -> bool:
    """A value that nothing but its look betrays: no name, word, number or code is written like it.

    A digit inside a word, or a mark inside, with letters in upper and lower case; or long, with digits all over.
    """
    if len(value) < 6 or PLACEHOLDER.search(value) or _CODE_MARKS.search(value) or is_address(value):
        return False
    if HASH_PREFIX.match(value) or re.fullmatch(r"[\d.,:;%/+*\-]+", value):
        return False
    if UUID.fullmatch(value):
        return True
    upper, lower = any(map(str.isupper, value)), any(map(str.islower, value))
    digits = sum(map(str.isdigit, value))
    if len(value) >= 12 and digits >= 2 and entropy(value) >= 3 and (upper or lower) and not made_of_words(value):
        return (upper and lower) or len(value) >= 16
    if _NAME_OR_FORMAT.search(value):
        return False
    if _MARK_INSIDE.search(value) and not value.endswith(("?", "%")):
        return lower and (upper or digits > 0)
    return lower and _DIGIT_INSIDE.search(value) is not None and (upper or value.count("-") > 0)


def is_phrase(value: str) -> bool:
    """A pass phrase of several plain words, and no sentence about one."""
    return _PHRASE.fullmatch(value) is not None and not _PHRASE_OF_HELP.search(value)


def is_mixed(value: str) -> bool:
    """Letters in upper and lower case and a digit: enough where nothing but a password stands."""
    return is_random(value) or (
        len(value) >= 8
        and not _CODE_MARKS.search(value)
        and all(any(map(kind, value)) for kind in (str.isupper, str.islower, str.isdigit))
    )
