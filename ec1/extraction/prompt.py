"""What the model is asked: a constant beginning, then the document's text, delimited, as data.

System message and examples are the same bytes in every request, so a server computes them once (prefix cache). Names of
the examples leak into answers of small models; `PROMPT_NAMES` lets grounding tell them apart.
"""

import re

from ec1.extraction.schema import Named, Stated, encode

PROMPT_VERSION = 1

_SYSTEM = (
    "You list every person, company, project, account and location that is named in the text, as JSON. "
    "Copy names exactly."
)

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

_SYSTEM_RELATIONS = (
    " Then list what the text states between two of them: works_at, located_in, part_of, attends, owns_account."
)
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

# What a chat template or a reasoning format could take for its own: `<|im_start|>`, `<think>`, `[INST]`, `<file_sep>`.
_TEMPLATE_TOKEN = re.compile(
    r"<(?=[|｜]|/?(?:s|think|text|bos|eos|pad|unk|(?:start|end)_of_turn|[a-z]+(?:_[a-z]+)+)>|</?SYS>)|\[(?=/?INST\])"
)


def messages(chunk_text: str, stream: str, *, relations: bool = False) -> list[dict[str, str]]:
    """The messages that ask for the entities of one chunk, and for relations; `stream` names where it is from."""
    return [*_PREFIXES[relations], {"role": "user", "content": _delimited(chunk_text)}]


def escape(text: str) -> str:
    """`text` with a space put into whatever the server could take for a token of its chat template."""
    return _TEMPLATE_TOKEN.sub(lambda match: match[0] + " ", text)


def _delimited(text: str) -> str:
    return f"<text>\n{escape(text)}\n</text>"


def _prefix(relations: bool) -> list[dict[str, str]]:
    prefix = [{"role": "system", "content": _SYSTEM + _SYSTEM_RELATIONS if relations else _SYSTEM}]
    for number, (text, entities) in enumerate(_EXAMPLES):
        stated = [Stated(*each) for each in _STATED.get(number, ())] if relations else None
        prefix.append({"role": "user", "content": _delimited(text)})
        prefix.append({"role": "assistant", "content": encode([Named(*entity) for entity in entities], stated)})
    return prefix


_PREFIXES = {relations: _prefix(relations) for relations in (False, True)}
PROMPT_NAMES = frozenset(name for _, entities in _EXAMPLES for name, _ in entities)
