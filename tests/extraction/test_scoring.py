import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from ec1.documents.ledger import DocumentKey, LedgerEntry, Status
from ec1.documents.reader import DocumentReader
from ec1.errors import InputError
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.results import ExtractionResult, Mention
from ec1.extraction.scoring import ScoreTable, read_gold, score, score_ledger

A, B = DocumentKey("meeting", "a.md"), DocumentKey("contact", "b.json")


def test_classes_are_scored_apart_and_together() -> None:
    gold = {
        A: frozenset({("ann lee", "Person"), ("york", "Location"), ("acme", "Company")}),
        B: frozenset({("ann lee", "Person")}),
    }
    predicted = {A: frozenset({("ann lee", "Person"), ("york", "Person"), ("may", "Person")})}
    table = score(predicted, gold)
    person = table["Person"]
    assert (person.found, person.gold, person.right) == (3, 2, 1)
    assert (person.precision, person.recall) == (pytest.approx(1 / 3), 0.5)
    assert (table["all"].right, table["all"].found, table["all"].gold) == (1, 3, 4)
    assert table["any class"].right == 2
    assert table["Project"].precision == 1.0
    assert table.documents == 2
    assert table.record()["Person"]["precision"] == pytest.approx(1 / 3, abs=1e-6)
    # Of what is not there at all, there is no figure.
    assert table.record()["Project"]["precision"] is None and table.record()["Project"]["f1"] is None
    (row,) = [line for line in str(table).splitlines() if line.startswith("Project")]
    assert row.split() == ["Project", "0", "0", "0", "-", "-", "-"]
    assert "any class" in str(table)


def test_documents_without_gold_do_not_count() -> None:
    assert score({B: frozenset({("x", "Person")})}, {A: frozenset()})["all"].found == 0


def test_the_samples_gold_is_read(project: Path) -> None:
    gold = read_gold(project / "examples" / "gold" / "entities.jsonl")
    assert len(gold) >= 24
    assert score(gold, gold)["all"].f1 == 1.0


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "gold.jsonl"
    path.write_text('{"stream":"meeting","path":"a","entities":[]}\n{"stream":"meeting"}\n')
    with pytest.raises(InputError, match=r"gold\.jsonl:2: no gold record: KeyError 'path'"):
        read_gold(path)


def test_an_interval_holds_its_figure_and_narrows_with_more_documents() -> None:
    def table(documents: int) -> ScoreTable:
        gold = {
            DocumentKey("meeting", str(i)): frozenset({("a", "Person"), ("b", "Company")}) for i in range(documents)
        }
        found = {key: frozenset({("a", "Person")} if i % 2 else {("c", "Person")}) for i, key in enumerate(gold)}
        return score(found, gold)

    few, many = table(8)["all"], table(200)["all"]
    assert few.interval[0] <= few.f1 <= few.interval[1]
    assert many.interval[1] - many.interval[0] < few.interval[1] - few.interval[0]


def test_the_base_line_stands_beside_what_was_scored(tmp_path: Path) -> None:
    text = "We met Maria Alvarez at Lake Tahoe."
    (tmp_path / "a.md").write_text(text)
    entry = LedgerEntry(A, "mk-1", hashlib.sha256(text.encode()).hexdigest(), "f" * 64, Status.APPLIED, "2026-06-01")
    gold = {A: frozenset({("maria alvarez", "Person"), ("lake tahoe", "Location")})}
    table = score_ledger({A: entry}, Outbox(tmp_path), gold, DocumentReader(tmp_path, 10**6))
    assert table["all"].found == 0
    assert table.baseline is not None
    assert table.baseline["all"].right == 2
    assert table.record()["all"]["baseline_f1"] == 1.0
    assert "base line" in str(table)


def test_ours_and_the_base_line_are_scored_over_the_same_documents(tmp_path: Path) -> None:
    text = "We met Maria Alvarez at Lake Tahoe."
    (tmp_path / "a.md").write_text(text)
    (tmp_path / "b.json").write_text("edited since")
    digest = hashlib.sha256(text.encode()).hexdigest()
    ledger = {
        A: LedgerEntry(A, "mk-1", digest, "f" * 64, Status.APPLIED, "2026-06-01"),
        B: LedgerEntry(B, "mk-2", "0" * 64, "f" * 64, Status.APPLIED, "2026-06-01"),
    }
    maria = frozenset({("maria alvarez", "Person")})
    gold = {A: maria, B: maria, DocumentKey("meeting", "new.md"): maria}
    table = score_ledger(ledger, Outbox(tmp_path), gold, DocumentReader(tmp_path, 10**6))
    assert table.documents == 1 and table.left_out == {"not read": 1, "changed since": 1}
    assert table.baseline is not None and table.baseline["all"].gold == table["all"].gold == 1
    with pytest.raises(InputError, match=r"none of the 1 documents .* \(1 not read\): run a night"):
        score_ledger({}, Outbox(tmp_path), {A: maria}, DocumentReader(tmp_path, 10**6))


@pytest.mark.parametrize("status", [Status.DEFERRED, Status.QUARANTINED])
def test_a_part_of_a_document_counts_with_what_was_found(tmp_path: Path, status: Status) -> None:
    text = "We met Maria Alvarez at Lake Tahoe."
    (tmp_path / "a.md").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    outbox = Outbox(tmp_path / "outbox")
    found = Mention(name="Maria Alvarez", entity_class="Person", chunk=0, start=7, end=20, confidence=0.9)
    outbox.put(
        ExtractionResult(
            content_sha256=digest, stream="meeting", fingerprint="f" * 64, status="deferred", mentions=(found,)
        )
    )
    entry = LedgerEntry(A, "mk-1", digest, "f" * 64, status, "2026-06-01")
    table = score_ledger(
        {A: entry}, outbox, {A: frozenset({("maria alvarez", "Person")})}, DocumentReader(tmp_path, 10**6)
    )
    assert table["all"].right == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "holds no gold"),
        (
            b'{"stream":"meeting","path":"a","entities":[{"name":"X","class":"Persn"}]}',
            ":1: no class Persn: the classes",
        ),
        (b"\xff\xfe\x00", r"no text in UTF-8 \(byte 0\)"),
    ],
)
def test_gold_that_cannot_be_meant_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "gold.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        read_gold(path)


def test_precision_recall_and_the_base_line_have_intervals_too() -> None:
    gold = {DocumentKey("meeting", str(i)): frozenset({("a", "Person"), ("b", "Company")}) for i in range(20)}
    found = {key: frozenset({("a", "Person")} if i % 2 else {("c", "Person")}) for i, key in enumerate(gold)}
    table = replace(score(found, gold), baseline=score(found, gold))
    figures = table.record()["all"]
    for name in ("precision", "recall", "f1", "baseline_f1"):
        low, figure, high = (figures[each] for each in (f"{name}_low", name, f"{name}_high"))
        assert low is not None and figure is not None and high is not None and low < figure < high
    assert max(map(len, str(table).splitlines())) <= 120
