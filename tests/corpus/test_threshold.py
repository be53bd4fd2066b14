"""The decision to train, and that one corpus triggers once."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import pytest
from corpus_builder import NIGHT, apprenticeship, edit, write_lines

from ec1.corpus.buckets import bucket
from ec1.corpus.snapshots import Snapshot, load_snapshot, take_snapshot
from ec1.corpus.threshold import HighWaterMark, decide, must_train_again, trained_snapshot
from ec1.errors import InputError, PermanentError
from ec1.files import write_json
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


def test_a_night_made_up_does_not_train_what_a_later_one_trained(tmp_path: Path, home: Home) -> None:
    """Nothing came between the two nights, so the later one has trained on the earlier one's tuples."""
    write_lines(tmp_path / "engineering/one.jsonl", [edit(number) for number in range(60)])
    taken = engineering(tmp_path, home)
    mark = HighWaterMark(home, "acme", "engineering")
    assert mark.trained_by(taken.digest, "recipe-1") is None
    mark.advance(taken.digest, "2026-06-05", "run-1", "recipe-1")
    assert mark.trained_by(taken.digest, "recipe-1") == "2026-06-05"
    assert mark.trained_by(taken.digest, "recipe-2") is None, "another recipe makes another adapter of it"
    made_up = decide(taken, threshold=50, trained=None, by_later="2026-06-05")
    assert not made_up.train and "night 2026-06-05 was trained on the same tuples" in made_up.reason


@pytest.mark.parametrize("name", ["../up", "A", ""])
def test_the_mark_refuses_names_that_lead_elsewhere(home: Home, name: str) -> None:
    for tenant, role, what in ((name, "engineering", "tenant"), ("acme", name, "role")):
        with pytest.raises(InputError, match=f"^{what} .*is not a valid name"):
            HighWaterMark(home, tenant, role)


# --- the decision


def of_edits(folder: Path, home: Home, numbers: Sequence[int]) -> Snapshot:
    write_lines(folder / "engineering/one.jsonl", [edit(number) for number in numbers])
    return engineering(folder, home)


def test_as_many_as_the_threshold_are_enough(tmp_path: Path, home: Home) -> None:
    three = of_edits(tmp_path, home, range(3))
    enough, short = (decide(three, threshold=threshold, trained=None) for threshold in (3, 4))
    assert (enough.train, short.train) == (True, False)
    assert (enough.gone, enough.trained_snapshot, enough.snapshot, enough.threshold) == (0, None, three.digest, 3)
    assert enough.reason == "3 new trainable tuples reach the threshold of 3"
    assert short.reason == "3 new trainable tuples, 1 short of the threshold 4"


def test_what_came_and_what_went_count_together(tmp_path: Path, home: Home) -> None:
    trained, now = of_edits(tmp_path, home, range(5)), of_edits(tmp_path, home, range(3, 9))
    enough, short = (decide(now, threshold=threshold, trained=trained) for threshold in (7, 9))
    assert (enough.train, enough.new, enough.gone) == (True, 4, 3)
    assert not short.train
    assert short.reason == (
        "4 new trainable tuples and 3 that are gone since the last training, 2 short of the threshold 9"
    )
    as_many = decide(of_edits(tmp_path, home, range(3, 8)), threshold=9, trained=trained)
    assert (as_many.new, as_many.gone) == (3, 3) and "3 short" in as_many.reason, "not: nothing new"


def test_one_is_said_as_one(tmp_path: Path, home: Home) -> None:
    one, two = of_edits(tmp_path, home, [1]), of_edits(tmp_path, home, [1, 2])
    assert decide(one, threshold=1, trained=None).reason == "1 new trainable tuple reaches the threshold of 1"
    assert decide(one, threshold=2, trained=None).reason == "1 new trainable tuple, 1 short of the threshold 2"
    shrunk = decide(one, threshold=3, trained=two)
    assert shrunk.reason.startswith("0 new trainable tuples and 1 that is gone since the last training, ")


def test_a_threshold_of_zero_trains_on_anything_new_and_on_nothing_else(tmp_path: Path, home: Home) -> None:
    one = of_edits(tmp_path, home, [1])
    assert decide(one, threshold=0, trained=None).train
    same = decide(one, threshold=0, trained=one)
    assert (same.train, same.reason) == (False, "nothing new since the last training")


