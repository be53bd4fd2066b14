"""People's corrections become tuples, once, or are refused with the record that is wrong."""

import datetime as dt
import json
from pathlib import Path

import pytest

from ec1.corpus.buckets import bucket
from ec1.corpus.dataset import OUTDATED, build_dataset
from ec1.corpus.labels import records_of, take
from ec1.corpus.options import DataOptions
from ec1.corpus.snapshots import take_snapshot
from ec1.corpus.tuples import example_of, parse_record
from ec1.documents.chunks import Chunk
from ec1.errors import InputError
from ec1.extraction.results import Mention
from ec1.home import Home

NOW = dt.datetime(2026, 6, 2, 9, tzinfo=dt.UTC)
TEXT = "Ana Ruiz left Lyon.\n\nShe joined Harlow Foods."
CHUNKS = [Chunk(0, 0, 19, TEXT[:19]), Chunk(1, 21, len(TEXT), TEXT[21:])]
MENTIONS = [
    Mention(name="Ana Ruiz", entity_class="Company", confidence=0.7, chunk=0, start=0, end=8),
    Mention(name="Harlow Foods", entity_class="Company", confidence=0.7, chunk=1, start=32, end=44),
]


def _written(folder: Path, records: list[dict[str, object]]) -> Path:
    file = folder / "labels.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in records))
    return file


def test_a_correction_is_learnt_once(tmp_path: Path) -> None:
    records = list(records_of("meeting", "a.md", "0" * 64, CHUNKS, MENTIONS))
    assert [each["entities"] for each in records] == [
        [{"name": "Ana Ruiz", "class": "Company"}],
        [{"name": "Harlow Foods", "class": "Company"}],
    ]
    records[0]["entities"] = [{"name": "Ana Ruiz", "class": "Person"}, {"name": "Lyon", "class": "Location"}]
    home = Home(tmp_path / "home")
    file, folder = _written(tmp_path, records), home.corpus / "extractor"
    assert vars(take(file, folder, NOW)) == {"written": 2, "known": 0}
    assert vars(take(file, folder, NOW + dt.timedelta(days=1))) == {"written": 0, "known": 2}
    snapshot = take_snapshot(bucket(home.corpus, "extractor", "acme"), "sft", as_of=dt.datetime.now(dt.UTC), home=home)
    answers = [example_of(parse_record(row.record), "sft")["completion"][0]["content"] for row in snapshot.rows()]
    assert '[["Ana Ruiz","Person"],["Lyon","Location"]]' in answers


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"entities": [{"name": "Zoe", "class": "Person"}]}, "does not stand in the text"),
        ({"entities": [{"name": "Harlow Foods", "class": "Town"}]}, "class is not one of"),
        (
            {"entities": [{"name": "Harlow Foods", "class": each} for each in ("Company", "Person")]},
            "'Harlow Foods' has two classes",
        ),
    ],
)
def test_a_wrong_record_takes_none(tmp_path: Path, change: dict[str, object], problem: str) -> None:
    good, bad = records_of("meeting", "a.md", "0" * 64, CHUNKS, MENTIONS)
    with pytest.raises(InputError, match=f"record 2.*{problem}"):
        take(_written(tmp_path, [good, {**bad, **change}]), tmp_path / "bucket", NOW)
    assert not (tmp_path / "bucket").exists()


def test_what_is_no_record_says_where(tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text("{}\n")
    with pytest.raises(InputError, match="record 1"):
        take(file, tmp_path / "bucket", NOW)
    file.write_text("Lyon\n")
    with pytest.raises(InputError, match=r"labels\.jsonl:1"):
        take(file, tmp_path / "bucket", NOW)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"labels\.jsonl: no text in UTF-8"):
        take(file, tmp_path / "bucket", NOW)
    with pytest.raises(InputError, match="there is no file"):
        take(tmp_path / "absent", tmp_path / "bucket", NOW)


def test_of_two_corrections_of_a_text_the_newer_is_learnt(tmp_path: Path, small_model: Path) -> None:
    from transformers import AutoTokenizer

    home = Home(tmp_path / "home")
    chunks = [Chunk(number, 0, 29, f"Ana Ruiz was in town {number}{number}.") for number in range(8)]
    records = [next(records_of("meeting", f"{each.index}.md", "0" * 64, [each], MENTIONS)) for each in chunks]

    def written(day: int, *classes: str) -> int:
        """How many tuples corrections on that day add that call Ana Ruiz so, one record after the other."""
        for record, entity_class in zip(records, classes, strict=False):
            record["entities"] = [{"name": "Ana Ruiz", "class": entity_class}]
        file = _written(tmp_path, records[: len(classes)])
        return take(file, home.corpus / "extractor", NOW + dt.timedelta(days=day)).written

    assert written(0, *["Person"] * len(records)) == len(records)
    assert written(1, "Company") == 1
    # What was said first again is news: the answer that counts is another.
    assert written(2, "Person") == 1
    assert written(3, "Person", "Company") == 1
    as_of = dt.datetime.now(dt.UTC)
    snapshot = take_snapshot(bucket(home.corpus, "extractor", "acme"), "sft", as_of=as_of, home=home)
    tokenizer = AutoTokenizer.from_pretrained(small_model)
    data = build_dataset(snapshot, DataOptions(near_duplicate_similarity=1), tokenizer, home=home, objective="sft")
    answers = {
        row["prompt"][-1]["content"].strip(): row["completion"][0]["content"]
        for side in ("train", "heldout")
        for row in data.rows(side)
    }
    assert len(answers) == len(records)
    companies = [text for text, answer in answers.items() if "Company" in answer]
    assert len(companies) == 1 and "town 11." in companies[0]
    assert data.rejected == {OUTDATED: 3}
