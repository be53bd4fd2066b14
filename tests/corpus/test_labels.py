"""People's corrections become tuples, once, or are refused with the record that is wrong."""

import datetime as dt
import json
from pathlib import Path

import pytest

from ec1.corpus.buckets import bucket
from ec1.corpus.labels import records_of, take
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
