"""Access labels of tuples: from where a row was made to what an adapter says that it has learnt from."""

import datetime as dt
import json
from pathlib import Path

import pytest

from ec1.corpus.access import access_labels
from ec1.corpus.buckets import bucket
from ec1.corpus.dataset import build_dataset, load_dataset
from ec1.corpus.importing import import_rows
from ec1.corpus.labels import records_of, take
from ec1.corpus.options import DataOptions
from ec1.corpus.snapshots import Snapshot, load_snapshot, take_snapshot
from ec1.documents.chunks import Chunk
from ec1.documents.ledger import DocumentKey
from ec1.documents.settings import DocumentSettings
from ec1.extraction.results import Mention
from ec1.home import Home

NOW = dt.datetime(2126, 6, 1, tzinfo=dt.UTC)


def rows(folder: Path, name: str, number: int, **more: object) -> Path:
    """A file of that many question-and-answer rows."""
    path = folder / f"{name}.jsonl"
    lines = [
        json.dumps(
            {"prompt": f"What is {name} {each}?", "completion": f"It is {name}, the {each}th of its kind.", **more}
        )
        for each in range(number)
    ]
    path.write_text("\n".join(lines))
    return path


def snapshot(home: Home, *labels: str) -> Snapshot:
    return take_snapshot(bucket(home.corpus, "notes", "acme"), "sft", as_of=NOW, home=home, labels=labels)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Twelve rows for everybody, five of hr and four of hr and board."""
    home = Home(tmp_path / "home")
    for name, number, labels in (("plain", 12, []), ("hr", 5, ["hr"]), ("both", 4, ["hr"])):
        own = {"access_labels": ["board"]} if name == "both" else {}
        import_rows(rows(tmp_path, name, number, **own), home.corpus / "notes", name=name, labels=labels)
    return home


def test_a_snapshot_holds_what_its_recipe_may_learn_from(home: Home) -> None:
    without, hr, both = snapshot(home), snapshot(home, "hr"), snapshot(home, "hr", "board")
    assert [each.trainable for each in (without, hr, both)] == [12, 17, 21]
    assert {each.lines for each in (without, hr, both)} == {21}
    assert len({each.digest for each in (without, hr, both)}) == 3
    assert snapshot(home, "board").trainable == 12, "a row with two labels takes both"
    assert without.rejected == {
        "has access labels that the recipe lacks (data.labels): hr": 5,
        "has access labels that the recipe lacks (data.labels): board, hr": 4,
    }
    assert not any("hr" in json.dumps(row.record) for row in without.rows())
    assert hr.newer_than(without) == 5, "for the threshold they count where they may be learnt from"
    for each in (without, hr, both):
        each.check_name()
        again = load_snapshot(home, each.bucket, each.digest)
        assert again == each


def test_what_is_added_later_is_counted_by_the_same_rule(home: Home, tmp_path: Path) -> None:
    """The next snapshot is made from the one before."""
    snapshot(home, "hr"), snapshot(home)
    import_rows(rows(tmp_path, "more", 3), home.corpus / "notes", name="more", labels=["hr"])
    import_rows(rows(tmp_path, "secret", 2), home.corpus / "notes", name="secret", labels=["board"])
    assert (snapshot(home, "hr").trainable, snapshot(home).trainable) == (20, 12)
    assert len(list(snapshot(home, "hr").rows())) == 20


def test_without_labels_a_snapshot_is_what_it_was(tmp_path: Path) -> None:
    """Digest and manifest name none."""
    home = Home(tmp_path / "home")
    import_rows(rows(tmp_path, "plain", 3), home.corpus / "notes", name="plain")
    manifest = json.loads((snapshot(home).path / "manifest.json").read_text())
    assert "labels" not in manifest and "access_labels" not in (home.corpus / "notes/imported/plain.jsonl").read_text()


def test_a_dataset_says_which_labels_it_learns_from(home: Home, small_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(small_model)
    found = []
    for labels in (None, ("hr",), ("hr", "board")):
        options = DataOptions(labels=labels, near_duplicate_similarity=1)
        made = build_dataset(snapshot(home, *labels or ()), options, tokenizer, home=home, objective="sft")
        assert load_dataset(home, made.digest) == made
        found.append((made.labels, made.train_rows + made.heldout_rows))
    assert found == [((), 12), (("hr",), 17), (("board", "hr"), 21)]


def test_a_correction_has_the_labels_of_its_document(tmp_path: Path) -> None:
    documents = DocumentSettings(labels={"service-minutebook/assets/hr": ("hr",)})
    mention = Mention(name="Ana Ruiz", entity_class="Person", confidence=0.9, chunk=0, start=0, end=8)
    lines = []
    for path in ("service-minutebook/assets/a.md", "service-minutebook/assets/hr/b.md"):
        chunk = Chunk(0, 0, 60, f"Ana Ruiz met somebody; see {path}.")
        lines += [json.dumps(each) for each in records_of("meeting", path, "0" * 64, [chunk], [mention])]
    file = tmp_path / "corrected.jsonl"
    file.write_text("\n".join(lines))
    take(file, tmp_path / "bucket", NOW, documents.labels_of)
    (written,) = (tmp_path / "bucket").glob("*.jsonl")
    found = {
        each["document_id"]: each.get("access_labels") for each in map(json.loads, written.read_text().splitlines())
    }
    assert found == {
        "meeting/service-minutebook/assets/a.md": None,
        "meeting/service-minutebook/assets/hr/b.md": ["hr"],
    }
    assert documents.labels_of(DocumentKey("other", "x")) == {"(unknown)"}


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        (["hr"], ("hr",)),
        (["b", "a", "b"], ("a", "b")),
        ([], ()),
        (None, ()),
        ("hr", ("(unreadable)",)),
        ([1], ("(unreadable)",)),
        (["a, b"], ("(unreadable)",)),
        ({"hr": True}, ("(unreadable)",)),
    ],
)
def test_labels_that_cannot_be_read_are_nobodys(value: object, labels: tuple[str, ...]) -> None:
    assert access_labels({"access_labels": value}) == access_labels({}, {"access_labels": value}) == labels
