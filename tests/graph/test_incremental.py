"""Resolution by differences: equal to resolving everything, whatever documents and operators did before."""

import gc
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from graph_samples import NIGHT, key, random_changes, result
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.model import entity_key
from ec1.graph.resolution import blocking, resolver
from ec1.graph.resolution import tables as resolved_tables
from ec1.graph.resolution.block_changes import BlockChanges
from ec1.graph.resolution.clusters import Cluster, Link, Resolution, resolve
from ec1.graph.resolution.incremental import ResolutionChange, resolve_changes, resolve_whole
from ec1.graph.resolution.overrides import NO_OVERRIDES, Decision, Overrides
from ec1.graph.resolution.profile import Profile
from ec1.graph.resolution.state import ResolutionState, Statements

GIVEN = ("Jane", "John", "J.", "Jane A.", "Jane B.", "Jan", "Ruth", "Dr. Jane")
SURNAMES = ("Smith", "Smyth", "Smith Jr.", "Smith Sr", "Jones")
PEOPLE = [f"{given} {surname}" for given in GIVEN for surname in SURNAMES]
PEOPLE += [f"{surname}, {given}" for given in GIVEN[:3] for surname in SURNAMES[:2]] + ["Smith", "Mr. Jones", "Ruth"]
FIRMS = ["Acme", "Acme Inc", "ACME", "Acme Foods", "Northwind Capital", "Nortwind Capital Co Ltd", "NWC", "Pier 14"]
NAMES = [(entity_key(name, "Person"), name) for name in PEOPLE] + [(entity_key(n, "Company"), n) for n in FIRMS]
NAMES += [(f"Person:{full}", short) for full in ("jane smith", "ruth jones") for short in ("Jane", "Ruth", "Mr. Jones")]
KEYS = sorted({each for each, _ in NAMES})
DOCUMENTS = st.builds(
    lambda names, traits: Statements(
        frozenset(names), frozenset((entity, *trait) for entity, trait in traits if entity in {e for e, _ in names})
    ),
    st.lists(st.sampled_from(NAMES), max_size=7),
    st.lists(
        st.tuples(
            st.sampled_from(KEYS),
            st.sampled_from([("email", "j@a.example"), ("email", "j@b.example"), ("phone", "555 0100 200")]),
        ),
        max_size=3,
    ),
)
DECISIONS = st.lists(
    st.builds(
        lambda keys: Decision(entities=tuple(keys), reason="x"), st.lists(st.sampled_from(KEYS), min_size=2, max_size=3)
    ),
    max_size=2,
)
NIGHTS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abcdefgh"), DOCUMENTS, min_size=1, max_size=3),
        st.one_of(st.none(), DECISIONS),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


def profiles(documents: dict[str, Statements]) -> list[Profile]:
    """Every entity of some documents, made without the state."""
    names, places = defaultdict(set), defaultdict(set)
    traits: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for document, said in documents.items():
        for entity, name in said.names:
            names[entity].add(name)
            places[entity].add(document)
        for entity, kind, value in said.traits:
            traits[entity][kind].add(value)
    found = []
    for entity, spelt in names.items():
        own = frozenset(name for name in spelt if entity_key(name, entity.partition(":")[0]) == entity) or spelt
        evidence = {kind: frozenset(values) for kind, values in traits[entity].items()}
        where = frozenset(places[entity])
        found.append(Profile(entity, entity.partition(":")[0], frozenset(own), evidence, where, frozenset(spelt - own)))
    return found


def rows(documents: dict[str, Statements]) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str, str]]]:
    names = [(entity, document, name) for document, said in documents.items() for entity, name in said.names]
    traits = [(entity, document, kind, v) for document, said in documents.items() for entity, kind, v in said.traits]
    return names, traits


def said(*people: str) -> Statements:
    return Statements(frozenset((entity_key(name, "Person"), name) for name in people), frozenset())


class Graph:
    """What a graph does with a resolution: it loses the links of entities that go, and takes differences."""

    def __init__(self, links: tuple[Link, ...], clusters: tuple[Cluster, ...]) -> None:
        self.links = {(link.one, link.other): link for link in links}
        self.clusters = {cluster.key: (cluster.name, set(cluster.members)) for cluster in clusters}

    def lose(self, entities: set[str]) -> None:
        self.links = {pair: link for pair, link in self.links.items() if entities.isdisjoint(pair)}
        for _, members in self.clusters.values():
            members -= entities

    def take(self, difference: ResolutionChange) -> None:
        for pair in difference.links_gone:
            self.links.pop(pair, None)
        for gone in difference.clusters_gone:
            del self.clusters[gone]
        for link in difference.links_come:
            assert (link.one, link.other) not in self.links, link
            self.links[link.one, link.other] = link
        for cluster in difference.clusters_come:
            assert cluster.key not in self.clusters, cluster
            self.clusters[cluster.key] = (cluster.name, set(cluster.members))


