"""A night's listing and outbox become the graph: in batches, again without effect, and whole after a restored copy."""

import datetime as dt
import errno
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from graph_samples import FINGERPRINT, result

from ec1.documents import steady
from ec1.documents.ledger import DocumentKey, Fingerprints, LedgerEntry, Status
from ec1.documents.listing import Listing
from ec1.documents.scan import scan_documents
from ec1.documents.settings import DocumentSettings
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.results import ExtractionResult
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.reader import published_ledger
from ec1.night.records import GraphRecord
from ec1.night.steps.early import EarlyGraph
from ec1.night.steps.graph import apply_finished, apply_night, listing_to_apply
from ec1.streams import CONTRACT_STREAMS

FINGERPRINTS = Fingerprints(dict.fromkeys(CONTRACT_STREAMS, FINGERPRINT))
NIGHT = "2026-06-01"


@dataclass(frozen=True)
class Phase1:
    """The files of one home, and a night on them without a model: results are put into the outbox directly."""

    root: Path

    @property
    def outbox(self) -> Outbox:
        return Outbox(self.root / "outbox")

    def write(self, name: str, *people: str, extracted: bool = True) -> None:
        path = self.root / "documents" / CONTRACT_STREAMS["meeting"].folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}: {', '.join(people)}")
        if extracted:
            self.outbox.put(result(path.read_text(), *((person, "Person") for person in people)))

    def remove(self, name: str) -> None:
        (self.root / "documents" / CONTRACT_STREAMS["meeting"].folder / name).unlink()

    def list(self, ledger: Mapping[DocumentKey, LedgerEntry]) -> Listing:
        return scan_documents(
            self.root / "documents",
            ledger,
            FINGERPRINTS,
            night=NIGHT,
            as_of=dt.datetime.now(dt.UTC) + dt.timedelta(days=1),
            retract_vanished=True,
            settings=DocumentSettings(max_vanished_share=1),
            cache=self.root / "cache",
        )

    def open(self) -> AbstractContextManager[LadybugStore]:
        return LadybugStore.open(
            self.root / "live", buffer_pool_mib=64, wait_seconds=0, published=self.root / "published"
        )

    def night(self, listing: Listing | None = None) -> GraphRecord:
        with self.open() as store:
            tonight = listing_to_apply(store, listing or self.list(store.ledger()), self.list)
            done = apply_night(store, tonight, self.outbox, FINGERPRINTS, quarantine_after=3)
            store.publish(self.root / "published")
            return done


@pytest.fixture
def home(tmp_path: Path) -> Phase1:
    return Phase1(tmp_path)


def test_a_night_counts_what_it_applied(home: Phase1) -> None:
    home.write("a.md", "Anna Berg", "Ben Cole")
    home.write("b.md", "Anna Berg")
    home.write("late.md", "Dora Eck", extracted=False)
    done = home.night()
    assert (done.applied, done.missing, done.deferred, done.vanished) == (2, 1, 0, 0)
    assert (done.entities_before, done.entities_after, done.mentions_after) == (0, 2, 3)
    assert done.partial
    home.remove("b.md")
    home.write("late.md", "Dora Eck")
    done = home.night()
    assert (done.applied, done.missing, done.vanished, done.entities_after) == (1, 0, 1, 3)
    assert not done.partial


def test_repeating_a_night_changes_nothing(home: Phase1) -> None:
    for number in range(30):
        home.write(f"{number}.md", f"Person {number}", "Anna Berg")
    with home.open() as store:
        listing = home.list(store.ledger())
    once = home.night(listing)
    again = home.night(listing)
    assert once.digest == again.digest
    assert (again.entities_before, again.entities_after) == (31, 31)


class FailingOutbox(Outbox):
    """An outbox whose disk fails after some results."""

    left = 1100

    def get(self, fingerprint: str, content_sha256: str) -> ExtractionResult | None:
        self.left -= 1
        if self.left < 0:
            raise OSError("the disk is gone")
        return super().get(fingerprint, content_sha256)


def test_what_was_applied_before_a_failure_counts_and_the_rest_follows(home: Phase1) -> None:
    for number in range(1200):
        home.write(f"{number:04}.md", f"Person {number % 7}")
    with home.open() as store:
        listing = home.list(store.ledger())
        with pytest.raises(OSError, match="the disk is gone"):
            apply_night(store, listing, FailingOutbox(home.root / "outbox"), FINGERPRINTS, quarantine_after=3)
        # A batch is a thousand documents: the second one was not full yet.
        assert store.stats().documents == 1000
        done = apply_night(store, listing, home.outbox, FINGERPRINTS, quarantine_after=3)
    assert (done.entities_after, done.mentions_after) == (7, 1200)


def test_a_rejected_file_is_in_the_ledger_with_its_reason(home: Phase1) -> None:
    home.write("a.md", "Anna Berg")
    (home.root / "documents" / CONTRACT_STREAMS["meeting"].folder / "picture.md").write_bytes(b"\x89PNG\0\0\1" * 99)
    done = home.night()
    assert done.rejected == 1 and [path.rpartition("/")[2] for path, _ in done.refused] == ["picture.md"]
    with home.open() as store:
        entry = next(entry for key, entry in store.ledger().items() if key.path.endswith("picture.md"))
    assert entry.status is Status.REJECTED and entry.reason


