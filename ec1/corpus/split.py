"""The split into train and held-out: by group, by a stable hash, the same on every night.

Belongs here: which side a group is on, and the check that nothing leaked. Does not: what a group is (tuples).

A group's side depends on its name alone, or on that of a group that says the same, so it does not change when the
corpus grows. Only a tiny corpus needs more: if
chance puts every group on one side, the group with the smallest hash is held out, and `HeldOutGroups` remembers it.
"""

import hashlib
import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ec1.corpus.duplicates import NearDuplicates
from ec1.corpus.rows import RowTable
from ec1.errors import PermanentError
from ec1.files import read_json, write_json

Side = Literal["train", "heldout"]

MANY = 16
"""Groups that may share a question or an answer before it is a manner of speaking, or a label."""


def assign(group: str, heldout_share: float, seed: int) -> Side:
    """The side of a group: stable, independent of all other groups."""
    return "heldout" if _position(group, seed) < heldout_share else "train"


@dataclass(frozen=True)
class Leak:
    """A row of the training side that the held-out side knows: `kind` is group, exact or near."""

    kind: str
    train: str
    heldout: str


def leaks(table: RowTable, twins: NearDuplicates) -> list[Leak]:
    """Written rows of the training side that share a source, their text, or nearly their text with a held-out row."""
    found = [Leak("group", train, heldout) for train, heldout in table.shared_sources()]
    found += [Leak("exact", train, heldout) for train, heldout in table.shared_texts()]
    heldout, train = (table.written(heldout=side) for side in (True, False))
    numbers = np.concatenate([heldout, train])
    for left, right in twins.pairs(numbers):
        if left < len(heldout) <= right and table.text(numbers[left]) != table.text(numbers[right]):
            known, learnt = table.rows(numbers[[left, right]])
            found.append(Leak("near", learnt.digest, known.digest))
    return found


def clusters(
    table: RowTable,
    twins: Iterable[tuple[int, int]],
    reworded: Iterable[tuple[int, int]],
    first: Collection[str],
    alone: Collection[str] = (),
) -> dict[str, str]:
    """Groups that have nearly equal rows, the same question or answer in another spelling, or an answer in other words
    (`reworded`) -> the group that stands for all of them: one side of the split for all.

    It is one of `first`, if there is any, else the oldest: so a new group that resembles old ones joins their side.
    A question or an answer joins no more than a tenth of the groups; where it would, rows of one side are left out. So
    it is with groups in `alone`, whatever is like them: no other changes sides for their sake.
    """
    parent: dict[str, str] = {}
    sizes: Counter[str] = Counter()

    def root(group: str) -> str:
        while (above := parent.setdefault(group, group)) != group:
            parent[group] = parent[above]
            group = above
        return group

    def join(left: str, right: str, limit: float = math.inf) -> bool:
        one, other = root(left), root(right)
        size = max(1, sizes[one]) + max(1, sizes[other])
        if one != other and size <= limit:
            parent[one], sizes[other] = other, size
        return one == other or size <= limit

    limit = max(2, table.count_groups() // 10)
    for pairs, most in ((twins, math.inf), (reworded, limit)):
        for numbers in pairs:
            left, right = map(table.group_of, numbers)
            if left is not None and right is not None and left not in alone and right not in alone:
                join(left, right, most)
    apart = []
    for link, names in table.linked(min(MANY, limit)):
        others = [name for name in names if name not in alone]
        if not all([join(others[0], other, limit) for other in others[1:]]) or len(others) < len(names):
            apart.append(link)
    table.source(apart)
    age = {group: table.oldest(group) for group in parent}
    chosen: dict[str, str] = {}
    for group in sorted(parent, key=lambda group: (group not in first, age[group], group)):
        chosen.setdefault(root(group), group)
    return {group: chosen[root(group)] for group in parent}


def newest(table: RowTable, heldout_share: float) -> Iterator[str]:
    """The newest clusters of groups, at least one and never all. The split of a time series: with every night others
    are held out."""
    groups = table.count_clusters()
    count = min(max(1, round(heldout_share * groups)), groups - 1)
    return table.newest_clusters(max(0, count))


@dataclass(frozen=True)
class Moved:
    """An earlier version that knows the split otherwise: groups that it was trained on and that are held out now, and
    the reverse."""

    version: str
    trained_on: int
    heldout: int


def moved(dataset: Path, earlier: Mapping[str, Path]) -> list[Moved]:
    """Which earlier versions (name -> folder of the dataset that they learnt from) saw groups on the other side.

    A version whose dataset is no longer there is left out.
    """
    now = {side: _groups(dataset / side) for side in ("train", "heldout")}
    found = []
    for version, folder in earlier.items():
        if not all((folder / side / "rows.parquet").is_file() for side in now):
            continue
        trained = len(now["heldout"] & _groups(folder / "train"))
        heldout = len(now["train"] & _groups(folder / "heldout"))
        if trained or heldout:
            found.append(Moved(version, trained, heldout))
    return found


def _groups(side: Path) -> set[str]:
    import pyarrow.parquet as pq

    return set(pq.read_table(side / "rows.parquet", columns=["group"])["group"].to_pylist())


class HeldOutGroups:
    """The groups of one bucket that are held out although their hash would not: one, if chance held out none; and the
    evaluation cases that people wrote, a line each in a file beside it."""

    def __init__(self, path: Path) -> None:
        self.path, self._written = path, path.with_suffix(".cases")

    def forced(self) -> frozenset[str]:
        """All of them. Raises PermanentError if the record is damaged."""
        return self._by_chance() | self.cases()

    def cases(self) -> frozenset[str]:
        """The groups of evaluation cases."""
        if not self._written.is_file():
            return frozenset()
        return frozenset(self._written.read_text(encoding="utf-8").split())

    def add_case(self, group: str) -> None:
        """Have a group judge from now on. Several may write at once."""
        self._written.parent.mkdir(parents=True, exist_ok=True)
        with self._written.open("a", encoding="utf-8") as stream:
            stream.write(f"{group}\n")
            stream.flush()
            os.fsync(stream.fileno())

    def _by_chance(self) -> frozenset[str]:
        if not self.path.is_file():
            return frozenset()
        record = read_json(self.path)
        if not isinstance(record, dict) or not isinstance(record.get("groups"), list):
            raise PermanentError(f"{self.path} is damaged: restore it from a backup; without it the split changes")
        return frozenset(map(str, record["groups"]))

    def complete(self, groups: Iterable[str], heldout_share: float, seed: int) -> Iterator[str]:
        """All groups that are held out: of two or more at least one beside the cases, and whatever was held out
        before."""
        forced, cases = self._by_chance(), self.cases()
        held = several = False
        first: str | None = None
        for group in groups:
            if group in cases:
                yield group
                continue
            if group in forced or assign(group, heldout_share, seed) == "heldout":
                held = True
                yield group
            several = several or (first is not None and group != first)
            if first is None or _position(group, seed) < _position(first, seed):
                first = group
        if first is not None and several and not held:
            write_json(self.path, {"groups": sorted({*forced, first})})
            yield first


def _position(group: str, seed: int) -> float:
    """A group's place in [0, 1)."""
    return int.from_bytes(hashlib.sha256(f"{seed}\0{group}".encode()).digest()[:7], "big") / 2**56
