"""The Parquet exports of nights, and the growth that the nights' records show."""

import datetime as dt
import re
import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from graph_samples import key, random_changes, result

from ec1.errors import InputError
from ec1.extraction.results import Relation, Trait
from ec1.graph.export import COLUMNS
from ec1.graph.exports import chain, export_night, exports, read_table
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.overrides import NO_OVERRIDES
from ec1.night.growth import growth
from ec1.night.records import GraphRecord, Records


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
        "export.json",
        "links.parquet",
        "mentions.parquet",
        "relations.parquet",
        "replaced.parquet",
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
    assert read_table(again, "entities").num_rows == 6
    # A second export of a night is whole, and goes back to nothing; the nights before it still do.
    assert [path.name[:10] for path in exports(folder)] == [f"2026-06-0{day}" for day in (1, 2, 3, 4, 5)]
    assert chain(again) == [again] and len(chain(exports(folder)[-2])) == 4
    for day in (6, 7):
        again = night(store, folder, f"2026-06-0{day}", f"Person {day}")
    assert [path.name[:10] for path in exports(folder)] == ["2026-06-05", "2026-06-06", "2026-06-07"]


def test_what_an_interrupted_export_left_is_no_export_and_goes(store: LadybugStore, tmp_path: Path) -> None:
    left = tmp_path / "exports" / ".2026-06-01-0123456789ab.x1"
    left.mkdir(parents=True)
    (left / "documents.parquet").write_bytes(b"half")
    assert exports(tmp_path / "exports") == []
    night(store, tmp_path / "exports", "2026-06-01", "Anna Berg")
    assert len(exports(tmp_path / "exports")) == 1 and not left.exists()


WORKS = Relation(
    relation="works_at", subject="Anna Berg", subject_class="Person", object="Acme", object_class="Company",
    confidence=0.9, chunk=0, start=0, end=9,
)  # fmt: skip


def nights_of(seed: int) -> list[list]:
    """What eight nights bring; relations and traits among it."""
    history = random_changes(seed, 10, 40)
    found = [history[at : at + 5] for at in range(0, 40, 5)]
    for at, content in ((1, "states"), (4, "says more")):
        stated = result(content, ("Anna Berg", "Person"), ("Acme", "Company"))
        phone = Trait(name="Anna Berg", entity_class="Person", kind="phone", value=f"555 010{at}")
        found[at].append((key("r.md"), "mk", stated.model_copy(update={"relations": (WORKS,), "traits": (phone,)})))
    return found


def same(one: pa.Table, other: pa.Table) -> bool:
    return sorted(map(str, one.to_pylist())) == sorted(map(str, other.to_pylist()))


@pytest.mark.parametrize("seed", range(2))
def test_a_night_writes_what_changed_and_all_nights_read_as_the_whole(
    store: LadybugStore, tmp_path: Path, seed: int
) -> None:
    folder, written = tmp_path / "exports", []
    for number, changes in enumerate(nights_of(seed)):
        date = f"2026-06-0{number + 1}"
        store.apply_many(changes, date)
        if number == 5:
            store.retract_many([document for document, _, _ in changes], date)
        store.update_resolution(NO_OVERRIDES, whole_below=0, drift=100.0)
        path = export_night(store, folder, date, store.digest_with_resolution(), 100, whole_every=5)
        assert path is not None
        written.append(path)
        store.export(tmp_path / date)
    assert [len(chain(path)) for path in written] == [1, 2, 3, 4, 5, 1, 2, 3]
    for number, path in enumerate(written):
        for table in COLUMNS:
            whole = pq.read_table(tmp_path / f"2026-06-0{number + 1}" / f"{table}.parquet")
            assert same(read_table(path, table), whole), (path.name, table)


def test_what_was_not_noted_is_exported_whole(store: LadybugStore, tmp_path: Path) -> None:
    """An export that is gone, a resolution that was made anew, an older night: what they need is there."""
    folder = tmp_path / "exports"
    first = night(store, folder, "2026-06-02", "Anna Berg")
    second = night(store, folder, "2026-06-03", "Ben Cole")
    assert first and second and chain(second) == [first, second]
    earlier = night(store, folder, "2026-06-01", "Cy Dole")
    assert earlier and chain(earlier) == [earlier]
    store.update_resolution(NO_OVERRIDES, whole_below=10**6)
    later = export_night(store, folder, "2026-06-04", store.digest_with_resolution(), 5)
    assert later and chain(later) == [later]
    last = night(store, folder, "2026-06-05", "Di Ek", keep=5)
    assert last is not None
    shutil.rmtree(first)
    shutil.rmtree(later)
    for broken in (second, last):
        with pytest.raises(InputError, match="is gone"):
            read_table(broken, "entities")
    mended = night(store, folder, "2026-06-06", "Ed Fox", keep=5)
    assert mended and chain(mended) == [mended]


def test_duckdb_reads_all_nights_as_the_whole(
    store: LadybugStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement is the one of docs/graph.md."""
    folder = tmp_path / "exports"
    for number, changes in enumerate(nights_of(7)[:4]):
        store.apply_many(changes, f"2026-06-0{number + 1}")
        export_night(store, folder, f"2026-06-0{number + 1}", store.digest_with_resolution(), 7)
    assert len(exports(folder)) == 4
    page = (Path(__file__).parents[2] / "docs" / "graph.md").read_text()
    statement = re.search(r"```sql\n(.*?)```", page, re.DOTALL)
    assert statement is not None
    monkeypatch.chdir(folder)
    found = duckdb.sql(statement[1]).to_arrow_table().select(COLUMNS["mentions"])
    assert same(found, read_table(exports(folder)[-1], "mentions")) and found.num_rows


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
