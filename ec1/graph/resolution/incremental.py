"""Resolution of what changed only, with the result that resolving everything would give under the same statistics.

Belongs here: what a change can reach. Does not: what the state looks like (`state.py`), deciding about a
pair or a group (`resolution.py`), transactions (`ladybug_store.py`).

How far a change reaches, and why not farther:
1. Documents that say something else touch the entities whose names, traits or documents differ.
2. Only blocks that a touched entity enters, leaves or moves in gain or lose pairs. In a large block these are pairs
   with the entity itself, and pairs that stand around its place.
3. A pair is compared again if it is new or if an end is touched. An entity that only gained or lost documents is
   compared with those in these documents: for all others it is as much or as little together with them as before.
4. Whether an entity's links contest each other depends on these links, on what forbids their far ends to be one, and
   on what operators decided: it is asked again at the ends of changed links and beside entities of another name.
5. Clusters form along uncontested merge links and operators' groups. Those that a dirty entity is connected with form
   again: if a group fell apart, each part holds an end of the link that broke.
Weights come from statistics that stay as they are, since each new entity changes the frequency of some value a little.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ec1.graph.resolution import blocking
from ec1.graph.resolution.block_changes import BlockChanges, ordered
from ec1.graph.resolution.blocking import block_keys, key_at, place
from ec1.graph.resolution.clusters import (
    Band,
    Cluster,
    Link,
    compare,
    contest,
    contested_at,
    find,
    join,
    operator_links,
    profiles_by_class,
)
from ec1.graph.resolution.overrides import Overrides, Pair
from ec1.graph.resolution.profile import PERSON, Profile
from ec1.graph.resolution.scoring import NO_STATISTICS, Scorer, Statistics
from ec1.graph.resolution.state import AT_ONE, AT_OTHER, KeptLink, ResolutionState, Statements


@dataclass
class ResolutionChange:
    """What changed in a resolution. A link or cluster that is another now is in both lists.

    `turned` is how many entities came and went.
    """

    links_gone: list[Pair] = field(default_factory=list)
    links_come: list[Link] = field(default_factory=list)
    clusters_gone: list[str] = field(default_factory=list)
    clusters_come: list[Cluster] = field(default_factory=list)
    turned: int = 0


def resolve_whole(
    state: ResolutionState,
    names: Iterable[tuple[str, str, str]],
    traits: Iterable[tuple[str, str, str, str]],
    overrides: Overrides,
    token: str,
    statistics: Mapping[str, Statistics] | None = None,
) -> tuple[tuple[Link, ...], tuple[Cluster, ...]]:
    """Fill an empty state from all that documents say (see `ResolutionState.create`); returns all links and clusters.
    Without statistics those of now are taken.

    Raises InputError if the overrides contradict each other.
    """
    profiles = state.create(names, traits)
    if statistics is None:
        statistics = {name: Statistics.of(members) for name, members in profiles_by_class(profiles).items()}
    finding = find(profiles, overrides, statistics)
    state.finish(profiles, finding, overrides, statistics, token)
    return finding.resolution.links, finding.resolution.clusters


def resolve_changes(
    state: ResolutionState, documents: Mapping[str, Statements], overrides: Overrides
) -> ResolutionChange:
    """Bring the state to what `documents` say now, all others being as they were, and tell what is different.

    documents: by key; one that says nothing any more is there and empty. It does no harm to name one that did not
    change; its entities may be written again, since a graph loses the links of an entity that is removed and made anew.

    Raises InputError if the overrides contradict each other, sqlite3.DatabaseError if the state is damaged.
    """
    overrides.groups()
    return _Update(state, documents, overrides).run()


class _Profiles(dict[str, Profile]):
    """Profiles as they are needed, read once."""

    def __init__(self, state: ResolutionState) -> None:
        self._state = state

    def __missing__(self, key: str) -> Profile:
        self.read([key])
        return self[key]

    def read(self, keys: Iterable[str]) -> None:
        """Read many at once, which takes a fraction of the time."""
        self.update(self._state.profiles(sorted(set(keys) - self.keys())))


class _Update:
    def __init__(self, state: ResolutionState, documents: Mapping[str, Statements], overrides: Overrides) -> None:
        self.state = state
        self.documents = documents
        self.overrides = overrides
        before = state.overrides()
        self.decided = overrides.same_pairs().keys() | overrides.different_pairs().keys()
        decided_before = before.same_pairs().keys() | before.different_pairs().keys()
        self.newly_decided = self.decided - decided_before
        self.no_longer_decided = decided_before - self.decided
        said = set(before.same) ^ set(overrides.same) | set(before.different) ^ set(overrides.different)
        self.judged = {key for decision in said for key in decision.entities}
        self.profiles = _Profiles(state)
        self.scorers: dict[str, Scorer] = {}
        self.blocks: dict[str, frozenset[str]] = {}
        """The blocks of entities as they are now."""
        self.left: dict[str, set[tuple[str, str]]] = {}
        """Where touched entities were in their blocks, as (block, place)."""
        self.block_changes = BlockChanges(state)
        self.statistics = state.statistics()
        self.old: dict[str, Profile | None] = {}
        self.new: dict[str, Profile | None] = {}
        self.forced: set[str] = set()
        """Entities that may have been removed and made anew, without the links and the cluster that they had."""
        self.met: dict[str, set[str]] = defaultdict(set)
        """By touched entity, those in the documents that changed for it."""
        self.before: dict[Pair, KeptLink | None] = {}
        """The links as they stood, of those that were written."""

    def run(self) -> ResolutionChange:
        change = ResolutionChange()
        self._apply_changes()
        renamed = {key for key in self.old if _other(self.old[key], self.new[key])}
        change.turned = sum((self.old[key] is None) != (self.new[key] is None) for key in self.old)
        lost, gained = self._move()
        links = self._compare(lost, gained, renamed)
        contested = self._contest(links, renamed)
        self._settle(change, links, contested, renamed)
        for key, profile in self.new.items():
            if profile is None:
                self.state.forget(key)
        self.state.keep(overrides=self.overrides.model_dump_json())
        return change

    def _apply_changes(self) -> None:
        """Take in what the documents say; find who is touched."""
        changes: dict[str, tuple[Statements, Statements]] = {}
        everyone: set[str] = set()
        for document, now in self.documents.items():
            was = self.state.statements(document)
            present = {key for key, _ in was.names | now.names}
            everyone |= present
            if was == now:
                continue
            changes[document] = was, now
            different = {key for key, _ in was.names ^ now.names} | {key for key, _, _ in was.traits ^ now.traits}
            for key in different:
                self.met[key] |= present - {key}
        mine = frozenset(self.documents)
        self.forced = {key for key in everyone if self.state.only_in(key, mine)}
        touched = sorted(self.met)
        old = self.state.profiles(touched)
        self.left = {key: {(name, place(was)) for name in block_keys(was)} for key, was in old.items()}
        self.state.apply(changes)
        new = {key: found for key, found in self.state.profiles(touched).items() if found.names}
        self.profiles.update(new)
        for key in touched:
            self.old[key], self.new[key] = old.get(key), new.get(key)

    # --- pairs

    def _move(self) -> tuple[set[Pair], set[Pair]]:
        """Bring the blocks up to date; returns pairs that a block lost and pairs that one gained."""
        gone: dict[str, set[str]] = defaultdict(set)
        come: dict[str, set[str]] = defaultdict(set)
        for key, now in self.new.items():
            here = self.left.get(key, set())
            there = {(name, place(now)) for name in self._blocks(now)} if now is not None else set()
            for name, at in here - there:
                gone[name].add(at)
            for name, at in there - here:
                come[name].add(at)
        return self.block_changes.move(gone, come)

    def _candidates(self, profile: Profile) -> set[str]:
        """All that an entity is compared with."""
        own, reach = place(profile), blocking.WINDOW
        found: set[str] = set()
        for name in self._blocks(profile):
            line = self.state.members(name, blocking.ALL_PAIRS + 1)
            if len(line) > blocking.ALL_PAIRS:
                line = [*self.state.below(name, own, reach), *self.state.from_here(name, own, reach + 1)]
            found.update(map(key_at, line))
        return found - {profile.key}

    def _blocks(self, profile: Profile) -> frozenset[str]:
        if profile.key not in self.blocks:
            self.blocks[profile.key] = block_keys(profile)
        return self.blocks[profile.key]

    def _compare(self, lost: set[Pair], gained: set[Pair], renamed: set[str]) -> dict[Pair, Link | None]:
        """Compare again what may be different; returns the links that exist now, None for one that is gone."""
        state = self.state
        again = set(gained)
        fresh = {key for key, was in self.old.items() if was is None}
        self.profiles.read(key for met in (self.met[key] for key in self.new if key not in fresh) for key in met)
        for key, now in self.new.items():
            # All pairs of one that was not there before are gained.
            if now is None or key in fresh:
                continue
            if key in renamed:
                again |= {ordered(key, other) for other in self._candidates(now)}
            else:
                # Nearly all share no block: that is asked first.
                mine = self._blocks(now)
                again |= {
                    ordered(key, other)
                    for other in self.met[key]
                    if self._is_there(other)
                    and not mine.isdisjoint(self._blocks(self.profiles[other]))
                    and self._are_candidates(key, other)
                }
        for one, other in self.no_longer_decided:
            if self._are_candidates(one, other):
                again.add((one, other))
        again -= self.decided
        again = {pair for pair in again if not self._is_far(pair, fresh)}
        self.profiles.read(key for pair in again for key in pair)
        found: dict[Pair, Link | None] = {}
        for one, other in again:
            first = self.profiles[one]
            link = compare(self._scorer(first.entity_class), first, self.profiles[other])
            if link is not None or not (one in fresh or other in fresh):
                found[one, other] = link
        # Most that a large block lost are not links.
        for pair in state.links((lost | self.newly_decided) - again):
            if pair in self.decided or not self._are_candidates(*pair):
                found[pair] = None
        kept = state.links(found)
        changed: dict[Pair, Link | None] = {}
        for pair, link in found.items():
            was = kept.get(pair)
            if (was.found if was else None) != link:
                changed[pair] = link
                self.before[pair] = was
        return changed

    def _is_far(self, pair: Pair, fresh: set[str]) -> bool:
        """Whether a new person and one that was there have names so different that the other need not be read: most
        pairs end here, and nothing is kept of them."""
        for one, other in (pair, pair[::-1]):
            if (
                one in fresh
                and other not in self.profiles
                and (name := self.block_changes.only_names.get(other)) is not None
            ):
                profile = self.profiles[one]
                return profile.entity_class == PERSON and self._scorer(PERSON).is_far(profile, name)
        return False

    def _are_candidates(self, one: str, other: str) -> bool:
        """Whether two entities are there and meet in a block."""
        if not (self._is_there(one) and self._is_there(other)):
            return False
        first, second = self.profiles[one], self.profiles[other]
        common = self._blocks(first) & self._blocks(second)
        return any(self._is_near(name, place(first), place(second)) for name in common)

    def _is_near(self, block: str, one: str, other: str) -> bool:
        if len(self.state.members(block, blocking.ALL_PAIRS + 1)) <= blocking.ALL_PAIRS:
            return True
        low, high = min(one, other), max(one, other)
        return high in self.state.from_here(block, low, blocking.WINDOW + 1)

    def _scorer(self, entity_class: str) -> Scorer:
        if entity_class not in self.scorers:
            self.scorers[entity_class] = Scorer(self.statistics.get(entity_class, NO_STATISTICS))
        return self.scorers[entity_class]

    # --- what follows from them

    def _contest(self, changed: Mapping[Pair, Link | None], renamed: set[str]) -> set[Pair]:
        """Write the changed links, and ask again where links may contest each other; returns those that are or were
        contested in another way. A changed link stands as it was found until `_settle`."""
        self.state.drop_links(pair for pair, link in changed.items() if link is None)
        self.state.put_links(KeptLink(link, 0, link) for link in changed.values() if link is not None)
        ends = {key for pair in changed for key in pair} | renamed | self.judged
        for key in renamed | self.judged:
            ends |= {end for each in self.state.links_of(key) for end in (each.found.one, each.found.other)}
        flags: dict[Pair, int] = {}
        kept: dict[Pair, KeptLink] = {}
        for key in sorted(ends):
            mine = self.state.links_of(key)
            contested = contested_at(key, [each.found for each in mine], self.profiles, self.decided)
            for each in mine:
                pair = each.found.one, each.found.other
                kept[pair] = each
                side = AT_ONE if pair[0] == key else AT_OTHER
                value = flags.get(pair, each.contested)
                flags[pair] = value | side if pair in contested else value & ~side
        other = {pair for pair, value in flags.items() if value != kept[pair].contested}
        for pair in other:
            self.before.setdefault(pair, kept[pair])
        self.state.put_links(KeptLink(kept[pair].found, flags[pair], kept[pair].final) for pair in sorted(other))
        return other

    def _settle(
        self, change: ResolutionChange, changed: Mapping[Pair, Link | None], contested: set[Pair], renamed: set[str]
    ) -> None:
        """Form the clusters again that may be others, and compare with what stood before."""
        state = self.state
        dirty = {key for pair in {*changed, *contested} for key in pair} | renamed | self.judged | self.forced
        gone = {key for key in dirty if not self._is_there(key)}
        # An operator's group may have kept its members from others for the sake of one that is gone.
        dirty |= {key for group in self.overrides.groups() if not gone.isdisjoint(group) for key in group}
        gone |= {key for key in dirty if not self._is_there(key)}
        reached, merging = self._connected(dirty - gone)
        joined = {key for pair in merging for key in pair}
        joined |= {key for group in self.overrides.groups() if len(group & reached) > 1 for key in group & reached}
        clusters, final = join(
            [each.found for each in merging.values()], {key: self.profiles[key] for key in joined}, self.overrides
        )
        finals = {(link.one, link.other): link for link in final}
        touching = {_ends(each) for key in self.forced - gone for each in state.links_of(key)}
        for pair in sorted({*changed, *contested, *finals, *touching}):
            was = self.before[pair] if pair in self.before else state.link(pair)
            now = state.link(pair)
            if now is not None:
                settled = finals.get(pair) or (contest(now.found) if now.contested else now.found)
                state.put_links([KeptLink(now.found, now.contested, settled)])
            else:
                settled = None
            rewritten = not self.forced.isdisjoint(pair)
            if settled != (was.final if was else None) or rewritten:
                if was is not None:
                    change.links_gone.append(pair)
                if settled is not None:
                    change.links_come.append(settled)
        self._operators(change)
        self._clusters(change, reached | gone, {each.key: each for each in clusters})

    def _connected(self, dirty: set[str]) -> tuple[set[str], dict[Pair, KeptLink]]:
        """All that uncontested merge links and operators' groups connect with dirty entities, and these links."""
        groups = {key: group for group in self.overrides.groups() for key in group}
        reached: set[str] = set()
        merging: dict[Pair, KeptLink] = {}
        waiting = sorted(dirty)
        while waiting:
            key = waiting.pop()
            if key in reached:
                continue
            reached.add(key)
            for each in self.state.links_of(key):
                if each.found.band is Band.MERGE and not each.contested:
                    merging[_ends(each)] = each
                    waiting += _ends(each)
            waiting += [other for other in groups.get(key, ()) if other not in reached and self._is_there(other)]
        return reached, merging

    def _is_there(self, key: str) -> bool:
        return self.new[key] is not None if key in self.new else self.state.has(key)

    def _operators(self, change: ResolutionChange) -> None:
        named = {key for pair in self.decided for key in pair}
        was = {(link.one, link.other): link for link in self.state.decided()}
        now = {
            (link.one, link.other): link
            for link in operator_links(self.overrides, {key for key in named if self._is_there(key)})
        }
        for pair in sorted(was.keys() | now.keys()):
            if was.get(pair) != now.get(pair) or not self.forced.isdisjoint(pair):
                change.links_gone += [pair] if pair in was else []
                change.links_come += [now[pair]] if pair in now else []
        self.state.put_decided(now.values())

    def _clusters(self, change: ResolutionChange, reached: set[str], now: Mapping[str, Cluster]) -> None:
        keys = {self.state.cluster_key(key) for key in reached}
        was = {key: self.state.cluster(key) for key in keys if key is not None}
        for key in sorted(was.keys() | now.keys()):
            each = was.get(key)
            if each == now.get(key) and (each is None or self.forced.isdisjoint(each.members)):
                continue
            if key in was:
                change.clusters_gone.append(key)
            if key in now:
                change.clusters_come.append(now[key])
        self.state.drop_clusters(change.clusters_gone)
        self.state.put_clusters(change.clusters_come)


def _other(one: Profile | None, other: Profile | None) -> bool:
    """Whether more than the documents differ."""
    return (
        one is None
        or other is None
        or (one.names, one.called, one.attributes)
        != (
            other.names,
            other.called,
            other.attributes,
        )
    )


def _ends(link: KeptLink) -> Pair:
    return link.found.one, link.found.other
