"""Through a training: its answers on the way, and the copies that it kept, beside the versions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from published import BASE, publish, write_adapter
from studio_desk import gateway, served, state_at, training_spec

from ec1.files import write_json
from ec1.queries.desk import Desk
from ec1.training.checkpoints import seal
from ec1.training.copies import ANSWERS, STEPS

pytestmark = pytest.mark.browser
ROLE, NIGHT = "fernhollow/notes", "2026-06-01"


def keep_copy(training: Path, step: int) -> None:
    """What a training leaves of a step (`tests/training/test_copies.py` runs one)."""
    folder = write_adapter(training / STEPS / f"step-{step}", step, BASE)
    said = [{"prompt": "Where <b>is</b> she?", "expected": "At berth 4.", "text": f"At berth {step}."}]
    write_json(folder / ANSWERS, said)
    seal(folder)


@pytest.fixture
def trained(desk: Desk, words: Path) -> Desk:
    training = desk.home.run("fernhollow", "notes", NIGHT) / "training"
    training.mkdir(parents=True)
    record = {"spec": training_spec(training, words), "provenance": {}, "started": "2026-06-01T01:00:00"}
    (training / "run.json").write_text(json.dumps(record))
    for step in (2, 10):
        keep_copy(training, step)
    return desk


def test_copies_of_a_training_answer_beside_versions(
    trained: Desk, page: Any, tmp_path: Path, faults: Callable[[Any], list[str]]
) -> None:
    publish(trained.registry, tmp_path / "made", 1, role="notes")
    with gateway(trained, training_steps=True) as (url, _), served(state_at(trained, gateway=url)) as address:
        page.goto(f"{address}/runs/{ROLE}/{NIGHT}")
        through = page.locator("ol.through li").all_inner_texts()
        assert through == ["step 2 At berth 2.", "step 10 At berth 10.", "wanted At berth 4."]
        assert faults(page) == []
        page.get_by_role("link", name="Ask the copies").click()
        page.get_by_label("Question").last.fill("Where is the Meridian?")
        page.get_by_label(f"{ROLE}@v1", exact=True).check()
        page.get_by_role("button", name="Ask").click()
        for name in (f"{ROLE}@v1", f"{ROLE}@{NIGHT}:2", f"{ROLE}@{NIGHT}:10"):
            page.get_by_text(f"by {name} ").wait_for()
        assert faults(page) == []
        # Of a version something is said; a copy that no gate has seen is only looked at.
        assert page.locator("[data-judge]").count() == 1
        weights = trained.home.runs / ROLE / NIGHT / "training" / STEPS / "step-2" / "adapter_model.safetensors"
        weights.write_bytes(b"damaged")
        page.reload()
        page.get_by_text("no whole copy of step 2").wait_for()


def test_copies_are_not_served_unless_the_deployment_says_so(trained: Desk, page: Any, tmp_path: Path) -> None:
    with gateway(trained) as (url, _), served(state_at(trained, gateway=url)) as address:
        page.goto(f"{address}/generate")
        assert page.get_by_label(BASE, exact=True).is_visible() and page.get_by_label("10", exact=True).count() == 0
        asked = {"model": f"{ROLE}@{NIGHT}:2", "prompt": '[{"role": "user", "content": "x"}]'}
        assert "is not served" in page.request.post(f"{address}/generate/answer", form=asked).text()
