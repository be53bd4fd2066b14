"""What phase 1 promises from end to end, by its real functions and a server that counts what it is asked."""

import os

from fake_openai import FakeServer
from phase_one import PhaseOne

from ec1.graph.reader import GraphReader, published_ledger

FIRST, SECOND, THIRD, FOURTH = (f"2026-06-0{day}" for day in range(1, 5))
MINUTES = "{} came to the meeting and said that the work on the hall goes on as it was agreed upon."
LOOSER = {"min_confidence": 0.01}
"""Settings that find the same, and are another extractor."""


def entities(phase: PhaseOne) -> set[str]:
    with GraphReader(phase.home.published_graph, buffer_pool_mib=64) as reader:
        return {entity.key for entity in reader.entities(limit=None)}


def fingerprints(phase: PhaseOne) -> list[str]:
    return [entry.fingerprint for _, entry in sorted(published_ledger(phase.home.published_graph).items())]


def with_settings(phase: PhaseOne, **settings: object) -> PhaseOne:
    return PhaseOne(phase.home, phase.url, phase.model, settings)


def test_the_same_bytes_under_three_names_are_extracted_once(server: FakeServer, phase: PhaseOne) -> None:
    for name in ("a.md", "b.md", "deep/c.md"):
        phase.write(name, MINUTES.format("Alma Reyes"), FIRST)
    night = phase.night(FIRST)
    assert server.calls == 1
    assert night.applied.applied == 3 and night.applied.mentions_after == 3
    assert entities(phase) == {"Person:alma reyes"}


def test_a_renamed_or_touched_document_is_not_extracted(server: FakeServer, phase: PhaseOne) -> None:
    kept = [phase.write(f"{i}.md", MINUTES.format("Alma Reyes"), FIRST) for i in range(4)]
    phase.write("moved.md", MINUTES.format("Boris Tanaka"), FIRST)
    phase.night(FIRST)
    calls = server.calls
    moved = phase.home.documents / "service-minutebook/assets"
    (moved / "moved.md").rename(moved / "elsewhere.md")
    later = phase.deployment.night(SECOND).start.timestamp() + 60
    os.utime(kept[0], (later, later))
    night = phase.night(SECOND)
    assert server.calls == calls
    assert (night.applied.applied, night.applied.vanished) == (1, 1)
    assert entities(phase) == {"Person:alma reyes", "Person:boris tanaka"}


def test_an_edit_that_is_taken_back_costs_nothing(server: FakeServer, phase: PhaseOne) -> None:
    phase.write("a.md", MINUTES.format("Alma Reyes"), FIRST)
    first = phase.night(FIRST)
    phase.write("a.md", MINUTES.format("Boris Tanaka"), SECOND)
    phase.night(SECOND)
    assert entities(phase) == {"Person:boris tanaka"}
    calls = server.calls
    phase.write("a.md", MINUTES.format("Alma Reyes"), THIRD)
    third = phase.night(THIRD)
    assert server.calls == calls == 2
    assert third.report.streams["meeting"].reused == 1
    assert entities(phase) == {"Person:alma reyes"} and first.applied.mentions_after == third.applied.mentions_after


def test_a_night_with_nothing_new_asks_nothing_and_writes_nothing(server: FakeServer, phase: PhaseOne) -> None:
    phase.write("a.md", MINUTES.format("Alma Reyes"), FIRST)
    phase.night(FIRST)
    before = {path: path.stat().st_mtime_ns for path in phase.home.root.rglob("*") if path.is_file()}
    calls = server.calls
    night = phase.night(SECOND)
    after = {path: path.stat().st_mtime_ns for path in phase.home.root.rglob("*") if path.is_file()}
    assert server.calls == calls and not night.listing.changed
    # The export is named by its content in a real night; the lock and the scan's cache are not data.
    data = {path for path in after if path.suffix != ".parquet" and not path.is_relative_to(phase.home.cache)}
    assert {path.name for path in data if before.get(path) != after[path]} <= {"live.lock"}


def stock(phase: PhaseOne, documents: int = 6) -> None:
    for number in range(documents):
        phase.write(f"{number}.md", MINUTES.format(f"Alma {'ABCDEFGHIJ'[number]}eyes"), FIRST)


