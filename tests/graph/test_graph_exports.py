"""The Parquet exports of nights, and the growth that the nights' records show."""

import datetime as dt
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from graph_samples import key, result

from ec1.graph.exports import export_night, exports
from ec1.graph.ladybug_store import LadybugStore
from ec1.night.records import GraphRecord, Records
from ec1.night.report.growth import growth


@pytest.fixture
def store(tmp_path: Path):
    with LadybugStore.open(tmp_path / "live", buffer_pool_mib=64, wait_seconds=0) as opened:
        yield opened


def night(store: LadybugStore, folder: Path, date: str, *names: str, keep: int = 3) -> Path | None:
    """A night that brings a document with these names."""
    if names:
        store.apply(key(f"{date}.md"), "mk", result(date, *((name, "Person") for name in names)), date)
    return export_night(store, folder, date, store.digest(), keep)


def test_a_night_leaves_the_graph_as_plain_tables(store: LadybugStore, tmp_path: Path) -> None:
    path = night(store, tmp_path / "exports", "2026-06-01", "Anna Berg", "Ben Cole")
    assert path is not None and path.name.startswith("2026-06-01-")
    assert sorted(each.name for each in path.iterdir()) == [
        "clusters.parquet",
        "documents.parquet",
        "entities.parquet",
        "links.parquet",
        "mentions.parquet",
        "relations.parquet",
        "traits.parquet",
    ]
    assert pq.read_table(path / "mentions.parquet")["entity"].to_pylist() == ["Person:anna berg", "Person:ben cole"]


def test_a_night_without_news_writes_nothing(store: LadybugStore, tmp_path: Path) -> None:
    first = night(store, tmp_path / "exports", "2026-06-01", "Anna Berg")
    assert night(store, tmp_path / "exports", "2026-06-02") == first
    assert exports(tmp_path / "exports") == [first]


def test_the_last_nights_are_kept_one_export_each(store: LadybugStore, tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    for day in range(1, 6):
        night(store, folder, f"2026-06-0{day}", f"Person {day}")
    store.apply(key("more.md"), "mk", result("more", ("Dora Eck", "Person")), "2026-06-05")
    again = night(store, folder, "2026-06-05")
    assert exports(folder)[-1] == again
    assert pq.read_table(again / "entities.parquet").num_rows == 6
    assert [path.name[:10] for path in exports(folder)] == ["2026-06-03", "2026-06-04", "2026-06-05"]


def test_what_an_interrupted_export_left_is_no_export_and_goes(store: LadybugStore, tmp_path: Path) -> None:
    left = tmp_path / "exports" / ".2026-06-01-0123456789ab.x1"
    left.mkdir(parents=True)
    (left / "documents.parquet").write_bytes(b"half")
    assert exports(tmp_path / "exports") == []
    night(store, tmp_path / "exports", "2026-06-01", "Anna Berg")
    assert len(exports(tmp_path / "exports")) == 1 and not left.exists()


def test_exports_of_changes_that_an_earlier_version_left_do_not_count_and_go(
    store: LadybugStore, tmp_path: Path
) -> None:
    folder = tmp_path / "exports"
    left = folder / "2026-06-01-0123456789ab"
    left.mkdir(parents=True)
    (left / "replaced.parquet").touch()
    assert exports(folder) == []
    assert [night(store, folder, "2026-06-02", "Anna Berg")] == exports(folder) == list(folder.iterdir())


def test_exports_can_be_switched_off(store: LadybugStore, tmp_path: Path) -> None:
    assert night(store, tmp_path / "exports", "2026-06-01", "Anna Berg", keep=0) is None
    assert not (tmp_path / "exports").exists()


def test_growth_is_read_from_the_nights_up_to_this_one(tmp_path: Path) -> None:
    for day, people in ((1, 3), (2, 5), (4, 4)):
        record = GraphRecord(entities_by_class={"Person": people}, mentions_by_class={"Person": 2 * people})
        Records(tmp_path / f"2026-06-0{day}").write("run", record)
    (tmp_path / "2026-06-03").mkdir()
    grown = growth(tmp_path, "2026-06-02")
    assert grown.nights == (dt.date(2026, 6, 1), dt.date(2026, 6, 2))
    assert growth(tmp_path, "2026-06-04").entities["Person"] == (3, 5, 4)
    assert grown.mentions["Person"] == (6, 10) and grown.mentions["Company"] == (0, 0)
