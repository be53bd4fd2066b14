"""Evaluation cases: what a person says of an answer in Studio judges the next versions, and nothing learns it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from published import publish
from studio_desk import RECIPE, RIGHT, ROLE, WRONG, dataset_of, records, served, snapshot_of, state_at

from ec1.corpus.dataset import Dataset, load_dataset
from ec1.queries.desk import Desk
from ec1.queries.rows import open_source

pytestmark = pytest.mark.browser
QUESTION = "Where is the Meridian?"


@pytest.fixture
def with_recipe(desk: Desk) -> Desk:
    (desk.project / "recipes/notes.yaml").write_text(RECIPE)
    return desk


def tonight(desk: Desk, words: Path, **options: Any) -> tuple[Any, Dataset]:
    """Snapshot and dataset of the whole bucket, as a night makes them."""
    lines = [json.loads(line) for line in (desk.home.corpus / "notes/all.jsonl").read_text().splitlines()]
    snapshot = snapshot_of(desk, lines)
    return snapshot, load_dataset(desk.home, dataset_of(desk, snapshot, words, **options).partition("/")[2])


@pytest.mark.parametrize("options", [{}, {"heldout_newest": True}, {"group_by": ("tenant",)}])
def test_a_mark_becomes_a_case_that_judges_and_is_never_trained_on(
    with_recipe: Desk, page: Any, words: Path, faults: Callable[[Any], list[str]], options: dict[str, Any]
) -> None:
    desk = with_recipe
    # Of other sessions: what says the same as the case will, and what nearly does.
    like = [
        {"prompt": f"Where is ship {n}, and why?", "completion": f"{RIGHT}{' Yes' * n}", "session_id": f"S{n}"}
        for n in range(9)
    ]
    snapshot = snapshot_of(desk, [*records(60), *like])
    key = f"snapshot/{snapshot.bucket}/{snapshot.digest}"
    judged = next(row for row in open_source(desk, key).every() if "ship 7 " in row.text)
    number, asked = judged.number, judged.prompt[-1]["content"]
    _, before = tonight(desk, words, **options)
    with served(state_at(desk)) as address:
        page.goto(f"{address}/data/{key}/row/{number}")
        page.keyboard.press("c")
        page.get_by_label("as an evaluation case").check()
        page.get_by_label("Why").fill("ask lena.okafor@example.com")
        page.get_by_role("button", name="Bad").click()
        assert "needs the right answer" in page.get_by_role("alert").inner_text()
        for why, ends in (("", False), ("ask lena.okafor@example.com", True)):
            page.goto(f"{address}/data/{key}/row/{number}")
            page.keyboard.press("c")
            page.get_by_label("as an evaluation case").check()
            page.get_by_label("What it should have been").fill(RIGHT)
            page.get_by_label("Why").fill(why)
            page.get_by_role("button", name="Take the correction").click()
            assert ends or "needs a reason" in page.get_by_role("alert").inner_text()
        assert "judges from the next evaluation on" in page.get_by_role("status").inner_text()
        (row,) = page.locator("tbody tr").all_inner_texts()
        assert asked in row and "right berth" in row and "anna, just now" in row and "lena" not in row
        assert faults(page) == []
    (path,) = (desk.home.corpus / "notes/feedback").iterdir()
    metadata = json.loads(path.read_text())["metadata"]
    assert metadata["written_by"] == "anna" and metadata["judged"].startswith("row ")
    _, dataset = tonight(desk, words, **options)
    held = [row for row in dataset.rows("heldout") if row["group"].startswith("brief_id:case-")]
    assert [row["completion"][0]["content"] for row in held] == [RIGHT], "the right answer, and it alone"
    sides = [row for side in ("train", "heldout") for row in dataset.rows(side) if row["prompt"][0]["content"] == asked]
    assert sides == held, "the row that was judged stands on no side any more"
    assert not any(RIGHT in row["completion"][0]["content"] for row in dataset.rows("train")), "nor what is like it"
    groups = {side: {row["group"] for row in dataset.rows(side)} for side in ("train", "heldout")}
    assert not groups["heldout"] & {row["group"] for row in before.rows("train")}, "nothing changes sides for a case"
    assert dataset.train_rows > 10 and not dataset.leaks
    # What users say of the same question is not learnt either, and never takes the place of the case.
    served_row = {"prompt": asked, "completion": WRONG, "metadata": {"origin": "ec1-serve"}, "created": "2030-01-01"}
    (path.parent / "served-1.jsonl").write_text(json.dumps(served_row))
    _, again = tonight(desk, words, **options)
    assert [row["prompt"][0]["content"] for row in again.rows("train")].count(asked) == 0
    assert {row["completion"][0]["content"] for row in again.rows("heldout") if row["group"] == held[0]["group"]} == {
        RIGHT
    }


def test_a_question_that_a_version_learnt_judges_nothing(
    with_recipe: Desk, page: Any, words: Path, tmp_path: Path
) -> None:
    desk = with_recipe
    snapshot_of(desk, records(60))
    snapshot, dataset = tonight(desk, words)
    publish(desk.registry, tmp_path / "made", 1, role="notes", dataset=dataset.digest, snapshot=snapshot.digest)
    learnt, held = (dataset.rows(side)[0]["prompt"][0]["content"] for side in ("train", "heldout"))
    fields = {"role": ROLE, "answer": "At berth 1.", "verdict": "accept", "case": "1", "why": "it is known"}
    with served(state_at(desk)) as address:
        for question, status in ((learnt, 400), (held, 200)):
            prompt = json.dumps([{"role": "user", "content": question}])
            answer = page.request.post(f"{address}/judge", form={**fields, "prompt": prompt})
            assert answer.status == status
            assert ("fernhollow/notes@v1 learnt an answer to this question" in answer.text()) == (status == 400)
    assert len(list((desk.home.corpus / "notes/feedback").iterdir())) == 1


def test_a_judgement_keeps_the_access_labels_of_what_it_is_of(
    with_recipe: Desk, page: Any, words: Path, tmp_path: Path
) -> None:
    desk = Desk(with_recipe.deployment, with_recipe.home, with_recipe.project, None)
    publish(desk.registry, tmp_path / "made", 1, role="notes", labels=("port",))
    prompt = json.dumps([{"role": "user", "content": QUESTION}])
    fields = {"prompt": prompt, "answer": "At berth 1, as it is said.", "verdict": "accept", "release": "1", "why": "x"}
    with served(state_at(desk)) as address:
        assert page.request.post(f"{address}/judge", form={**fields, "model": f"{ROLE}@v1"}).status == 200
        waits = {**fields, "role": ROLE, "labels": "crew", "release": "0", "answer": "At berth 2."}
        assert page.request.post(f"{address}/judge", form=waits).status == 200
        assert page.request.post(f"{address}/judge", form={**waits, "case": "1"}).status == 200
        page.goto(f"{address}/judge")
        assert "berth 2" in page.locator("article").inner_text() and "berth 2" in page.locator("table").inner_text()
    found = [json.loads(each.read_text()) for each in sorted((desk.home.corpus / "notes/feedback").iterdir())]
    assert [each["metadata"]["access_labels"] for each in found] == [["crew"], ["port"]]
    stranger = Desk(desk.deployment, desk.home, desk.project, frozenset({"port"}))
    with served(state_at(stranger)) as address:
        page.goto(f"{address}/judge")
        assert "berth 2" not in page.locator("main").inner_text()
