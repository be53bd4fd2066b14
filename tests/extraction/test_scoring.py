import hashlib
from pathlib import Path

import pytest

from ec1.documents.ledger import DocumentKey, LedgerEntry, Status
from ec1.errors import InputError
from ec1.extraction.outbox import Outbox
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
    assert table.record()["Person"]["precision"] == 0.333
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
    table = score_ledger({A: entry}, Outbox(tmp_path), gold, tmp_path)
    assert table["all"].found == 0
    assert table.baseline is not None
    assert table.baseline["all"].right == 2
    assert table.record()["all"]["baseline_f1"] == 1.0
    assert "base line" in str(table)


def test_a_document_that_was_changed_since_has_no_base_line(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("Maria Alvarez came.")
    entry = LedgerEntry(A, "mk-1", "0" * 64, "f" * 64, Status.APPLIED, "2026-06-01")
    table = score_ledger({A: entry}, Outbox(tmp_path), {A: frozenset({("maria alvarez", "Person")})}, tmp_path)
    assert table.baseline is not None
    assert table.baseline["all"].found == 0
