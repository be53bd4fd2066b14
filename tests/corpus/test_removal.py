"""A planted person is removed and searched for in the whole home; what was removed does not come back."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from corpus_builder import NIGHT, edit, write_lines

from ec1.corpus import pieces
from ec1.corpus.buckets import Bucket, bucket
from ec1.corpus.dataset import build_dataset
from ec1.corpus.options import DataOptions
from ec1.corpus.snapshots import Snapshot, take_snapshot
from ec1.corpus.threshold import HighWaterMark, decide, must_train_again, trained_snapshot
from ec1.corpus.tombstones import Tombstones
from ec1.corpus.tuples import parse_record
from ec1.deployment import Deployment
from ec1.errors import InputError
from ec1.home import Home
from ec1.night.forgetting import forget as forgetting
from ec1.night.forgetting.forget import Forgotten
from ec1.night.forgetting.wanted import Wanted
from ec1.night.stores import open_registry

PERSON = "Ottilie Brandt"


@pytest.fixture
def corpus(home: Home) -> Bucket:
    records = [edit(number) for number in range(40)]
    records[7] |= {"author": "Ottilie Brandt"}
    records[9] |= {"commit_msg": "fix(m9): as ottilie brandt asked"}
    write_lines(home.corpus / "engineering/demo/a.jsonl", records[:20])
    write_lines(home.corpus / "engineering/demo/b.jsonl", records[20:])
    return bucket(home.corpus, "engineering", "acme")


def snapshot(of: Bucket, home: Home) -> Snapshot:
    return take_snapshot(of, "sft", as_of=NIGHT, home=home)


def forget(wanted: Wanted, deployment: Deployment, home: Home) -> Forgotten:
    registry = open_registry(deployment, home)
    return forgetting.forget(wanted, deployment, home, registry, lambda snapshots, datasets: [])


def find(wanted: Wanted, deployment: Deployment, home: Home) -> Forgotten:
    return forgetting.look(wanted, deployment, home, lambda snapshots, datasets: [])


def holding(folder: Path, text: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.lower().encode() in path.read_bytes().lower()]


def test_a_person_is_gone_from_the_whole_home(
    corpus: Bucket, home: Home, small_model: Path, embedded: Deployment
) -> None:
    from transformers import AutoTokenizer

    taken = snapshot(corpus, home)
    tokenizer = AutoTokenizer.from_pretrained(small_model)
    dataset = build_dataset(taken, DataOptions(), tokenizer, home=home, objective="sft")
    (home.runs / "acme/engineering/2026-06-01").mkdir(parents=True)
    (home.runs / "acme/engineering/2026-06-01/notes.json").write_text(f'{{"prompt": "{PERSON}"}}')
    HighWaterMark(home, "acme", "engineering").advance(taken.digest, "2026-06-01", "run", "recipe")
    assert holding(home.root, PERSON)
    found = find(Wanted(person=PERSON), embedded, home)
    assert [(each.file, each.line) for each in found.tuples] == [
        ("engineering/demo/a.jsonl", 8),
        ("engineering/demo/a.jsonl", 10),
    ]
    assert (found.snapshots, found.datasets) == ([taken.digest], [dataset.digest])
    assert taken.path.is_dir(), "looking changes nothing"
    removed = forget(Wanted(person=PERSON), embedded, home)
    assert len(removed.tuples) == 2 and removed.left == {}
    assert holding(home.root, PERSON) == []
    assert not taken.path.exists() and not dataset.path.exists()
    again = forget(Wanted(person=PERSON), embedded, home)
    assert (again.tuples, again.snapshots, again.datasets) == ([], [], [])
    later = snapshot(corpus, home)
    assert (later.lines, later.trainable) == (38, 38)


def test_of_snapshots_that_share_their_pieces_all_that_hold_a_person_go(
    corpus: Bucket, home: Home, monkeypatch: pytest.MonkeyPatch, embedded: Deployment
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 2000)
    (home.corpus / "engineering/demo/b.jsonl").rename(home.corpus / "later.jsonl")
    taken = [snapshot(corpus, home)]
    (home.corpus / "later.jsonl").rename(home.corpus / "engineering/demo/b.jsonl")
    taken.append(snapshot(corpus, home))
    write_lines(home.corpus / "engineering/demo/a.jsonl", [edit(number) for number in range(7)])
    without = snapshot(corpus, home)
    shared = [{path.stat().st_ino for path in each.path.glob("tuples-*.jsonl")} for each in (*taken, without)]
    assert shared[0] & shared[1] and shared[1] & shared[2]
    assert sorted(find(Wanted(person=PERSON), embedded, home).snapshots) == sorted(each.digest for each in taken)
    forget(Wanted(person=PERSON), embedded, home)
    assert holding(home.root, PERSON) == []
    assert without.path.is_dir() and len(list(without.rows())) == without.trainable == 27
    write_lines(home.corpus / "engineering/again.jsonl", [edit(7, author=PERSON)])
    assert snapshot(corpus, home).rejected == {"was removed on request: ec1 forget": 1}, "known by a snapshot"


def test_what_was_removed_does_not_come_back(corpus: Bucket, home: Home, embedded: Deployment) -> None:
    forget(Wanted(source=f"source_commit:{7:040x}"), embedded, home)
    write_lines(home.corpus / "engineering/other/again.jsonl", [edit(7), edit(7, diff="+ another cut"), edit(99)])
    back = snapshot(corpus, home)
    assert back.trainable == 40
    assert back.rejected["was removed on request: ec1 forget"] == 2
    assert Tombstones(home).refuses_commit(f"{7:040x}") and not Tombstones(home).refuses_commit(f"{8:040x}")
    row: dict[str, Any] = {"prompt": "Sky?", "completion": "As Ottilie Brandt says: blue."}
    write_lines(home.corpus / "engineering/talk.jsonl", [row])
    forget(Wanted(match="Ottilie Brandt says"), embedded, home)
    assert Tombstones(home).refuses(parse_record(row | {"metadata": {"imported": 2}})), "the same words, another head"
    assert holding(home.removals, "ottilie") == [], "a record does not repeat what was to be forgotten"


def test_what_was_trained_on_it_is_trained_again(corpus: Bucket, home: Home, embedded: Deployment) -> None:
    taken = snapshot(corpus, home)
    mark = HighWaterMark(home, "acme", "engineering")
    mark.advance(taken.digest, "2026-06-01", "run", "recipe")
    assert not must_train_again(home, "acme", "engineering")
    forget(Wanted(person=PERSON), embedded, home)
    assert must_train_again(home, "acme", "engineering")
    trained = trained_snapshot(home, corpus.name, "acme", "engineering", "recipe")
    later = snapshot(corpus, home)
    decision = decide(later, threshold=1000, trained=trained, again=True)
    assert trained is None and decision.train and "trained again on 38" in decision.reason
    mark.advance(later.digest, (dt.date(2026, 6, 2)).isoformat(), "run-2", "recipe")
    assert not must_train_again(home, "acme", "engineering")


def test_one_thing_is_looked_for(home: Home) -> None:
    for wrong in ({}, {"match": "a", "person": "b"}, {"match": " "}, {"source": "S1"}):
        with pytest.raises(InputError):
            Wanted(**wrong)  # type: ignore[arg-type]
    assert Wanted(person="Al").in_text("Al said") and not Wanted(person="Al").in_text("Algebra")
