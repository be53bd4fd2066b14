"""The review band for a person: which pairs to decide first, and how a decision gets into the file of overrides.

Belongs here: order and writing. Does not: what decisions mean (`overrides.py`), showing a pair (`ec1.commands.graph`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from ec1.errors import InputError
from ec1.files import write_atomic
from ec1.graph.model import Entity
from ec1.graph.reader import GraphReader
from ec1.graph.resolution.clusters import Band, Link
from ec1.graph.resolution.overrides import load_overrides


@dataclass(frozen=True)
class ReviewPair:
    """Two entities that may be one. `weight` is how many mentions would change hands if they were: those of the smaller
    side, with all that it is one with."""

    one: Entity
    other: Entity
    link: Link
    weight: int

    @property
    def pattern(self) -> str:
        """What speaks for it, by kind: pairs of one pattern may be decided together. The words of firms and places are
        their own pattern, since words are what speaks for them."""
        return f"{self.one.entity_class}: {self.link.reasons}{f'; {self.link.veto}' if self.link.veto else ''}"


def pairs_to_decide(reader: GraphReader, overrides: Path | None = None) -> list[ReviewPair]:
    """The pairs of the review band that no decision in `overrides` speaks about, those that would change most first."""
    known = load_overrides(overrides if overrides is not None and overrides.is_file() else None)
    decided = known.same_pairs().keys() | known.different_pairs().keys()
    resolution = reader.resolution()
    links = [link for link in resolution.band(Band.REVIEW) if (link.one, link.other) not in decided]
    home = {member: cluster.members for cluster in resolution.clusters for member in cluster.members}
    entities: dict[str, Entity] = {}
    for key in {key for link in links for end in (link.one, link.other) for key in home.get(end, (end,))}:
        if (entity := reader.member(key)) is not None:
            entities[key] = entity

    def mentions(end: str) -> int:
        return sum(entities[key].mentions for key in home.get(end, (end,)))

    found = [
        ReviewPair(entities[link.one], entities[link.other], link, min(mentions(link.one), mentions(link.other)))
        for link in links
    ]
    return sorted(found, key=lambda pair: (-pair.weight, -pair.link.score, pair.link))


def write_decisions(path: Path, pairs: Iterable[tuple[str, str]], *, same: bool, reason: str) -> None:
    """Add decisions to the file, in one step; what a person wrote there, comments included, stays.

    Raises InputError if the file is wrong, or if a decision contradicts another one.
    """
    if not reason.strip():
        raise InputError("a decision needs a reason: say in a few words how it is known")
    content = _read(path)
    for pair in pairs:
        for key in pair:
            if ":" not in key:
                raise InputError(
                    f"{key!r} is not a key: name entities as `ec1 graph search` does, such as 'Person:jane smith'"
                )
        decision = {"entities": list(pair), "reason": reason.strip()}
        content.setdefault("same" if same else "different", []).append(decision)
    _write(path, content)


def undo_decision(path: Path, one: str, other: str) -> list[str]:
    """Take the decisions about just these two out of the file; returns their reasons. Raises InputError if there is
    none."""
    content = _read(path)
    reasons = []
    for kind in ("same", "different"):
        decisions = content.get(kind) or []
        for at in reversed(range(len(decisions))):
            if set(decisions[at]["entities"]) == {one, other}:
                reasons.append(str(decisions[at]["reason"]))
                del decisions[at]
        if kind in content and not decisions:
            del content[kind]
    if not reasons:
        raise InputError(f"{path} has no decision about just {one!r} and {other!r}: look into the file")
    _write(path, content)
    return reasons


def _read(path: Path) -> Any:
    """The file as it can be written again, comments and all."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap

    if not path.is_file():
        return CommentedMap()
    load_overrides(path)
    return YAML().load(path.read_text(encoding="utf-8")) or CommentedMap()


def _write(path: Path, content: Any) -> None:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 10_000
    text = StringIO()
    yaml.dump(content, text)
    # Checked as it would be read, before it takes the place of what is there.
    beside = path.with_name(f".{path.name}.new")
    write_atomic(beside, text.getvalue())
    try:
        load_overrides(beside)
    except InputError:
        beside.unlink()
        raise
    beside.replace(path)
