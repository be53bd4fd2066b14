"""Forgetting a row from its page: first what would go, then for good, as `ec1 forget` does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from published import publish
from studio_desk import dataset_of, records, served, snapshot_of, state_at

from ec1.corpus.tombstones import Tombstones
from ec1.night.forgetting.tuples import tuple_of
from ec1.queries.desk import Desk
from ec1.queries.rows import open_source

pytestmark = pytest.mark.browser
SECRET = {"prompt": "Who has the key?", "completion": "Lena has the key of berth nine."}
SESSION = [{"prompt": f"Step {n} of it?", "completion": f"Done with {n}.", "session_id": "S-41"} for n in range(2)]


def test_a_row_is_forgotten_after_what_would_go_was_seen(
    desk: Desk, page: Any, words: Path, tmp_path: Path, faults: Callable[[Any], list[str]]
) -> None:
    snapshot = snapshot_of(desk, [*records(40), SECRET, *SESSION])
    key = dataset_of(desk, snapshot, words)
    dataset = key.partition("/")[2]
    publish(desk.registry, tmp_path / "made", 1, role="notes", dataset=dataset, snapshot=snapshot.digest)
    bucket = desk.home.corpus / "notes/all.jsonl"
    row = next(each for each in open_source(desk, key).every() if "Lena" in each.text)
    with served(state_at(desk)) as address:
        page.goto(f"{address}/data/{key}/row/{row.number}")
        page.get_by_role("link", name="which versions learnt this row").click()
        assert page.get_by_text("fernhollow/notes@v1", exact=True).count() == (row.side == "train")
        page.get_by_role("link", name="Forget this row").click()
        assert page.get_by_label("Or everything that holds this text").input_value() == SECRET["completion"]
        assert faults(page) == []
        page.get_by_role("button", name="Look at what would go").click()
        said = page.get_by_role("status").inner_text()
        assert said.startswith("1 row, 0 documents, 1 snapshot, 1 dataset, ")
        shown = page.locator("main").inner_text()
        assert "notes/all.jsonl, line 41 (this row)" in shown and "fernhollow/notes@v1 learnt from it" in shown
        assert faults(page) == []
        assert "Lena" in bucket.read_text() and (desk.home.datasets / dataset).is_dir(), "looking changes nothing"
        page.get_by_label("I looked at what would go").check()
        with bucket.open("a") as stream:
            stream.write('{"prompt": "Again?", "completion": "lena has  the KEY of berth nine."}\n')
        page.get_by_role("button", name="Forget it for good").click()
        assert "look again" in page.get_by_role("alert").inner_text()
        assert "Lena" in bucket.read_text()
        page.goto(f"{address}/data/{key}/row/{row.number}/forget")
        page.get_by_role("button", name="Look at what would go").click()
        assert page.get_by_role("status").inner_text().startswith("2 rows")
        page.get_by_label("I looked at what would go").check()
        page.get_by_role("button", name="Forget it for good").click()
        said = page.get_by_role("status").inner_text()
        assert said.startswith("removed: 2 rows") and "withdrawn: fernhollow/notes@v1" in said
    assert "lena" not in bucket.read_text().lower() and "Common berth 3." in bucket.read_text()
    assert not (desk.home.datasets / dataset).exists() and not desk.registry.usable("fernhollow", "notes")
    known = tuple_of(SECRET)
    assert known is not None and Tombstones(desk.home).refuses(known), "an import cannot bring it back"


def test_a_task_is_forgotten_by_its_question(desk: Desk, page: Any) -> None:
    task = {"tuple_type": "task", "prompt": "2 + 3?", "checks": [{"check": "exact", "value": "5" * 90}]}
    snapshot = snapshot_of(desk, [task], "sums", "task")
    with served(state_at(desk)) as address:
        page.goto(f"{address}/data/snapshot/{snapshot.bucket}/{snapshot.digest}/row/0/forget")
        assert page.get_by_label("Or everything that holds this text").input_value() == "2 + 3?"


def test_what_a_row_was_cut_from_goes_as_a_whole(desk: Desk, page: Any) -> None:
    snapshot = snapshot_of(desk, [*records(5), *SESSION])
    key = f"snapshot/{snapshot.bucket}/{snapshot.digest}"
    row = next(each for each in open_source(desk, key).every() if "Step 1" in each.text)
    path = f"/data/{key}/row/{row.number}/forget"
    fields = {"source": "session_id:S-41", "text": ""}
    with served(state_at(desk)) as address:
        page.goto(f"{address}{path}")
        assert page.get_by_label("All that was cut from").input_value() == "session_id:S-41"
        assert page.request.post(f"{address}{path}", form={"source": "", "text": " "}).status == 400
        assert page.request.post(f"{address}/forget", form={**fields, "looked_at": "x", "sure": "1"}).status == 400
        page.get_by_role("button", name="Look at what would go").click()
        assert page.get_by_role("status").inner_text().startswith("2 rows")
        looked_at = page.locator("[name=looked_at]").get_attribute("value")
        assert page.request.post(f"{address}/forget", form={**fields, "looked_at": looked_at}).status == 400
    with served(state_at(desk, read_only=True)) as address:
        page.goto(f"{address}{path}")
        page.get_by_role("button", name="Look at what would go").click()
        assert page.get_by_role("button", name="Forget it for good").count() == 0
        sent = {**fields, "looked_at": looked_at, "sure": "1"}
        assert page.request.post(f"{address}/forget", form=sent).status == 403
    bucket = desk.home.corpus / "notes/all.jsonl"
    assert bucket.read_text().count("S-41") == 2
    with served(state_at(desk)) as address:
        assert page.request.post(f"{address}/forget", form=sent).status == 200
    assert "S-41" not in bucket.read_text() and len(bucket.read_text().splitlines()) == 5
