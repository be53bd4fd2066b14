"""Rows that a model proposed and the sandbox checked are looked at in Studio, step by step, before any is admitted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from published import BASE
from studio_desk import gateway, served, state_at

from ec1.corpus.generated import asks_of, functions_in, generate
from ec1.corpus.generation_recipe import waiting_recipes
from ec1.files import digest_of, write_json
from ec1.queries.desk import Desk

pytestmark = [pytest.mark.browser, pytest.mark.needs("bwrap")]
MODULE = "import random\n\ndef scaled(x):\n    return 2 * x\n\ndef chance(x):\n    return random.random() * x\n"
RECIPE = """\
kind: generation
role: sums
requests: 3
instruction: Write calls.   # a remark that stays
functions: |
  import random

  def scaled(x):
      return 2 * x

  def chance(x):
      return random.random() * x
"""
CALLS = ["scaled(2)", "scaled( 2 )", "scaled(7)", "scaled(open('<b>x</b>'))", "chance(1)"]


def test_a_recipe_is_written_tried_changed_and_accepted(
    desk: Desk, page: Any, faults: Callable[[Any], list[str]]
) -> None:
    with gateway(desk) as (url, engine), served(state_at(desk, gateway=url)) as address:
        engine.text = json.dumps({"calls": CALLS}).replace("{", "{{").replace("}", "}}")
        page.goto(f"{address}/make")
        assert faults(page) == []
        page.get_by_role("link", name="Write a recipe").click()
        assert "kind: generation" in page.get_by_label("Recipe (YAML)").input_value()
        page.get_by_label("Name").fill("calls")
        page.get_by_label("Recipe (YAML)").fill(RECIPE.replace("requests", "requestz"))
        page.get_by_role("button", name="Keep it", exact=True).click()
        assert "requestz" in page.get_by_role("alert").inner_text()
        page.go_back()
        page.get_by_label("Recipe (YAML)").fill(RECIPE)
        page.get_by_role("button", name="Keep it and make ten rows").click()
        page.get_by_text("2 rows of 10 calls").wait_for()
        assert faults(page) == []
        scaled = page.locator("article").filter(has=page.get_by_role("heading", name="scaled"))
        steps = [each.split("\t") for each in scaled.locator("tbody tr").all_inner_texts()]
        assert [[each.strip() for each in step] for step in steps] == [
            ["scaled(2)", "4", "4", "a row"],
            ["scaled( 2 )", "", "", "left out it was proposed before"],
            ["scaled(7)", "14", "14", "a row"],
            ["scaled(open('<b>x</b>'))", "", "", "left out not a literal call of this function"],
            ["chance(1)", "", "", "left out not a literal call of this function"],
        ]
        assert "two processes do not agree" in page.locator("article").filter(has_text="chance").first.inner_text()
        scaled.get_by_text("What the model was shown").click()
        assert "Write calls." in scaled.inner_text() and "def scaled(x):" in scaled.inner_text()
        assert all(each["model"] == BASE and "response_format" in each for each in engine.requests)
        page.get_by_role("button", name="Accept the sample").click()
        page.get_by_text("the next night makes the rest").wait_for()
        assert [each.name for each in waiting_recipes(desk.home.generated)] == ["calls"]
        # Changed, it is not what was accepted.
        page.get_by_label("Recipe (YAML)").fill(RECIPE.replace("2 * x", "3 * x"))
        page.get_by_role("button", name="Keep it", exact=True).click()
        page.get_by_text("Nobody has seen what this recipe makes").wait_for()
        assert page.get_by_role("button", name="Accept").count() == 0
        assert "# a remark that stays" in page.get_by_label("Recipe (YAML)").input_value()
        assert waiting_recipes(desk.home.generated) == []
        assert page.request.post(page.url, form={"action": "accept"}).status == 400
        page.goto(f"{address}/make")
        assert "no sample yet" in page.locator("ol.rows").inner_text()
        assert faults(page) == []
    assert not desk.home.corpus.is_dir(), "nothing is in a bucket"


def test_without_an_engine_a_sample_says_what_to_start(desk: Desk, page: Any) -> None:
    with served(state_at(desk, gateway="http://127.0.0.1:9")) as address:
        page.goto(f"{address}/make/new")
        page.get_by_label("Name").fill("calls")
        page.get_by_label("Recipe (YAML)").fill(RECIPE)
        page.get_by_role("button", name="Keep it and make ten rows").click()
        page.get_by_text("start `ec1 serve`").wait_for()


def test_rows_are_admitted_by_a_person_who_saw_some(
    desk: Desk, page: Any, tmp_path: Path, faults: Callable[[Any], list[str]]
) -> None:
    module = tmp_path / "functions.py"
    module.write_text(MODULE)
    found = functions_in(module)
    for each, calls in zip(found, (["scaled(2)", "scaled(7)", "scaled(open('x'))"], ["chance(1)"]), strict=True):
        name = f"{digest_of([each.module, each.name])[:24]}-0.json"
        write_json(tmp_path / "answers" / name, {"function": each.name, "calls": calls})
    held = desk.home.generated / "sums"
    report = generate(asks_of(found, 1), tmp_path / "answers", held, unanswered=0, model="<i>m</i>")
    assert report.rows == 2, report
    with served(state_at(desk)) as address:
        page.goto(f"{address}/make")
        assert "2 rows by <i>m</i>" in page.locator("article").inner_text()
        page.locator("summary").first.click()
        assert faults(page) == []
        assert not desk.home.corpus.is_dir()
        page.get_by_role("button", name="Admit all 2 rows").click()
        page.get_by_text("2 rows are in the bucket of sums").wait_for()
        assert page.get_by_text("admitted", exact=True).is_visible()
        assert page.get_by_role("button", name="Admit").count() == 0
    (path,) = desk.home.corpus.rglob("generated-*.jsonl")
    values = [json.loads(line)["checks"][0]["value"]["expected"] for line in path.read_text().splitlines()]
    assert sorted(values) == [4, 14]
