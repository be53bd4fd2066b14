"""What of a sentence says that it tells a machine what to answer: signs, each with a weight.

Belongs here: the signs and how they are added up. Does not: which sentences are held back for it (`instructions`). The
words are in `words/`, in a dozen languages; the patterns here are of English, and of the marks that all share.

A weight of 3 is a sentence that hardly anybody writes to people; what is ordinary alone has 0.25 to 1. They were chosen
on `benchmarks/injections.jsonl` (its set `rule`) and on GUM's documents that may be fitted to.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from ec1.extraction.folding import Folded, unmasked
from ec1.extraction.wordlists import word_list

OVERRIDES = "puts aside what was told"
TURN = "has the form of a turn or an answer"
ADDRESSES = "addresses a machine"
NEW_TASK = "gives a new task"
ENDS = "ends the text"
ROLE = "says what the reader is"
LISTS = "tells to list"
OUTPUT = "speaks of an output"
ANSWER = "says what to answer"
OBLIGES = "obliges"
CLASS = "gives a class"
MACHINE = "names a machine"
READER = "speaks to a reader"

# Words of one window: what stands farther apart does not belong together.
_WINDOW, _STEP = 30, 10
# Characters between two words that belong together.
_NEAR = 40
# Where a machine is addressed, if it is.
_OPENING = 60
_WORD = re.compile(r"\S+")

_STRONG = frozenset((OVERRIDES, TURN, ADDRESSES, NEW_TASK, ENDS, ROLE))
_STRONG_LEAST = 1.5
# Without one of these nobody is asked for anything, and the words are met together by chance.
_ASKING = {LISTS: 1.0, ANSWER: 1.5, CLASS: 1.5, "finds fault": 1.0, OBLIGES: 1.5}
_BY_CHANCE = 0.9

_CLASS_WORD = (
    r"(?:person(?:en|a|ne)?|compan(?:y|ies)|firma|unternehmen|societe|entreprise|empresa|azienda|bedrijf|organi[sz]ation"
    r"|project|account|location|place|pessoa)"
)
_OBLIGED = r"\b(?:must|should|shall|has to|have to|needs? to)\b"
_PROGRAM = r"(?:model|assistant|ai|reader|system|machine|extractor|parser|bot)"
_SIGNS: tuple[tuple[str, float, str], ...] = (
    # A chat template, or what pretends to be one; an answer as we ask for it.
    (
        TURN,
        3.0,
        r"<\|\w+\|>|\[/?inst\]|<</?sys>>|</?(?:system|instructions?|prompt|text|user|assistant|document|input)>"
        r"|(?:^|\s)#{2,6}\s*(?:new\s+)?(?:instructions?|system|tasks?|prompt|response|input|output|assistant|user)\b",
    ),
    (TURN, 3.0, r"\"entities\"\s*:|\[\s*\"[^\"\]]{2,160}\"\s*(?:,\s*\"\w+\"\s*)?\]|\"class\"\s*:\s*\""),
    (TURN, 1.5, r"\"name\"\s*:\s*\""),
    (TURN, 3.0, r"\S\s+(?:system|assistant|user)\s*:"),
    (TURN, 3.0, r"\b(?:begin|end|start)\b.{0,20}\b(?:admin|system|prompt|instructions?|override)\b"),
    (
        TURN,
        2.0,
        r"(?:^|[\s\[(*#])(?:system\w?|sistema|systeem|систем\w*|系统|システム|assistant|user|developer|ai|llm|prompt)"
        r"(?:\s+(?:message|prompt|note))?\s*[\])*]{0,3}\s*:",
    ),
    (TURN, 2.0, r"(?:[\[<({]|[%*=#~-]{2})\s*(?:system|admin|developer|override|instructions?)\b"),
    (
        NEW_TASK,
        2.0,
        r"\b(?:neue|nouvelle|nueva|nuova|nova|nieuwe|nowa|новая|ny)\s+(?:anweisung|aufgabe|instru\w+|istruzione|consigne"
        r"|opdracht|tarea|polecenie|инструкция|задача|instruktion)|新的?(?:指令|任务|指示)|新しい(?:指示|命令)"
        r"|\b(?:new|updated?|real|actual|true|hidden|secret|next|following|special|final|system)\s+"
        r"(?:instructions?|tasks?|prompts?|orders?|directives?|requests?|rules?)\b",
    ),
    (
        ENDS,
        1.5,
        r"\b(?:end of (?:the )?(?:document|text|input|prompt|file|context|transcript)"
        r"|(?:text|document|input|prompt) ends(?: here)?|text to (?:analy[sz]e|process|read|extract)|stop reading"
        r"|rest of (?:this|the) (?:text|document|page))\b",
    ),
    (
        ROLE,
        1.5,
        r"\byou(?: are|'re) (?:now|an? (?:\w+ ){0,2}(?:ai|assistant|model|bot|chatbot|system|extractor|parser|expert))"
        r"\b|\bfrom now on\b|\bpretend (?:that|to|you)\b|\bact as\b|\byour (?:new )?(?:task|job|role) is\b"
        r"|\bbefore (?:you )?answer\w*|\bif you are an? (?:\w+ )?(?:ai|model|bot|machine|llm)\b"
        r"|\bwhen(?:ever)? (?:you )?(?:extract|summari[sz]|tag|list|index|process|pars)\w*\b"
        r"|\b(?:du bist|sie sind) (?:nun|jetzt)\b|\btu es maintenant\b|\bahora eres\b|\bab jetzt\b|\bdesormais\b"
        r"|\ba partir de ahora\b",
    ),
    (ADDRESSES, 1.5, r"\byour (?:developer|creator|administrator|operator|owner|maker|master)\b"),
    (
        ADDRESSES,
        1.5,
        r"\b(?:message|note|hint|instructions?|request|memo)\b.{0,30}?\b(?:to|for) (?:the |any |every |an? )?(?:\w+ )?"
        rf"{_PROGRAM}\b",
    ),
    ("is a comment", 1.5, r"<!--|^\W*\[//\]:"),
    (
        LISTS,
        1.5,
        r"\b(?:to|must|should|shall) be (?:listed|named|recorded|returned|mentioned|extracted|output)\b",
    ),
    (
        "says how to answer",
        1.0,
        r"\b(?:answer|reply|respond|antworte|repond|respond|rispond|antwoord|svar)\w*\b.{0,40}?"
        r"\b(?:with|mit|par|avec|con|com|met|med)\b",
    ),
    (
        OUTPUT,
        1.5,
        r"\blists? of (?:all )?(?:the )?(?:persons?|people|compan\w+|organi[sz]ations?|places?|locations?|names?)\b"
        r"|\blists? of entit\w+"
        r"|\b(?:every|each|any|all) (?:answers?|outputs?|responses?|results?|repl\w+|lists?|question)\b",
    ),
    ("finds fault", 1.0, r"\byou (?:have )?(?:missed|forgot|forgotten|omitted|left out|overlooked)\b"),
    (CLASS, 1.0, rf"\b(?:as|als|comme|como|come) (?:an? |the |eine? |une? |una? |uma? )?{_CLASS_WORD}\b"),
    (CLASS, 1.5, rf"=\s*\W?{_CLASS_WORD}\b|\b{_CLASS_WORD}\s*="),
    (
        ANSWER,
        1.5,
        r"\b(?:right|correct|final|valid|expected|true|only|desired|single|proper) (?:\w+ )?"
        r"(?:answers?|outputs?|responses?|results?|entit\w+)\b"
        r"|\bthe answer is\b|\b(?:respuesta|resposta|risposta) (?:correcta|correta|corretta|es|e)\b",
    ),
    (READER, 1.0, r"\bregardless of\b|\bno matter what\b|\bwhatever (?:the|this|you)\b|\byou must\b"),
    (
        READER,
        0.5,
        r"\b(?:you|your|yours|yourself|du|dein\w*|ihre?|tu|ta|ton|votre|vous|tus?|suya|tua|tuo|seu|sua|je|jouw|uw)\b",
    ),
    (
        "speaks of the text",
        1.0,
        r"\beverything above\b|\b(?:this|the above|the whole|entire) (?:text|document|page|passage|paragraph|file|chunk"
        r"|sentence)\b",
    ),
    ("quotes", 0.25, r"['\"«„][^'\"»“]{2,60}['\"»“]"),
)
_COMPILED = tuple((kind, weight, re.compile(pattern)) for kind, weight, pattern in _SIGNS)

# Of words that are verbs as well, the nouns.
_AN_ANSWER = re.compile(
    r"\b(?:the|your|this|that|a|an|every|each|any|its|final|following|first|next) (?:\w+ )?"
    r"(?:list|answer|reply|label|tag|summary|entry|names)\b"
)
_YOURS = re.compile(r"\b(?:your|deine?|ihre|ta|votre|tu|tuo|tua|sua|jouw|uw)\s+(?:\w+\s+)?\w+")
_MAKE_SURE = re.compile(
    r"\b(?:make sure|be sure|ensure|see to it|(?:it is|it's) (?:very |most )?(?:important|essential|crucial) that)\b"
)
_MUST = re.compile(_OBLIGED)
_FOR_A_READER = re.compile(
    r"^\W*(?:hey|hi|hello|dear|attention|achtung|atencion|attenzione|note (?:to|for)|to|for|message (?:to|for|au|a)"
    r"|hinweis an|an|nota (?:para|per)|note a|aviso a\w*|aan|any|every|each|all)\b"
)
# Where the plain form of an English verb is an order: at the beginning of a clause, or after a word that opens one.
_CLAUSE = (
    r"(?:^\W{0,8}|[.:;,!?>\]\-–#*|)]\W{0,8}|\b(?:and|then|please|instead|now|just|only|always|never|not|don't|also|kindly"
    r"|first|simply|sure to|remember to|forgot to|(?:job|task|duty) is to|(?:want|order|ask|tell|instruct|command) you"
    r" to|you must|you should|you shall|you will|you have to|you need to|it must|must|shall)\s+)"
)
_CAPITALS = "A-ZÀ-ÖØ-ÞА-Я"
_NAME_FOLLOWS = re.compile(
    r"\W{1,3}(?:\w+\W{1,3}){0,2}?(?:is|are|be|must|should|shall|contains?|includes?|lists?|consists? of|begins? with"
    r"|equals?|ist|lautet|muss|soll|est|doit|être|es|debe|será|è|deve|é|contenere|moet|это|должен|должна|содержать|być|musi)"
    rf"\W{{1,3}}(?:[a-zà-öø-ÿа-я]+\W{{1,3}}){{0,2}}?[\"'`«„“]?[{_CAPITALS}]\w+"
)
# Programs are named with capitals: `AI`, but not the French `j'ai`.
_ACRONYM = re.compile(r"(?<![\w'’])(?:AI|A\.I\.|KI|IA|NLP|NER|AIs)(?!\w)|(?<![A-Za-z])AI(?![A-Za-z])")


@dataclass(frozen=True)
class Weight:
    """How much of an instruction a sentence has, of which kinds how much, and whether one is rarely met by chance."""

    score: float
    found: tuple[tuple[str, float], ...]
    strong: bool

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind for kind, _ in self.found)


def weigh(sentence: str) -> Weight:
    """The most that stands close together in a sentence."""
    return max((_weigh(each) for each in windows(sentence)), key=lambda each: each.score)


def windows(sentence: str) -> Iterator[str]:
    """A sentence, or the parts of a long one that are looked at alone."""
    words = [match.span() for match in _WORD.finditer(sentence)]
    if len(words) <= _WINDOW:
        yield sentence
        return
    for first in [*range(0, len(words) - _WINDOW, _STEP), len(words) - _WINDOW]:
        yield sentence[words[first][0] : words[first + _WINDOW - 1][1]]


def _weigh(sentence: str) -> Weight:
    sentence = unmasked(sentence)
    folded = _folded(sentence)
    found: dict[str, float] = {}

    def add(kind: str, weight: float, there: object) -> None:
        if there:
            found[kind] = max(weight, found.get(kind, 0.0))

    for kind, weight, pattern in _COMPILED:
        add(kind, weight, pattern.search(folded))
    add(OVERRIDES, 3.0, _near(folded, "override_verbs", "override_objects"))
    add(OVERRIDES, 2.0, _near(folded, "override_verbs", "override_objects_weak"))
    add(OVERRIDES, 2.0, _near(folded, "override_verbs_weak", "override_objects"))
    add(OVERRIDES, 1.0, _near(folded, "override_verbs_weak", "override_objects_weak"))
    named = _ACRONYM.search(sentence) or _words("machine_names").search(folded)
    loosely = _words("machine_words").search(folded)
    add(MACHINE, 1.0, named)
    add(MACHINE, 0.5, loosely)
    if _FOR_A_READER.search(folded):
        add(ADDRESSES, 2.0, named and named.start() < _OPENING)
        add(ADDRESSES, 1.0, loosely and loosely.start() < _OPENING)
    add(ADDRESSES, 1.5, loosely and _MUST.search(folded, loosely.end(), loosely.end() + _NEAR))
    asked = _asks("output_verbs").search(folded)
    add(LISTS, 1.5, asked)
    add(LISTS, 1.25, _words("output_verbs_elsewhere").search(folded))
    add(LISTS, 1.0, _asks("output_verbs_weak").search(folded))
    add(LISTS, 0.5, _words("output_verbs").search(folded))
    add("has a name for its object", 1.5, _orders_name().search(sentence))
    output = _words("output_nouns").search(folded)
    answer = _words("answer_nouns").search(folded) or _AN_ANSWER.search(folded)
    add(OUTPUT, 1.5, output)
    add(OUTPUT, 0.75, answer)
    add(OUTPUT, 2.0, output and answer)
    add("speaks of the reader's answer", 0.5, answer and _YOURS.search(folded))
    add("gives the answer", 1.5, _gives_answer(sentence, folded))
    add(OBLIGES, 1.5, (output or answer) and _MAKE_SURE.search(folded))
    listed = asked or found.get(LISTS, 0.0) >= 1.5
    add(OBLIGES, 1.0, (output or answer or listed) and _words("obligation_words").search(folded))
    add("allows nothing else", 0.75, _words("exclusive_words").search(folded))
    add("names a class", 0.5, _words("class_words").search(folded))
    strong = any(found.get(kind, 0.0) >= _STRONG_LEAST for kind in _STRONG)
    asks = found.get("gives the answer") or any(found.get(kind, 0.0) >= least for kind, least in _ASKING.items())
    total = sum(found.values())
    score = total if strong or asks else min(total, _BY_CHANCE)
    share = score / total if total else 0.0
    return Weight(score, tuple((kind, weight * share) for kind, weight in found.items()), strong)


def _folded(sentence: str) -> str:
    if sentence.isascii():
        # Most sentences, in a tenth of the time.
        return " ".join(sentence.replace("`", "'").casefold().split())
    return Folded.of(sentence).text


def _near(folded: str, verbs: str, objects: str) -> bool:
    """Whether a word of the one list stands a few words from one of the other."""
    for verb in _words(verbs).finditer(folded):
        start, end = verb.span()
        for thing in _words(objects).finditer(folded, max(0, start - _NEAR), end + _NEAR):
            if thing.span() != (start, end):
                return True
    return False


def _gives_answer(sentence: str, folded: str) -> bool:
    """Whether a name or a quote follows soon after a word for an answer, in scripts with capitals."""
    if len(folded) != len(sentence):
        folded = sentence.casefold()
    for nouns in (_words("answer_nouns"), _words("output_nouns"), _AN_ANSWER):
        for match in nouns.finditer(folded):
            if _NAME_FOLLOWS.match(sentence, match.end()):
                return True
    return False


@cache
def _orders_name() -> re.Pattern[str]:
    """An order whose only object is a name, as in `Print …` or `Repeat after me: …`, in scripts with capitals."""
    # On a card, `Name` and `Contact` are no verbs.
    verbs = sorted(
        (word_list("output_verbs") | word_list("output_verbs_weak")) - {"name", "state", "record", "label", "index"}
    )
    others = sorted(
        word.removesuffix("*") + r"\w*" * word.endswith("*") for word in word_list("output_verbs_elsewhere")
    )
    asked = rf"(?i:{_CLAUSE}(?:{'|'.join(verbs)})|\b(?:{'|'.join(others)}))"
    between = r"(?:\s+[a-zà-öø-ÿ]+){0,3}?[ :,]{1,3}"
    name = rf"[{_CAPITALS}]\w*(?:[ .'’-]+[{_CAPITALS}]\w*){{0,4}}"
    return re.compile(rf"{asked}{between}[\"'`«„“*]{{0,2}}{name}[\"'`»“”*]{{0,2}}\s*[.!]?\s*$")


@cache
def _asks(name: str) -> re.Pattern[str]:
    """A verb of a list in its plain form where that is an order."""
    return re.compile(rf"{_CLAUSE}(?:{'|'.join(sorted(word_list(name)))})\b")


@cache
def _words(name: str) -> re.Pattern[str]:
    """Any word of a list in a folded text. Scripts without blanks have no borders of words."""
    parts = []
    for word in sorted(word_list(name), key=lambda word: (-len(word), word)):
        folded = Folded.of(word.removesuffix("*").replace("_", " ")).text
        pattern = re.escape(folded)
        if not any(character >= "\u2e80" or "\u1100" <= character <= "\u11ff" for character in folded):
            pattern = rf"\b{pattern}" + (r"\w*" if word.endswith("*") else r"\b")
        parts.append(pattern)
    return re.compile("|".join(parts))
