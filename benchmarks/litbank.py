"""Names of people in the openings of 100 novels (LitBank, CC BY 4.0) with what they refer to. No benchmark itself.

Read from a folder that the caller names, `coref/brat` of the repository dbamman/litbank: brat files, where a mention
has a line with its kind and one with its chain.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from ec1.extraction.folding import words
from ec1.graph.model import entity_key

_LOWER = words("de del della der den di da dos du la le van von of the and")


def is_unseen(stem: str) -> bool:
    """Whether a novel is one of the 40 of which only totals may be taken."""
    return int(hashlib.sha1(stem.encode(), usedforsecurity=False).hexdigest(), 16) % 5 < 2


def parts(folder: Path) -> dict[str, list[Path]]:
    """The novels by what they were used for."""
    paths = sorted(folder.glob("*.ann"))
    return {
        "litbank (seen)": [path for path in paths if not is_unseen(path.stem)],
        "litbank (unseen)": [path for path in paths if is_unseen(path.stem)],
    }


def named(path: Path) -> Iterator[tuple[str, str, str]]:
    """The names of people in a novel: key of the entity, name, and the chain that it is in."""
    kinds: dict[tuple[str, str], str] = {}
    chains: dict[tuple[str, str], tuple[str, str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.count("\t") != 2:
            continue
        _, label, text = line.split("\t")
        what, start, end = label.split(" ")
        if what.endswith("_PER") or what.partition("_")[0] in ("PROP", "NOM", "PRON"):
            kinds[start, end] = what
        else:
            chains[start, end] = what, text
    for place, kind in kinds.items():
        if kind != "PROP_PER" or place not in chains:
            continue
        identity, text = chains[place]
        words = text.split()
        while words and words[0].lower() in ("the", '"', "``", "a"):
            words = words[1:]
        name = re.sub(r" (?=[.,])", "", " ".join(words))
        if name and all(word[0].isupper() or word.lower() in _LOWER for word in re.findall(r"[\w']+", name)):
            yield entity_key(name, "Person"), name, identity
