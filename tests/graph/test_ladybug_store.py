"""The live graph: what a document's news does to it, and the traps of LadybugDB."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import ladybug
import pyarrow.parquet as pq
import pytest
from damage import flip
from graph_samples import FINGERPRINT, NIGHT, Change, key, random_changes, result

from ec1.documents.ledger import DocumentKey, LedgerEntry, Status
from ec1.errors import BusyError, DamagedError, InputError, PermanentError
from ec1.extraction.results import ExtractionResult, Mention, Relation, Trait
from ec1.files import read_json, sha256_file, write_json
from ec1.graph import changes, tables
from ec1.graph.changes import Changes
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.reader import GraphReader

A, B = key("a.md"), key("b.md")
ACME, ANNA = ("Acme Inc", "Company"), ("Anna Berg", "Person")


@contextmanager
def opened(path: Path, published: Path | None = None) -> Iterator[LadybugStore]:
    """A store whose kept figures are those of its rows, whatever a test did to it."""
    with LadybugStore.open(path, buffer_pool_mib=64, wait_seconds=0, published=published) as store:
        yield store
        assert store.digest() == store.recounted_digest()
        assert store.stats() == tables.recount(store._db.connection).stats


@pytest.fixture
def live(tmp_path: Path) -> Path:
    return tmp_path / "graph" / "live"


def names(store: LadybugStore, published: Path) -> dict[str, tuple[str, int]]:
    """Name and number of mentions by entity key, as a reader sees them."""
    with GraphReader(store.publish(published)) as reader:
        return {entity.key: (entity.name, entity.mentions) for entity in reader.entities(None)}


# --- what a document's news does


def test_a_document_is_applied_with_all_its_evidence(live: Path, tmp_path: Path) -> None:
    with opened(live) as store:
        applied = store.apply(A, "mk-a", result("a", ACME, ANNA), NIGHT)
        assert (applied.status, applied.changed, applied.mentions) == (Status.APPLIED, True, 2)
        entry = store.ledger()[A]
        store.publish(tmp_path / "published")
    content = result("a").content_sha256
    assert entry == LedgerEntry(A, "mk-a", content, FINGERPRINT, Status.APPLIED, NIGHT, mentions=2)
    with GraphReader(tmp_path / "published") as reader:
        ((entity, (mention,)),) = reader.show("Anna Berg")
    assert (entity.key, entity.confidence, entity.documents) == ("Person:anna berg", 0.9, 1)
    assert (mention.path, mention.document_id, mention.content_sha256) == ("a.md", "mk-a", content)
    assert (mention.chunk, mention.start, mention.end, mention.confidence) == (0, 9, 18, 0.9)
    assert (mention.fingerprint, mention.model, mention.night) == (FINGERPRINT, "model-0", NIGHT)


def test_applying_again_changes_nothing(live: Path) -> None:
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", ACME), NIGHT)
        before = store.digest()
        again = store.apply(A, "mk-a", result("a", ACME), "2026-06-02")
        assert not again.changed and again.status is Status.APPLIED
        assert store.digest() == before


def test_an_edit_replaces_what_the_older_version_said(live: Path, tmp_path: Path) -> None:
    with opened(live) as store:
        store.apply(A, "mk-1", result("one", ACME, ANNA), NIGHT)
        store.apply(B, "mk-b", result("b", ANNA), NIGHT)
        once = store.digest()
        edit = store.apply(A, "mk-2", result("two", ("Oslo", "Location")), NIGHT)
        assert (edit.mentions, edit.retracted) == (1, 2)
        assert set(names(store, tmp_path / "p")) == {"Person:anna berg", "Location:oslo"}
        store.apply(A, "mk-1", result("one", ACME, ANNA), NIGHT)
        assert store.digest() == once


def test_a_vanished_document_takes_its_entities_along(live: Path) -> None:
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", ACME, ANNA), NIGHT)
        store.apply(B, "mk-b", result("b", ANNA), NIGHT)
        (gone,) = store.retract_many([A], "2026-06-02")
        assert (gone.status, gone.retracted) == (Status.DELETED, 2)
        assert store.stats().entities == {"Person": 1}
        assert store.ledger()[A].status is Status.DELETED
        assert not store.retract_many([A], "2026-06-03")[0].changed
        assert not store.retract_many([key("never-seen.md")], NIGHT)[0].changed
        assert store.stats().documents == 1
        assert store.apply(A, "mk-a", result("a", ACME, ANNA), "2026-06-03").changed
        assert store.stats().mentions == 3


def test_a_new_fingerprint_replaces_the_mentions(live: Path, tmp_path: Path) -> None:
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", ACME, ANNA), NIGHT)
        store.apply(A, "mk-a", result("a", ANNA, fingerprint="e" * 64), NIGHT)
        assert set(names(store, tmp_path / "p")) == {"Person:anna berg"}


def test_deferred_keeps_the_older_mentions_counts_nights_and_is_quarantined(live: Path) -> None:
    deferred = result("two", status="deferred")
    with opened(live) as store:
        store.apply(A, "mk-1", result("one", ACME), NIGHT)
        seen = []
        for night in ("2026-06-02", "2026-06-02", "2026-06-03", "2026-06-04", "2026-06-05"):
            applied = store.apply(A, "mk-2", deferred, night, quarantine_after=3)
            seen.append((applied.status, applied.changed, store.ledger()[A].attempts))
        assert store.stats().mentions == 1 and store.ledger()[A].reason == "deferred: test"
        assert store.apply(A, "mk-2", result("two", ANNA), "2026-06-06").retracted == 1
        assert store.ledger()[A].attempts == 0
    assert seen == [
        (Status.DEFERRED, True, 1),
        (Status.DEFERRED, False, 1),
        (Status.DEFERRED, True, 2),
        (Status.QUARANTINED, True, 3),
        (Status.QUARANTINED, False, 3),
    ]


def test_more_of_a_document_replaces_less_of_it_while_a_part_is_missing(live: Path, tmp_path: Path) -> None:
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", ACME, status="deferred"), "2026-06-01", quarantine_after=3)
        mended = result("a", ACME, ANNA, status="deferred")
        applied = store.apply(A, "mk-a", mended, "2026-06-02", quarantine_after=3)
        assert (applied.status, applied.mentions, applied.retracted) == (Status.DEFERRED, 2, 1)
        assert not store.apply(A, "mk-a", mended, "2026-06-02", quarantine_after=3).changed
        # The night that gives it up keeps what there is.
        given_up = store.apply(A, "mk-a", mended, "2026-06-03", quarantine_after=3)
        assert given_up.status is Status.QUARANTINED and store.stats().mentions == 2
        assert set(names(store, tmp_path / "p")) == {"Company:acme", "Person:anna berg"}


def test_a_part_of_a_new_version_does_not_replace_a_whole_older_one(live: Path) -> None:
    with opened(live) as store:
        store.apply(A, "mk-1", result("one", ACME), "2026-06-01")
        store.apply(A, "mk-2", result("two", ACME, ANNA, status="deferred"), "2026-06-02")
        assert store.stats().mentions == 1


def test_another_version_is_deferred_from_one_again(live: Path) -> None:
    with opened(live) as store:
        store.apply(A, "mk-1", result("one", status="deferred"), "2026-06-01")
        store.apply(A, "mk-2", result("two", status="deferred"), "2026-06-02")
        assert store.ledger()[A].attempts == 1


def test_what_counts_is_not_deferred_afterwards(live: Path) -> None:
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", ACME), NIGHT)
        assert not store.apply(A, "mk-a", result("a", status="deferred"), NIGHT).changed


def test_rejecting_new_content_retracts_rejecting_the_same_content_does_not(live: Path) -> None:
    content = result("a").content_sha256
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", ACME), NIGHT)
        store.reject_many([(A, "mk-a", content, "other", "too large now")], NIGHT)
        assert store.stats().mentions == 1
        binary = store.reject_many([(A, "mk-x", "0" * 64, "other", "binary")], NIGHT)[0]
        assert (binary.status, binary.retracted) == (Status.REJECTED, 1)
        assert store.stats().entities == {} and store.ledger()[A].reason == "binary"
        assert not store.reject_many([(A, "mk-x", "0" * 64, "other", "binary")], "2026-06-02")[0].changed


def test_a_person_and_a_place_of_one_name_are_two_entities(live: Path, tmp_path: Path) -> None:
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", ("Paris", "Person"), ("Paris", "Location")), NIGHT)
        assert set(names(store, tmp_path / "p")) == {"Person:paris", "Location:paris"}


def test_the_preferred_spelling_follows_the_mentions_that_are_there(live: Path, tmp_path: Path) -> None:
    seen = []
    with opened(live) as store:
        for path, name in (("1", "ACME"), ("2", "Acme"), ("3", "Acme Inc"), ("4", "Acme Inc")):
            store.apply(key(path), path, result(path, (name, "Company")), NIGHT)
            seen.append(names(store, tmp_path / "p")["Company:acme"])
        for path in ("4", "3", "2"):
            store.retract_many([key(path)], NIGHT)
            seen.append(names(store, tmp_path / "p")["Company:acme"])
    spellings = [name for name, _ in seen]
    assert spellings == ["ACME", "Acme", "Acme Inc", "Acme Inc", "Acme Inc", "Acme", "ACME"]
    assert [count for _, count in seen] == [1, 2, 3, 4, 3, 2, 1]


def test_many_names_that_vanish_are_settled_as_few_are(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [(f"{letter}{name}", "Company") for letter in "ABCDE" for name in ("CME", "cme", "Cme Inc")]
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", *said[:10], ("Anna Berg", "Person")), NIGHT)
        store.apply(B, "mk-b", result("b", *said[1::3]), NIGHT)
        keys = [f"Company:{letter}cme" for letter in "abcde"]
        few = store._changes._spellings(keys)
        assert sorted(few["Company:acme"]) == ["ACME", "ACme Inc", "Acme"]
        monkeypatch.setattr(changes, "_ASKED_ONE_BY_ONE", 0)
        assert store._changes._spellings(keys) == few
        store.retract_many([A], NIGHT)
        assert store.stats().total_entities == 5
        store.retract_many([B], NIGHT)
        assert store.stats().total_entities == 0


@pytest.mark.parametrize("seed", range(2))
def test_order_and_batching_do_not_matter(tmp_path: Path, seed: int) -> None:
    history = random_changes(seed, documents=15, changes=50)
    one_by_one, at_once, other_order = (tmp_path / name for name in ("1", "2", "3"))
    with opened(one_by_one) as store:
        for change in history:
            store.apply(*change, NIGHT)
        expected, exported = store.digest(), [path.read_bytes() for path in store.export(tmp_path / "x1")]
    with opened(at_once) as store:
        store.apply_many(iter(history), NIGHT)
        assert store.digest() == expected
        assert [path.read_bytes() for path in store.export(tmp_path / "x2")] == exported
    by_document: dict[DocumentKey, list[Change]] = {}
    for change in history:
        by_document.setdefault(change[0], []).append(change)
    groups = list(by_document.values())
    random.Random(seed).shuffle(groups)
    with opened(other_order) as store:
        store.apply_many([change for group in groups for change in group], NIGHT)
        assert store.digest() == expected
        assert store.stats().mentions == pq.read_table(tmp_path / "x1" / "mentions.parquet").num_rows > 50


# --- publishing and export


def test_publishing_an_unchanged_graph_writes_nothing(live: Path, tmp_path: Path) -> None:
    published = tmp_path / "out" / "published"
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", ACME), NIGHT)
        store.publish(published)
    before = (published.stat().st_ino, published.stat().st_mtime_ns, live.stat().st_mtime_ns, sha256_file(live))
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", ACME), NIGHT)
        store.publish(published)
    assert before == (published.stat().st_ino, published.stat().st_mtime_ns, live.stat().st_mtime_ns, sha256_file(live))
    with opened(live) as store:
        store.apply(B, "mk-b", result("b", ANNA), NIGHT)
        store.publish(published)
        assert store.stats().mentions == 2
    assert published.stat().st_ino != before[0]
    assert [path.name for path in sorted(published.parent.iterdir())] == ["published", "published.seal"]


def test_a_reader_keeps_its_copy_while_the_writer_goes_on(live: Path, tmp_path: Path) -> None:
    published = tmp_path / "published"
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", ACME), NIGHT)
        first = store.digest()
        with GraphReader(store.publish(published)) as reader:
            assert reader.digest() == first
            for number in range(20):
                store.apply(key(f"{number}.md"), "mk", result(f"{number}", ANNA, ACME), NIGHT)
                assert reader.stats().mentions == 1
            store.publish(published)
            assert reader.digest() == first
            with GraphReader(published) as newer:
                assert newer.digest() == store.digest() != first


def test_a_broken_published_copy_is_replaced(live: Path, tmp_path: Path) -> None:
    published = tmp_path / "published"
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", ACME), NIGHT)
        store.publish(published)
        published.write_bytes(b"not a graph")
        with GraphReader(store.publish(published)) as reader:
            assert reader.stats().mentions == 1


def test_the_export_is_plain_parquet(live: Path, tmp_path: Path) -> None:
    with opened(live) as store:
        empty = store.export(tmp_path / "empty")
        store.apply(A, "mk-a", result("a", ACME, ANNA), NIGHT)
        store.export(tmp_path / "full")
    assert {pq.read_table(path).num_rows for path in empty} == {0}
    full = {path.stem: pq.read_table(path).to_pylist() for path in (tmp_path / "full").iterdir()}
    assert [entity["name"] for entity in full["entities"]] == ["Acme Inc", "Anna Berg"]
    assert full["documents"][0]["path"] == "a.md"
    assert [(row["entity"], row["start_char"]) for row in full["mentions"]] == [
        ("Company:acme", 0),
        ("Person:anna berg", 9),
    ]


# --- traps


def in_another_process(code: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


OPEN_STORE = """
import sys
from pathlib import Path
from ec1.errors import BusyError
from ec1.graph.ladybug_store import LadybugStore
try:
    with LadybugStore.open(Path(sys.argv[1]), buffer_pool_mib=64, wait_seconds=0.2):
        print("opened")
