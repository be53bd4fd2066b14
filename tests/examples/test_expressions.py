"""The sample that learns from execution: its files, its checks, the dataset that comes of them, and its plan."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from ec1.corpus.buckets import bucket
from ec1.corpus.dataset import build_dataset
from ec1.corpus.preview import checker, preview_rows, row_tokens
from ec1.corpus.snapshots import take_snapshot
from ec1.deployment import Deployment, load_deployment
from ec1.errors import PermanentError
from ec1.home import Home
from ec1.night.operations.sample import install_sample
from ec1.night.steps.recipe_night import RecipeNight
from ec1.recipes.lint import lint
from ec1.recipes.resolution import ResolvedRecipe, find_recipe
from ec1.rewards.checks import Check
from ec1.rewards.rewards import score_all
from ec1.sandbox.batch import why_no_python
from ec1.training.memory import trainable_parameters
from ec1.training.methods import METHODS, put_adapter_on
from ec1.training.shape import ModelShape
from examples.expressions import make


@pytest.fixture(scope="module")
def deployment(project: Path) -> Deployment:
    return load_deployment("expressions", project)


@pytest.fixture(scope="module")
def recipe(deployment: Deployment, project: Path) -> ResolvedRecipe:
    return find_recipe("expressions", [*deployment.recipes, project / "configs" / "recipes"])


def test_its_files_are_what_it_makes(project: Path, deployment: Deployment) -> None:
    corpus = make.ROOT / "training-corpus"
    warm, tasks = make.rows()
    for name, rows in (("expressions-warm/answers.jsonl", warm), ("expressions/tasks.jsonl", tasks)):
        assert [json.loads(line) for line in (corpus / name).read_text().splitlines()] == rows
    groups = [{row["group"] for row in rows} for rows in (warm, tasks)]
    assert groups[0].isdisjoint(groups[1]) and len(groups[1]) >= 160
    found = lint(deployment.recipes, [*deployment.recipes, project / "configs" / "recipes"])
    assert [each for each in found if "sandbox" not in each.message] == []


@pytest.mark.needs("bwrap")
def test_its_answers_pass_their_checks_and_others_do_not() -> None:
    if (why := why_no_python()) is not None:
        pytest.skip(why)
    rng = make.random.Random(1)
    drawn = [make.drawn(first, second, rng) for first in make.OPERATIONS for second in make.OPERATIONS]
    checks = [[Check(check="python", value=each["cases"])] for each in drawn]
    assert all(score.right for [score] in score_all([each["answer"] for each in drawn], checks))
    wrong = [score for [score] in score_all(["x"] * len(drawn), checks) if not score.right]
    assert len(wrong) > 0.9 * len(drawn) and all(score.formed for score in wrong)


def test_tasks_become_a_dataset_with_their_checks(home: Home, small_model: Path, recipe: ResolvedRecipe) -> None:
    from transformers import AutoTokenizer

    install_sample(make.ROOT, home)
    tokenizer = AutoTokenizer.from_pretrained(small_model)
    of, data = bucket(home.corpus, "expressions", "fernhollow"), recipe.recipe.data
    snapshot = take_snapshot(of, "task", as_of=dt.datetime.now(dt.UTC), home=home)
    assert snapshot.trainable == len(make.rows()[1])
    assert take_snapshot(of, "sft", as_of=dt.datetime.now(dt.UTC), home=home).trainable == 0
    dataset = build_dataset(snapshot, data, tokenizer, home=home, objective="task")
    assert dataset.is_clean and dataset.heldout_groups >= 80 and dataset.train_rows >= 100
    row: dict[str, Any] = dataset.rows("train")[0]
    [message] = row["checks"]
    assert Check.model_validate(json.loads(message["content"])[0]).python_cases()
    assert [each["role"] for each in row["prompt"]] == ["system", "user"]
    first = next(iter(snapshot.rows())).record
    assert row_tokens(tokenizer, first, "task", data) == pytest.approx(dataset.percentiles["p50"], abs=12)
    [shown] = preview_rows([("here", first)], data, "task", small_model)
    assert shown.problem is None and shown.learnt == 0 and '"expected"' in shown.pieces[-1][0]
    checker(data, "task", small_model)(first)


def test_a_plan_without_a_version_to_start_from_is_refused(
    recipe: ResolvedRecipe, deployment: Deployment, home: Home
) -> None:
    night: Any = None
    if (why := why_no_python()) is not None:
        pytest.skip(why)
    with pytest.raises(PermanentError, match="train one on answers first"):
        RecipeNight(recipe, deployment, home, deployment.night("2026-06-02")).plan(night)


def test_an_adapter_on_the_upper_layers_is_counted_as_it_is(tiny_model: Path, recipe: ResolvedRecipe) -> None:
    method = METHODS["lora"]
    model = method.base(recipe.recipe, tiny_model, None, "float32")
    adapted = put_adapter_on(model, method.adapter(recipe.recipe, model))
    counted = {name for name, weight in adapted.named_parameters() if weight.requires_grad}
    assert counted and all(".layers.1." in name for name in counted), "the second of two layers"
    weights = sum(weight.numel() for weight in adapted.parameters() if weight.requires_grad)
    assert trainable_parameters(recipe.recipe, ModelShape.read(tiny_model)) == weights
