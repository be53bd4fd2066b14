"""The decision to train, and that one corpus triggers once."""

import datetime as dt
from pathlib import Path

import pytest
from corpus_builder import NIGHT, apprenticeship, edit, write_lines

from ec1.corpus.buckets import bucket
from ec1.corpus.snapshots import Snapshot, load_snapshot, take_snapshot
from ec1.corpus.threshold import HighWaterMark, decide
from ec1.home import Home


def engineering(root: Path, home: Home) -> Snapshot:
    return take_snapshot(bucket(root, "engineering", "acme"), "sft", as_of=NIGHT, home=home)


def test_lines_are_counted_and_not_files(tmp_path: Path, home: Home) -> None:
    write_lines(tmp_path / "engineering/one.jsonl", [edit(number) for number in range(60)])
    decision = decide(engineering(tmp_path, home), threshold=50, trained=None)
    assert (decision.train, decision.new, decision.trainable) == (True, 60, 60)
    for number in range(100, 160):
        write_lines(tmp_path / f"other/engineering/{number}.jsonl", [edit(number, diff="")])
    below = decide(engineering(tmp_path / "other", home), threshold=50, trained=None)
    assert (below.train, below.trainable) == (False, 0)
    assert "trainable" in below.reason


def test_each_method_counts_by_its_own_rule(tmp_path: Path, home: Home) -> None:
    """A DPO rule applied to SFT rows once counted 0 of 60."""
    write_lines(tmp_path / "engineering/one.jsonl", [edit(number) for number in range(60)])
    of = bucket(tmp_path, "engineering", "acme")
    assert take_snapshot(of, "sft", as_of=NIGHT, home=home).trainable == 60
    assert take_snapshot(of, "dpo", as_of=NIGHT, home=home).trainable == 0
    write_lines(tmp_path / "apprenticeship/t/one.jsonl", [apprenticeship(number) for number in range(60)])
    assert take_snapshot(bucket(tmp_path, "apprenticeship", "acme"), "dpo", as_of=NIGHT, home=home).trainable == 60


def test_one_corpus_triggers_once(tmp_path: Path, home: Home) -> None:
    write_lines(tmp_path / "engineering/one.jsonl", [edit(number) for number in range(60)])
    first = engineering(tmp_path, home)
    mark = HighWaterMark(home, "acme", "engineering")
    assert mark.read() is None
    mark.advance(first.digest, "2026-06-01", "run-1")
    trained = load_snapshot(home, first.bucket, mark.read() or "")
    again = decide(engineering(tmp_path, home), threshold=50, trained=trained)
    assert (again.train, again.new, again.trained_snapshot) == (False, 0, first.digest)
    assert "nothing new" in again.reason
    write_lines(tmp_path / "engineering/two.jsonl", [edit(number) for number in range(60, 109)])
    short = decide(engineering(tmp_path, home), threshold=50, trained=trained)
    assert (short.train, short.new) == (False, 49)
    assert "1 short" in short.reason
    write_lines(tmp_path / "engineering/two.jsonl", [edit(109)], append=True)
    assert decide(engineering(tmp_path, home), threshold=50, trained=trained).train


def test_new_tuples_are_a_difference_of_sets_and_not_of_counts(tmp_path: Path, home: Home) -> None:
    path = write_lines(tmp_path / "engineering/one.jsonl", [edit(number) for number in range(60)])
    trained = engineering(tmp_path, home)
    write_lines(path, [edit(number) for number in range(55, 115)])
    decision = decide(engineering(tmp_path, home), threshold=50, trained=trained)
    assert (decision.trainable, decision.new, decision.train) == (60, 55, True)
    write_lines(path, [edit(number) for number in range(20)])
    shrunk = decide(engineering(tmp_path, home), threshold=1, trained=trained)
    assert (shrunk.new, shrunk.gone, shrunk.train) == (0, 40, True)
    assert "40 that are gone reach" in shrunk.reason
    assert not decide(engineering(tmp_path, home), threshold=41, trained=trained).train


def test_nothing_is_never_trained_on(tmp_path: Path, home: Home) -> None:
    assert not decide(engineering(tmp_path, home), threshold=0, trained=None).train


def test_the_mark_keeps_its_history_and_says_the_same_twice(home: Home) -> None:
    mark = HighWaterMark(home, "acme", "engineering")
    for _ in range(2):
        mark.advance("a" * 64, "2026-06-01", "run-1")
        mark.advance("b" * 64, "2026-06-03", "run-2")
    assert [entry["run"] for entry in mark.history()] == ["run-1", "run-2"]
    assert dt.datetime.fromisoformat(mark.history()[0]["at"]).tzinfo is not None
    assert mark.read() == "b" * 64
    assert HighWaterMark(home, "other", "engineering").read() is None


def test_a_night_made_up_later_sees_the_mark_of_its_time(home: Home) -> None:
    mark = HighWaterMark(home, "acme", "engineering")
    mark.advance("a" * 64, "2026-06-01", "run-1")
    mark.advance("c" * 64, "2026-06-05", "run-2")
    assert mark.read(before="2026-06-03") == "a" * 64
    mark.advance("b" * 64, "2026-06-03", "run-3")
    assert mark.read() == "c" * 64
    assert mark.read(before="2026-06-01") is None


@pytest.mark.parametrize("name", ["../up", "A", ""])
def test_the_mark_refuses_names_that_lead_elsewhere(home: Home, name: str) -> None:
    with pytest.raises(Exception, match="not a valid name"):
        HighWaterMark(home, name, "engineering")
