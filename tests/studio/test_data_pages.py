"""Data in Studio, in a real browser: rows are found, shown as they are, and can do nothing."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from studio_desk import HOSTILE, dataset_of, foreign_page, records, served, snapshot_of, state_at, training_spec

from ec1.adapters.scores import ExampleScores, Scores, write_scores
from ec1.queries import row_index
from ec1.queries.desk import Desk
from ec1.queries.rows import open_source

pytestmark = pytest.mark.browser


def indexed(desk: Desk, key: str) -> None:
    source = open_source(desk, key)
    row_index.build(source, row_index.index_path(desk, source))


def key_of(snapshot: Any) -> str:
    return f"snapshot/{snapshot.bucket}/{snapshot.digest}"


def test_rows_are_paged_searched_sorted_and_opened_by_keys(
    desk: Desk, page: Any, faults: Callable[[Any], list[str]]
) -> None:
    key = key_of(snapshot_of(desk, [*records(120), {"prompt": "only a question"}]))
    with served(state_at(desk)) as address:
        page.goto(address)
        assert faults(page) == []
        page.get_by_role("link", name="notes-fernhollow").click()
        assert page.get_by_role("status").inner_text() == "121 rows"
        first = page.locator("ol.rows > li > a").first.get_attribute("href")
        page.keyboard.press("n")
        page.wait_for_url("**after=50")
        assert page.get_by_text("51 to 100").is_visible()
        indexed(desk, key)
        page.keyboard.press("/")
        page.keyboard.type('"ship 11" common')
        page.keyboard.press("Enter")
        page.wait_for_url("**text=**")
        assert page.get_by_role("status").inner_text() == "1 rows"
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="assistant").wait_for()
        assert "Where does ship 11 lie" in page.locator("main").inner_text()
        assert faults(page) == []
        page.goto(f"{address}/data/{key}?order=length&down=1")
        shown = page.locator("ol.rows .hint").all_inner_texts()
        assert [len(each) for each in shown] == sorted((len(each) for each in shown), reverse=True)
        assert faults(page) == []
        page.goto(f"{address}/data/{key}?side=rejected")
        assert page.locator("ol.rows > li").count() == 1
        page.locator("ol.rows > li > a").click()
        assert "Left out because" in page.locator("main").inner_text()
        page.goto(f"{address}{first}")
        page.keyboard.press("u")
        page.wait_for_url(f"**/data/{key}")
        page.goto(f"{address}/data/{key}/counts")
        assert page.get_by_role("heading", name="Length in characters").is_visible()
        assert faults(page) == []


def test_what_a_model_reads_and_pairs_and_left_out_rows_are_shown(
    desk: Desk, page: Any, words: Path, faults: Callable[[Any], list[str]]
) -> None:
    snapshot = snapshot_of(desk, [*records(40), *records(1)[:1], {**records(2)[1], "metadata": {"x": "1"}}])
    dataset = dataset_of(desk, snapshot, words)
    long = "The order was taken on Monday and it was sent to the wrong berth, which nobody saw. " * 2
    pair = {"prompt": "What happened?", "chosen": long.replace("wrong", "right"), "rejected": long}
    pairs = snapshot_of(desk, [pair], "apprenticeship", "dpo")
    with served(state_at(desk)) as address:
        page.goto(f"{address}/data/{key_of(pairs)}/row/0")
        assert page.locator("del").all_inner_texts() == ["wrong", "wrong"]
        assert page.locator("ins").all_inner_texts() == ["right", "right"]
        assert faults(page) == []
        page.goto(f"{address}/data/{dataset}?side=rejected")
        page.locator("ol.rows > li > a").first.click()
        page.get_by_text("As it stands in the snapshot").wait_for()
        assert "Common berth" in page.locator("main").inner_text()
        page.get_by_role("link", name="which versions learnt this row").click()
        assert "No version learnt it" in page.locator("main").inner_text()
        page.goto(f"{address}/data/compare?one={dataset}&other={key_of(snapshot)}")
        while page.locator("#waiting").count():
            page.wait_for_timeout(50)
        assert "rows are in both" in page.get_by_role("status").inner_text()
        assert faults(page) == []


def test_what_was_scrubbed_out_of_a_row_is_shown(
    desk: Desk, page: Any, words: Path, faults: Callable[[Any], list[str]]
) -> None:
    told = {"prompt": "Who knows the berth?", "completion": "Ask lena.okafor@example.com about it."}
    snapshot = snapshot_of(desk, [*records(40), told])
    dataset = dataset_of(desk, snapshot, words, scrub=True)
    rows = [each for each in open_source(desk, dataset).every() if each.answers]
    numbers = {"Who knows" not in each.text: each.number for each in rows}
    with served(state_at(desk)) as address:
        page.goto(f"{address}/data/{dataset}/row/{numbers[False]}")
        changed = page.get_by_label("In the snapshot", exact=True).locator("del").all_inner_texts()
        assert "okafor" in "".join(changed) and "example" in "".join(changed)
        assert "okafor" not in page.get_by_label("In this dataset", exact=True).inner_text()
        assert faults(page) == []
        page.goto(f"{address}/data/{dataset}/row/{numbers[True]}")
        assert page.get_by_role("heading", name="What cleaning changed").count() == 0


def test_held_out_rows_are_ordered_by_loss(
    desk: Desk, page: Any, words: Path, faults: Callable[[Any], list[str]]
) -> None:
    dataset = dataset_of(desk, snapshot_of(desk, records(60)), words)
    held = [each for each in open_source(desk, dataset).every() if each.side == "heldout"]
    training = desk.home.run("fernhollow", "notes", "2026-06-01") / "training"
    training.mkdir(parents=True)
    spec = training_spec(training, words) | {"dataset_digest": dataset.partition("/")[2]}
    (training / "run.json").write_text(json.dumps({"spec": spec, "provenance": {}, "started": "2026-06-01T01:00:00"}))
    examples = tuple(
        ExampleScores(
            example=each.digest, group="g", tokens=3, scores={"base": 0.5, "candidate": float(-place)},
            losses={"base": 9.0 - place, "candidate": float(place)},
        )
        for place, each in enumerate(held)
    )  # fmt: skip
    with served(state_at(desk)) as address:
        assert page.goto(f"{address}/data/{dataset}/scores").status == 400
        assert "was evaluated" in page.get_by_role("alert").inner_text()
        scores = Scores(objective="sft", models=("base", "candidate"), examples=examples)
        write_scores(scores, training.parent / "evaluation")
        page.goto(f"{address}/data/{dataset}")
        page.get_by_role("link", name="Held-out rows by loss or score").click()
        losses = [float(each.split("\t")[-1]) for each in page.locator("tbody tr").all_inner_texts()]
        assert len(losses) == len(held) > 2 and losses == sorted(losses, reverse=True)
        assert faults(page) == []
        page.get_by_label("Order").select_option("behind")
        page.get_by_role("button", name="Show").click()
        page.get_by_text("more is better").wait_for()
        scored = [float(each.split("\t")[-1]) for each in page.locator("tbody tr").all_inner_texts()]
        assert scored == sorted(scored) and scored[0] == 1 - len(held)
        assert page.goto(f"{address}/data/{dataset}/scores?order=best").status == 400
        # Rows of tasks, and texts that are read, have a score and no loss.
        no_losses = tuple(each.model_copy(update={"losses": {}}) for each in examples)
        write_scores(scores.model_copy(update={"examples": no_losses}), training.parent / "evaluation")
        page.goto(f"{address}/data/{dataset}/scores")
        assert page.locator("tbody tr").count() == len(held) and "more is better" in page.locator("main").inner_text()
        page.locator("tbody a").first.click()
        page.get_by_role("heading", name=f"Row {held[-1].number}").wait_for()


def test_diffs_are_coloured_and_rows_are_counted(
    desk: Desk, page: Any, words: Path, faults: Callable[[Any], list[str]]
) -> None:
    diff = "--- a/berth.py\n+++ b/berth.py\n@@ -1,2 +1,2 @@\n port = 4\n-berth = 7\n+berth = 9 if <b>wide</b> else 7\n"
    change = {"prompt": "Widen the berth.", "completion": diff}
    classes = [
        {"prompt": f"Is ship {n} wide, say yes or no?", "completion": ("no", "yes")[n % 4 == 0]} for n in range(8)
    ]
    snapshot = snapshot_of(desk, [change, *records(20), *classes])
    key, dataset = key_of(snapshot), dataset_of(desk, snapshot, words)
    for each in (key, dataset):
        indexed(desk, each)
    number = next(each.number for each in open_source(desk, key).every() if "Widen" in each.text)
    with served(state_at(desk)) as address:
        page.goto(f"{address}/data/{key}/row/{number}")
        assert page.locator(".line.added").all_inner_texts() == ["+berth = 9 if <b>wide</b> else 7"]
        assert page.locator(".line.removed").all_inner_texts() == ["-berth = 7"]
        assert faults(page) == []
        page.goto(f"{address}/data/{key}?order=created&text=ship")
        ages = [int(re.findall(r"(\d+) days ago", each)[0]) for each in page.locator(".facts").all_inner_texts()[8:]]
        assert len(set(ages)) > 10 and ages == sorted(ages, reverse=True), "the oldest first"
        page.goto(f"{address}/data/{key}/counts")
        shown = page.locator("main").inner_text()
        assert all(each in shown for each in ("notes/all.jsonl", "Length in characters"))
        classes_of = page.locator("section[aria-labelledby=by-class] tbody tr").all_inner_texts()
        assert [each.split() for each in classes_of[:2]] == [["no", "6"], ["yes", "2"]]
        page.goto(f"{address}/data/{dataset}/counts")
        assert page.get_by_role("heading", name="Length in tokens").is_visible()
        assert faults(page) == []


def test_tasks_show_what_answers_are_held_against_and_are_asked(desk: Desk, page: Any) -> None:
    task = {"tuple_type": "task", "prompt": "What is 2 + 3?", "checks": [{"check": "exact", "value": "5"}]}
    key = key_of(snapshot_of(desk, [task], "sums", "task"))
    with served(state_at(desk)) as address:
        page.goto(f"{address}/data/{key}")
        shown = page.locator("ol.rows > li > a")
        assert "What is 2 + 3?" in shown.inner_text() and '"value": "5"' in shown.inner_text()
        shown.click()
        page.get_by_role("heading", name="checks", exact=True).wait_for()
        page.get_by_role("link", name="Ask models this").click()
        assert page.get_by_label("Question").last.input_value() == "What is 2 + 3?"


def test_rows_are_ordered_by_the_score_that_came_with_them(desk: Desk, page: Any) -> None:
    pair = {"chosen": "It left the berth on Monday at noon.", "rejected": "It left the berth on Friday at night."}
    rated = [{**pair, "prompt": f"When did ship {n} leave?", "chosen-rating": n} for n in (3, 1, 2)]
    strange = [json.loads(each) for each in ("true", "NaN", "1" + 400 * "0", '"high"')]
    plain = [{**pair, "prompt": f"When {n}?", "metadata": {"score": each}} for n, each in enumerate(strange)]
    key = key_of(snapshot_of(desk, [*plain, *rated], "apprenticeship", "dpo"))
    unrated = key_of(snapshot_of(desk, records(2)))
    for each in (key, unrated):
        indexed(desk, each)
    with served(state_at(desk)) as address:
        page.goto(f"{address}/data/{key}")
        page.get_by_label("Order").select_option("score")
        for down, wanted in ((False, ["1.000", "2.000", "3.000"]), (True, ["3.000", "2.000", "1.000"])):
            page.get_by_label("most first").set_checked(down)
            page.get_by_role("button", name="Show").click()
            page.wait_for_url("**order=score" + ("&down=1" if down else ""))
            facts = page.locator("ol.rows .facts").all_inner_texts()
            assert [each.partition("score ")[2][:5] for each in facts] == [*wanted, *([""] * len(plain))]
        page.goto(f"{address}/data/{unrated}")
        assert "score" not in page.get_by_label("Order").inner_text()


def test_rows_are_tried_before_an_import(desk: Desk, page: Any, faults: Callable[[Any], list[str]]) -> None:
    good = {"messages": [{"role": "user", "content": HOSTILE[0]}, {"role": "assistant", "content": "</textarea>yes"}]}
    refused = {"prompt": "x", "completion": "y", "label": False}
    with served(state_at(desk, read_only=True)) as address:
        page.goto(f"{address}/data/import")
        assert faults(page) == []
        page.get_by_label("Rows").fill(f"{json.dumps(good)}\n{json.dumps(refused)}\n")
        page.get_by_role("button", name="Look at them").click()
        assert page.get_by_role("status").inner_text().startswith("1 rows would be written")
        assert "label" in page.locator("table").inner_text() and HOSTILE[0] in page.locator("section").inner_text()
        assert json.loads(page.get_by_label("Rows").input_value().splitlines()[0]) == good
        assert faults(page) == [] and "taken" not in page.title()
        page.get_by_label("Rows").fill("{}")
        page.get_by_role("button", name="Look at them").click()
        assert "No row can be learnt from" in page.get_by_role("alert").inner_text()
    assert not desk.home.corpus.exists()


def test_hostile_rows_are_text(desk: Desk, page: Any, faults: Callable[[Any], list[str]]) -> None:
    wide = {f"column_{number}": f"value {number}" for number in range(200)}
    rows: list[Any] = [{"prompt": each, "completion": each} for each in HOSTILE]
    rows += [{"prompt": "big", "completion": "x" * 2**20}, {"prompt": "wide", "completion": "w", "metadata": wide}]
    rows += [{"prompt": "json", "completion": '{"a": [1, 2'}, {"prompt": "xml", "completion": "<a><b></a>"}]
    rows += [{"prompt": "good xml", "completion": "<a><b><c/>1</b></a>"}]
    key = key_of(snapshot_of(desk, rows))
    asked: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    with served(state_at(desk)) as address:
        page.goto(f"{address}/data/{key}")
        assert page.locator("ol.rows > li").count() == len(rows)
        texts = []
        for number in range(len(rows)):
            page.goto(f"{address}/data/{key}/row/{number}")
            texts.append(page.locator("main").inner_text())
            assert "taken" not in page.title()
            assert page.evaluate("document.documentElement.scrollWidth") <= 1280
            if number < 2:
                assert faults(page) == []
        everything = "\n".join(texts)
        assert HOSTILE[0] in everything and HOSTILE[2] in everything
        assert "U+001B[31mred" in everything and "U+202Egpj.exe" in everything and "U+200Bnothing" in everything
        assert "\u202e" not in everything and "\x1b" not in everything
        assert "characters more" in everything and max(map(len, texts)) < 100_000
        good = next(each.number for each in open_source(desk, key).every() if "good xml" in each.text)
        page.goto(f"{address}/data/{key}/row/{good}")
        page.locator("summary", has_text="Written out").first.click()
        assert page.get_by_label("Written out").first.inner_text().split() == [
            "<a>",
            "<b>",
            "<c/>",
            "1",
            "</b>",
            "</a>",
        ]
        page.get_by_role("link", name="Ask models this").click()
        assert page.get_by_label("Question").last.input_value() == "good xml"
        assert "malformed: Expecting" in everything and "malformed: mismatched tag" in everything
        page.goto(f"{address}/data/{key}?text=%22%3Cscript%3E")
        assert "taken" not in page.title()
    assert problems == []
    assert all(each.startswith(address) for each in asked)


def test_a_foreign_page_reads_nothing(desk: Desk, page: Any) -> None:
    key = key_of(snapshot_of(desk, [{"prompt": "secret question", "completion": "secret answer"}]))
    with served(state_at(desk)) as address:
        html = f"""<iframe src="{address}/data/{key}"></iframe><script>
        fetch("{address}/data/{key}").then((a) => a.text(), (e) => "refused " + e).then((t) => document.title = t)
        </script>"""
        with foreign_page(html) as foreign:
            page.goto(foreign)
            page.wait_for_function("document.title.startsWith('refused')")
            page.wait_for_timeout(300)
            assert all("secret" not in frame.content() for frame in page.frames if frame != page.main_frame)


def test_a_token_is_asked_for_and_an_empty_home_says_what_to_do(
    desk: Desk, page: Any, faults: Callable[[Any], list[str]]
) -> None:
    with served(state_at(desk, read_only=True), token="s3cret") as address:
        assert page.goto(address).status == 401
        page.goto(f"{address}/?token=s3cret")
        assert page.url == f"{address}/"
        assert "ec1 night" in page.locator(".empty").inner_text()
        assert page.get_by_text("read-only").is_visible()
        assert faults(page) == []
        assert page.goto(f"{address}/data/dataset/{'a' * 64}").status == 500
        assert "is not there" in page.get_by_role("alert").inner_text()
        assert page.goto(f"{address}/data/dataset/..%2f..").status == 404
        page.get_by_role("button", name="Dark or light").click()
        assert page.locator("html").get_attribute("data-theme") == "dark"
        page.reload()
        assert page.locator("html").get_attribute("data-theme") == "dark"
