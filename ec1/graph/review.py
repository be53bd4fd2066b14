"""The review band for a person: which pairs to decide first, and how a decision gets into the file of overrides.

Belongs here: order and writing. Does not: what decisions mean (`overrides.py`), showing a pair (`ec1.commands.graph`).
"""

from dataclasses import dataclass
from io import StringIO
from pathlib import Path

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


def pairs_to_decide(reader: GraphReader, overrides: Path | None = None) -> list[ReviewPair]:
    """The pairs of the review band that no decision in `overrides` speaks about, those that would change most first."""
    known = load_overrides(overrides if overrides is not None and overrides.is_file() else None)
    decided = known.same_pairs().keys() | known.different_pairs().keys()
    resolution = reader.resolution()
    links = [link for link in resolution.band(Band.REVIEW) if (link.one, link.other) not in decided]
    home = {member: cluster.members for cluster in resolution.clusters for member in cluster.members}
    entities: dict[str, Entity] = {}
    for key in {key for link in links for end in (link.one, link.other) for key in home.get(end, (end,))}:
        ((entities[key], _),) = reader.show(key)

    def mentions(end: str) -> int:
        return sum(entities[key].mentions for key in home.get(end, (end,)))

    found = [
        ReviewPair(entities[link.one], entities[link.other], link, min(mentions(link.one), mentions(link.other)))
        for link in links
    ]
    return sorted(found, key=lambda pair: (-pair.weight, -pair.link.score, pair.link))


def write_decision(path: Path, one: str, other: str, *, same: bool, reason: str) -> None:
    """Add a decision to the file, in one step; what a person wrote there, comments included, stays.

    Raises InputError if the file is wrong, or if the decision contradicts another one.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap

    if not reason.strip():
        raise InputError("a decision needs a reason: say in a few words how it is known")
    yaml = YAML()
    yaml.width = 10_000
    content = CommentedMap()
    if path.is_file():
        load_overrides(path)
        content = yaml.load(path.read_text(encoding="utf-8")) or content
    content.setdefault("same" if same else "different", []).append({"entities": [one, other], "reason": reason.strip()})
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
