"""What a night compares a candidate with, and the process that does it."""

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from corpus_builder import edit, write_lines
from damage import flip
from scoring_registry import ScoringRegistry

from ec1.adapters.evaluation import EvaluationSpec
from ec1.adapters.manifest import AdapterBase, AdapterManifest
from ec1.corpus.dataset import Dataset
from ec1.corpus.threshold import HighWaterMark
from ec1.deployment import Deployment
from ec1.errors import BusyError
from ec1.home import Home
from ec1.launch.launcher import DeviceWork, LocalLauncher, Subject
from ec1.models import ModelSource
from ec1.night.health import storage_health
from ec1.night.steps.candidate import run_evaluation
from ec1.night.steps.recipe_night import RecipeNight
from ec1.night.steps.settlement import manifest_of
from ec1.recipes.resolution import load_recipe
from ec1.storage.directory import DirectoryStore
from ec1.training.checkpoints import newest_checkpoint, seal
from ec1.training.spec import TrainingResult

NIGHT = "2026-06-09"


@pytest.fixture
def compared(
    project: Path, embedded: Deployment, home: Home, tmp_path: Path, make_candidate: Callable[..., Path]
) -> Callable[[], EvaluationSpec]:
    """The specification of a night's evaluation against what a registry holds."""
    resolved = load_recipe(project / "examples" / "recipes" / "engineering.yaml", [project / "configs" / "recipes"])
    base = resolved.recipe.base_model
    folder = home.run(resolved.recipe.tenant, resolved.recipe.role, NIGHT) / "training"
    folder.mkdir(parents=True)
    make_candidate(99).rename(folder / "adapter")
    figures: dict[str, Any] = dict.fromkeys(
        ("steps", "planned_steps", "rows", "left_out_rows", "full_rows", "tokens", "trainable_parameters"), 1
    )
    figures |= dict.fromkeys(("changed_modules", "batch_size", "gradient_accumulation", "effective_batch"), 1)
    figures |= dict.fromkeys(("warmup_steps", "seed"), 1)
    figures |= dict.fromkeys(("epochs", "seconds", "training_seconds", "tokens_per_second", "peak_memory_gib"), 1.0)
    figures |= {"loss_first": 2.0, "loss_last": 1.0, "versions": {}}
    texts = ("identity", "recipe", "recipe_digest", "dataset_digest", "device", "hardware", "chat_template_sha256")
    result = TrainingResult(
        status="finished",
        base_model=base.id,
        base_revision=base.revision,
        method="qlora",
        objective="sft",
        weights="adapter",
        **figures,
        **dict.fromkeys(texts, "x"),
    )
    (folder / "summary.json").write_text(result.model_dump_json())
    (tmp_path / "model").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "model" / name).write_text("{}")
    source = ModelSource(source="directory", path=tmp_path / "model")
    deployment = embedded.model_copy(update={"models": {base.id: source}})
    dataset = Dataset("d" * 64, home.datasets / "d", "sft", "s" * 64, 1, 1, 1, 1, {}, {}, 0, {"p100": 1}, 1, 1, [], [])
    return lambda: RecipeNight(resolved, deployment, home, deployment.night(NIGHT)).evaluation_spec(dataset)


def test_a_past_night_does_not_train_what_a_later_one_has_trained(
    project: Path, embedded: Deployment, home: Home
) -> None:
    write_lines(home.corpus / "engineering/demo/all.jsonl", [edit(n, tenant="fernhollow") for n in range(60)])
    resolved = load_recipe(project / "examples" / "recipes" / "engineering.yaml", [project / "configs" / "recipes"])
    past = RecipeNight(resolved, embedded, home, embedded.night(NIGHT))
    taken = past.snapshot(dt.datetime.now(dt.UTC))
    assert taken.trainable == 60 and past.decision(taken).train
    HighWaterMark(home, "fernhollow", "engineering").advance(taken.digest, "2026-06-11", "run-1", resolved.digest)
    decision = past.decision(taken)
    assert (decision.train, decision.reason) == (False, "night 2026-06-11 was trained on the same tuples")
    # Another recipe makes another adapter of them.
    changed = replace(resolved, digest="c" * 64)
    assert RecipeNight(changed, embedded, home, embedded.night(NIGHT)).decision(taken).train


class NoMachine:
    """A launcher whose machine cannot be had."""

    def run(self, work: DeviceWork, environment: Mapping[str, str], log: Path) -> None:
        raise BusyError("no machine tonight")


def test_a_checkpoint_that_a_disk_changed_is_kept_as_damage_before_a_training_goes_on(
    project: Path, embedded: Deployment, home: Home, tmp_path: Path
) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    resolved = load_recipe(project / "examples" / "recipes" / "engineering.yaml", [project / "configs" / "recipes"])
    source = {resolved.recipe.base_model.id: ModelSource(source="directory", path=tmp_path)}
    night = RecipeNight(resolved, embedded.model_copy(update={"models": source}), home, embedded.night(NIGHT))
    dataset = Dataset("d" * 64, home.datasets / "d", "sft", "s" * 64, 1, 1, 1, 1, {}, {}, 0, {"p100": 1}, 1, 1, [], [])
    spec = night.spec(dataset)
    for step in (10, 20):
        path = spec.checkpoints / f"checkpoint-{step}" / "optimizer.pt"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"state")
        seal(path.parent)
    flip(path)
    storage_health.recording(home)
    with pytest.raises(BusyError, match="no machine"):
        night.train(spec, NoMachine(), {})
    (found,) = storage_health.open_damage(home)
    assert found.path.endswith("/checkpoint-20") and "checkpoint left out: " in found.what
    assert newest_checkpoint(spec.checkpoints) == spec.checkpoints / "checkpoint-10"


