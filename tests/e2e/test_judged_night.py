"""A judgement made in Studio is in what the next night trains on: a light night, from the form to the dataset."""

import datetime as dt
import json
from pathlib import Path

import httpx
import pytest
from light import light_project
from studio_desk import served, state_at

from ec1.night.operations.sample import install_sample
from ec1.night.steps.recipe_night import RecipeNight
from ec1.queries.desk import open_desk
from ec1.queries.rows import open_source, sources

# A whole night with a training, if a small one.
pytestmark = [pytest.mark.slow, pytest.mark.soak]


def test_a_correction_is_in_the_next_nights_dataset(tmp_path: Path, project: Path, tiny_model: Path) -> None:
    ec1 = light_project(tmp_path, project, tiny_model)
    recipe = tmp_path / "recipes/engineering.yaml"
    recipe.write_text(recipe.read_text().replace("max_length: 192, max_rows: 16", "max_length: 512, max_rows: 200"))
    desk = open_desk("light", ec1.home.root, tmp_path)
    ec1.home.create()
    assert desk.deployment.sample is not None
    install_sample(desk.deployment.sample, ec1.home)
    (resolved,), now = desk.recipes(), dt.datetime.now(dt.UTC)
    step = RecipeNight(resolved, desk.deployment, desk.home, desk.deployment.current_night(now))
    before = f"dataset/{step.dataset(step.snapshot(now)).digest}"
    # Of the training side: what a person says of a held-out row's question must not be trained on.
    row = open_source(desk, before).at([0])[0]
    assert row.side == "train"
    answer = str(row.answers["completion"][-1]["content"])
    correction = answer + "+# This line was forgotten, as a person says who knows the file and what it is for.\n" * 3
    fields = {
        "role": "fernhollow/engineering",
        "prompt": json.dumps([{"role": each["role"], "content": each["content"]} for each in row.prompt]),
        "answer": answer + " " * 80,
        "verdict": "correct",
        "correction": correction,
        "why": "the line was forgotten",
        "about": f"row {row.digest[:16]}",
        "release": "1",
    }
    with served(state_at(desk)) as address:
        reply = httpx.post(f"{address}/judge", data=fields, timeout=120, trust_env=False)
        assert reply.status_code == 303 and "is+released" in reply.headers["location"], reply.headers
    done = ec1.run("night")
    assert done.returncode == 0, done.stdout
    (dataset,) = [each for each in sources(desk) if each.kind == "dataset" and each.key != before]
    found = [each for each in open_source(desk, dataset.key).every() if correction.strip() in each.text]
    rejected = [(each.origin, each.reason) for each in open_source(desk, dataset.key).every() if each.reason]
    assert [each.side for each in found] == ["train"], (dataset.rows, rejected)
    assert "served-" in found[0].origin
