"""Weights that are fitted to a graph: what expectation maximisation finds, when it refuses, and when they are used."""

import itertools
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graph_samples import NIGHT, key, result

from benchmarks.resolution_quality import febrl
from ec1.errors import InputError
from ec1.graph import fitting, resolved_tables
from ec1.graph.fitting import fit
from ec1.graph.incremental import resolve_changes, resolve_whole
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.overrides import NO_OVERRIDES
from ec1.graph.resolution import resolve
from ec1.graph.resolution_state import ResolutionState, Said
from ec1.graph.scoring import Profile, Statistics
from ec1.graph.weights import NO_WEIGHTS, Shares, Weights, load_weights, save_weights

MILD = Shares(exact=0.5, close=0.3, different=0.2, close_of_two=0.001, different_of_two=0.99)
WEIGHTS = Weights(person=dict.fromkeys(("given", "surname", "birth_date", "city"), MILD))


def test_the_shares_that_made_the_pairs_are_found_again() -> None:
    """Two thousand pairs of one person and eight thousand of two, drawn from known shares, with some values absent."""
    rng = np.random.default_rng(0)
    of_one = np.array([[0.7, 0.2, 0.1], [0.9, 0.06, 0.04], [0.6, 0.3, 0.1], [0.8, 0.1, 0.1]])
    of_two = np.array([[0.02, 0.03, 0.95]] * 4)
    rows = [
        [rng.choice(4, p=[*(share * 0.9), 0.1]) for share in (of_one if number < 2000 else of_two)]
        for number in range(10_000)
    ]
    found, chance, _ = fitting._maximise(np.array(rows), of_two)
    assert np.abs(found - of_one).max() < 0.04
    assert abs(chance.sum() - 2000) < 100


def test_on_contact_records_more_is_found_and_nothing_is_wrong(shared_data: Path) -> None:
    """With all facts there is little left to find. Three facts a record is what documents show."""
    people, true = febrl(shared_data / "febrl" / "dataset1.csv")
    rng = random.Random(2)
    few = [
        replace(each, attributes={kind: each.attributes[kind] for kind in rng.sample(sorted(each.attributes), 3)})
        for each in people
        if len(each.attributes) >= 3
    ]
    fitted = fit(few).weights
    assert fit(reversed(few)).weights == fitted, "no order and no chance"
    statistics = Statistics.of(few)
    right = []
    for weights in (NO_WEIGHTS.model_dump()["person"], fitted.model_dump()["person"]):
        clusters = resolve(few, statistics={"Person": replace(statistics, weights=weights)}).clusters
        found = {pair for each in clusters for pair in itertools.combinations(each.members, 2)}
        assert len(found & true) >= 0.98 * len(found)
        right.append(len(found & true))
    assert right[1] >= right[0] + 5


def test_a_small_graph_and_one_without_facts_keep_the_weights_that_come_with_ec1(shared_data: Path) -> None:
    people, _ = febrl(shared_data / "febrl" / "dataset1.csv")
    for too_little in ([], people[:200], [replace(each, attributes={}) for each in people]):
        with pytest.raises(InputError, match="fit weights to: that takes at least 3 kinds"):
            fit(too_little)


def test_a_slip_never_counts_for_more_than_none() -> None:
    odd = MILD.model_copy(update={"close": 0.49, "close_of_two": 1e-6})
    weights = Weights(person={"city": odd}).model_dump()["person"]
    statistics = replace(Statistics(0, {}), weights=weights)
    one = Profile("Person:jane smith", "Person", frozenset(["Jane Smith"]), {"city": frozenset(["balranald"])})
    scores = [
        resolve([one, Profile("Person:smith, jane", "Person", frozenset(["Smith, Jane"]), {"city": frozenset([city])})],
                statistics={"Person": statistics}).links[0].score
        for city in ("balranald", "balranold")
    ]  # fmt: skip
    assert scores[0] >= scores[1]


def test_a_difference_never_counts_for_less_than_with_the_weights_of_ec1() -> None:
    one = Profile("Person:jane smith", "Person", frozenset(["Jane Smith"]), {"birth_date": frozenset(["19410211"])})
    other = Profile("Person:smith, jane", "Person", frozenset(["Smith, Jane"]), {"birth_date": frozenset(["19853011"])})
    scores = []
    for different in (0.02, 0.05, 0.6):
        often = MILD.model_copy(update={"different": different})
        statistics = replace(Statistics(0, {}), weights=Weights(person={"birth_date": often}).model_dump()["person"])
        scores.append(resolve([one, other], statistics={"Person": statistics}).links[0].score)
    default = resolve([one, other], statistics={"Person": Statistics(0, {})}).links[0].score
    assert scores[0] < scores[2] == default
    assert scores[1] <= default


def test_weights_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "weights.yaml"
    save_weights(WEIGHTS, path)
    assert load_weights(path) == WEIGHTS and load_weights(None) == NO_WEIGHTS
    path.write_text(path.read_text().replace("0.5", "1.5", 1))
    with pytest.raises(InputError, match="exact"):
        load_weights(path)
    with pytest.raises(InputError, match="ec1 graph fit"):
        load_weights(tmp_path / "none.yaml")


def test_differences_under_fitted_weights_give_what_resolving_everything_gives() -> None:
    def said(*people: str, **facts: str) -> Said:
        keys = [(f"Person:{name.lower()}", name) for name in people]
        return Said(frozenset(keys), frozenset((keys[0][0], kind, value) for kind, value in facts.items()))

    documents = {
        "a": said("Jane Smith", birth_date="19410211", city="ayr"),
        "b": said("Smith, Jane", city="ayr"),
        "c": said("Ruth Jones", city="oban"),
    }
    later = {
        "b": said("Smith, Jane", birth_date="19410212", city="ayt"),
        "d": said("Ruth Jonse", city="oban"),
        "e": said("J. Smith", birth_date="19410211"),
    }

    def rows(documents: dict[str, Said]) -> tuple[list, list]:
        names = [(entity, document, name) for document, each in documents.items() for entity, name in each.names]
        return names, [(e, document, k, v) for document, each in documents.items() for e, k, v in each.traits]

    state, whole = ResolutionState(None), ResolutionState(None)
    resolve_whole(state, *rows(documents), NO_OVERRIDES, "0", None, WEIGHTS)
    assert state.statistics()["Person"].weights == WEIGHTS.model_dump()["person"]
    resolve_changes(state, later, NO_OVERRIDES)
    resolve_whole(whole, *rows(documents | later), NO_OVERRIDES, "0", state.statistics())
    assert state.resolution() == whole.resolution()
    assert state.resolution()[0]


def test_other_weights_resolve_everything_once(tmp_path: Path) -> None:
    with LadybugStore.open(tmp_path / "live", buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply(key("a.md"), "mk", result("a", ("Jane Smith", "Person"), ("Jane Smiht", "Person")), NIGHT)

        def score(weights: Weights) -> float:
            (link,) = store.resolve(NO_OVERRIDES, whole_below=0, drift=100, weights=weights).links
            return link.score

        before = score(NO_WEIGHTS)
        assert score(WEIGHTS) != before
        record = resolved_tables.record(store._db.connection)
        assert record is not None and record.weights == WEIGHTS.digest
        assert score(WEIGHTS) != before
        assert resolved_tables.record(store._db.connection) == record, "nothing was done again"
        assert score(NO_WEIGHTS) == before
