"""What becomes of the entities of a class that a deployment no longer has, by policy; on the real graph."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_openai import FakeServer, fake_server
from phase_one import PhaseOne

from ec1.deployment import Deployment
from ec1.graph.reader import GraphReader
from ec1.home import Home

SHIP: dict[str, Any] = {
    "name": "Ship",
    "description": "a vessel",
    "examples": ["We boarded the [Kestrel]."],
    "words": ["MV"],
}
FIRST, SECOND, THIRD = (f"2026-06-0{day}" for day in range(1, 4))
MINUTES = "{} came to the meeting and said that the work on MV {} goes on as it was agreed upon."


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """It names pairs of words with a capital, all as persons; `MV` before one proves a ship."""
    with fake_server() as state:
        yield state


def phase_with(
    home: Home, server: FakeServer, words: Path, policy: str, *classes: Any, shrink: float = 0.1
) -> PhaseOne:
    phase = _Shrinking(home, server.url, words, {"fingerprint_policy": policy, "classes": list(classes)})
    phase.shrink = shrink
    return phase


class _Shrinking(PhaseOne):
    shrink = 0.1

    @property
    def deployment(self) -> Deployment:
        found = super().deployment
        return found.model_copy(
            update={
                "graph": found.graph.model_copy(update={"max_shrink_share": self.shrink}),
                "extraction": found.extraction.model_copy(update={"refresh_per_night": 1}),
            }
        )


def entities(home: Home) -> set[str]:
    with GraphReader(home.published_graph, buffer_pool_mib=64) as reader:
        return {entity.key for entity in reader.entities(limit=None)}


BOTH = {"Person:alma reyes", "Ship:cobalt star", "Person:boris tanaka", "Ship:amber moon"}


@pytest.fixture
def phase(home: Home, server: FakeServer, words: Path) -> PhaseOne:
    first = phase_with(home, server, words, "full", "Person", "Company", SHIP)
    first.write("a.md", MINUTES.format("Alma Reyes", "Cobalt Star"), FIRST)
    first.write("b.md", MINUTES.format("Boris Tanaka", "Amber Moon"), FIRST)
    first.night(FIRST)
    assert entities(home) == BOTH
    return first


def test_lazy_a_removed_class_stays_until_its_document_changes(
    phase: PhaseOne, home: Home, server: FakeServer, words: Path
) -> None:
    without = phase_with(home, server, words, "lazy", "Person", "Company")
    without.night(SECOND)
    assert entities(home) == BOTH
    without.write("a.md", MINUTES.format("Alma Reyes", "Cobalt Star") + " So it was.", THIRD)
    without.night(THIRD)
    # Without ships, the two words are what the model says: a person.
    assert entities(home) == (BOTH - {"Ship:cobalt star"}) | {"Person:cobalt star"}


def test_budgeted_a_removed_class_goes_document_by_document(
    phase: PhaseOne, home: Home, server: FakeServer, words: Path
) -> None:
    without = phase_with(home, server, words, "budgeted", "Person", "Company")
    left = []
    for night in (SECOND, THIRD):
        without.night(night)
        left.append(sum(each.startswith("Ship:") for each in entities(home)))
    assert left == [1, 0]


def test_full_a_renamed_class_takes_the_old_ones_place_at_once_and_going_back_asks_nothing(
    phase: PhaseOne, home: Home, server: FakeServer, words: Path
) -> None:
    renamed = phase_with(home, server, words, "full", "Person", "Company", SHIP | {"name": "Vessel"})
    renamed.night(SECOND)
    assert entities(home) == {each.replace("Ship:", "Vessel:") for each in BOTH}
    calls = server.calls
    phase_with(home, server, words, "full", "Person", "Company", SHIP).night(THIRD)
    assert entities(home) == BOTH and server.calls == calls


def test_full_a_graph_that_would_shrink_too_much_stays_until_that_is_allowed(
    home: Home, server: FakeServer, words: Path
) -> None:
    whole = phase_with(home, server, words, "full", "Person", "Location")
    whole.write("a.md", "---\nlocation: Graz; Linz\n---\n" + MINUTES.format("Alma Reyes", "it"), FIRST)
    whole.night(FIRST)
    assert entities(home) == (before := {"Person:alma reyes", "Location:graz", "Location:linz"})
    refused = phase_with(home, server, words, "full", "Person").night(SECOND)
    assert entities(home) == before
    assert refused.applied.rebuild is not None and "graph.max_shrink_share" in refused.applied.rebuild.reason
    phase_with(home, server, words, "full", "Person", shrink=1.0).night(THIRD)
    assert entities(home) == {"Person:alma reyes"}
