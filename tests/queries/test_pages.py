"""Lists come in pages: every item once, whichever way they are cut, and a page costs what is on it."""

import datetime as dt
import json
from pathlib import Path

import numpy as np
import pytest
from graph_samples import NIGHT, key, result

from ec1.corpus.buckets import bucket
from ec1.corpus.pieces import pieces_of, places_of
from ec1.corpus.snapshots import Snapshot, take_snapshot
from ec1.errors import DamagedError, InputError
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.reader import GraphReader
from ec1.home import Home
from ec1.queries import datasets, graph
from ec1.queries.page import Page, page_of


def test_cursors_lead_through_a_list_once() -> None:
    found: list[int] = []
    page: Page[int] = page_of(range(7), 3)
    while page.next is not None:
        assert len(page.items) == 3
        found += page.items
        page = page_of(range(7), 3, page.next)
    assert [*found, *page.items] == list(range(7))
    assert page_of(range(6), 3, "3").next is None, "no empty page at the end"
    assert page_of([1, 2]) == Page((1, 2)), "no limit, no cursor"
    assert page_of([1, 2], 5, "9") == Page(())


@pytest.mark.parametrize(("limit", "cursor"), [(0, None), (-1, None), (5, "x"), (5, "-1"), (5, "")])
def test_a_wrong_limit_or_cursor_is_refused(limit: int, cursor: str | None) -> None:
    with pytest.raises(InputError):
        page_of([1], limit, cursor)


@pytest.fixture
def snapshot(home: Home) -> Snapshot:
    """2,500 rows of a kilobyte, in three pieces."""
    folder = home.corpus / "notes"
    folder.mkdir(parents=True)
    records = ({"prompt": f"Ask {n}", "completion": f"Answer {n} {'and so on ' * 100}"} for n in range(2500))
    (folder / "all.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    notes = bucket(home.corpus, "notes", "fernhollow")
    return take_snapshot(notes, "sft", as_of=dt.datetime.now(dt.UTC), home=home)


def test_pages_of_rows_are_the_rows_of_the_snapshot_in_its_order(snapshot: Snapshot) -> None:
    whole = list(snapshot.rows())
    page = datasets.rows(snapshot, 700)
    found = [*page.items]
    while page.next is not None:
        page = datasets.rows(snapshot, 700, page.next)
        found += page.items
    assert found == whole and len(whole) == 2500


def test_a_page_of_rows_reads_only_the_pieces_that_hold_it(snapshot: Snapshot) -> None:
    pieces = pieces_of(snapshot.sealed, "tuples")
    assert len(pieces) > 1
    of_row = places_of(snapshot.path, pieces)[:, 0]
    (snapshot.path / f"{pieces[0]}.jsonl").write_text("{}")
    good, bad = int(np.argmax(of_row != 0)), int(np.argmax(of_row == 0))
    # One more row is looked at, to know whether there is another page.
    assert [row.digest for row in snapshot.rows(good, good + 1)]
    with pytest.raises(DamagedError):
        list(snapshot.rows(bad, bad + 1))
    with pytest.raises(DamagedError):
        list(snapshot.rows())


def test_pages_of_a_search_are_the_entities_by_how_often_they_are_named(tmp_path: Path) -> None:
    people = tuple((f"Anna Berg {letter}", "Person") for letter in "ABCDE")
    with LadybugStore.open(tmp_path / "graph", buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply(key("a.md"), "mk-a", result("a", *people), NIGHT)
        store.apply(key("b.md"), "mk-b", result("b", people[3]), NIGHT)
        store.publish(tmp_path / "published")
    with GraphReader(tmp_path / "published", buffer_pool_mib=64) as reader:
        first = graph.search(reader, "anna", limit=2)
        second = graph.search(reader, "anna", limit=2, cursor=first.next)
        third = graph.search(reader, "anna", limit=2, cursor=second.next)
        names = [each.name[-1] for page in (first, second, third) for each in page.items]
        assert names == ["D", "A", "B", "C", "E"] and third.next is None
        with pytest.raises(InputError, match="not a cursor"):
            graph.search(reader, "anna", cursor="next")