def test_a_file_that_the_disk_does_not_give_is_deferred_and_named(
    home: Phase1, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write("a.md", "Anna Berg")
    home.write("b.md", "Ben Cole")
    given = steady._hash_file

    def lost(path: Path, max_bytes: int) -> object:
        if path.name == "b.md":
            raise OSError(errno.EIO, "Input/output error")
        return given(path, max_bytes)

    monkeypatch.setattr(steady, "_hash_file", lost)
    done = home.night()
    ((path, reason),) = done.unread
    assert (done.applied, done.deferred, done.partial) == (1, 1, True)
    assert path.endswith("b.md") and "Input/output error" in reason
    monkeypatch.undo()
    done = home.night()
    assert (done.applied, done.deferred, done.unread) == (1, 0, [])


def test_what_a_restored_graph_lacks_is_applied_in_the_same_night(home: Phase1) -> None:
    home.write("a.md", "Anna Berg")
    home.night()
    home.write("b.md", "Ben Cole")
    home.write("c.md", "Carla Dahl")
    with home.open() as store:
        older = home.list(store.ledger())
        apply_night(store, older, home.outbox, FINGERPRINTS, quarantine_after=3)
    home.write("d.md", "Dora Eck")
    home.remove("a.md")
    with home.open() as store:
        listing = home.list(store.ledger())
    assert [version.key.path[-4:] for version in listing.changed] == ["d.md"]
    calm = Phase1(home.root.with_name("calm"))
    shutil.copytree(home.root, calm.root)
    (home.root / "live").unlink()
    done = home.night(listing)
    assert done.recovered is not None and "is missing" in done.recovered
    assert (done.applied, done.vanished, done.entities_after) == (3, 1, 3)
    assert done.digest == calm.night(listing).digest
    assert home.night().recovered is None


def test_nights_on_which_the_server_was_at_fault_quarantine_nothing(home: Phase1) -> None:
    home.write("a.md", "Ann Lee", extracted=False)
    home.write("b.md", "Bo Li", extracted=False)
    texts = {name: f"{name}: {person}" for name, person in (("a.md", "Ann Lee"), ("b.md", "Bo Li"))}
    home.outbox.put(result(texts["a.md"], status="deferred").model_copy(update={"blamed": False}))
    home.outbox.put(result(texts["b.md"], status="deferred"))
    for _ in range(4):
        night = home.night()
        assert night.deferred >= 1 and night.partial
    with home.open() as store:
        ledger = {key.path[-4:]: entry for key, entry in store.ledger().items()}
        assert [version.key.path[-4:] for version in home.list(store.ledger()).changed] == ["a.md", "b.md"]
    # The same night counts once; the other document has no row, and so no night against it.
    assert ledger.keys() == {"b.md"} and ledger["b.md"].attempts == 1


def test_what_is_finished_counts_while_the_rest_is_read_and_the_graph_ends_the_same(
    home: Phase1, tmp_path: Path
) -> None:
    for name, people in (("a.md", ["Anna Berg", "Ben Cole"]), ("b.md", ["Anna Berg"]), ("c.md", ["Dora Eck"])):
        home.write(name, *people, extracted=False)
    with home.open() as store:
        listing = home.list(store.ledger())
    home.write("a.md", "Anna Berg", "Ben Cole")
    with home.open() as store:
        early = apply_finished(store, listing, home.outbox, FINGERPRINTS)
        store.publish(home.root / "published")
    assert (early.applied, early.missing, early.entities_before, early.entities_after) == (1, 2, 0, 2)
    assert [key.path[-4:] for key in published_ledger(home.root / "published")] == ["a.md"]
    home.write("b.md", "Anna Berg")
    with home.open() as store:
        more = apply_finished(store, listing, home.outbox, FINGERPRINTS, early)
    assert (more.applied, more.missing, more.entities_before, more.mentions_after) == (2, 1, 0, 3)
    home.write("c.md", "Dora Eck")
    done = home.night(listing)
    assert (done.applied, done.missing, done.entities_after) == (3, 0, 3)
    # As if it had been applied in one go.
    other = Phase1(tmp_path / "other")
    for path in (home.root / "documents").rglob("*.md"):
        other.write(path.name, *path.read_text().partition(": ")[2].split(", "))
    assert other.night().digest == done.digest


def test_an_early_graph_is_published_now_and_then_and_waited_for() -> None:
    now, published = [0.0], []
    with EarlyGraph(lambda: published.append(now[0]), lambda: now[0]) as early:
        for second in range(0, 1000, 5):
            now[0] = float(second)
            early.look()
            early.settle()
    assert published == [120.0, 420.0, 720.0]


def test_an_early_graph_that_another_writer_holds_up_is_left_to_the_last_step(home: Phase1) -> None:
    home.write("a.md", "Anna Berg")
    tries, now = [], [0.0]

    def publish() -> None:
        tries.append(now[0])
        with home.open():
            raise AssertionError("there are two writers")

    with home.open(), EarlyGraph(publish, lambda: now[0]) as early:
        for now[0] in (0.0, 200.0, 900.0):
            early.look()
            early.settle()
    assert tries == [200.0]