def test_versions_of_another_base_model_are_not_compared_with(
    home: Home,
    compared: Callable[[], EvaluationSpec],
    make_candidate: Callable[..., Path],
    manifest: Callable[..., AdapterManifest],
) -> None:
    """Their tensors do not fit this base: the evaluation would fail on them, and the night with it."""
    registry = ScoringRegistry(DirectoryStore(home.root), home.adapters)
    assert list(compared().candidates) == ["base", "candidate"]
    registry.publish(make_candidate(1), manifest("2026-06-01", gain=0.5))
    registry.publish(make_candidate(2), manifest("2026-06-02", gain=0.1))
    assert list(compared().candidates) == ["base", "candidate", "incumbent", "best"]
    other = AdapterBase(id="acme/other-7b", revision="main")
    registry.publish(
        make_candidate(3, base_model_name_or_path=other.id), manifest("2026-06-03", gain=0.9, base_model=other)
    )
    assert list(compared().candidates) == ["base", "candidate"], "the newest and the best are of the other base"


def test_a_manifest_names_the_labels_of_its_rows_and_of_what_it_started_from(
    project: Path,
    embedded: Deployment,
    home: Home,
    make_candidate: Callable[..., Path],
    manifest: Callable[..., AdapterManifest],
) -> None:
    resolved = load_recipe(project / "examples" / "recipes" / "engineering.yaml", [project / "configs" / "recipes"])
    registry = ScoringRegistry(DirectoryStore(home.root), home.adapters)
    first = registry.publish(make_candidate(1), manifest("2026-06-01", labels=("hr",)))
    step = RecipeNight(resolved, embedded, home, embedded.night(NIGHT))
    assert step.labels_learnt_by(first.name) == ("hr",)
    assert step.labels_learnt_by("another/adapter@v1") == step.labels_learnt_by(None) == ()
    dataset = SimpleNamespace(digest="b" * 64, train_rows=1, heldout_rows=1, labels=("board", "hr"))
    snapshot = SimpleNamespace(bucket="engineering-fernhollow", digest="c" * 64, trainable=2)
    figures = {"device": "cpu", "hardware": "CPU", "peak_memory_gib": 1.0, "seed": 1, "steps": 12}
    figures |= {"effective_batch": 8, "epochs": 1.5, "loader": "AutoModelForCausalLM"}
    result = SimpleNamespace(reference=None, start_adapter=None, tokenizer={}, versions={}, **figures)
    candidate = SimpleNamespace(result=result, folder=home.root)
    made = manifest_of(
        *(resolved, NIGHT, first.base_model, snapshot, dataset, candidate, None),  # type: ignore[arg-type]
        inherited=(*step.labels_learnt_by(first.name), "pay"),
    )
    assert made.labels == ("board", "hr", "pay")
    lora, rate = resolved.recipe.lora, resolved.recipe.optimisation.learning_rate
    assert lora is not None
    assert (made.training["rank"], made.training["learning rate"], made.training["steps"]) == (lora.r, rate, 12)
    second = registry.publish(make_candidate(2), manifest("2026-06-02", labels=made.labels))
    # It is what `ec1 adapters show` and the next training read.
    assert registry.get("fernhollow", "engineering", second.version or 0).labels == ("board", "hr", "pay")
    assert step.labels_learnt_by(second.name) == ("board", "hr", "pay")


def test_the_evaluations_process_keeps_its_memory_and_asks_no_hub(tmp_path: Path) -> None:
    class Ended:
        """A process that did its work; its environment is what this is about."""

        def __enter__(self) -> "Ended":
            return self

        def __exit__(self, *_: object) -> None: ...

        def wait(self) -> int:
            return 0

    class Grant:
        env: Mapping[str, str] = {}

        cards = ("the only one",)

        def start(self, command: Sequence[str], *, env: Mapping[str, str], log: Path, grace_seconds: float) -> Ended:
            assert command[1:3] == ["-m", "ec1.adapters.evaluation"]
            self.env = env
            return Ended()

    spec = EvaluationSpec(
        model=tmp_path,
        device="cpu",
        candidates={"base": None},
        heldout=tmp_path,
        objective="sft",
        output=tmp_path / "evaluation",
    )
    spec.output.mkdir()
    (spec.output / "evaluation.json").write_text(json.dumps({}))
    grant = Grant()
    launcher = LocalLauncher(lambda: nullcontext(grant))  # type: ignore[arg-type]
    run_evaluation(spec, Subject("acme", "clerk", "2026-06-09"), launcher, {"PATH": "/bin"}, tmp_path / "log")
    assert grant.env["PATH"] == "/bin" and grant.env["HF_HUB_OFFLINE"] == "1"
    assert "glibc.malloc.mmap_max=0" in grant.env["GLIBC_TUNABLES"]
