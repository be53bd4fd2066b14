"""Which pairs of entities are compared at all: those that share something rare enough.

Belongs here: keys and the bound on their number of pairs. Does not: comparing (`scoring.py`).

Each entity has a few keys, and a key that many share is not paired with all: its entities are sorted by name and each
is compared with the next few. So the number of pairs grows with the number of entities and not with its square.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ec1.graph.resolution.names import full_names
from ec1.graph.resolution.profile import KINDS, PERSON, Profile

if TYPE_CHECKING:
    import numpy as np

ALL_PAIRS = 12
"""In a block of at most so many entities all are compared."""
WINDOW = 3
"""In a larger one each is compared with so many before it and after it in the order of `place`."""
_SHARED_DOCUMENTS = 20
_RARE = 1e-3
_ONLY, _FIRST = "\0", "\0\0"


def candidate_pairs(profiles: Sequence[Profile]) -> "np.ndarray":
    """Pairs of indexes into `profiles` (sorted by key, of one class), as rows (smaller, larger), each once, sorted."""
    import numpy as np

    blocks: dict[str, list[int]] = {}
    for index, profile in enumerate(profiles):
        for key in block_keys(profile):
            blocks.setdefault(key, []).append(index)
    order = [place(profile) for profile in profiles]
    codes: list[int] = []
    size = len(profiles)
    for members in blocks.values():
        if len(members) > ALL_PAIRS:
            members = sorted(members, key=order.__getitem__)
            reach = WINDOW
        else:
            reach = len(members)
        for at, one in enumerate(members):
            for other in members[at + 1 : at + 1 + reach]:
                codes.append(one * size + other if one < other else other * size + one)
    unique = np.unique(np.array(codes, dtype=np.int64))
    return np.stack([unique // max(size, 1), unique % max(size, 1)], axis=1)


def block_keys(profile: Profile) -> frozenset[str]:
    """The blocks that an entity is in. Those of different classes have different keys."""
    return frozenset(f"{profile.entity_class} {key}" for key in _keys(profile))


def place(profile: Profile) -> str:
    """Where an entity stands in each of its blocks: by its first name, then by its key, which it ends with."""
    return f"{min(profile.names)}{_ONLY if len(profile.names) == 1 else _FIRST}{profile.key}"


def key_at(where: str) -> str:
    """The key of the entity that stands at a place."""
    return where.rpartition("\0")[2]


def name_at(where: str) -> str | None:
    """The name of the entity that stands at a place, if it has but one."""
    name, only, rest = where.partition(_ONLY)
    return name if only and "\0" not in rest else None


def _keys(profile: Profile) -> Iterator[str]:
    for kind, values in profile.attributes.items():
        if KINDS[kind].usual <= _RARE:
            for value in values:
                yield f"{kind} {value.replace(' ', '')}"
    # What is mentioned everywhere is not told by where it is mentioned.
    documents = profile.documents if len(profile.documents) <= _SHARED_DOCUMENTS else ()
    if profile.entity_class == PERSON:
        yield from (f"alone {word}" for word in profile.alone)
        for name in profile.persons:
            parts = [name.single] if name.single else [name.given, name.surname]
            alone = {*parts, name.bare_surname}
            for document in documents:
                yield from (f"document {document} {part}" for part in alone if len(part) > 1)
            if name.middles or "-" in name.given or "-" in name.surname:
                yield f"letters {name.letters}"
            if name.given:
                yield f"name {' '.join(sorted(parts))}"
                yield from _near(name.surname, name.given[0])
                for full in full_names(name.given):
                    yield f"called {full} {name.surname}"
                if len(name.given) > 1:
                    yield from _near(name.given, name.surname[0])
        return
    for thing in profile.things:
        yield f"joined {thing.joined}"
        yield f"begins {thing.joined[:5]}"
        for letters in {thing.acronym} - {""} or thing.initials:
            yield f"acronym {letters}"
        for word in thing.words:
            if len(word) > 2:
                yield f"word {word}"
                yield f"skeleton {_skeleton(word)}"
        for first, second in zip(thing.words, thing.words[1:], strict=False):
            yield f"words {first} {second}"


def _near(part: str, initial: str) -> Iterator[str]:
    """Keys that a slip of the pen in `part` mostly leaves as they are."""
    yield f"begins {part[:3]} {initial}"
    yield f"skeleton {_skeleton(part)} {initial}"


def _skeleton(word: str) -> str:
    """The first letter and the consonants, none twice in a row."""
    kept = word[:1]
    for letter in word[1:]:
        if letter not in "aeiouyhw" and letter != kept[-1]:
            kept += letter
    return kept[:6]
