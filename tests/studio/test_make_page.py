"""Rows that a model proposed and the sandbox checked are looked at in Studio before they are admitted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from studio_desk import served, state_at

from ec1.corpus.generated import functions_in, generate
from ec1.files import digest_of, write_json
from ec1.queries.desk import Desk

pytestmark = [pytest.mark.browser, pytest.mark.needs("bwrap")]
MODULE = "import random\n\ndef scaled(x):\n    return 2 * x\n\ndef chance(x):\n    return random.random() * x\n"


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
    report = generate(found, tmp_path / "answers", held, requests=1, unanswered=0, model="<i>m</i>")
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
