"""Training-pending markers in a directory and in a bucket: asked for once, claimed once, readable by others."""

import datetime as dt
import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest

from ec1.errors import InputError
from ec1.launch.marker_formats import Marker
from ec1.launch.markers import PendingMarkers
from ec1.storage.directory import DirectoryStore
from ec1.storage.store import NotFound, ObjectStore

KEY = "training-pending/engineering-pointsav-2026-06-09.json"


def marker(adapter: str = "engineering-pointsav", minute: int = 12) -> Marker:
    return Marker(
        adapter=adapter,
        tenant="pointsav",
        role="engineering",
        corpus_path="training-corpus/engineering",
        method="sft",
        tuple_count=60,
        triggered_at=dt.datetime(2026, 6, 9, 2, minute, tzinfo=dt.UTC),
        sample_files=("a.jsonl",),
    )


def test_the_life_of_a_marker(store: ObjectStore) -> None:
    markers = PendingMarkers(store)
    assert markers.claim() is None
    assert markers.write(marker(), "2026-06-09")
    assert not markers.write(marker(), "2026-06-09")
    assert json.loads(store.get_bytes(KEY)) == {
        "adapter": "engineering-pointsav",
        "tenant": "pointsav",
        "role": "engineering",
        "corpus_path": "training-corpus/engineering",
        "method": "sft",
        "version": 1,
        "tuple_count": 60,
        "triggered_at": "2026-06-09T02:12:00+00:00",
        "sample_files": ["a.jsonl"],
    }
    claim = markers.claim()
    assert claim is not None and (claim.night, claim.marker) == ("2026-06-09", marker())
    assert markers.claim() is None
    assert [each.file for each in markers.claimed()] == [claim.file]
    assert not markers.write(marker(), "2026-06-09"), "it is being worked on"
    markers.release(claim)
    again = markers.claim()
    assert again is not None and (again.file, again.attempt) == (claim.file, 2)
    claim = again
    markers.complete(claim)
    assert [item.key for item in store.list("training-pending/")] == [KEY + ".completed"]
    assert not markers.write(marker(), "2026-06-09"), "it is done"
    with pytest.raises(NotFound):
        markers.complete(claim)


def test_the_oldest_by_the_stores_clock_comes_first_and_rubbish_blocks_nobody(store: ObjectStore) -> None:
    """The clock of who asked for the second one is wrong."""
    markers = PendingMarkers(store)
    markers.write(marker("apprenticeship-pointsav", minute=20), "2026-06-09")
    time.sleep(1.1)
    markers.write(marker(minute=5), "2026-06-10")
    store.put_bytes("training-pending/aaa-pointsav-2026-06-01.json", b"{not json")
    evil = json.dumps({**marker().model_dump(mode="json"), "tenant": "../../etc"})
    store.put_bytes("training-pending/bbb-pointsav-2026-06-01.json", evil.encode())
    store.put_bytes("training-pending/notes.txt", b"")
    files = []
    while claim := markers.claim():
        files.append(claim.file)
    assert files == ["apprenticeship-pointsav-2026-06-09.json", "engineering-pointsav-2026-06-10.json"]


def test_markers_of_others_are_read(tmp_path: Path) -> None:
    """The very record of the contract, with a field more."""
    record: dict[str, Any] = {
        **{"adapter": "engineering-pointsav", "tenant": "pointsav", "role": "engineering", "method": "sft"},
        **{"corpus_path": "…/training-corpus/engineering", "version": 1, "tuple_count": 60},
        **{"triggered_at": "2026-06-09T02:12:00+00:00", "sample_files": ["a.jsonl"], "host": "elsewhere"},
    }
    (tmp_path / "training-pending").mkdir()
    (tmp_path / KEY).write_text(json.dumps(record))
    claim = PendingMarkers(DirectoryStore(tmp_path)).claim()
    assert claim is not None and claim.marker.tuple_count == 60
    assert (tmp_path / f"{KEY}.claimed").is_file()


def _work(root: str, results: Any, start: Any) -> None:
    markers, won = PendingMarkers(DirectoryStore(Path(root))), []
    start.wait()
    while claim := markers.claim():
        won.append(claim.file)
    results.put(won)


def test_no_marker_is_claimed_by_two_processes(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    markers = PendingMarkers(DirectoryStore(tmp_path))
    for number in range(40):
        markers.write(marker(f"role-{number}"), "2026-06-09")
    results, start = context.Queue(), context.Event()
    workers = [context.Process(target=_work, args=(str(tmp_path), results, start)) for _ in range(3)]
    for worker in workers:
        worker.start()
    start.set()
    won = [file for _ in workers for file in results.get(timeout=120)]
    for worker in workers:
        worker.join()
    assert len(won) == 40
    assert len(set(won)) == 40


def test_what_was_read_is_not_read_again(tmp_path: Path) -> None:
    """A worker that looks at a thousand waiting markers each time would read a million."""
    store = DirectoryStore(tmp_path)
    markers, reads = PendingMarkers(store), []
    for number in range(30):
        markers.write(marker(f"role-{number}"), "2026-06-09")
    get = store.get_bytes

    def counted(key: str) -> bytes:
        reads.append(key)
        return get(key)

    store.get_bytes = counted  # type: ignore[method-assign]
    while claim := markers.claim():
        markers.complete(claim)
    assert len(reads) == 30
    markers.write(marker("role-1"), "2026-06-10")
    changed = marker("role-1").model_copy(update={"method": "dpo"})
    assert markers.pending()[0].marker.method == "sft"  # type: ignore[union-attr]
    store.put_bytes("training-pending/role-1-2026-06-10.json", changed.model_dump_json().encode())
    assert markers.pending()[0].marker.method == "dpo", "what changed is read"  # type: ignore[union-attr]


def test_names_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a valid name"):
        marker("../up")
    with pytest.raises(InputError, match="is not a night"):
        PendingMarkers(DirectoryStore(tmp_path)).write(marker(), "../../x")
