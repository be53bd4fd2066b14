"""What is not the name of a person, company, project, account or place, however confidently a model says so.

Belongs here: the filters that `docs/contracts.md` asks for. Knows how English writes dates, laws, paths and job titles;
the words are in `words/`, and no real name is. `evidence` decides the class.
"""

import re

from ec1.extraction.folding import normalised
from ec1.extraction.naming.evidence import is_firm, is_shouted, likely_class, proven_class
from ec1.extraction.wordlists import word_list
from ec1.vocabulary import Kept

Place = tuple[int, int]
"""Character offsets `[start, end)` in the text of a chunk."""


_PLACEHOLDERS = word_list("placeholders")
_CALENDAR = word_list("calendar")
_CALENDAR_SHORT = word_list("calendar_beside")
_UNITS = word_list("units")
_ROLES = word_list("roles")
_FUNCTION = word_list("function_words")
_ORDINAL = re.compile(r"\d{1,4}(?:st|nd|rd|th)?|[qh][1-4]|fy\d*")
# `Baltic Timber 7,310` is a name and what stands in its line.
_LINE_WITH_AMOUNT = re.compile(r".*[^\W\d_].*\s[^\w\s]{0,2}\d{1,3}(?:,\d{3})+(?:\.\d+)?(?:\s([^\W\d_]+))?")
_LAW = re.compile(
    r"(?:.*\s)?(?:act|regulations?|directive|statute|amendment|ordinance|bylaws?|code of federal regulations)"
    r"(?:\s*(?:of\s+)?\(?\d{4}\)?)?"
    r"|(?:sections?|sec\.|article|clause|paragraph|rule|regulation|directive|title|chapter|part|appendix|annex)\s*[\d§(].*"
    r"|§.*|\d+\s+(?:u\.?s\.?c|c\.?f\.?r)\b.*|gdpr|hipaa|ccpa",
    re.IGNORECASE,
)
_FILE_END = (
    r"(?:md|txt|py|js|ts|rs|go|java|c|h|cpp|sh|sql|csv|tsv|jsonl?|ya?ml|toml|ini|cfg|conf|log|xml|html?|pdf|docx?|xlsx?"
    r"|pptx?|png|jpe?g|svg|zip|gz|tar|db|parquet)"
)
_PATH = re.compile(
    rf"(?:\w+:)?[~.]{{0,2}}[/\\]\S*|[\w.-]+(?:[/\\][\w.-]+){{2,}}|[\w./\\-]*\w\.{_FILE_END}|https?://.*|www\..*|\S+@\S+",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"\w*[a-z0-9]_\w+|_\w+|[A-Z][A-Z0-9]*_[A-Z0-9_]+|--?[a-z][\w-]*|[\w.]+\(.*\)|\w+(?:::\w+)+|\$\w+"
    r"|[a-z]+(?:[A-Z][a-z0-9]+){2,}|(?=[0-9a-f]*\d)[0-9a-f]{7,40}|.*[{}=;].*"
)


def objection(
    text: str,
    places: list[Place],
    entity_class: str,
    kept: frozenset[Kept] = frozenset(),
    *,
    in_field: bool = False,
) -> str | None:
    """Why the name that stands at these places of `text` is not an entity, or None. The name's spelling is the text's.

    The filters in `kept` do not act: the class keeps what they find. In a field of names (`in_field`) a common word may
    be a name. What the text proves to be a person outvotes the calendar: May and June are persons too.
    """
    start, end = places[0]
    name = " ".join(text[start:end].split())
    plain = normalised(name)
    parts = [word.strip(".,'\"") for word in plain.split()]
    if plain in _PLACEHOLDERS:
        return "placeholder"
    if "dates" not in kept and _is_date(plain) and not _is_person(text, places):
        return "date"
    is_account = entity_class == "Account" and proven_class(text, start, end) == "Account"
    if "numbers" not in kept and _is_number(name) and not is_account:
        return "number"
    if "laws" not in kept and not is_firm(name) and _LAW.fullmatch(name):
        return "law"
    if "paths" not in kept and _PATH.fullmatch(name):
        return "path"
    if "code" not in kept and (_CODE.fullmatch(name) or all(_in_code(text, place) for place in places)):
        return "code identifier"
    if len(name) < 2 or not _is_written_as_name(name, text):
        return "common word"
    shouted = any(is_shouted(text, *place) for place in places)
    if not in_field and not shouted and all(part in _FUNCTION for part in parts):
        return "common word"
    if "roles" not in kept and not shouted and _is_role(parts):
        return "role"
    if not in_field and len(parts) == 1 and _is_ordinary(name, text, places):
        return "common word"
    return None


def _is_person(text: str, places: list[Place]) -> bool:
    return any((proven_class(text, *place) or likely_class(text, *place)) == "Person" for place in places)


def _is_ordinary(word: str, text: str, places: list[Place]) -> bool:
    """True if `word` has its capital only at the beginning of sentences, and stands elsewhere without it."""
    has_case = word.lower() != word.upper()
    if not has_case or not all(_opens_sentence(text, start) for start, _ in places):
        return False
    return re.search(rf"(?<!\w){re.escape(word.lower())}(?!\w)", text) is not None


def _is_role(parts: list[str]) -> bool:
    """True for job titles and the labels of unnamed speakers, such as `Speaker 1`."""
    named = [part for part in parts if not part.isdigit()]
    return bool(named) and all(part in _ROLES or part.removesuffix("s") in _ROLES for part in named)


def _is_date(plain: str) -> bool:
    parts = [part for part in re.split(r"[\s,./:;-]+", plain) if part]
    if any(not (part in _CALENDAR or part in _CALENDAR_SHORT or _ORDINAL.fullmatch(part)) for part in parts):
        return False
    return any(part in _CALENDAR or part[0].isdigit() or part[-1].isdigit() for part in parts)


def _is_number(name: str) -> bool:
    """True for figures and amounts, and for a line of a table with one; `3M` and `AC-448` are names."""
    if (line := _LINE_WITH_AMOUNT.fullmatch(name)) and (line[1] or "usd").casefold() in _UNITS:
        return True
    if not re.match(r"[^\w\s]{0,2}\d", name) or re.fullmatch(r"\d+[A-Z]", name):
        return False
    return all(word in _UNITS for word in re.findall(r"[^\W\d_]+", name.casefold()))


def _in_code(text: str, place: Place) -> bool:
    """True for `this` in Markdown: an odd number of back-ticks before it on its line, and one after."""
    line_start = text.rfind("\n", 0, place[0]) + 1
    line_end = text.find("\n", place[1])
    after = text[place[1] : line_end if line_end >= 0 else len(text)]
    return text.count("`", line_start, place[0]) % 2 == 1 and "`" in after


def _is_written_as_name(name: str, text: str) -> bool:
    """True if `name` has a capital, a digit or a script without capitals; or if its text has no capitals at all."""
    if any(character.isupper() or character.isdigit() for character in name):
        return True
    if not any(character.islower() for character in name):
        return True
    return not any(character.isupper() for character in text)


def is_bare_word(text: str, places: list[Place]) -> bool:
    """True for a single word that has its capital only where any word has one: at the beginning of sentences."""
    return all(" " not in text[start:end] and _opens_sentence(text, start) for start, end in places)


def _opens_sentence(text: str, start: int) -> bool:
    before = text[max(0, start - 80) : start].rstrip(" \t\"'“‘(*_#>-")
    return not before or before[-1] in ".!?:\n•"
