"""What service-content makes of a name: its key, which names it takes for one, which its clean-up deletes.

Belongs here: the rules of that service, as its source has them (pointsav/pointsav-monorepo, `service-content/src`:
`graph.rs`, `er.rs`, `entity_filter.rs`), for whoever sends names to it. Does not: its wire (`service_content.py`).
Where a rule decides for good, ours is a little wider than theirs: a later release may compare in another way.
"""

import re

from rapidfuzz.distance import JaroWinkler, Levenshtein

_TRAILING = ".,;:™®© "
_AFTER_SUFFIX = " .,"
_LEGAL_SUFFIXES = (
    "incorporated", "inc", "corporation", "corp", "company", "limited", "ltd", "llc", "gmbh", "plc",
)  # fmt: skip
_ALIAS_LETTERS = 3
_ALIKE = 0.94
"""It takes two for one from 0.95 on."""
_MOST_WORDS = 8
_CLEANED = re.compile(
    r"""
    (?i: not\ specified | n/a | unknown | tbd | none | null )
    | `(?:.*`)? | \$.*                                       # code, a variable
    | .*[*/].* | (?=.*\().*\).*                         # a pattern, a path, an expression in brackets
    | (?i: .*\.(?:sh|py|rs|md|jsonl?|conf|toml|yaml|service|timer) )
    | .*\ \+\ .* | .*[0-9]{8}.* | [^ ]*_[^ ]* | [0-9].*
    | (?i: (?:the|a|an|this|all|any|each|most|some|these|those|section|for|of)\ .* )
    | .*,\ .* | (?i: .*\ and\ .* )
    | (?i: framework | model | hypothes[ie]s | pipeline | approach | process | mechanism | algorithm | methodology
        | criteri(?:on|a) | paradigm | construct | abstraction | concept | system | architecture )
    """,
    re.VERBOSE | re.DOTALL,
)
_CLEANED_OF_CLASS = {
    "Project": re.compile(r"(?=.* )[a-z ]+"),
    # Real accounts have digits and lower-case letters, a colon, an at-sign or a full stop.
    "Account": re.compile(r"(?=.*[A-Z])[A-Z_0-9]{2,}|[a-z -]+"),
}


def service_key(name: str) -> str:
    """The part of a node's identity there that comes from its name; the class is not in it."""
    key = " ".join(name.split()).rstrip(_TRAILING).lower()
    for suffix in _LEGAL_SUFFIXES:
        if key.endswith(f" {suffix}"):
            key = key.removesuffix(suffix).rstrip(_AFTER_SUFFIX)
            break
    return "_".join(key.split())


def alias_block(name: str, entity_class: str) -> tuple[str, str]:
    """Only entities of one block can become one identity there. People are blocked without middle initials, which are
    never among the first letters of a name with one before them, except where that one is very short."""
    if entity_class == "Person":
        first, *others = name.split() or [""]
        name = " ".join([first, *(word for word in others if not re.fullmatch(r"\S\.", word))])
    return entity_class, service_key(name)[:_ALIAS_LETTERS]


def could_alias(one: str, other: str) -> bool:
    """Whether the service might take two names of one block for one identity, if one request holds both.

    It compares the shortest name of a block with each other one; which that is depends on what else is in the request,
    so each pair counts here.
    """
    ours, theirs = (service_key(name).replace("_", " ") for name in (one, other))
    return any(alike(ours, theirs) >= _ALIKE for alike in (JaroWinkler.similarity, Levenshtein.normalized_similarity))


def is_cleaned(name: str, entity_class: str) -> bool:
    """Whether its clean-up deletes a node of this name and class, however right it is."""
    name = name.strip()
    of_class = _CLEANED_OF_CLASS.get(entity_class)
    return (
        not name
        or len(name.split()) > _MOST_WORDS
        or _CLEANED.fullmatch(name) is not None
        or (of_class is not None and of_class.fullmatch(name) is not None)
    )
