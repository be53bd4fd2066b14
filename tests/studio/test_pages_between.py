"""The pages on the way: what waits, what went wrong, what a key does. `axe` finds nothing in them either."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from published import publish
from studio_desk import HOSTILE, dataset_of, records, served, snapshot_of, state_at, training_spec

from ec1.files import write_json
from ec1.queries import row_index
from ec1.queries.desk import Desk
from studio.background import Background

pytestmark = pytest.mark.browser
ROLE = "fernhollow/notes"
NO_MORE_RELOADS = "for (let each = 0; each < 1000; each++) clearTimeout(each)"
RECIPE = "kind: generation\nrole: sums\nrequests: 3\nfunctions: |\n  def scaled(x):\n      return 2 * x\n"


@pytest.fixture
def held_up() -> Any:
    """What work waits for until its test is over."""
    over = threading.Event()
    yield over
    over.set()


def test_a_page_that_waits_for_an_index_has_no_fault_and_goes_on_by_itself(
    desk: Desk, page: Any, held_up: threading.Event, monkeypatch: pytest.MonkeyPatch, faults: Callable[[Any], list[str]]
) -> None:
    snapshot, build = snapshot_of(desk, records(20)), row_index.build

    def later(*args: Any) -> None:
        held_up.wait(120)
        build(*args)

    monkeypatch.setattr(row_index, "build", later)
    key = f"snapshot/{snapshot.bucket}/{snapshot.digest}"
    with served(state_at(desk)) as address:
        assert page.goto(f"{address}/data/{key}?text=ship").status == 202
        page.evaluate(NO_MORE_RELOADS)
        assert page.get_by_role("status").inner_text().startswith("0 of 20 rows")
        assert faults(page) == []
        page.reload()
        held_up.set()
        page.get_by_text("Where does ship 7 lie").wait_for()


def test_work_in_the_background_shows_where_it_stands(
    desk: Desk, page: Any, tmp_path: Path, held_up: threading.Event, faults: Callable[[Any], list[str]]
) -> None:
    publish(desk.registry, tmp_path / "made", 1, role="notes")
    background = Background()

    def work(tell: Callable[[str], None]) -> str:
        tell("v1, prompt 1 of 2")
        held_up.wait(120)
        return "written: 2 answers"

    with served(state_at(desk, background=background)) as address:
        page.goto(f"{address}/make/new")
        page.get_by_label("Name").fill("calls")
        page.get_by_label("Recipe (YAML)").fill(RECIPE)
        page.get_by_role("button", name="Keep it", exact=True).click()
        page.wait_for_url("**/make/sums/calls")
        for name, path in (
            (f"vibe check of {ROLE}", f"/versions/{ROLE}/vibe"),
            ("sample of sums/calls", "/make/sums/calls"),
        ):
            assert background.begin(name, work) and not background.begin(name, work)
            page.goto(f"{address}{path}")
            page.get_by_text("v1, prompt 1 of 2").wait_for()
            assert faults(page) == []
        held_up.set()
        page.get_by_text("written: 2 answers").wait_for()


def test_what_goes_wrong_is_one_line_on_a_page_without_fault(
    desk: Desk, page: Any, faults: Callable[[Any], list[str]]
) -> None:
    snapshot = snapshot_of(desk, records(3))
    source = f"/data/snapshot/{snapshot.bucket}/{snapshot.digest}"
    (desk.home.snapshots / snapshot.bucket / snapshot.digest / "manifest.json").write_text("{")
    with served(state_at(desk)) as address:
        for path, status, said in (
            (f"/graph/entity?key={HOSTILE[0]}", 400, "no graph is published"),
            ("/data/compare?one=x&other=y", 400, "is neither snapshot"),
            (f"/{HOSTILE[0]}", 404, "<script>"),
            (source, 500, "manifest.json"),
        ):
            assert page.goto(f"{address}{path}").status == status
            assert said in page.get_by_role("alert").inner_text()
            assert faults(page) == [] and "taken" not in page.title()
        page.goto(address)
        assert "manifest.json" in page.locator("span.problem").inner_text(), "one that is damaged is listed, and said"
        assert faults(page) == []
        page.keyboard.press("?")
        page.wait_for_url("**/keys")
        assert faults(page) == []


def test_rows_as_a_model_reads_them_and_searches_that_find_nothing(
    desk: Desk, page: Any, words: Path, faults: Callable[[Any], list[str]]
) -> None:
    snapshot = snapshot_of(desk, records(40))
    key = dataset_of(desk, snapshot, words)
    folder = desk.home.run("fernhollow", "notes", "2026-06-01") / "training"
    folder.mkdir(parents=True)
    spec = training_spec(folder, words) | {"dataset_digest": key.partition("/")[2]}
    write_json(folder / "run.json", {"spec": spec, "provenance": {}, "started": "2026-06-01T01:00:00"})
    with served(state_at(desk)) as address:
        page.goto(f"{address}/data/{key}/row/0?view=tokens")
        shown = page.get_by_label("What the model reads")
        learnt = "".join(page.locator("pre.tokens .learnt").all_inner_texts())
        assert learnt and learnt in shown.inner_text() and "Where does ship" not in learnt
        assert faults(page) == []
        page.goto(f"{address}/data/{key}?side=nothing")
        assert "No row is like that" in page.locator(".empty").inner_text()
        assert faults(page) == []
