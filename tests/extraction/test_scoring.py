from pathlib import Path

import pytest

from ec1.documents.ledger import DocumentKey
from ec1.errors import InputError
from ec1.extraction.scoring import read_gold, score

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