except BusyError as error:
    print(error)
"""
FOREIGN_WRITER = """
import ladybug, sys
database = ladybug.Database(sys.argv[1], buffer_pool_size=2**26)
print("up", flush=True)
input()
"""
TRY_LOCK = """
import fcntl, sys
try:
    fcntl.lockf(open(sys.argv[1], "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("free")
except BlockingIOError:
    print("locked")
"""


def test_a_second_writer_is_told_who_holds_the_graph(live: Path) -> None:
    with opened(live):
        other = in_another_process(OPEN_STORE, live)
        assert f"held by process {os.getpid()} since" in other.stdout
        with pytest.raises(BusyError, match=str(os.getpid())), opened(live):
            pass
        link = live.with_name("link")
        link.symlink_to(live)
        with pytest.raises(BusyError), opened(link):
            pass
    assert in_another_process(OPEN_STORE, live).stdout.strip() == "opened"


def test_no_work_of_the_store_drops_the_lock_on_the_live_file(live: Path, tmp_path: Path) -> None:
    with opened(live, tmp_path / "published") as store:
        store.apply(A, "mk-a", result("a", ACME), NIGHT)
        store.export(tmp_path / "x")
        for _ in range(2):
            store.publish(tmp_path / "published")
            assert in_another_process(TRY_LOCK, live).stdout.strip() == "locked"
        GraphReader(tmp_path / "published").stats()
        assert in_another_process(TRY_LOCK, live).stdout.strip() == "locked"


def test_a_foreign_open_and_close_of_the_live_file_lets_no_writer_in(live: Path) -> None:
    """LadybugDB's own lock is gone after this; without the lock beside the file, later commits would vanish."""
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", ACME), NIGHT)
        live.read_bytes()
        assert in_another_process(TRY_LOCK, live).stdout.strip() == "free"
        assert "held by process" in in_another_process(OPEN_STORE, live).stdout
        store.apply(B, "mk-b", result("b", ANNA), NIGHT)
        expected = store.digest()
    with opened(live) as store:
        assert store.digest() == expected


def test_a_program_without_the_writer_lock_is_reported(live: Path) -> None:
    with opened(live):
        pass
    foreign = subprocess.Popen(
        [sys.executable, "-c", FOREIGN_WRITER, str(live)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert foreign.stdout is not None and foreign.stdout.readline() == "up\n"
    with pytest.raises(BusyError, match="writer lock"), opened(live):
        pass
    foreign.communicate("\n")


def test_the_buffer_pool_is_bounded(live: Path) -> None:
    with opened(live) as store:
        assert store._db._database.buffer_pool_size == 64 * 2**20


def test_a_store_does_not_survive_a_fork(live: Path) -> None:
    with opened(live) as store:
        child = os.fork()
        if child == 0:
            try:
                store.stats()
            except RuntimeError as error:
                os._exit(7 if "fork" in str(error) else 1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_one_key_twice_in_a_batch(live: Path, tmp_path: Path) -> None:
    double = result("a", ACME, ("ACME", "Company"), ("Acme, Inc.", "Company"))
    with opened(live) as store:
        done = store.apply_many([(A, "1", result("0", ANNA)), (A, "2", double), (B, "3", result("b", ACME))], NIGHT)
        assert [(one.mentions, one.retracted) for one in done] == [(1, 0), (3, 1), (1, 0)]
        assert names(store, tmp_path / "p") == {"Company:acme": ("Acme, Inc.", 4)}


def test_one_place_found_by_two_overlapping_chunks_is_one_mention(live: Path, tmp_path: Path) -> None:
    once = Mention(name="Acme", entity_class="Company", confidence=0.5, chunk=1, start=90, end=94)
    twice = once.model_copy(update={"chunk": 0, "confidence": 0.8})
    both = result("a").model_copy(update={"mentions": (once, twice, once)})
    with opened(live) as store:
        assert store.apply(A, "mk-a", both, NIGHT).mentions == 1
        with GraphReader(store.publish(tmp_path / "p")) as reader:
            ((_, (mention,)),) = reader.show("acme")
    assert (mention.chunk, mention.confidence) == (0, 0.8)


def test_nothing_to_write(live: Path) -> None:
    with opened(live) as store:
        assert store.apply_many([], NIGHT) == []
        assert store.apply(A, "mk-a", result("a"), NIGHT).changed
        assert store.ledger()[A].mentions == 0
        assert store.stats().entities == {}
        assert store.retract_many([A], NIGHT)[0].changed


def test_odd_names_and_paths_are_stored_and_come_back(live: Path, tmp_path: Path) -> None:
    odd = [key("caf\udce9.md"), key("caf\\xe9.md"), key("a/é\U0001f600.md"), key("new\nline.md"), key("q'\"$.md")]
    with opened(live) as store:
        for number, document in enumerate(odd):
            store.apply(document, "mk", result(str(number), (f"Bob\ud800\0 '{number}' \U0001f600", "Person")), NIGHT)
        assert set(store.ledger()) == set(odd)
        with GraphReader(store.publish(tmp_path / "p")) as reader:
            assert {m.path for e in reader.entities() for _, found in reader.show(e.key) for m in found} == {
                document.path for document in odd
            }
            assert reader.entities(1, search="bob\ud800")[0].name.startswith("Bob��")


def test_a_confidence_that_is_no_number_is_refused(live: Path) -> None:
    bad = Mention(name="Acme", entity_class="Company", confidence=float("nan"), chunk=0, start=0, end=4)
    with opened(live) as store, pytest.raises(PermanentError, match="not a number"):
        store.apply(A, "mk-a", result("a").model_copy(update={"mentions": (bad,)}), NIGHT)


def test_mentions_that_were_not_written_undo_the_whole_transaction(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", ACME), NIGHT)
        before = store.digest()
        # Without its entity, the MATCH before CREATE finds nothing and says nothing.
        monkeypatch.setattr(Changes, "_write_entities", lambda *_: None)
        with pytest.raises(PermanentError, match="0 mentions were written where 2"):
            store.apply_many([(A, "2", result("two", ANNA)), (B, "3", result("b", ANNA))], NIGHT)
        assert store.digest() == before and set(store.ledger()) == {A}
        monkeypatch.undo()
        assert store.apply(A, "2", result("two", ANNA), NIGHT).changed


def test_a_failure_between_batches_keeps_what_was_written(live: Path) -> None:
    def results(stop: bool):  # type: ignore[no-untyped-def]
        for number in range(2500):
            if stop and number == 2400:
                raise ZeroDivisionError
            yield key(f"{number}.md"), "mk", result(f"{number}", (f"Name {number % 7}", "Person"))

    with opened(live) as store:
        with pytest.raises(ZeroDivisionError):
            store.apply_many(results(stop=True), NIGHT)
        assert store.stats().documents == 2000
        done = store.apply_many(results(stop=False), NIGHT)
        assert [one.changed for one in done] == [False] * 2000 + [True] * 500
        assert (store.stats().mentions, store.stats().entities) == (2500, {"Person": 7})


# --- recovery


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from graph_samples import NIGHT, key, result
from ec1.graph.ladybug_store import LadybugStore
with LadybugStore.open(Path(sys.argv[1]), buffer_pool_mib=64, wait_seconds=0) as store:
    for number in range(5):
        store.apply(key(f"new-{number}.md"), "mk", result(f"{number}", (f"New {number}", "Person")), NIGHT)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A live graph with commits that are only in its log, and a published copy without them."""
    folder = tmp_path_factory.mktemp("killed")
    with opened(folder / "live") as store:
        store.apply(A, "mk-a", result("a", ACME), NIGHT)
        store.publish(folder / "published")
    in_another_process(KILLED_WRITER, folder / "live", Path(__file__).parent)
    assert (folder / "live.wal").stat().st_size > 0
    return folder


@pytest.fixture
def torn(killed: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A copy of `killed` for one test: the live and the published path."""
    shutil.copytree(killed, tmp_path / "graph")
    return tmp_path / "graph" / "live", tmp_path / "graph" / "published"


def test_commits_in_an_intact_log_survive_a_kill(torn: tuple[Path, Path]) -> None:
    with opened(*torn) as store:
        assert store.recovered is None
        assert len(store.ledger()) == 6


@pytest.mark.parametrize("damage", ["cut", "bit", "tail", "garbage", "no live file", "empty live file"])
def test_a_torn_log_is_set_aside_and_the_published_copy_restored(torn: tuple[Path, Path], damage: str) -> None:
    live, published = torn
    log = live.with_name("live.wal")
    data = log.read_bytes()
    if damage.endswith("live file"):
        live.unlink() if damage.startswith("no") else live.write_bytes(b"")
    else:
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]
        log.write_bytes(
            {"cut": data[:-5], "bit": flipped, "tail": data + b"\x9f" * 99, "garbage": b"\x07" * 99}[damage]
        )
    with opened(live, published) as store:
        assert store.recovered is not None and str(published) in store.recovered
        assert set(store.ledger()) == {A}
        # The ledger is older now, so the caller applies from the outbox what is missing.
        for number in range(5):
            applied = store.apply(
                key(f"new-{number}.md"), "mk", result(f"{number}", (f"New {number}", "Person")), NIGHT
            )
            assert applied.changed
    assert (live.with_name("live.damaged") / "live.wal").is_file()
    with opened(live, published) as store:
        assert store.recovered is None and store.stats().entities == {"Company": 1, "Person": 5}


def test_a_torn_log_without_a_published_copy_starts_empty(torn: tuple[Path, Path]) -> None:
    live, _ = torn
    log = live.with_name("live.wal")
    log.write_bytes(log.read_bytes()[:-5])
    with opened(live) as store:
        assert store.recovered is not None and "started empty" in store.recovered
        assert store.ledger() == {}


def test_an_interrupted_recovery_is_done_again(torn: tuple[Path, Path]) -> None:
    live, published = torn
    live.with_name("live.wal").unlink()
    live.with_name("live.recovering").write_text("torn")
    with opened(live, published) as store:
        assert store.recovered is not None and "interrupted" in store.recovered
        assert set(store.ledger()) == {A}
    assert not live.with_name("live.recovering").exists()


def test_a_lost_live_file_comes_back_from_the_published_copy(torn: tuple[Path, Path]) -> None:
    live, published = torn
    live.with_name("live.wal").unlink()
    live.unlink()
    with opened(live, published) as store:
        assert store.recovered is not None and "missing" in store.recovered
        assert set(store.ledger()) == {A}


@pytest.fixture
def closed(live: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A live graph that was closed in order, and its published copy."""
    published = tmp_path / "published"
    with opened(live, published) as store:
        store.apply(A, "mk-a", result("a", ("Ann Ek", "Person")), NIGHT)
        store.publish(published)
    return live, published


def test_a_bit_that_flipped_anywhere_is_noticed_at_opening(closed: tuple[Path, Path]) -> None:
    live, published = closed
    for share in (0.3, 0.5, 0.95):
        flip(live, int(live.stat().st_size * share))
        with opened(live, published) as store:
            assert store.recovered is not None and "not as it was written" in store.recovered
            assert set(store.ledger()) == {A} and store.digest() == store.recounted_digest()


def test_a_seal_of_an_earlier_version_is_replaced_after_the_graph_was_checked(closed: tuple[Path, Path]) -> None:
    live, published = closed
    for path in closed:
        note = path.with_name(f"{path.name}.seal")
        was = read_json(note)
        write_json(note, {**{name: was[name] for name in ("bytes", "changed_ns")}, "sha256": sha256_file(path)})
    with opened(live, published) as store:
        assert store.recovered is None and set(store.ledger()) == {A}
        store.apply(B, "mk-b", result("b", ("Bo Dahl", "Person")), NIGHT)
        store.publish(published)
    for path in closed:
        flip(path, path.stat().st_size // 2)
    with pytest.raises(InputError, match="damaged on the disk"), GraphReader(published) as reader:
        reader.stats()
    with opened(live, published) as store:
        assert store.recovered is not None and "not as it was written" in store.recovered


def test_a_graph_and_its_copy_both_damaged_start_empty(closed: tuple[Path, Path]) -> None:
    live, published = closed
    live.unlink()
    flip(published, published.stat().st_size // 2)
    with pytest.raises(InputError, match="damaged on the disk"), GraphReader(published) as reader:
        reader.stats()
    with opened(live, published) as store:
        assert store.recovered is not None and "started empty" in store.recovered
        assert store.ledger() == {}
        store.apply(A, "mk-a", result("a", ("Ann Ek", "Person")), NIGHT)
        store.publish(published)
    with GraphReader(published) as reader:
        assert reader.stats().mentions == 1


def test_an_empty_live_file_never_takes_the_place_of_a_published_copy(closed: tuple[Path, Path]) -> None:
    live, published = closed
    with (
        pytest.raises(DamagedError, match="as soon as it is opened again"),
        LadybugStore.open(live, buffer_pool_mib=64, wait_seconds=0, published=published) as store,
    ):
        store.apply(B, "mk-b", result("b", ("Bo Dahl", "Person")), NIGHT)
        # While it is open.
        os.truncate(live, 0)
        store.publish(published)
    with opened(live, published) as store:
        assert store.recovered is not None and str(published) in store.recovered
        assert set(store.ledger()) == {A}


def test_another_schema_is_not_touched(live: Path) -> None:
    with opened(live):
        pass
    with ladybug.Database(live, buffer_pool_size=2**26) as database, ladybug.Connection(database) as connection:
        connection.execute("MATCH (m:Meta {name: 'schema'}) SET m.value = '99'")
    before = sha256_file(live)
    with pytest.raises(PermanentError, match="schema 99"), opened(live):
        pass
    assert sha256_file(live) == before


def test_a_file_of_another_ladybug_version_is_not_set_aside(live: Path) -> None:
    with opened(live):
        pass
    data = bytearray(live.read_bytes())
    data[4] ^= 255
    live.write_bytes(data)
    with pytest.raises(PermanentError, match="another version of ladybug"), opened(live):
        pass
    assert live.read_bytes() == data


def test_a_closed_store_says_so(live: Path) -> None:
    with opened(live) as store:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        store.stats()


def test_ledger_entries_are_plain_records(live: Path) -> None:
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", ACME), NIGHT)
        entry = store.ledger()[A]
    assert replace(entry, night="2026-07-01").night == "2026-07-01"


def test_a_disk_that_is_almost_full_is_not_written_to(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LadybugDB ends the process when the disk fills while it writes its log."""
    with opened(live) as store:
        store.apply(A, "mk-a", result("a", ACME), NIGHT)
        before = store.digest()
        usage = shutil.disk_usage(live.parent)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2**20))
        with pytest.raises(PermanentError, match="three times its size"):
            store.apply(key("b.md"), "mk-b", result("b", ACME), NIGHT)
        assert store.digest() == before


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_kept_figures_are_those_of_the_rows_after_any_history(live: Path, seed: int) -> None:
    rng = random.Random(seed)
    forms = ["Acme Inc", "ACME", "acme", "Bo Li", "BO LI", "Bo  Li", "Carl Ek"]
    with opened(live) as store:
        for step in range(60):
            path, night = key(f"{rng.randrange(8)}.md"), f"2026-06-{1 + step // 4:02}"
            said = [(rng.choice(forms), rng.choice(["Person", "Company"])) for _ in range(rng.randrange(5))]
            status = rng.choices(["complete", "deferred", "rejected"], [6, 1, 1])[0]
            found = result(f"{path.path} {step if rng.random() < 0.8 else 0}", *said, status=status)
            if status == "complete" and said:
                found = related(found, rng)
            if rng.random() < 0.2:
                store.retract_many([path], night)
            else:
                store.apply_many([(path, f"mk-{step}", found)], night)
            if rng.random() < 0.3:
                assert store.digest() == store.recounted_digest()


def related(found: ExtractionResult, rng: random.Random) -> ExtractionResult:
    """The same result with a trait and a relation between two of its entities."""
    one, other = rng.choice(found.mentions), rng.choice(found.mentions)
    relation = Relation(
        relation="part_of", subject=one.name, subject_class=one.entity_class, object=other.name,
        object_class=other.entity_class, confidence=0.5, chunk=0, start=0, end=9,
    )  # fmt: skip
    trait = Trait(name=one.name, entity_class=one.entity_class, kind="email", value=f"{rng.randrange(3)}@a.example")
    return found.model_copy(update={"relations": (relation,), "traits": (trait,)})


def test_the_traits_of_a_document_are_found_by_its_key(tmp_path: Path) -> None:
    """Not by going through all entities, as the database would by itself."""
    with LadybugStore.open(tmp_path / "live", buffer_pool_mib=64, wait_seconds=0) as store:
        (plan,) = store._db.execute(f"EXPLAIN {tables.TRAITS_OF} RETURN e.key AS entity".replace("$key", "'x'"))
    assert "(d)-[t]->(e)" in next(iter(plan.values()))
