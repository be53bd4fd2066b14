"""What service-content does with a name, rule by rule, as its source says (pointsav/pointsav-monorepo at f39485af).

Each function names its origin. Written from that source alone, not from our client; strsim 0.11's Jaro-Winkler boosts
up to four letters above 0.7, as rapidfuzz's does.
"""

import re

from rapidfuzz.distance import JaroWinkler, Levenshtein

SUFFIXES = ("incorporated", "inc", "corporation", "corp", "company", "limited", "ltd", "llc", "gmbh", "plc")
AUTO_MERGE, BLOCK_PREFIX = 0.95, 3
PLACEHOLDERS = ("not specified", "n/a", "unknown", "tbd", "none", "null")
FILE_ENDINGS = (
    ".sh", ".py", ".rs", ".md", ".json", ".jsonl", ".conf", ".toml", ".yaml", ".service", ".timer",
)  # fmt: skip
FRAGMENT_STARTS = (
    "the ", "a ", "an ", "this ", "all ", "any ", "each ", "most ", "some ", "these ", "those ", "section ", "for ",
    "of ",
)  # fmt: skip
ABSTRACT = frozenset(
    (
        "framework", "model", "hypothesis", "hypotheses", "pipeline", "approach", "process", "mechanism", "algorithm",
        "methodology", "criterion", "criteria", "paradigm", "construct", "abstraction", "concept", "system",
        "architecture",
    )
)  # fmt: skip


def key_of(name: str) -> str:
    """graph.rs:22 `normalize_entity_key`."""
    key = " ".join(name.split()).rstrip(".,;: ™®©").lower()
    for suffix in SUFFIXES:
        if key.endswith(" " + suffix):
            key = key[: -len(suffix) - 1].rstrip(" .,")
            break
    return "_".join(key.split())


def block_of(name: str, classification: str) -> tuple[str, str]:
    """er.rs:60 `canonical_er_name` and er.rs:91 `blocking_key`: people go without middle initials."""
    words = name.split()
    if classification == "Person" and len(words) >= 3:
        inner = [word for word in words[1:-1] if not (len(word.encode()) == 2 and word.endswith("."))]
        name = " ".join([words[0], *inner, words[-1]])
    return classification, key_of(name)[:BLOCK_PREFIX]


def similarity(one: str, other: str) -> float:
    """er.rs:99 `fuzzy_similarity`: of the keys, with blanks for `_`."""
    one, other = key_of(one).replace("_", " "), key_of(other).replace("_", " ")
    if one == other:
        return 1.0
    return max(JaroWinkler.similarity(one, other), Levenshtein.normalized_similarity(one, other))


def aliases_in(entities: list[tuple[str, str]]) -> dict[str, str]:
    """graph.rs:356, the second phase of `upsert_entities`: of one request's (name, class), which key takes another's
    place. In each block all are compared with the shortest name, in bytes.
    """
    blocks: dict[tuple[str, str], dict[str, str]] = {}
    for name, classification in entities:
        blocks.setdefault(block_of(name, classification), {}).setdefault(key_of(name), name)
    found = {}
    for members in blocks.values():
        shortest = min(members.values(), key=lambda name: len(name.encode()))
        for key, name in members.items():
            if key != key_of(shortest) and similarity(name, shortest) >= AUTO_MERGE:
                found[key] = key_of(shortest)
    return found


def is_cleaned(name: str, classification: str) -> bool:
    """http.rs:585 `graph_cleanup`: whether the clean-up deletes it."""
    return is_noise(name) or len(name.split()) > 8 or is_incoherent(name, classification)


def is_noise(name: str) -> bool:
    """entity_filter.rs:298 `is_noise_entity_name`."""
    name = name.strip()
    lower = name.lower()
    return (
        not name
        or lower in PLACEHOLDERS
        or (name.startswith("`") and name.endswith("`"))
        or name.startswith("$")
        or "*" in name
        or "/" in name
        or lower.endswith(FILE_ENDINGS)
        or ("(" in name and ")" in name)
        or " + " in name
        or re.search(r"[0-9]{8}", name) is not None
        or (" " not in name and "_" in name)
        or name[0] in "0123456789"
        or lower.startswith(FRAGMENT_STARTS)
        or ", " in name
        or " and " in lower
        or (" " not in name and lower in ABSTRACT)
    )


def is_incoherent(name: str, classification: str) -> bool:
    """entity_filter.rs:502 `coerce_classification`, where it gives nothing back."""
    if classification == "Project":
        return "/" in name or (" " in name and re.fullmatch(r"[a-z ]+", name) is not None)
    if classification == "Account":
        constant = len(name) >= 2 and re.fullmatch(r"[A-Z_0-9]+", name) is not None and re.search("[A-Z]", name)
        phrase = re.fullmatch(r"[a-z -]+", name) is not None
        return bool(constant) or phrase
    return False


def context(names: dict[str, str], aliases: dict[str, str], query: str, limit: int) -> list[str]:
    """graph.rs:470 `query_context`: the keys that it answers with, given `names` by key in the order of its scan.

    It takes the first matches in no order, ranks them by how near their length is to the query's (bytes), puts the
    identity in an alias's place, and cuts nothing off.
    """
    limit = min(limit, 50)
    matching = [key for key, name in names.items() if query.lower() in name.lower()][: max(limit * 3, limit + 5)]
    matching.sort(key=lambda key: abs(len(names[key].encode()) - len(query.encode())))
    return list(dict.fromkeys(aliases.get(key, key) for key in matching))
