"""What training knows of the held-out side is found by a second look, and what is merely alike is not."""

import datetime as dt
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_builder import NIGHT, write_lines

from ec1.corpus.audit import audit
from ec1.corpus.buckets import bucket
from ec1.corpus.dataset import REWORDED, SHARED, Dataset, build_dataset
from ec1.corpus.options import DataOptions
from ec1.corpus.snapshots import take_snapshot
from ec1.corpus.split import moved
from ec1.home import Home

WORDS = [f"word{number}" for number in range(500)]


def sentence(seed: int, length: int = 60) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=length))


def row(number: int, prompt: str, answer: str) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": prompt}],
        "completion": [{"role": "assistant", "content": answer}],
        "row": f"r{number}",
    }


def folder(tmp_path: Path, train: list[dict[str, Any]], heldout: list[dict[str, Any]]) -> Path:
    for side, rows in (("train", train), ("heldout", heldout)):
        (tmp_path / side).mkdir()
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / side / "rows.parquet")
    return tmp_path


def diff(added: str, removed: str) -> str:
    lines = [*(f"-{line}" for line in removed.splitlines()), *(f"+{line}" for line in added.splitlines())]
    return "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,9 +1,9 @@\n shared context\n" + "\n".join(lines) + "\n"


def test_each_way_of_knowing_is_told_apart(tmp_path: Path) -> None:
    code = "\n".join(f"    result_{number} = compute_{number}(value_{number}, limit)" for number in range(8))
    train = [
        row(0, "a", sentence(0)),
        row(1, "b", "Before that: " + sentence(1) + " and after."),
        row(2, sentence(2), "Read, not learnt."),
        row(3, "d", diff("x = 1\n", code)),
        row(4, "e", "Yes."),
        row(5, "f", sentence(5)),
    ]
    heldout = [
        row(10, "A", sentence(0).upper()),
        row(11, "B", sentence(1)),
        row(12, "C", sentence(2)),
        # A commit that takes back another one: its added lines are those that the other one removed.
        row(13, "D", diff(code, "x = 1\n")),
        row(14, "E", "Yes."),
        row(15, "F", sentence(15)),
        row(16, "G", sentence(5, 20) + " " + sentence(16, 60)),
    ]
    found = audit(folder(tmp_path, train, heldout))
    assert (found.checked, found.verbatim, found.contained, found.known, found.read) == (7, 1, 3, 3, 1)
    assert found.examples == ("r10", "r11", "r13")
    assert found.known_share == pytest.approx(3 / 7)


def reworded(text: str, share: float, pool: list[str], seed: int = 4) -> str:
    """A text with a share of its words replaced."""
    rng = random.Random(f"{seed}{text}")
    return " ".join(rng.choice(pool) if rng.random() < share else word for word in text.split())


def test_an_answer_in_other_words_is_known(tmp_path: Path) -> None:
    """With 12 % of the words replaced, runs of thirteen words find next to none of them."""
    texts = [sentence(number, 120) for number in range(60)]
    train = [row(number, "a", text) for number, text in enumerate(texts)]
    heldout = [row(100 + number, "b", reworded(text, 0.12, WORDS)) for number, text in enumerate(texts)]
    found = audit(folder(tmp_path, train, heldout))
    assert found.contained <= 6 and found.reworded >= 54 and found.known >= 54


def test_a_form_that_many_answers_fill_in_is_not_known(tmp_path: Path) -> None:
    form = sentence(0, 80)
    train = [row(number, "a", f"{form} {sentence(1 + number, 20)}") for number in range(40)]
    heldout = [row(100 + number, "b", f"{form} {sentence(200 + number, 20)}") for number in range(8)]
    found = audit(folder(tmp_path, train, heldout))
    assert found.reworded == 0


def test_runs_from_many_answers_are_not_one_answer_in_other_words(tmp_path: Path) -> None:
    """Code is made of the same short runs of words everywhere; only one answer that has them all says the same."""
    parts = [sentence(number, 12) for number in range(60)]
    train = [row(number, "a", f"{part} {sentence(100 + number, 60)}") for number, part in enumerate(parts)]
    heldout = [row(200 + number, "b", " ".join(parts[number * 10 : number * 10 + 10])) for number in range(6)]
    assert audit(folder(tmp_path, train, heldout)).reworded == 0


def test_nothing_held_out_is_nothing_known(tmp_path: Path) -> None:
    path = folder(tmp_path, [row(0, "a", sentence(0))], [row(1, "b", "short")])
    assert audit(path).known_share == 0.0