def test_a_changed_extractor_reads_nothing_again_if_lazy(server: FakeServer, phase: PhaseOne) -> None:
    stock(phase)
    phase.night(FIRST)
    calls = server.calls
    lazy = with_settings(phase, fingerprint_policy="lazy", **LOOSER)
    assert not lazy.night(SECOND).listing.changed
    lazy.write("3.md", MINUTES.format("Boris Tanaka"), THIRD)
    lazy.night(THIRD)
    assert server.calls == calls + 1
    assert len(set(fingerprints(lazy))) == 2 and "Person:boris tanaka" in entities(lazy)


def test_a_changed_extractor_reads_the_oldest_again_if_budgeted(server: FakeServer, phase: PhaseOne) -> None:
    stock(phase)
    phase.night(FIRST)
    phase.write("0.md", MINUTES.format("Boris Tanaka"), SECOND)
    phase.night(SECOND)
    calls = server.calls
    new = with_settings(phase, fingerprint_policy="budgeted", refresh_per_night=2, **LOOSER)
    night = new.night(THIRD)
    assert [key.path[-4:] for key in night.listing.refresh] == ["1.md", "2.md"]
    assert server.calls == calls + 2 and night.applied.applied == 2
    # The one that counted last comes last.
    assert fingerprints(new)[0] == fingerprints(phase)[0] != new.extractor().fingerprint("meeting")
    new.night(FOURTH)
    assert server.calls == calls + 4
    # Back again: every document was read by the old extractor once, so nothing is asked.
    back = with_settings(phase, fingerprint_policy="budgeted", refresh_per_night=2)
    back.night("2026-06-05")
    assert server.calls == calls + 4
    assert set(fingerprints(back)) == {back.extractor().fingerprint("meeting")}


def test_a_changed_extractor_counts_all_at_once_if_full(server: FakeServer, phase: PhaseOne) -> None:
    stock(phase)
    phase.night(FIRST)
    old, calls = entities(phase), server.calls
    new = with_settings(phase, **LOOSER)
    new.write("new.md", MINUTES.format("Boris Tanaka"), SECOND)
    # Time for some of the documents only.
    server.delay, new.budget_seconds = 0.6, 1.0
    night = new.night(SECOND)
    rebuild = night.applied.rebuild
    assert rebuild is not None and 0 < rebuild.waiting < 6 and not rebuild.swapped
    assert night.applied.partial
    # What is new was read first and counts already; the stock counts as the old extractor read it.
    assert entities(new) == old | {"Person:boris tanaka"}
    assert fingerprints(new).count(new.extractor().fingerprint("meeting")) == 1
    server.delay, new.budget_seconds = 0.0, 600.0
    rebuild = new.night(THIRD).applied.rebuild
    assert rebuild is not None and rebuild.swapped and rebuild.waiting == 0
    assert set(fingerprints(new)) == {new.extractor().fingerprint("meeting")}
    assert entities(new) == old | {"Person:boris tanaka"}
    # What was out at the deadline is all that was asked twice.
    assert calls + 7 <= server.calls <= calls + 7 + 4
    # Back again: the outbox has it all, but for the document that the old extractor never saw.
    calls = server.calls
    back = phase.night(FOURTH)
    assert server.calls == calls + 1 and back.applied.rebuild is not None and back.applied.rebuild.swapped
    assert set(fingerprints(phase)) == {phase.extractor().fingerprint("meeting")}
    assert not (phase.home.published_graph.parent / "beside").exists()


def test_a_graph_that_a_changed_extractor_would_empty_stays(server: FakeServer, phase: PhaseOne) -> None:
    stock(phase)
    phase.night(FIRST)
    old = entities(phase), fingerprints(phase)
    blind = with_settings(phase, min_confidence=1.0)
    rebuild = blind.night(SECOND).applied.rebuild
    assert rebuild is not None and not rebuild.swapped and (rebuild.entities_before, rebuild.entities_after) == (6, 0)
    assert "the old graph stays" in rebuild.reason and "graph.max_shrink_share" in rebuild.reason
    assert (entities(phase), fingerprints(phase)) == old
    # The decision costs no question on the nights that follow.
    calls = server.calls
    blind.night(THIRD)
    assert server.calls == calls
