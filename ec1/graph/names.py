"""The parts of a name that decide whether two names may be one thing: `Dr. Jane A. Smith` and `Smith, Jane`.

Belongs here: taking names apart, by class. Does not: weighing what agrees (`scoring.py`). Knows no list of real names.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from ec1.extraction.folding import normalised, words

_TITLES = words(
    """mr mrs ms miss mx dr prof professor sir dame madam judge justice senator councillor captain capt sergeant sgt rev
    colonel lieutenant president lord lady reverend hon herr frau monsieur madame dipl ing"""
)
_ADDRESSED = dict.fromkeys(("mr", "sir", "lord", "herr", "monsieur"), "mr") | dict.fromkeys(
    ("ms", "mrs", "miss", "madam", "dame", "lady", "frau", "madame"), "ms"
)
_GENERATIONS = {"jr": "jr", "junior": "jr", "sr": "sr", "senior": "sr", "ii": "ii", "iii": "iii", "iv": "iv"}
_DEGREES = words("phd md mba cpa esq esquire msc bsc dds dvm rn pe llm jd ma ba")
_PARTICLES = words("de del della der den di da dos das du la le van von bin ibn al el ter ten af av zu")
_LEGAL = words(
    """inc incorporated corp corporation co company ltd limited llc llp lp plc gmbh kg ag ab oy oyj as aps bv nv sa spa
    srl sarl pty pte kk"""
)
_CLASS_WORDS = {
    "Company": _LEGAL,
    "Account": _LEGAL | words("account accounts acct"),
    "Project": words("project programme program initiative operation"),
    "Location": frozenset[str](),
}
_SHORT = {
    "st": "street", "ave": "avenue", "rd": "road", "blvd": "boulevard", "mt": "mount", "ft": "fort", "hwy": "highway",
}  # fmt: skip
_LINKS = words("and of the for")
_DOTS = re.compile(r"(?<=\w)\.(?=\w)|['’]")
_APART = re.compile(r"[^\w,&-]+|(?<!\w)-|-(?!\w)")


@dataclass(frozen=True)
class PersonName:
    """`given` and `surname` are empty where a name does not tell them; a single word is in `single`.

    An initial is a given name of one letter. `generation` is jr, sr, ii, ...; `addressed` is mr or ms where a title
    says so.
    """

    given: str = ""
    middles: tuple[str, ...] = ()
    surname: str = ""
    single: str = ""
    generation: str = ""
    addressed: str = ""

    @property
    def all_given(self) -> str:
        return "".join((self.given, *self.middles))


@dataclass(frozen=True)
class ThingName:
    """The words of a firm's, project's, account's or place's name, without legal suffixes and words of its class.

    `qualifiers` is what a place's name says after its first comma; `numbers` are the words with a digit in them.
    """

    words: tuple[str, ...]
    qualifiers: tuple[str, ...] = ()
    numbers: frozenset[str] = frozenset()

    @property
    def joined(self) -> str:
        return "".join(self.words)


@lru_cache(maxsize=200_000)
def person_name(name: str) -> PersonName:
    """Take a person's name apart; `Smith, Jane` is turned round."""
    parts = [_words(part) for part in normalised(name).split(",")]
    generation = addressed = ""
    named: list[list[str]] = []
    for part in parts:
        kept = []
        for number, word in enumerate(part):
            # `Junior` alone is a name; `ii` after a name is not.
            if word in _GENERATIONS and (number or named):
                generation = _GENERATIONS[word]
            elif word not in _DEGREES or not (number or named):
                kept.append(word)
        while kept and kept[0] in _TITLES and len(kept) > 1:
            addressed = addressed or _ADDRESSED.get(kept[0], "")
            kept = kept[1:]
        if kept and not (named and kept[0] in _TITLES):
            named.append(kept)
    order = [*named[1], *named[0]] if len(named) > 1 else (named[0] if named else [])
    turned = len(named[0]) if len(named) > 1 else 0
    if not order:
        return PersonName(single=normalised(name), generation=generation, addressed=addressed)
    if len(order) == 1:
        return PersonName(single=order[0], generation=generation, addressed=addressed)
    start = len(order) - turned if turned else _surname_start(order)
    return PersonName(order[0], tuple(order[1:start]), " ".join(order[start:]), "", generation, addressed)


def _surname_start(order: list[str]) -> int:
    for number, word in enumerate(order[1:-1], 1):
        if word in _PARTICLES:
            return number
    return len(order) - 1


@lru_cache(maxsize=200_000)
def thing_name(name: str, entity_class: str) -> ThingName:
    """Take the name of anything but a person apart."""
    head, *rest = normalised(name).split(",")
    if entity_class != "Location":
        head, rest = " ".join([head, *rest]), []
    class_words = _CLASS_WORDS.get(entity_class, frozenset())
    whole = _thing_words(head)
    kept = list(whole)
    while len(kept) > 1 and kept[-1] in class_words:
        kept.pop()
    if entity_class != "Company":
        while len(kept) > 1 and kept[0] in class_words:
            kept.pop(0)
    chosen = tuple([word for word in kept if word not in _LINKS] or kept or [normalised(name)])
    return ThingName(
        chosen,
        tuple(word for part in rest for word in _thing_words(part)),
        frozenset(word for word in chosen if any(letter.isdigit() for letter in word)),
    )


def _thing_words(text: str) -> list[str]:
    found = _words(text.replace("&", " and "))
    # `St Helens` begins with a saint, `Main St` ends with a street.
    return [_SHORT.get(word, word) if number or word != "st" else word for number, word in enumerate(found)]


def _words(text: str) -> list[str]:
    return [word for word in _APART.sub(" ", _DOTS.sub("", text)).split() if word not in ("-", "&")]