def test_nothing_new_is_said_only_where_something_was_trained(tmp_path: Path, home: Home) -> None:
    trained, grown = of_edits(tmp_path, home, [1]), of_edits(tmp_path, home, [1, 2])
    assert "1 short of the threshold 2" in decide(grown, threshold=2, trained=trained).reason
    assert "1 short of the threshold 2" in decide(trained, threshold=2, trained=None).reason


def test_what_was_removed_is_trained_again_with_however_few(tmp_path: Path, home: Home) -> None:
    again = decide(of_edits(tmp_path, home, [1]), threshold=50, trained=None, again=True)
    assert again.train and "trained again on 1 tuple" in again.reason
    write_lines(tmp_path / "engineering/one.jsonl", [edit(1, diff="")])
    nothing = decide(engineering(tmp_path, home), threshold=50, trained=None, again=True)
    assert (nothing.train, nothing.reason) == (False, "the one tuple is not trainable; the threshold is 50")


# --- the mark


def test_a_recipe_is_compared_with_its_own_trainings(tmp_path: Path, home: Home) -> None:
    first, second = of_edits(tmp_path, home, [1]), of_edits(tmp_path, home, [1, 2])
    mark = HighWaterMark(home, "acme", "engineering")
    mark.advance(first.digest, "2026-06-01", "run-1", "recipe-a")
    mark.advance(second.digest, "2026-06-02", "run-2", "recipe-b")
    assert [mark.read(recipe=recipe) for recipe in ("recipe-a", "recipe-b", "recipe-c")] == [
        first.digest,
        second.digest,
        None,
    ]
    assert mark.read(before="2026-06-02", recipe="recipe-b") is None

    def trained(recipe: str, night: str | None = None) -> str | None:
        found = trained_snapshot(home, first.bucket, "acme", "engineering", recipe, night)
        return None if found is None else found.digest

    assert (trained("recipe-a"), trained("recipe-b"), trained("recipe-c")) == (first.digest, second.digest, None)
    assert trained("recipe-b", "2026-06-02") == second.digest, "what the night itself trained counts"
    assert trained("recipe-b", "2026-06-01") is None, "what was trained later does not"
    other = trained_snapshot(home, first.bucket, "acme", "apprenticeship", "recipe-a")
    assert other is None, "another role has its own mark"


def test_a_removed_snapshot_counts_as_never_trained(tmp_path: Path, home: Home) -> None:
    first, second = of_edits(tmp_path, home, [1]), of_edits(tmp_path, home, [1, 2])
    mark = HighWaterMark(home, "acme", "engineering")
    assert not must_train_again(home, "acme", "engineering")
    mark.advance(first.digest, "2026-06-01", "run-1", "recipe")
    write_json(home.removals / "20260602.json", {"snapshots": [first.digest]})
    assert must_train_again(home, "acme", "engineering")
    assert not must_train_again(home, "acme", "apprenticeship")
    assert trained_snapshot(home, first.bucket, "acme", "engineering", "recipe") is None
    mark.advance(second.digest, "2026-06-03", "run-2", "recipe")
    assert not must_train_again(home, "acme", "engineering")


def test_every_training_is_noted_once(home: Home) -> None:
    mark = HighWaterMark(home, "acme", "engineering")
    first = ("a" * 64, "2026-06-01", "run-1", "recipe")
    others = [("b" * 64, *first[1:]), (*first[:2], "run-2", "recipe"), (*first[:3], "changed"), (*first[:3], "")]
    for each in (first, *others, first):
        mark.advance(*each)
    noted = [(entry["digest"], entry["night"], entry["run"], entry["recipe"]) for entry in mark.history()]
    assert noted == [first, *others]
    mark.advance("c" * 64, "2026-06-02", "run-3")
    assert mark.history()[-1]["recipe"] == ""
    moments = [dt.datetime.fromisoformat(entry["at"]) for entry in mark.history()]
    assert all(moment.utcoffset() == dt.timedelta() and not moment.microsecond for moment in moments)
    assert mark.path == home.high_water_marks / "acme" / "engineering.json"


@pytest.mark.parametrize("damaged", [[], {}, {"history": {}}, {"history": None}])
def test_a_damaged_mark_is_told_and_never_read_as_empty(home: Home, damaged: object) -> None:
    mark = HighWaterMark(home, "acme", "engineering")
    write_json(mark.path, damaged)
    for use in (mark.read, lambda: mark.advance("a" * 64, "2026-06-01", "run-1")):
        with pytest.raises(PermanentError, match=r"engineering\.json is damaged: the next night"):
            use()