@example(
    documents={"b": said("Jane B. Jones")},
    nights=[
        (
            {"a": said("Jan Smith Jr."), "c": said("Dr. Jane Jones")},
            [Decision(entities=("Person:dr. jane jones", "Person:jan smith jr"), reason="x")],
            False,
        ),
        # Of what an operator put together one goes: the other may now be one with a third.
        ({"a": said()}, None, False),
    ],
    blocks=(20, 6),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    documents=st.dictionaries(st.sampled_from("abcdefgh"), DOCUMENTS, min_size=2, max_size=8),
    nights=NIGHTS,
    blocks=st.sampled_from([(20, 6), (3, 1), (4, 2)]),
)
def test_differences_give_what_resolving_everything_gives(
    monkeypatch: pytest.MonkeyPatch, documents: dict[str, Statements], nights: list, blocks: tuple[int, int]
) -> None:
    """Documents come, change, go and come back, operators decide and take it back; blocks are small enough to
    fill."""
    monkeypatch.setattr(blocking, "ALL_PAIRS", blocks[0])
    monkeypatch.setattr(blocking, "WINDOW", blocks[1])
    documents = dict(documents)
    overrides = NO_OVERRIDES
    state = ResolutionState(None)
    graph = Graph(*resolve_whole(state, *rows(documents), overrides, "0"))
    statistics = state.statistics()
    for news, decided, away in nights:
        if decided is not None:
            new = Overrides(same=tuple(decided[:1]), different=tuple(decided[1:]))
            overrides = overrides if new.same_pairs().keys() & new.different_pairs().keys() else new
        before = {entity for said in documents.values() for entity, _ in said.names}
        # The graph removes an entity when the last document goes that names it, and may make it anew at once.
        still = {entity for name, said in documents.items() if name not in news for entity, _ in said.names}
        if not away:
            still |= {entity for said in news.values() for entity, _ in said.names}
        graph.lose(before - still)
        documents |= news
        graph.take(resolve_changes(state, news, overrides))
        whole = resolve(profiles(documents), overrides, statistics)
        assert state.resolution() == (whole.links, whole.clusters)
        assert graph.links == {(link.one, link.other): link for link in whole.links}
        assert graph.clusters == {each.key: (each.name, set(each.members)) for each in whole.clusters}
    state.database.close()


# --- beside a real graph

ALWAYS: dict[str, Any] = {"whole_below": 0, "drift": 100.0}
"""Never everything, however small the graph is and however much of it changes."""
HISTORY = [random_changes(seed, 12, 8) for seed in range(6)]


def wanted(store: LadybugStore, path: Path, overrides: Overrides = NO_OVERRIDES) -> Resolution:
    """Everything, resolved under the statistics that the graph's resolution has."""
    with ResolutionState.open(resolver.state_path(path)) as state:
        statistics = state.statistics()
    documents: dict[str, tuple[set, set]] = defaultdict(lambda: (set(), set()))
    for entity, document, name in resolved_tables.names(store._db.connection):
        documents[document][0].add((entity, name))
    said = {document: Statements(frozenset(names)) for document, (names, _) in documents.items()}
    return resolve(profiles(said), overrides, statistics)


