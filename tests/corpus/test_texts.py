"""Texts that answer nothing, for continued pre-training: from files to the tokens that are learnt."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import written
from corpus_builder import NIGHT, write_lines

from ec1.corpus.buckets import bucket
from ec1.corpus.dataset import Dataset, build_dataset
from ec1.corpus.importing import import_rows
from ec1.corpus.options import DataOptions
from ec1.corpus.packed import MAX_LINE_BYTES
from ec1.corpus.preview import preview_rows
from ec1.corpus.snapshots import take_snapshot
from ec1.corpus.tuples import parse_record, trainable
from ec1.errors import InputError
from ec1.home import Home

SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu")


def report(number: int, sentences: int = 3) -> str:
    """A text that resembles no other one's."""
    draw = random.Random(number)
    words = ["".join(draw.choices(SYLLABLES, k=3)) for _ in range(sentences * 12)]
    lines = [" ".join(words[start : start + 12]).capitalize() + "." for start in range(0, len(words), 12)]
    return "\n\n".join(lines)


def dataset_of(root: Path, home: Home, small_model: Path, **options: Any) -> Dataset:
    from transformers import AutoTokenizer

    snapshot = take_snapshot(bucket(root, "reports", "acme"), "text", as_of=NIGHT, home=home)
    tokenizer = AutoTokenizer.from_pretrained(small_model)
    return build_dataset(snapshot, DataOptions(**options), tokenizer, home=home, objective="text")


def test_all_of_a_text_is_learnt_with_its_end_and_no_template(tmp_path: Path, home: Home, small_model: Path) -> None:
    from transformers import AutoTokenizer

    texts = [report(number) for number in range(20)]
    write_lines(tmp_path / "reports/all.jsonl", [{"text": text, "source": "reports"} for text in texts])
    dataset = dataset_of(tmp_path, home, small_model)
    assert dataset.train_rows + dataset.heldout_rows == 20 and dataset.heldout_rows > 0
    tokenizer = AutoTokenizer.from_pretrained(small_model)
    for row in [*dataset.rows("train"), *dataset.rows("heldout")]:
        (message,) = row["completion"]
        assert row["prompt"] == [] and message["content"] in texts
        assert tokenizer.decode(row["input_ids"]) == message["content"] + tokenizer.eos_token
        assert set(row["completion_mask"]) == {1}


def test_what_is_too_long_is_cut_and_nothing_is_lost(tmp_path: Path, home: Home, small_model: Path) -> None:
    from transformers import AutoTokenizer

    texts = {f"d{number}": report(number, sentences=40 if number % 5 == 0 else 2) for number in range(20)}
    rows = [{"text": text, "document_id": name} for name, text in texts.items()]
    write_lines(tmp_path / "reports/all.jsonl", rows)
    dataset = dataset_of(tmp_path, home, small_model, max_length=128)
    assert dataset.over_length == 0 and dataset.percentiles["p100"] == 128
    tokenizer = AutoTokenizer.from_pretrained(small_model)
    parts: dict[str, list[int]] = {}
    sides: dict[str, set[str]] = {}
    for side in ("train", "heldout"):
        for row in dataset.rows(side):  # type: ignore[arg-type]
            assert len(row["input_ids"]) == row["tokens"] <= 128
            assert row["completion"][0]["content"] == tokenizer.decode(row["input_ids"]).removesuffix(
                tokenizer.eos_token
            )
            parts.setdefault(row["group"], []).extend(row["input_ids"])
            sides.setdefault(row["group"], set()).add(side)
    assert {name: tokenizer.decode(ids) for name, ids in parts.items()} == {
        f"document_id:{name}": text + tokenizer.eos_token for name, text in texts.items()
    }
    assert all(len(found) == 1 for found in sides.values()), "a text is on one side, all of it"
    assert dataset.tokens == sum(dataset.rows("train")["tokens"])


def test_files_of_text_are_taken_if_a_person_says_so(tmp_path: Path) -> None:
    source = tmp_path / "notes"
    (source / "2026").mkdir(parents=True)
    (source / "2026/test plan.md").write_text("# Plan\n\nThe pier is tested on Monday.\n")
    (source / "week.txt").write_bytes("Die Brücke ist offen.".encode("cp1252"))
    (source / "rows.jsonl").write_text(json.dumps({"text": "A row, too."}) + "\n")
    (source / "picture.png").write_bytes(b"\x89PNG")
    (source / "whole year.txt").write_text("A week. " * (MAX_LINE_BYTES // 8 + 1))
    with pytest.raises(InputError, match=r"1 text alone has no answer to learn: .*--format text"):
        import_rows(source, tmp_path / "reports")
    done = import_rows(source, tmp_path / "reports", only="text", labels=["board"])
    assert (done.written, done.formats, done.unread) == (3, {"text": 3}, {".png": 1})
    assert done.refused == {"not UTF-8, or longer than 16 MiB": 1}
    rows = {row["text"]: row for row in map(json.loads, done.path.read_text().splitlines())}
    assert rows.keys() == {"# Plan\n\nThe pier is tested on Monday.\n", "Die Brücke ist offen.", "A row, too."}
    assert rows["Die Brücke ist offen."]["document_id"] == "week.txt"
    assert {tuple(row["access_labels"]) for row in rows.values()} == {("board",)}


def test_documents_are_taken_as_phase_one_reads_them(tmp_path: Path) -> None:
    """Whoever has PDF and Word had to make texts of them by hand."""
    (source := tmp_path / "notes").mkdir()
    for name in ("a.pdf", "a.docx", "a.html", "a.eml", "a.xlsx"):
        (source / name).write_bytes(written.EACH[name])
    (source / "torn.docx").write_bytes(written.EACH["a.docx"][:-200])
    done = import_rows(source, tmp_path / "reports", only="text")
    assert (done.written, done.unread) == (4, {".xlsx": 1})
    ((reason, where),) = done.examples.items()
    assert reason.startswith("not converted: ") and where == "torn.docx:1"
    rows = {row["document_id"]: row["text"] for row in map(json.loads, done.path.read_text().splitlines())}
    assert rows["a.pdf"] == rows["a.docx"] == written.TEXT
    assert all(rows[name].strip().endswith(f"\n{written.TEXT}") for name in ("a.html", "a.eml"))


def test_a_text_is_none_of_the_other_kinds_and_they_are_no_text(small_model: Path) -> None:
    text, answer = parse_record({"text": "Rivers flow."}), parse_record({"prompt": "Rivers?", "completion": "Flow."})
    assert trainable(text, "text") is None and trainable(answer, "text") == "not a text alone"
    assert "text alone has no answer" in str(trainable(text, "sft"))
    assert trainable(parse_record({"text": " \n"}), "text") == "empty target"
    (shown,) = preview_rows([("a:1", {"text": "Rivers flow."})], DataOptions(), "text", small_model)
    assert shown.pieces == (("Rivers flow.<|im_end|>", True),) and shown.problem is None
