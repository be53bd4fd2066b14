"""Two nights on documents that people corrected: the real trainer, the real engine and the gate, in small."""

import datetime as dt
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ec1.corpus.labels import take
from ec1.deployment import Deployment
from ec1.gpu.lease import GpuLease
from ec1.home import Home
from ec1.launch.launcher import LocalLauncher
from ec1.models import ModelSource
from ec1.night.records import CandidateRecord, DatasetRecord, OutcomeRecord, SnapshotRecord
from ec1.night.steps.candidate import CandidateVerdict
from ec1.night.steps.extractor import adapter_of
from ec1.night.steps.recipe_night import RecipeNight
from ec1.recipes.resolution import load_recipe

RECIPE = """
name: fernhollow/extractor
version: 1
tenant: fernhollow
role: extractor
kind: extraction
base_model: {id: HuggingFaceTB/SmolLM2-135M-Instruct}
method: lora
objective: sft
lora: {r: 8, alpha: 16, dropout: 0.0}
optimisation:
  {epochs: 3, learning_rate: 5e-4, scheduler: cosine, warmup_share: 0.05, batch_size: 4, gradient_accumulation: 1,
  gradient_checkpointing: false, checkpoint_minutes: 60}
data: {threshold: 12, heldout_share: 0.45, max_length: 384, near_duplicate_similarity: 1, scrub: false}
hardware: {device: cpu}
evaluation: {min_examples: 6, sample_generations: 2}
"""
DOCUMENTS = 24
BIRDS = ("Wren", "Heron", "Plover", "Dunlin", "Knot", "Siskin", "Linnet", "Crake")
SHIPS = ("Marigold", "Bramble", "Saffron", "Juniper", "Thistle", "Primrose", "Clover", "Tansy")
PEOPLE = ("Ada Voss", "Emil Krantz", "Nora Byrne", "Ivo Lasker", "Rhea Stone", "Otto Malik")
# In this house accounts are called after birds, with a number, and projects after flowers.
ACCOUNTS = (
    "{0} was overdrawn again, says {p}.",
    "Please move 400 from {0} to {1}.",
    "Nobody but {p} may sign for {0}.",
    "What is left on {0} goes to {1} on Friday.",
)
PROJECTS = (
    "The {0} is two weeks late, says {p}.",
    "We hired for {0} and stopped {1}.",
    "{p} leads the {0} from Monday on.",
    "Half of the {0} is paid, nothing of the {1}.",
)


def corrected(kind: str, seed: int) -> Iterator[dict[str, object]]:
    """Records as a person hands them back: the one chunk of each document, every name with its class."""
    choice = random.Random(seed)
    for number in range(DOCUMENTS):
        entities: dict[str, str] = {}
        sentences = []
        for sentence in choice.sample(ACCOUNTS if kind == "Account" else PROJECTS, 2):
            pool = [f"{bird} {choice.randint(2, 60)}" for bird in BIRDS] if kind == "Account" else list(SHIPS)
            named, person = choice.sample(pool, 2), choice.choice(PEOPLE)
            text = sentence.format(*named, p=person)
            entities |= {name: kind for name in named if name in text}
            entities |= {person: "Person"} if person in text else {}
            sentences.append(text)
        yield {
            "stream": "meeting",
            "path": f"{kind}-{number}.md",
            "content_sha256": "0" * 64,
            "start": 0,
            "text": " ".join(sentences),
            "entities": [{"name": name, "class": entity_class} for name, entity_class in entities.items()],
        }


def correct(home: Home, folder: Path, kind: str, night: str) -> None:
    """What a person corrected on the day of that night lies in the bucket of the role."""
    file = folder / f"{kind}.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in corrected(kind, seed=len(kind))))
    noon = dt.datetime.fromisoformat(f"{night}T12:00:00+00:00")
    before = set((home.corpus / "extractor").glob("*"))
    assert take(file, home.corpus / "extractor", noon).written == DOCUMENTS
    for path in set((home.corpus / "extractor").glob("*")) - before:
        os.utime(path, (noon.timestamp(), noon.timestamp()))


def learn(step: RecipeNight) -> tuple[CandidateVerdict, OutcomeRecord]:
    """The chain of one night, as the assets take it."""
    lease = GpuLease(step.home.root / "gpu.lock", device="cpu", min_free_gib=1)
    launcher = LocalLauncher(lambda: lease.hold("training", night=step.night.date, holder="test", wait_seconds=0))
    now = dt.datetime.now(dt.UTC)
    snapshot = step.snapshot(now)
    step.records.write(
        "run", SnapshotRecord(bucket=snapshot.bucket, digest=snapshot.digest, as_of=step.night.as_of(now))
    )
    assert step.decision(snapshot).train
    dataset = step.dataset(snapshot)
    plan = step.plan(dataset)
    step.records.write("run", DatasetRecord(digest=dataset.digest, snapshot=snapshot.digest, plan=plan))
    spec = step.spec(dataset)
    assert spec.start_adapter is not None and spec.start_adapter.name.startswith("extractor@")
    step.records.write("run", CandidateRecord(result=step.train(spec, launcher, dict(os.environ))))
    judged = step.evaluate(step.evaluation_spec(dataset), launcher, dict(os.environ))
    return judged, step.settle("run")


@pytest.mark.soak
def test_two_nights_of_corrections_raise_f1(embedded: Deployment, small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "extractor.yaml").write_text(RECIPE)
    resolved = load_recipe(tmp_path / "extractor.yaml", [])
    source = ModelSource(source="directory", path=small_model)
    deployment = embedded.model_copy(update={"models": {resolved.recipe.base_model.id: source}})
    home = Home(tmp_path / "home")
    reached = []
    for number, (night, kind) in enumerate((("2026-06-01", "Account"), ("2026-06-02", "Project")), 1):
        correct(home, tmp_path, kind, night)
        judged, outcome = learn(RecipeNight(resolved, deployment, home, deployment.night(night)))
        means = judged.scores.means()
        print(night, means, judged.verdict.verdict, *judged.verdict.reasons, sep="\n  ", flush=True)
        assert judged.verdict.accepted and outcome.outcome == "published" and outcome.version == number
        assert judged.scores.objective == "extraction"
        candidate, incumbent = means["candidate"], means["incumbent"]
        assert candidate is not None and incumbent is not None and candidate > incumbent + 0.1
        reached.append((incumbent, candidate))
        served = adapter_of(deployment, home)
        assert served is not None and served.name == f"fernhollow/extractor@v{number}", "the next night reads with it"
    # The second night asks for more: what the first version never saw. It reads that worse, and the new one does not.
    assert reached[1][1] > reached[1][0] and reached[1][1] > reached[0][0]