def whole_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one whenever everything is resolved."""
    runs: list[int] = []
    original = resolver._whole

    def counted(*arguments: Any) -> None:
        runs.append(1)
        original(*arguments)

    monkeypatch.setattr(resolver, "_whole", counted)
    return runs


def test_a_graph_holds_what_resolving_everything_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, live = whole_runs(monkeypatch), tmp_path / "live"
    with LadybugStore.open(live, buffer_pool_mib=64, wait_seconds=0) as store:
        for number, changes in enumerate(HISTORY):
            store.apply_many(changes, f"2026-06-0{number + 1}")
            if number == 3:
                # All that names them goes and comes back before the next resolution.
                away = [document for document, _, _ in HISTORY[0]]
                store.retract_many(away, NIGHT)
                store.apply_many(
                    [(d, i, r.model_copy(update={"fingerprint": "e" * 64})) for d, i, r in HISTORY[0]], NIGHT
                )
            decided = (
                Overrides(different=(Decision(entities=store_pair(store), reason="x"),))
                if number == 4
                else NO_OVERRIDES
            )
            found = store.resolve(decided, **ALWAYS)
            assert (found.links, found.clusters) == (
                wanted(store, live, decided).links,
                wanted(store, live, decided).clusters,
            )
            assert store.resolution_counts().clusters == len(found.clusters)
            assert sum(store.resolution_counts().links.values()) == len(found.links)
    assert len(runs) == 1 and found.links


def store_pair(store: LadybugStore) -> tuple[str, str]:
    link = store.resolution().links[0]
    return link.one, link.other


@pytest.mark.parametrize("harm", ["damaged", "missing", "of another graph"])
def test_a_state_that_cannot_be_used_is_made_again_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    runs, live = whole_runs(monkeypatch), tmp_path / "live"
    path = resolver.state_path(live)
    with LadybugStore.open(live, buffer_pool_mib=64, wait_seconds=0) as store:
        for number, changes in enumerate(HISTORY[:3]):
            store.apply_many(changes, f"2026-06-0{number + 1}")
            if number == 2 and harm == "damaged":
                path.write_bytes(path.read_bytes()[:5000] + b"\xff" * 20_000)
            elif number == 2 and harm == "missing":
                path.unlink()
            elif number == 2:
                # A crash between the end of the graph's transaction and that of the state.
                shutil.copy(tmp_path / "old", path)
            found = store.resolve(NO_OVERRIDES, **ALWAYS)
            if number == 0:
                shutil.copy(path, tmp_path / "old")
            expected = wanted(store, live)
            assert (found.links, found.clusters) == (expected.links, expected.clusters)
    assert len(runs) == 2


def test_a_whole_resolution_that_the_graph_knows_survives_a_crash_before_its_state_is_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, live = whole_runs(monkeypatch), tmp_path / "live"
    path = resolver.state_path(live)
    with LadybugStore.open(live, buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply_many(HISTORY[0], NIGHT)
        store.resolve(NO_OVERRIDES, **ALWAYS)
        path.rename(f"{path}.new")
        store.apply_many(HISTORY[1], NIGHT)
        store.resolve(NO_OVERRIDES, **ALWAYS)
    assert len(runs) == 1


def test_frequencies_are_counted_anew_when_many_entities_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = whole_runs(monkeypatch)
    with LadybugStore.open(tmp_path / "live", buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply(key("a.md"), "mk", result("a", *((f"Ann{n} Ek", "Person") for n in range(20))), NIGHT)
        store.resolve(NO_OVERRIDES, whole_below=0, drift=0.1)
        for number, whole in enumerate([1, 1, 2]):
            store.apply(
                key(f"{number}.md"),
                "mk",
                result(f"{number}", (f"Bo{number} Falk", "Person"), (f"Cy{number} Lund", "Person")),
                NIGHT,
            )
            store.resolve(NO_OVERRIDES, whole_below=0, drift=0.1)
            assert len(runs) == whole


# --- what a night costs


def near_pairs(line: list[str]) -> set[tuple[str, str]]:
    return {
        (one, other) if one < other else (other, one)
        for at, one in enumerate(line)
        for other in line[at + 1 : at + 1 + blocking.WINDOW]
    }


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    there=st.sets(st.integers(0, 40), min_size=5),
    come=st.sets(st.integers(0, 40), min_size=1),
    window=st.integers(1, 4),
)
def test_who_joins_a_large_block_gains_and_loses_the_pairs_that_the_whole_block_does(
    monkeypatch: pytest.MonkeyPatch, there: set[int], come: set[int], window: int
) -> None:
    """The keys are in another order than the places, as they may be in life."""
    monkeypatch.setattr(blocking, "ALL_PAIRS", 4)
    monkeypatch.setattr(blocking, "WINDOW", window)
    come -= there
    place_of = {number: f"{number:02}\0{(number * 17) % 41:02}" for number in range(41)}
    state = ResolutionState(None)
    resolve_whole(state, [], [], NO_OVERRIDES, "0")
    state.move({}, {"block": {place_of[number] for number in there}})
    lost, gained = BlockChanges(state).joined_by("block", [place_of[number] for number in sorted(come)])
    before = near_pairs([place_of[number][3:] for number in sorted(there)])
    after = near_pairs([place_of[number][3:] for number in sorted(there | come)])
    assert (lost, gained) == (before - after, after - before)
    state.database.close()


def test_a_state_finds_the_links_among_many_pairs() -> None:
    people = [f"Jane {letter}. Smith" for letter in "AB"] + ["Jane Smith", "Smith, Jane", "Ruth Jones"]
    names = [(entity_key(name, "Person"), "d", name) for name in people]
    state = ResolutionState(None)
    links, _ = resolve_whole(state, names, [], NO_OVERRIDES, "0")
    assert links
    keys = sorted({key for key, _, _ in names})
    asked = {(one, other) for one in keys for other in keys if one < other}
    # More than SQLite is asked for at once.
    asked |= {(f"a{number}", f"b{number}") for number in range(1200)}
    assert sorted(each.final for each in state.links(asked).values()) == sorted(links)
    (some, *others) = [(link.one, link.other) for link in links]
    assert state.links({some}).keys() == {some} and others
    state.database.close()


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_collected_after_a_resolution_as_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collects: bool
) -> None:
    during = []

    def failing(*_: Any) -> None:
        during.append(gc.isenabled())
        raise MemoryError

    monkeypatch.setattr(resolver, "_whole", failing)
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        with LadybugStore.open(tmp_path / "live", buffer_pool_mib=64, wait_seconds=0) as store:
            store.apply_many(HISTORY[0], NIGHT)
            with pytest.raises(MemoryError):
                store.update_resolution(NO_OVERRIDES)
        assert (during, gc.isenabled()) == ([False], collects)
    finally:
        (gc.enable if before else gc.disable)()
