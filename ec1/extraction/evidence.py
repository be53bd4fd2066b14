"""What a text itself says about the class of a name that stands in it, whatever a model says.

Belongs here: how English marks firms, persons, places, projects and accounts: by a part of the name (proof), or by the
words beside it (a cue, which is weaker). Knows no list of real names. What is no name at all is `filters`' matter.
"""

import re

from ec1.extraction.results import EntityClass

LEGAL_SUFFIX = (
    r"(?:inc|incorporated|corp|corporation|co|company|ltd|limited|llc|llp|lp|plc|gmbh|kg|ag|ab|oyj?|a/s|as"
    r"|aps|b\.?v|n\.?v"
    r"|s\.?a|s\.?p\.?a|s\.?r\.?l|sarl|pty|pte|k\.?k|cooperative|co-op)"
)
_FIRM = re.compile(
    r".*[\s,](?:(?i:inc|incorporated|corp|corporation|co|ltd|limited|llc|llp|plc|gmbh|pty|pte|sarl|oyj?|aps)"
    r"|Company|LP|KG|AG|AB|A/S|AS|BV|B\.V|NV|N\.V|SA|S\.A|SpA|S\.p\.A|SRL|S\.r\.l|KK|K\.K)\.?"
)
_TITLE = (
    r"(?:mr|mrs|ms|miss|mx|dr|prof|professor|sir|dame|madam|judge|justice|senator|councillor|captain|capt"
    r"|sergeant|sgt"
    r"|rev|herr|frau|monsieur|madame|señora?|sra?)\.?\s+"
)
_TITLED = re.compile(_TITLE, re.IGNORECASE)
_AFTER_TITLE = re.compile(rf"(?:^|\W){_TITLE}$", re.IGNORECASE)
_ORGANISATION = re.compile(
    r"(?:.*\s)?(?:academy|agency|airlines?|airways|analytics|architects|army|assembly|associates|association"
    r"|authority|bank|board|breweries|brewery|builders|bureau|capital|chamber|church|clinic|club|college"
    r"|commission|committee|conference|congress|consulting|consultants|contractors|cooperative|council|court"
    r"|creamery|dairy|department|electric|energy|engineering|enterprises|estates|farms?|federation|fisheries|foods"
    r"|foundation|freight|growers|group|haulage|holdings|hospital|hotel|industries|institute|instruments|insurance"
    r"|labs?|laboratories|league|logistics|magazine|marine|media|ministry|motors|museum|mutual|navy|networks|news"
    r"|office|orchards|organi[sz]ation|parliament|partners|partnership|pharma|pharmaceuticals|police|press"
    r"|publishing|refrigeration|restaurant|robotics|school|securities|semiconductors|senate|services|shipping"
    r"|society|software|solutions|studios?|syndicate|systems|technologies|telecom|telematics|textiles"
    r"|theat(?:re|er)|times|transport|trust|union|university|ventures|works)"
    r"|(?:university|bank|ministry|department|institute|college|church|office|bureau|board|museum"
    r"|court)\s+(?:of|for)\s.*",
    re.IGNORECASE,
)
_PLACE = re.compile(
    r"(?:.*\s)?(?:airport|avenue|ave|bay|beach|boulevard|bridge|canyon|city|coast|county|creek|district|falls"
    r"|fjord|forest"
    r"|harbou?r|heights|highway|hills?|island|islands|isle|junction|lake|lane|mountains?|ocean|park|pass"
    r"|peninsula|plaza"
    r"|port|province|river|road|sea|shore|square|station|street|valley|village|wharf)"
    r"|(?:lake|mount|mt\.?|port|fort|cape|isle of|river|gulf of|bay of|pier|city of|county of|state of)\s.*",
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
_KIN = (
    r"(?:sister|brother|wife|husband|son|daughter|uncle|aunt|mother|father|cousin|niece|nephew|colleague|boss"
    r"|assistant"
    r"|friend|neighbour|neighbor|widow)"
)
_ROLE = (
    r"(?:chair|chairman|chairwoman|director|manager|president|secretary|treasurer|engineer|analyst|founder"
    r"|co-founder|owner"
    r"|professor|lawyer|attorney|counsel|dispatcher|driver|architect|editor|reporter|minister|mayor|ceo|cto|cfo|coo)"
)
_BEFORE_PERSON = re.compile(
    rf"\b(?:dear|hi|hello|{_KIN}|{_ROLE}|named|interviewed|thanks|thank you)\s*,?\s+$", re.IGNORECASE
)
_AFTER_PERSON = re.compile(
    rf"\s*,?\s+(?:who|whose)\b|['’]s\s+{_KIN}\b|\s+and\s+(?:his|her)\b|\s*<[^<>\s]*@"
    r"|\s+(?:said|says|asked|asks|told|tells|thinks|thought|knows|knew|replied|explained|answered|laughed"
    r"|nodded|smiled"
    r"|retired|resigned|believes|remembers|himself|herself)\b"
)
_LIST_OF_PERSONS = re.compile(
    r"\W*(?:attendees|present|participants|apologies|name|full name|author|authors|from|to|cc|contact"
    r"|contact person|owner"
    r"|reviewer|reviewers|speakers?|signed|sincerely|prepared by|written by|asked_by|approved by)\W*:",
    re.IGNORECASE,
)
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
    if " " in name and _ORGANISATION.fullmatch(name):
        return "Company"
    if " " in name and _PLACE.fullmatch(name):
        return "Location"
    return None


def likely_class(text: str, start: int, end: int) -> EntityClass | None:
    """The class that the words beside the name at `[start, end)` speak for, or None."""
    name = " ".join(text[start:end].split())
    before, after = text[max(0, start - 40) : start], text[end : end + 40]
    line = text[text.rfind("\n", 0, start) + 1 : start]
    if _LOOKS_LIKE_PERSON.fullmatch(name) and (
        _BEFORE_PERSON.search(before) or _AFTER_PERSON.match(after) or _LIST_OF_PERSONS.match(line)
    ):
        return "Person"
    if _BEFORE_PLACE.search(before):
        return "Location"
    return None


def is_shaped_like_person(name: str, text: str) -> bool:
    """True for two or three capitalised words of letters, none of which stands without its capital in `text`.

    Names of firms, projects and places of that length mostly have a word of the language in them, which `proven_class`
    knows or the text uses elsewhere.
    """
    words = name.split()
    if not 2 <= len(words) <= 3 or not _LOOKS_LIKE_PERSON.fullmatch(name) or any(word.isupper() for word in words[-1:]):
        return False
    return not any(re.search(rf"(?<!\w){re.escape(word.lower())}(?!\w)", text) for word in words)


def _takes_turns(name: str, text: str) -> bool:
    """True if two lines or more begin with `NAME:` and go on, as in a transcript."""
    if len(name.split()) > 4:
        return False
    turn = re.compile(rf"^[ \t*_\[]*{re.escape(name)}[*_\]]*:[*_]*[ \t]+\S+[ \t]+\S", re.MULTILINE | re.IGNORECASE)
    turns = turn.finditer(text)
    return next(turns, None) is not None and next(turns, None) is not None
