"""Rows by number and through their index: what is found is what a look at every row finds."""

import datetime as dt
import json
from pathlib import Path

import pytest

from ec1.corpus.buckets import bucket
from ec1.corpus.snapshots import Snapshot, take_snapshot
from ec1.deployment import load_deployment
from ec1.errors import DamagedError, InputError
from ec1.home import Home
from ec1.queries.desk import Desk
from ec1.queries.row_index import (
    FoundRows,
    Indexing,
    RowCounts,
    RowFilter,
    SourceComparison,
    build,
    build_in_background,
    compare,
    counts,
    find,
    index_path,
    number_of,
)
from ec1.queries.rows import Row, open_source, sources

COUNT = 300


@pytest.fixture
def desk(home: Home, project: Path) -> Desk:
    return Desk(load_deployment("embedded", project), home, project, frozenset())


def snapshot_of(desk: Desk, count: int = COUNT, labels: tuple[str, ...] = ()) -> Snapshot:
    folder = desk.home.corpus / "notes"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "prompt": f"Ask {n} Überlingen",
            "completion": f"Answer {n}" + " more" * (n % 9),
            "created_at": f"2026-01-{1 + n % 28:02}",
        }
        | ({"access_labels": list(labels)} if labels else {})
        for n in range(count)
    ]
    (folder / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "no tuple\n")
    notes = bucket(desk.home.corpus, "notes", "fernhollow")
    return take_snapshot(notes, "sft", as_of=dt.datetime.now(dt.UTC), home=desk.home, labels=labels)


def key_of(snapshot: Snapshot) -> str:
    return f"snapshot/{snapshot.bucket}/{snapshot.digest}"


def indexed(desk: Desk, key: str) -> list[Row]:
    source = open_source(desk, key)
    build(source, index_path(desk, source))
    return list(source.every())


def found_by(desk: Desk, key: str, wanted: RowFilter) -> list[int]:
    numbers: list[int] = []
    cursor = None
    while True:
        found = find(desk, key, wanted, 40, cursor)
        assert isinstance(found, FoundRows)
        numbers += [row.number for row in found.page.items]
        if (cursor := found.page.next) is None:
            assert found.total == len(numbers)
            return numbers


@pytest.mark.parametrize(
    ("wanted", "agrees"),
    [
        (RowFilter(), lambda row: True),
        (RowFilter(side="rejected"), lambda row: row.side == "rejected"),
        (RowFilter(text="uberlingen"), lambda row: "Überlingen" in row.text),
        (RowFilter(text='"answer 7"'), lambda row: "Answer 7\n" in row.text.replace(" more", "")),
        (RowFilter(text='answ* "ask 12"'), lambda row: "Ask 12 " in row.text),
        (RowFilter(reason="not valid JSON"), lambda row: row.reason == "not valid JSON"),
        (RowFilter(class_="Answer 9"), lambda row: "Answer 9\n" in row.text),
        (RowFilter(text='" or number > 0 --'), lambda row: False),
    ],
)  # fmt: skip
def test_a_filter_finds_what_a_look_at_every_row_finds(desk: Desk, wanted: RowFilter, agrees: object) -> None:
    key = key_of(snapshot_of(desk))
    rows = indexed(desk, key)
    assert len(rows) == COUNT + 1
    assert found_by(desk, key, wanted) == [row.number for row in rows if agrees(row)]  # type: ignore[operator]


@pytest.mark.parametrize("order", ["length", "created"])
@pytest.mark.parametrize("down", [True, False])
def test_rows_come_in_the_order_that_was_asked_for(desk: Desk, order: str, down: bool) -> None:
    key = key_of(snapshot_of(desk))
    rows = {row.number: row for row in indexed(desk, key)}
    numbers = found_by(desk, key, RowFilter(order=order, down=down, side="trainable"))  # type: ignore[arg-type]
    values = [len(rows[n].text) if order == "length" else rows[n].created for n in numbers]
    assert values == sorted(values, reverse=down) and len(values) == COUNT  # type: ignore[type-var]
    with pytest.raises(InputError, match="order"):
        find(desk, key, RowFilter(order="number; DROP TABLE row"), 5)  # type: ignore[arg-type]


def test_plain_pages_need_no_index_and_are_the_same_with_it(desk: Desk) -> None:
    key = key_of(snapshot_of(desk))
    source = open_source(desk, key)
    progress = build_in_background(desk, key)
    before = [find(desk, key, RowFilter(side=side), 30, "30") for side in ("", "trainable")]
    assert isinstance(progress, Indexing)
    while build_in_background(desk, key) is not None:
        assert not progress.problem
    assert index_path(desk, source).stat().st_mode & 0o777 == 0o600
    assert before == [find(desk, key, RowFilter(side=side), 30, "30") for side in ("", "trainable")]
    rejected = find(desk, key, RowFilter(side="rejected"), 30)
    assert isinstance(rejected, FoundRows)
    (row,) = rejected.page.items
    assert row.reason == "not valid JSON" and source.at([row.number]) == [row]


def test_an_index_counts_and_compares(desk: Desk) -> None:
    one = key_of(snapshot_of(desk))
    other = key_of(snapshot_of(desk, COUNT - 20))
    rows = indexed(desk, one)
    indexed(desk, other)
    found = compare(desk, one, other)
    assert isinstance(found, SourceComparison)
    assert (found.both, found.only_first, found.only_second) == (COUNT - 20, 20, 0)
    assert len(found.first) == 10 and not found.second
    spread = counts(desk, one, RowFilter())
    assert isinstance(spread, RowCounts)
    assert sum(many for _, _, many in spread.lengths) == COUNT + 1
    assert dict(spread.named["reason"]) == {"not valid JSON": 1}
    assert number_of(desk, one, rows[7].digest) == 7
    assert number_of(desk, one, "0" * 64) is None


def test_damage_is_told_and_never_indexed(desk: Desk) -> None:
    snapshot = snapshot_of(desk)
    key = key_of(snapshot)
    source = open_source(desk, key)
    build(source, index_path(desk, source))
    index_path(desk, source).write_bytes(b"no database" * 1000)
    with pytest.raises(InputError, match="built again"):
        find(desk, key, RowFilter(text="ask"), 5)
    for path in snapshot.path.glob("tuples-*.jsonl"):
        path.write_bytes(path.read_bytes().replace(b"Answer", b"Anseer"))
    with pytest.raises(DamagedError):
        find(desk, key, RowFilter(), 5)
    with pytest.raises(DamagedError):
        build(source, index_path(desk, source))
    assert not list(desk.home.row_indexes.iterdir())


def test_rows_with_labels_are_for_those_who_have_them(desk: Desk) -> None:
    key = key_of(snapshot_of(desk, 5, ("board",)))
    with pytest.raises(InputError, match="board"):
        open_source(desk, key)
    (summary,) = sources(desk)
    assert summary.problem is not None and not summary.rows
    for labels in (frozenset({"board", "legal"}), None):
        allowed = Desk(desk.deployment, desk.home, desk.project, labels)
        assert open_source(allowed, key).summary.rows["trainable"] == 5


@pytest.mark.parametrize(
    "key", ["", "dataset/", "dataset/../x", "snapshot/a", "snapshot/../../etc/passwd", "bucket/a/b"]
)
def test_a_key_that_is_none_is_refused(desk: Desk, key: str) -> None:
    with pytest.raises((InputError, DamagedError)):
        open_source(desk, key)