@pytest.fixture(scope="module")
def tokenizer(small_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(small_model)


def dataset(root: Path, home: Home, tokenizer: Any, rows: list[dict[str, Any]], **options: Any) -> Dataset:
    write_lines(root / "research/all.jsonl", rows)
    snapshot = take_snapshot(bucket(root, "research", "acme"), "sft", as_of=NIGHT, home=home)
    return build_dataset(snapshot, DataOptions(max_length=2048, **options), tokenizer, home=home, objective="sft")


def talk(number: int, turns: int, **more: Any) -> dict[str, Any]:
    messages = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Question {number}.{turn}?"})
        messages.append({"role": "assistant", "content": sentence(100 * number + turn, 30)})
    return {"messages": messages, **more}


def test_overlapping_pieces_of_a_talk_do_not_leak(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    """Session ids in metadata make groups; without any, a shared answer keeps a row out of training."""
    named = [talk(n, turns, metadata={"session_id": f"S{n}"}) for n in range(12) for turns in (1, 2, 3)]
    found = dataset(tmp_path / "named", home, tokenizer, named)
    assert found.audit is not None and (found.audit.known, found.leaks, found.is_clean) == (0, [], True)
    assert {group.split(":")[0] for group in found.rows("train")["group"]} == {"session_id"}
    assert SHARED not in found.rejected and found.train_rows + found.heldout_rows == 36
    nameless = [talk(n, turns) for n in range(12) for turns in (1, 2, 3)]
    found = dataset(tmp_path / "nameless", Home(tmp_path / "other"), tokenizer, nameless)
    assert found.audit is not None and (found.audit.known, found.leaks) == (0, [])
    assert found.rejected[SHARED] >= 1


def answered_twice(padding: int) -> list[dict[str, Any]]:
    """Each answer a second time, with a new beginning of some words and a new end."""
    rows = []
    for number in range(40):
        text = sentence(number, 80)
        longer = f"{sentence(900 + number, padding)} {text} {sentence(500, 9)}"
        rows += [
            {"prompt": f"{verb} {number}.", "completion": said} for verb, said in (("Explain", text), ("Tell", longer))
        ]
    return rows


def test_paraphrased_answers_are_on_one_side(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    found = dataset(tmp_path, home, tokenizer, answered_twice(30))
    assert found.audit is not None and (found.audit.known, found.is_clean) == (0, True)
    assert found.train_rows + found.heldout_rows == 80 and found.heldout_groups >= 4


def test_one_answer_in_many_wordings_is_held_out_and_not_trained_on(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    """Six wordings are more than a tenth of the groups, so they need not be on one side: what training would know of
    the held-out side is left out, and said so."""
    rows = [
        {"prompt": f"Tell {number}.{wording}.", "completion": reworded(sentence(number, 100), 0.08, WORDS, wording)}
        for number in range(8)
        for wording in range(6)
    ]
    found = dataset(tmp_path, home, tokenizer, rows)
    assert found.rejected[REWORDED] >= 1
    assert found.train_rows + found.heldout_rows + sum(found.rejected.values()) == 48
    assert found.audit is not None and found.audit.known <= 1 and found.is_clean
    rejects = [json.loads(line) for line in (found.path / "rejects.jsonl").read_text().splitlines()]
    assert sum(each["reason"] == REWORDED for each in rejects) == found.rejected[REWORDED]


def test_answers_within_longer_ones_are_found_and_block(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    rows = answered_twice(250)
    found = dataset(tmp_path, home, tokenizer, rows)
    assert found.audit is not None and found.audit.known_share > 0.2
    assert found.leaks == [] and not found.is_clean
    grouped = [row | {"topic": row["prompt"].split()[1]} for row in rows]
    mended = dataset(tmp_path / "grouped", Home(tmp_path / "h"), tokenizer, grouped, group_by=("topic",))
    assert mended.audit is not None and (mended.audit.known, mended.is_clean) == (0, True)
    assert all(group.startswith("topic:") for group in mended.rows("train")["group"])


def test_the_newest_can_be_held_out(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    start = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
    rows = [
        talk(number, 1, created=(start + dt.timedelta(hours=number)).isoformat(), session_id=f"S{number}")
        for number in range(20)
    ]
    found = dataset(tmp_path, home, tokenizer, rows, heldout_newest=True)
    assert sorted(found.rows("heldout")["group"]) == sorted(f"session_id:S{number}" for number in range(16, 20))


def test_another_seed_names_the_versions_that_saw_the_other_side(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    rows = [talk(number, 1, session_id=f"S{number}") for number in range(30)]
    first = dataset(tmp_path, home, tokenizer, rows)
    other = dataset(tmp_path, home, tokenizer, rows, seed=1)
    assert moved(first.path, {"acme/research@v1": first.path}) == []
    [found] = moved(other.path, {"acme/research@v1": first.path, "acme/research@v2": tmp_path / "gone"})
    assert found.version == "acme/research@v1"
    before, now = ({side: set(each.rows(side)["group"]) for side in ("train", "heldout")} for each in (first, other))
    assert found.trained_on == len(before["train"] & now["heldout"]) > 0
    assert found.heldout == len(before["heldout"] & now["train"]) > 0


def test_names_of_persons_do_not_reach_a_dataset(tmp_path: Path, home: Home, tokenizer: Any) -> None:
    rows = [talk(number, 1, session_id=f"maria.alvarez{number}@fern.example") for number in range(8)]
    write_lines(tmp_path / "research/export-of-maria@fern.example.jsonl", rows)
    snapshot = take_snapshot(bucket(tmp_path, "research", "acme"), "sft", as_of=NIGHT, home=home)
    found = build_dataset(snapshot, DataOptions(), tokenizer, home=home, objective="sft")
    written = b"".join(path.read_bytes() for path in sorted(found.path.rglob("*")) if path.is_file())
    shown = str([*found.rows("train"), *found.rows("heldout")])
    assert "fern.example" not in shown and b"fern.example" not in written
    assert found.train_rows + found.heldout_rows == 8
