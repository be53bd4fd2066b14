"""What is not the name of a person, company, project, account or place, however confidently a model says so.

Belongs here: the filters of CONTRACTS §3. Knows how English writes dates, laws, paths and job titles, but no list of
real names. What class a name has is `evidence`'s matter.
"""

import re

from ec1.extraction.evidence import is_firm, proven_class
from ec1.extraction.folding import normalised, words

Place = tuple[int, int]
"""Character offsets `[start, end)` in the text of a chunk."""


_PLACEHOLDERS = words(
    """n/a na none null nil unknown tbd tba tbc todo fixme xxx anonymous unnamed undefined placeholder redacted name
    person company project account location entity entities other various several somebody someone nobody
    everybody"""
)
_CALENDAR = words(
    """january february march april may june july august september october november december monday tuesday wednesday
    thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays saturdays sundays today tomorrow
    yesterday tonight spring summer autumn winter morning afternoon evening noon midnight night week weekend month
    year quarter christmas easter thanksgiving"""
)
_CALENDAR_SHORT = words(
    """jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri sat sun of the at on in early
    mid late last next this am pm utc gmt"""
)
_ORDINAL = re.compile(r"\d{1,4}(?:st|nd|rd|th)?|[qh][1-4]|fy\d*")
_UNITS = words(
    """k m mm cm km kg g t l ml mb gb tb kb ms s h hz khz mhz ghz kw mw kwh mwh c f usd eur gbp percent dollars
    dollar euro euros pounds pound cents degrees days day hours hour minutes minute seconds years months weeks
    pallets tons million billion thousand"""
)
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
_ROLES = words(
    """speaker chair chairman chairwoman chairperson president vice manager director officer executive chief ceo cto
    cfo coo head lead leader secretary treasurer clerk engineer designer developer analyst assistant editor
    reporter interviewer host moderator professor teacher student customer client user owner founder partner
    counsel attorney lawyer judge honor honour senator mayor minister general senior junior deputy acting
    associate principal marketing sales product project programme program industrial interface expert specialist
    coordinator administrator operator member staff team board committee dispatcher driver buyer seller court mr
    mrs ms dr prof sir of the and for a an"""
)
_FUNCTION = words(
    """i we you he she it they me us him her them my our your his its their this that these those who what which
    where when why how yes no not okay ok hello hi thanks thank please dear regards sincerely best good great well
    so and but or if then there here all any each every both some more most other such only also first second
    third one two three four five six agenda minutes notes note summary attendees present apologies subject from
    to cc re date time place action actions item items topic next previous question answer source sources status
    risk risks email phone telephone fax address i'm i'll i've i'd it's that's there's let's don't can't we're
    you're they're he's she's what's"""
)


def objection(text: str, places: list[Place], entity_class: str) -> str | None:
    """Why the name that stands at these places of `text` is no entity, or None. The name's spelling is the text's."""
    start, end = places[0]
    name = " ".join(text[start:end].split())
    plain = normalised(name)
    parts = [word.strip(".,'\"") for word in plain.split()]
    if plain in _PLACEHOLDERS:
        return "placeholder"
    if _is_date(plain):
        return "date"
    if _is_number(name) and not (entity_class == "Account" and proven_class(text, start, end) == "Account"):
        return "number"
    if not is_firm(name) and _LAW.fullmatch(name):
        return "law"
    if _PATH.fullmatch(name):
        return "path"
    if _CODE.fullmatch(name) or all(_in_code(text, place) for place in places):
        return "code identifier"
    if len(name) < 2 or all(part in _FUNCTION for part in parts) or not _is_written_as_name(name, text):
        return "common word"
    if _is_role(parts):
        return "role"
    if len(parts) == 1 and _is_ordinary(name, text, places):
        return "common word"
    return None


def _is_ordinary(word: str, text: str, places: list[Place]) -> bool:
    """True if `word` has its capital only at the beginning of sentences, and stands elsewhere without it."""
    if not all(_opens_sentence(text, start) for start, _ in places):
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
    """True for figures and amounts; `3M` and `AC-448` are names."""
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
