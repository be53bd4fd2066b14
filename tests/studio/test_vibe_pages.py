"""Vibe checks in Studio: prompts are kept, every version answers them once, and the table stays when it is gone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from published import BASE, publish
from studio_desk import HOSTILE, gateway, served, state_at

from ec1.adapters.vibe import VibeBook
from ec1.queries.desk import Desk
from ec1.queries.vibe import unanswered
from studio import vibe

pytestmark = pytest.mark.browser
ROLE = "fernhollow/notes"


def book(desk: Desk) -> VibeBook:
    return VibeBook(desk.home.vibe_checks / ROLE)


def test_prompts_are_kept_and_every_version_answers_them_once(
    desk: Desk, page: Any, tmp_path: Path, faults: Callable[[Any], list[str]]
) -> None:
    for seed in (1, 2):
        publish(desk.registry, tmp_path / "made", seed, role="notes")
    with gateway(desk) as (url, engine), served(state_at(desk, gateway=url)) as address:
        page.goto(f"{address}/versions/{ROLE}")
        page.get_by_role("link", name="Vibe check").click()
        assert "No prompt is kept" in page.locator(".empty").inner_text()
        assert faults(page) == []
        for text in ("Where is the Meridian?", HOSTILE[0], HOSTILE[0]):
            page.get_by_label("Prompt", exact=True).fill(text)
            page.get_by_role("button", name="Add it").click()
            page.locator("[role=status], [role=alert]").first.wait_for()
        assert "in the vibe check already" in page.get_by_role("alert").inner_text()
        page.goto(f"{address}/versions/{ROLE}/vibe")
        assert page.locator("td").all_inner_texts() == ["not asked"] * 6
        page.get_by_role("button", name="Run on v2").click()
        page.get_by_text("written: 2 answers").wait_for()
        page.get_by_role("button", name="Run on base").click()
        page.get_by_text("written: 2 answers").wait_for()
        assert page.get_by_role("button", name="Run on v2").count() == 0
        cells = page.locator("tbody tr").first.locator("td").all_inner_texts()
        assert f"by {BASE} " in cells[0] and f"by {ROLE}@v2 " in cells[1] and cells[2] == "not asked"
        assert faults(page) == []
        assert "taken" not in page.title() and [each["temperature"] for each in engine.requests] == [0] * 4
        # The same text as the version before says nothing new.
        engine.text = engine.TEXT.replace("{model}", "somebody")
        page.goto(f"{address}/versions/{ROLE}/v1")
        page.get_by_role("button", name="Run it on this version").click()
        page.get_by_text("written: 2 answers").wait_for()
        asked = len(engine.requests)
        page.get_by_role("button", name="Take out").first.click()
        page.get_by_text("what was answered to it is kept").wait_for()
        assert [each.text for each in book(desk).prompts()] == [HOSTILE[0]]
        assert "no longer asked" in page.locator("tbody tr").nth(1).inner_text()
        assert len(engine.requests) == asked
    # Without an engine what was answered is still there, and what is wrong is said.
    with served(state_at(desk, gateway="http://127.0.0.1:9")) as address:
        page.goto(f"{address}/versions/{ROLE}/vibe")
        assert f"by {ROLE}@v2 " in page.locator("tbody").inner_text()
        page.get_by_label("Prompt", exact=True).fill("And now?")
        page.get_by_role("button", name="Add it").click()
        page.get_by_role("button", name="Run on v2").click()
        page.get_by_text("nothing answers at http://127.0.0.1:9").wait_for()


def test_a_new_version_is_asked_by_itself_and_equal_answers_are_said_once(
    desk: Desk, page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vibe, "LOOK_SECONDS", 0.05)
    publish(desk.registry, tmp_path / "made", 1, role="notes")
    assert unanswered(desk) == []
    book(desk).add("Where is the Meridian?", "", "anna")
    assert unanswered(desk) == [("fernhollow", "notes", "v1")]
    import threading

    with gateway(desk) as (url, engine):
        engine.text = "The same words. " * 6
        state = state_at(desk, gateway=url)
        threading.Thread(target=vibe.keep_up, args=(state,), daemon=True).start()
        with served(state) as address:
            while unanswered(desk):
                page.wait_for_timeout(20)
            publish(desk.registry, tmp_path / "made", 2, role="notes")
            while unanswered(desk):
                page.wait_for_timeout(20)
            page.goto(f"{address}/versions/{ROLE}/vibe")
            cells = page.locator("tbody td").all_inner_texts()
            assert cells[0] == "not asked" and "the same as v1" in cells[1] and "The same words" in cells[2]
            page.get_by_role("button", name="Run on base").click()
            page.get_by_text("written: 1 answer").wait_for()
            cells = page.locator("tbody td").all_inner_texts()
            assert "The same words" in cells[0] and "the same as v1" in cells[1] and "the same as the base" in cells[2]
    assert len(engine.requests) == 3


def test_a_read_only_studio_asks_nothing(desk: Desk, page: Any, tmp_path: Path) -> None:
    publish(desk.registry, tmp_path / "made", 1, role="notes")
    book(desk).add("Where is the Meridian?", "", "anna")
    with served(state_at(desk, read_only=True)) as address:
        page.goto(f"{address}/versions/{ROLE}/vibe")
        assert "Where is the Meridian?" in page.locator("tbody").inner_text()
        assert page.get_by_role("button", name="Run").or_(page.get_by_role("button", name="Add it")).count() == 0
        assert page.request.post(page.url, form={"action": "run", "version": "v1"}).status == 403
