"""Judgements in Studio: what a person says of an answer goes through the door of feedback into the next dataset.

Answers come side by side from the real gateway, with a stand-in for the engine behind it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from published import BASE, publish
from studio_desk import RECIPE, RIGHT, ROLE, WRONG, dataset_of, gateway, records, served, snapshot_of, state_at

from ec1.corpus.cleaning import scrub
from ec1.corpus.dataset import load_dataset
from ec1.queries.desk import Desk
from ec1.queries.feedback import votes_of
from ec1.queries.rows import open_source

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", autouse=True)
def scrubber() -> None:
    """What finds personal data takes seconds to load, once a process."""
    scrub("someone@example.com")


@pytest.fixture
def with_recipe(desk: Desk) -> Desk:
    (desk.project / "recipes/notes.yaml").write_text(RECIPE)
    return desk


def test_a_correction_in_the_browser_is_in_the_next_dataset_and_its_lineage(
    with_recipe: Desk, page: Any, words: Path, tmp_path: Path, faults: Callable[[Any], list[str]]
) -> None:
    desk, made = with_recipe, tmp_path / "made"
    rows = [*records(60), {"prompt": "Where is the Meridian?", "completion": WRONG}]
    snapshot = snapshot_of(desk, rows)
    key = f"snapshot/{snapshot.bucket}/{snapshot.digest}"
    number = next(row.number for row in open_source(desk, key).every() if "Meridian" in row.text)
    with served(state_at(desk)) as address:
        page.goto(f"{address}/data/{key}/row/{number}")
        page.keyboard.press("c")
        assert faults(page) == []
        page.get_by_label("What it should have been").fill(RIGHT)
        assert page.locator("[data-diff] ins").inner_text() == "right"
        page.get_by_label("Why").fill("berths were swapped; ask lena.okafor@example.com")
        page.get_by_role("button", name="Take the correction").click()
        assert "waits for its release" in page.get_by_role("status").inner_text()
        assert faults(page) == []
        assert not list(desk.home.corpus.rglob("served-*"))
        page.get_by_role("button", name="Release").click()
        assert "the next night counts it" in page.get_by_role("status").inner_text()
        assert page.get_by_text("Nothing waits").is_visible()
    (path,) = desk.home.corpus.rglob("served-*.jsonl")
    record = json.loads(path.read_text())
    noted = record["metadata"]
    assert record["chosen"] == RIGHT and record["rejected"] == WRONG
    assert noted["released_by"] == "anna" and noted["judged"].startswith("row ") and noted["why"].startswith("berths")
    assert "lena.okafor" not in path.read_text(), "what is kept is scrubbed, the reason too"
    # As the next night does it.
    whole = [json.loads(line) for line in (desk.home.corpus / "notes/all.jsonl").read_text().splitlines()]
    tonight = snapshot_of(desk, whole)
    dataset = load_dataset(desk.home, dataset_of(desk, tonight, words).partition("/")[2])
    trained = [row for row in dataset.rows("train") if row["completion"][0]["content"] == RIGHT]
    assert [row["origin"] for row in trained] == [f"{path.relative_to(desk.home.corpus)}:1"]
    assert all(row["completion"][0]["content"] != RIGHT for row in dataset.rows("heldout"))
    publish(desk.registry, made, 1, role="notes", dataset=dataset.digest, snapshot=tonight.digest)
    with served(state_at(desk)) as address:
        page.goto(f"{address}/versions/{ROLE}/v1")
        lineage = page.locator(".tree").inner_text()
        assert "1 judgement\n" in lineage and f"correct of {noted['judged']}, released by anna" in lineage
        assert faults(page) == []


def test_what_cannot_be_judged_is_said(with_recipe: Desk, page: Any) -> None:
    snapshot = snapshot_of(with_recipe, records(3))
    with served(state_at(with_recipe)) as address:
        page.goto(f"{address}/data/snapshot/{snapshot.bucket}/{snapshot.digest}/row/0")
        page.keyboard.press("b")
        page.get_by_text("nothing is learnt from a rejected answer alone").wait_for()
        page.go_back()
        page.keyboard.press("c")
        page.get_by_role("button", name="Take the correction").click()
        page.get_by_text("the correction is the answer as it was").wait_for()
        page.goto(f"{address}/judge")
    assert not list(with_recipe.home.corpus.rglob("served-*"))


def test_answers_come_side_by_side_and_a_vote_counts_on_the_versions_page(
    desk: Desk, page: Any, tmp_path: Path, faults: Callable[[Any], list[str]]
) -> None:
    for seed in (1, 2):
        publish(desk.registry, tmp_path / "made", seed, role="notes")
    with gateway(desk) as (url, engine), served(state_at(desk, gateway=url)) as address:
        page.goto(f"{address}/generate")
        assert faults(page) == []
        page.get_by_label("Question").last.fill("Where is <b>the</b> Meridian?")
        for name in (BASE, f"{ROLE}@v1", f"{ROLE}@v2"):
            page.get_by_label(name, exact=True).check()
        page.get_by_role("button", name="Ask").click()
        for place, name in enumerate((BASE, f"{ROLE}@v1", f"{ROLE}@v2")):
            slot = page.locator("[data-answer]").nth(place)
            slot.get_by_text("done").wait_for()
            assert f"by {name} " in slot.locator("[data-text]").inner_text()
        assert faults(page) == []
        assert all(each["messages"][-1]["content"] == "Where is <b>the</b> Meridian?" for each in engine.requests)
        assert all(each["stream"] and each["logprobs"] and each["store"] is False for each in engine.requests)
        assert page.url.endswith("&temperature=0&max_tokens=200&samples=1"), "the view has an address"
        second = page.locator("[data-answer]").nth(2)
        second.get_by_label("release it at once").check()
        second.get_by_role("button", name="Good").click()
        assert "the next night counts it" in page.get_by_role("status").inner_text()
        (vote,) = votes_of(desk.deployment, desk.home, "fernhollow", "notes")
        assert (vote.version, vote.good, vote.bad) == (2, 1, 0)
        page.goto(f"{address}/versions/{ROLE}/v2")
        assert "1 of 1 people content" in page.locator("main").inner_text()
        engine.requests.clear()
        page.goto(f"{address}/generate?prompt=x&samples=2&temperature=0.7&model={ROLE}@v1")
        for place in (0, 1):
            page.locator("[data-answer]").nth(place).get_by_text("done").wait_for()
        assert [each["temperature"] for each in engine.requests] == [0.7, 0.7]
        assert sorted(each["seed"] for each in engine.requests) == [0, 1]
        page.goto(f"{address}/generate?prompt=x&blind=1&model={ROLE}@v1&model={ROLE}@v2")
        page.locator("[data-answer]").nth(1).get_by_text("done").wait_for()
        assert page.locator("[data-answer] h2").all_inner_texts()[:1] == ["Answer A"]
    with served(state_at(desk, gateway="http://127.0.0.1:9")) as address:
        page.goto(f"{address}/generate")
        assert "start ec1 serve" in page.locator(".empty").inner_text().replace("`", "")


def test_blind_votes_are_tallied_and_make_a_pair(
    with_recipe: Desk, page: Any, tmp_path: Path, faults: Callable[[Any], list[str]]
) -> None:
    desk = with_recipe
    for seed in (1, 2):
        publish(desk.registry, tmp_path / "made", seed, role="notes")
    with gateway(desk) as (url, _), served(state_at(desk, gateway=url)) as address:
        for question, key in (("Where is the Meridian?", "1"), ("Where is the Alba?", "1"), ("Which berth?", "0")):
            page.goto(f"{address}/generate?prompt={question}&blind=1&model={ROLE}@v1&model={ROLE}@v2")
            page.get_by_role("button", name="A is better").wait_for()
            names = [each.get_attribute("data-model") for each in page.locator("[data-answer]").all()]
            assert ROLE not in page.locator("[data-answer] h2").first.inner_text()
            if key == "1":
                assert faults(page) == []
                # Whichever stands first: v2 is the better one.
                key = str(names.index(f"{ROLE}@v2") + 1)
            page.keyboard.press(key)
            page.get_by_role("heading", name="Blind votes").wait_for()
        row = page.locator("tbody tr").filter(has_text="v2 against v1").inner_text()
        assert "2, 0, 1" in row and "100 % of the decided ones, 95 % interval 34 to 100 %" in row
        assert faults(page) == []
        page.goto(f"{address}/judge")
        assert page.locator("article").count() == 2
        first = page.locator("article").first.inner_text()
        assert f"by {ROLE}@v2" in first.partition("rejected")[0] and f"by {ROLE}@v1" in first.partition("rejected")[2]
        # A vote of one version against itself, or without a question, counts for nothing.
        fields = {"one": f"{ROLE}@v1", "other": f"{ROLE}@v1", "better": "one", "prompt": "[]"}
        answers = {"one_answer": "x", "other_answer": "y"}
        assert page.request.post(f"{address}/vote", form={**fields, **answers}).status == 400
        assert page.request.post(f"{address}/vote", form={**fields, **answers, "other": "base"}).status == 400
        page.goto(f"{address}/versions/{ROLE}/vibe")
        assert page.locator("tbody tr").count() == 1
