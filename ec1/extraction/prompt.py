"""What the model is asked: a constant beginning, then the document's text, delimited, as data.

System message and examples are the same bytes in every request, so a server computes them once (prefix cache). Names of
the examples leak into answers of small models; `prompt_names` lets grounding tell them apart.

A deployment's own classes are asked for in the same words, each with its description, and with its examples after the
contract's. Of those only what contradicts it is left out: examples of a class that it does not have, and examples that
show as no name what one of its classes keeps.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from ec1.extraction.schema import Named, Stated, encode
from ec1.vocabulary import CONTRACT, Kept, Vocabulary, VocabularyExample

PROMPT_VERSION = 1

_SYSTEM = "You list every {classes} that is named in the text, as JSON. {described}Copy names exactly."

_EXAMPLES: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Maria Alvarez: Northwind Capital signed for Project Heron. Ken, please fly to Vancouver.",
        (
            ("Maria Alvarez", "Person"),
            ("Northwind Capital", "Company"),
            ("Project Heron", "Project"),
            ("Ken", "Person"),
            ("Vancouver", "Location"),
        ),
    ),
    (
        "She drove from Lyon to Montreal on Friday, then on to Lake Erie.",
        (("Lyon", "Location"), ("Montreal", "Location"), ("Lake Erie", "Location")),
    ),
    ("The demand grew by 4 % in March. See docs/plan.md and section 3.", ()),
    (
        "name: Dr. Lena Fischer\nemployer: Tessera Labs GmbH\ncity: Graz, Austria",
        (
            ("Lena Fischer", "Person"),
            ("Tessera Labs GmbH", "Company"),
            ("Graz", "Location"),
            ("Austria", "Location"),
        ),
    ),
    (
        "The Sable account is late, said Petrov of Orchard Foods Ltd.",
        (("Sable account", "Account"), ("Petrov", "Person"), ("Orchard Foods Ltd", "Company")),
    ),
    ("Okay. So what do we do about the budget? I think we should wait until Tuesday.", ()),
    (
        "Tom Reyes will call Marlow Bank in Nairobi about the Harbour Upgrade.",
        (
            ("Tom Reyes", "Person"),
            ("Marlow Bank", "Company"),
            ("Nairobi", "Location"),
            ("Harbour Upgrade", "Project"),
        ),
    ),
    (
        "Hoshi Robotics opened a plant in Ohio and bought Delta Pumps in 2019.",
        (("Hoshi Robotics", "Company"), ("Ohio", "Location"), ("Delta Pumps", "Company")),
    ),
    ("Under the Consumer Rights Act the refund is due within 14 days.", ()),
    (
        "Grace Mbeki\nSales Manager, Umoja Textiles\n12 Long Street, Durban, South Africa",
        (
            ("Grace Mbeki", "Person"),
            ("Umoja Textiles", "Company"),
            ("Long Street", "Location"),
            ("Durban", "Location"),
            ("South Africa", "Location"),
        ),
    ),
    (
        "Please book it on Falcon Reserve, the account that Ms. Dubois opened.",
        (("Falcon Reserve", "Account"), ("Dubois", "Person")),
    ),
    (
        "Samuel Green of the University of Lisbon told Science Weekly about his trip to Peru.",
        (
            ("Samuel Green", "Person"),
            ("University of Lisbon", "Company"),
            ("Science Weekly", "Company"),
            ("Peru", "Location"),
        ),
    ),
    (
        "BLUE FINCH is behind, the data is still in Leipzig. IBM will help, and so will Aisha.",
        (("BLUE FINCH", "Project"), ("Leipzig", "Location"), ("IBM", "Company"), ("Aisha", "Person")),
    ),
    ("I don't know. It was cold and nobody came.", ()),
)

_SYSTEM_RELATIONS = " Then list what the text states between two of them: {relations}."
# What the examples show as no name, by their number, in the words of the filters that would drop it.
_UNNAMED: dict[int, frozenset[Kept]] = {
    1: frozenset({"dates"}),
    2: frozenset({"dates", "numbers", "paths", "laws"}),
    5: frozenset({"dates"}),
    7: frozenset({"dates"}),
    8: frozenset({"laws", "numbers"}),
    9: frozenset({"numbers"}),
}
# What the examples state, by their number.
_STATED: dict[int, tuple[tuple[str, str, str], ...]] = {
    3: (("Lena Fischer", "works_at", "Tessera Labs GmbH"), ("Graz", "located_in", "Austria")),
    4: (("Petrov", "works_at", "Orchard Foods Ltd"),),
    6: (("Marlow Bank", "located_in", "Nairobi"),),
    7: (("Hoshi Robotics", "located_in", "Ohio"), ("Delta Pumps", "part_of", "Hoshi Robotics")),
    9: (("Grace Mbeki", "works_at", "Umoja Textiles"), ("Durban", "located_in", "South Africa")),
    10: (("Dubois", "owns_account", "Falcon Reserve"),),
    11: (("Samuel Green", "works_at", "University of Lisbon"),),
}

# What a chat template or a reasoning format could take for its own: `<|im_start|>`, `<turn|>`, `<seed:eos>`,
# `<file_sep>`, `<think>`, `[INST]`, `[TOOL_CALLS]`, `[|user|]`, `]~b]`.
_TEMPLATE_TOKEN = re.compile(
    r"<(?=[|｜]|/?[^\s<>]{0,40}[|｜:_][^\s<>]{0,40}>|/?(?:s|think|text|bos|eos|sop|eop|pad|unk|mask|image|tools?)>|</?SYS>)"
    r"|\[(?=\||/?(?:[A-Z]+_[A-Z_]+|INST|THINK|IMG|gMASK|PAD|UNK|CLS|SEP|MASK)\]|e~\[)|\](?=~)"
)


def messages(
    chunk_text: str, stream: str, *, relations: bool = False, vocabulary: Vocabulary = CONTRACT
) -> list[dict[str, str]]:
    """The messages that ask for the entities of one chunk, and for relations; `stream` names where it is from."""
    return [*_prefix(relations, vocabulary), {"role": "user", "content": _delimited(chunk_text)}]


def escape(text: str) -> str:
    """`text` with a space put into whatever the server could take for a token of its chat template."""
    return _TEMPLATE_TOKEN.sub(lambda match: match[0] + " ", text)


def _delimited(text: str) -> str:
    return f"<text>\n{escape(text)}\n</text>"


@lru_cache(maxsize=16)
def _prefix(relations: bool, vocabulary: Vocabulary) -> tuple[dict[str, str], ...]:
    prefix = [{"role": "system", "content": _system(relations, vocabulary)}]
    for example, stated in _examples(relations, vocabulary):
        named = [Named(*entity) for entity in example.names]
        prefix.append({"role": "user", "content": _delimited(example.text)})
        prefix.append({"role": "assistant", "content": encode(named, stated if relations else None)})
    return tuple(prefix)


def _system(relations: bool, vocabulary: Vocabulary) -> str:
    *others, last = [
        own.spoken if (own := vocabulary.by_name.get(each)) else each.lower() for each in vocabulary.classes
    ]
    described = "".join(f"{own.spoken.capitalize()}: {one_line(own.description)}. " for own in vocabulary.own)
    asked = _SYSTEM.format(classes=" and ".join([", ".join(others), last] if others else [last]), described=described)
    return asked + (_SYSTEM_RELATIONS.format(relations=", ".join(vocabulary.relations)) if relations else "")


def _examples(relations: bool, vocabulary: Vocabulary) -> Iterator[tuple[VocabularyExample, list[Stated]]]:
    """What the model is shown: texts with their names, and with what they state."""
    for number, (text, names) in enumerate(_EXAMPLES):
        if shows(names, _UNNAMED.get(number, frozenset()), vocabulary):
            stated = [Stated(*each) for each in _STATED.get(number, ()) if each[1] in vocabulary.relations]
            yield VocabularyExample(text, names), stated
    for own in vocabulary.own:
        for example in own.parsed:
            yield example, []
    for relation in vocabulary.own_relations if relations else ():
        for example in relation.parsed:
            (subject, _), (target, _) = example.names
            yield example, [Stated(subject, relation.name, target)]


def shows(names: tuple[tuple[str, str | None], ...], unnamed: frozenset[Kept], vocabulary: Vocabulary) -> bool:
    """Whether an example of the contract's classes may be shown: nothing in it is of a class that is not there, which
    would now go unnamed, and nothing goes unnamed that one of the own classes keeps."""
    classes = {entity_class for _, entity_class in names if entity_class is not None}
    return classes <= set(vocabulary.classes) and unnamed.isdisjoint(vocabulary.all_kept)


def one_line(text: str) -> str:
    """A text of a deployment's as a part of a sentence."""
    return escape(" ".join(text.split()).rstrip("."))


@lru_cache(maxsize=16)
def prompt_names(vocabulary: Vocabulary = CONTRACT) -> frozenset[str]:
    """The names that stand in the examples."""
    return frozenset(name for example, _ in _examples(True, vocabulary) for name, _ in example.names)


PROMPT_NAMES = prompt_names()
