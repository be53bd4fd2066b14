"""What a text itself says about the class of a name that stands in it, whatever a model says.

Belongs here: how English marks firms, persons, places, projects and accounts: by a part of the name (proof), or by the
words beside it (a cue, which is weaker). The words are in `words/`; no real name is. What is not a name at all is
`filters`' matter.
"""

import re

from ec1.extraction.results import EntityClass
from ec1.extraction.wordlists import alternatives

_SUFFIXES = alternatives("legal_suffixes")
LEGAL_SUFFIX = rf"(?:{_SUFFIXES})"
# Forms that are words or initials too count in their own spelling only.
_FIRM = re.compile(
    r".*[\s,](?:(?i:inc|incorporated|corp|corporation|co|ltd|limited|llc|llp|plc|gmbh|pty|pte|sarl|oyj?|aps)"
    r"|Company|LP|KG|AG|AB|A/S|AS|BV|B\.V|NV|N\.V|SA|S\.A|SpA|S\.p\.A|SRL|S\.r\.l|KK|K\.K)\.?"
)
_TITLE = rf"(?:{alternatives('titles')})\.?\s+"
_TITLED = re.compile(_TITLE, re.IGNORECASE)
_AFTER_TITLE = re.compile(rf"(?:^|\W){_TITLE}$", re.IGNORECASE)
_ORGANISATION = re.compile(
    rf"(?:.*\s)?(?:{alternatives('organisation_nouns')})|(?:{alternatives('organisation_heads')})\s+(?:of|for)\s.*",
    re.IGNORECASE,
)
_PLACE = re.compile(
    rf"(?:.*\s)?(?:{alternatives('place_nouns')})|(?:{alternatives('place_heads')})\s.*",
    re.IGNORECASE,
)
_PROJECT = re.compile(
    r"(?:project|operation|programme|program|initiative)\s+\S.*"
    r"|.*\s(?:project|programme|program|initiative|rollout|roll-out|migration|upgrade|redevelopment|expansion|pilot)",
    re.IGNORECASE,
)
_ACCOUNT = re.compile(r"accounts?\s+\S.*|.*\s(?:accounts?|escrow|deposit|retainer)|[A-Z]{2,4}-?\d{3,}", re.IGNORECASE)
_LOOKS_LIKE_PERSON = re.compile(
    r"[^\W\d_a-z][\w'’.-]*(?:\s+(?:(?:de|van|von|der|da|di|la|del|den|bin|al)\s+)*[^\W\d_a-z][\w'’.-]*){0,3}"
)
_KIN = rf"(?:{alternatives('kin')})"
_BEFORE_PERSON = re.compile(
    rf"\b(?:dear|hi|hello|{_KIN}|{alternatives('person_roles')}|named|interviewed|thanks|thank you)\s*,?\s+$",
    re.IGNORECASE,
)
_AFTER_PERSON = re.compile(
    rf"\s*,?\s+(?:who|whose)\b|['’]s\s+{_KIN}\b|\s+and\s+(?:his|her)\b|\s*<[^<>\s]*@"
    rf"|\s+(?:{alternatives('speech_verbs')})\b"
)
_LIST_OF_PERSONS = re.compile(rf"\W*(?:{alternatives('person_fields')})\W*:", re.IGNORECASE)
_BEFORE_PLACE = re.compile(
    r"\b(?:in|near|outside|beyond|(?:north|south|east|west|city|town|port|outskirts|suburb) of|based in"
    r"|based at|lives? in"
    r"|moved to|drove to|flew to|flight to|drive to|road to)\s+$",
    re.IGNORECASE,
)


def is_firm(name: str) -> bool:
    """True if the name ends in a legal suffix, such as `Smith, Jones LLP`."""
    return _FIRM.fullmatch(name) is not None


def without_title(name: str) -> str:
    """A person's full name without the title before it; `Mr Renner`, whose title is half of the name, stays."""
    title = _TITLED.match(name)
    rest = name[title.end() :] if title else name
    return rest if len(rest.split()) > 1 else name


def proven_class(text: str, start: int, end: int) -> EntityClass | None:
    """The class that is proven for the name at `[start, end)`, or None.

    Proof is a legal suffix, a person's title, the word account or project beside it, two or more turns of a transcript
    (`NAME: what was said`), or a name whose own noun says it (`… University`, `Lake …`, `… account`).
    """
    name = " ".join(text[start:end].split())
    before, after = text[max(0, start - 16) : start], text[end : end + 16]
    if is_firm(name):
        return "Company"
    if _TITLED.match(name) or _AFTER_TITLE.search(before):
        return "Person"
    if _ACCOUNT.fullmatch(name) or re.match(r"\s+account\b", after):
        return "Account"
    if _PROJECT.fullmatch(name) or re.search(r"\b[Pp]roject\s+$", before) or re.match(r"\s+project\b", after):
        return "Project"
    if _takes_turns(name, text):
        return "Person"
    if " " in name:
        if _ORGANISATION.fullmatch(name):
            return "Company"
        if _PLACE.fullmatch(name):
            return "Location"
    return None


def likely_class(text: str, start: int, end: int) -> EntityClass | None:
    """The class that the words beside the name at `[start, end)` speak for, or None."""
    name = " ".join(text[start:end].split())
    before, after = text[max(0, start - 40) : start], text[end : end + 40]
    line = text[text.rfind("\n", 0, start) + 1 : start]
    # A word in capitals is rather an acronym of an organisation that said something.
    named_like_one = _LOOKS_LIKE_PERSON.fullmatch(name) and not is_shouted(text, start, end)
    if named_like_one and (_BEFORE_PERSON.search(before) or _AFTER_PERSON.match(after) or _LIST_OF_PERSONS.match(line)):
        return "Person"
    if _BEFORE_PLACE.search(before):
        return "Location"
    return None


def is_shouted(text: str, start: int, end: int) -> bool:
    """True for a name in capitals (`US`, `WHO`, `IT`) on a line that is not in capitals itself.

    There its capitals say that it is not a word, whatever word they would spell.
    """
    name = text[start:end]
    if not name.isupper() or sum(character.isalpha() for character in name) < 2:
        return False
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    around = text[line_start:start] + text[end : line_end if line_end >= 0 else len(text)]
    return any(character.islower() for character in around) or not any(character.isalpha() for character in around)


def _takes_turns(name: str, text: str) -> bool:
    """True if two lines or more begin with `NAME:` and go on, as in a transcript."""
    if len(name.split()) > 4:
        return False
    turn = re.compile(rf"^[ \t*_\[]*{re.escape(name)}[*_\]]*:[*_]*[ \t]+\S+[ \t]+\S", re.MULTILINE | re.IGNORECASE)
    turns = turn.finditer(text)
    return next(turns, None) is not None and next(turns, None) is not None
