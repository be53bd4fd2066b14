"""Which pairs of entities begin or cease to meet in a block when entities come into it and leave it.

Belongs here: pairs that a change of blocks gains and loses. Does not: whether a pair is a link (`incremental.py`).
"""

from bisect import bisect
from collections.abc import Iterable, Mapping, Set

from ec1.graph.resolution import blocking
from ec1.graph.resolution.blocking import key_at, name_at
from ec1.graph.resolution.overrides import Pair
from ec1.graph.resolution.state import ResolutionState


class BlockChanges:
    """Changes the blocks of a state. `only_names`: of entities that new ones meet in a block, the name of those that
    have but one."""

    def __init__(self, state: ResolutionState) -> None:
        self.state = state
        self.only_names: dict[str, str] = {}

    def move(self, gone: Mapping[str, set[str]], come: Mapping[str, set[str]]) -> tuple[set[Pair], set[Pair]]:
        """Bring the blocks up to date, given the places that each loses and gains; returns the pairs that a block lost
        and those that one gained."""
        lost: set[Pair] = set()
        gained: set[Pair] = set()
        moved: dict[str, set[str]] = {}
        sizes: dict[str, tuple[int, int]] = {}
        for name in sorted(gone.keys() | come.keys()):
            leave, join = gone.get(name, set()), come.get(name, set())
            line = set(self.state.members(name, blocking.ALL_PAIRS + 1))
            if len(line) > blocking.ALL_PAIRS and not leave:
                apart, together = self.joined_by(name, sorted(join))
                lost |= apart
                gained |= together
            elif len(line) + len(join) > blocking.ALL_PAIRS:
                moved[name] = leave | join
                size = self.state.size(name)
                sizes[name] = size, size - len(leave) + len(join)
            else:
                self._note_names(line)
                after = _all_pairs(join | leave, (line - leave) | join)
                before = _all_pairs(leave, line) if leave else set()
                lost |= before - after
                gained |= after - before
        before_of = {name: self._pairs(name, moved[name], sizes[name]) for name in moved}
        self.state.move(gone, come)
        for name in moved:
            after = self._pairs(name, moved[name], sizes[name])
            lost |= before_of[name] - after
            gained |= after - before_of[name]
        return lost, gained

    def joined_by(self, name: str, places: list[str]) -> tuple[set[Pair], set[Pair]]:
        """The pairs that a large block loses and gains by the entities that come into it, `places` in order, where
        nobody leaves it: nearly all that happens to large blocks in a night.

        Each that comes is compared with those around it, and pushes some apart that stood just near enough.
        """
        reach = blocking.WINDOW
        lost: set[Pair] = set()
        gained: set[Pair] = set()
        for number, each in enumerate(places):
            below = self.state.below(name, each, reach)
            above = self.state.from_here(name, each, reach)
            before = sorted([*below, *places[max(0, number - reach) : number]])[-reach:]
            after = sorted([*above, *places[number + 1 : number + 1 + reach]])[:reach]
            own = key_at(each)
            self._note_names((*below, *above))
            gained.update(ordered(own, key_at(near)) for near in (*before, *after))
            for far, one in enumerate(below):
                # At most so many stand between the two now that did not before.
                for farther in range(max(0, reach - far - len(places)), min(reach - far, len(above))):
                    other = above[farther]
                    between = bisect(places, other) - bisect(places, one)
                    if far + farther + 1 + between > reach:
                        lost.add(ordered(key_at(one), key_at(other)))
        return lost, gained

    def _note_names(self, places: Iterable[str]) -> None:
        for each in places:
            if (name := name_at(each)) is not None:
                self.only_names[key_at(each)] = name

    def _pairs(self, name: str, places: set[str], sizes: tuple[int, int]) -> set[Pair]:
        """Pairs of a block that is large or small and changes between the two, among them all that it loses or gains:
        in a large one those with an end in `places` or around such a place."""
        if max(sizes) <= blocking.ALL_PAIRS:
            return _all_pairs(places, set(self.state.members(name)))
        if min(sizes) <= blocking.ALL_PAIRS:
            line = [key_at(each) for each in self.state.members(name)]
            reach = len(line) if len(line) <= blocking.ALL_PAIRS else blocking.WINDOW
            return {ordered(one, other) for at, one in enumerate(line) for other in line[at + 1 : at + 1 + reach]}
        found: set[Pair] = set()
        reach = blocking.WINDOW
        for each in places:
            above = self.state.from_here(name, each, reach + 1)
            below = self.state.below(name, each, reach)
            line = [key_at(near) for near in (*reversed(below), *above)]
            for left in range(len(below) + (above[:1] == [each])):
                one = line[left]
                found.update(ordered(one, other) for other in line[max(left + 1, len(below)) : left + reach + 1])
        return found


def _all_pairs(places: Set[str], line: Set[str]) -> set[Pair]:
    """The pairs of all in a small block that have an end in `places`."""
    keys = {key_at(each) for each in line}
    return {ordered(end, other) for end in map(key_at, places) if end in keys for other in keys if other != end}


def ordered(one: str, other: str) -> Pair:
    """Two keys as a pair."""
    return (one, other) if one < other else (other, one)
