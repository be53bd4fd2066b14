"""A document of which some chunks were answered: their mentions count until all of it does."""

from pathlib import Path

from ec1.documents.ledger import DocumentKey, Status
from ec1.extraction.results import ExtractionResult, Mention
from ec1.graph.ladybug_store import LadybugStore

KEY = DocumentKey("meeting", "a.md")


def result(status: str, *names: str, fingerprint: str = "f") -> ExtractionResult:
    return ExtractionResult.model_validate(
        {
            "content_sha256": "c" * 64,
            "stream": "meeting",
            "fingerprint": fingerprint * 64,
            "status": status,
            "reason": None if status == "complete" else "chunk 2: no answer",
            "mentions": [
                Mention(name=name, entity_class="Person", confidence=0.9, chunk=0, start=9 * i, end=9 * i + 3)
                for i, name in enumerate(names)
            ],
        }
    )


def test_a_part_counts_until_the_whole_does_and_after_quarantine(tmp_path: Path) -> None:
    with LadybugStore.open(tmp_path / "graph", buffer_pool_mib=64, wait_seconds=5) as store:
        for night in ("2026-06-01", "2026-06-02"):
            store.apply_many([(KEY, "mk-1", result("deferred", "Ann"))], night, quarantine_after=2)
        assert store.ledger()[KEY].status == Status.QUARANTINED
        assert store.stats().mentions == 1
        store.apply_many([(KEY, "mk-1", result("complete", "Ann", "Bob"))], "2026-06-03", quarantine_after=2)
        assert store.stats().mentions == 2
        # What a new extractor found of a part does not replace the whole.
        part = result("deferred", "Eve", fingerprint="e")
        store.apply_many([(KEY, "mk-1", part)], "2026-06-04", quarantine_after=2)
        assert store.stats().mentions == 2
