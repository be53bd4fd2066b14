"""A recipe that fits the rows that are there and the card: its lengths, threshold and number of rows, and its text.

Belongs here: the choices and why. Does not: what the keys mean (`ec1.recipes.schema`), how long rows are
(`ec1.corpus.preview`), and whether the plan agrees (`ec1.training.plan`): a night refuses what does not fit.
"""

import datetime as dt
import math
from dataclasses import dataclass, replace
from pathlib import Path

from ec1.corpus.buckets import bucket
from ec1.corpus.options import DataOptions
from ec1.corpus.preview import Measured, measure
from ec1.corpus.row_kinds import ANSWERS, PAIRS, ROW_KINDS, RowKindName
from ec1.corpus.snapshots import Snapshot, take_snapshot
from ec1.deployment import Deployment
from ec1.errors import InputError
from ec1.files import atomic_file, checked_name
from ec1.home import Home
from ec1.models import prepare_tokenizer
from ec1.recipes.resolution import SHIPPED, find_recipe
from ec1.training.plan import STARTUP_SECONDS

LONGEST = {"cpu": 1024, "cuda": 4096}
"""Tokens of a row. On two cores a row of 1,024 takes ten seconds."""
OF_A_COMMIT = {"cpu": 512, "cuda": 2048}
"""Tokens that a commit is cut to: cutting costs some of what stands around a change, and time is short on a CPU."""
_TRAINING_SECONDS = {"cpu": 300, "cuda": 7200}
"""What a training may take by the deployment's `tokens_per_second`: five minutes on a CPU, the default budget else."""
_TOKENS_AT_ONCE = {"cpu": 1024, "cuda": 8192}
"""Of one batch: 4.3 GiB with the small model on a CPU (measured), 24 GB with a 7B in 4 bit (computed)."""
_FEWEST, _MOST = 20, 500
_STEP = 64
_PAIRS_COST = 2.7
"""A preference pair beside a row of its length: two sides, and the reference's forward pass."""
_LIKE = {ANSWERS.name: "pointsav/engineering", PAIRS.name: "pointsav/apprenticeship"}
_LONGEST_ANSWER = 1024
"""Tokens that a held-out answer may have to be written out and judged."""
_SMALL_MODELS_RATE = {ANSWERS.name: "1e-3", PAIRS.name: "5e-4"}


@dataclass(frozen=True)
class FittedRecipe:
    """What was chosen for a bucket. `left_out` is the share of rows that are longer than `max_length`."""

    role: str
    objective: RowKindName
    rows: int
    max_length: int
    threshold: int
    max_rows: int | None
    epochs: int
    batch_size: int
    accumulation: int
    percentiles: dict[str, int]
    left_out: float
    text: str

    def __str__(self) -> str:
        lengths = f"half of them up to {self.percentiles['p50']} tokens, 95 % up to {self.percentiles['p95']}"
        used = "" if self.max_rows is None else f", {self.max_rows:,} of them a night"
        return f"{self.rows:,} rows ({lengths}); max_length {self.max_length}, threshold {self.threshold}{used}"


def fit_recipe(deployment: Deployment, home: Home, role: str, now: dt.datetime) -> FittedRecipe:
    """Look at the bucket of a role and choose. Raises InputError if it holds no row that can be trained on."""
    checked_name(role, "role")
    device = deployment.gpu.device
    snapshot = _snapshot(deployment, home, role, now)
    model, revision = base_model(deployment)
    folder = prepare_tokenizer(model, revision, deployment.models, home.models)
    measured = measure(snapshot, DataOptions(max_length=LONGEST[device]), folder)
    if not measured.percentiles:
        raise InputError(f"bucket {snapshot.bucket}: none of its rows can be shown to {model}: {measured.dropped}")
    return _fitted(deployment, role, snapshot, measured, model)


def write_recipe(fitted: FittedRecipe, path: Path) -> Path:
    """Write it to a new file. Raises InputError if there is one."""
    try:
        with atomic_file(path, exclusive=True) as temporary:
            temporary.write_text(fitted.text, encoding="utf-8")
    except FileExistsError:
        raise InputError(f"{path} is there already: choose another name, or remove it first") from None
    return path


def base_model(deployment: Deployment) -> tuple[str, str]:
    """Model id and revision of what recipes of this deployment train: on a CPU the small model that also serves."""
    if deployment.gpu.device == "cpu":
        return deployment.inference.model, deployment.inference.revision
    base = find_recipe(_LIKE[ANSWERS.name], [SHIPPED]).recipe.base_model
    return base.id, base.revision


def _snapshot(deployment: Deployment, home: Home, role: str, now: dt.datetime) -> Snapshot:
    """The bucket's pairs if most of its rows are such, else its answers."""
    of = bucket(deployment.corpus_root(home), role, deployment.tenant)
    taken = take_snapshot(of, of.objective, as_of=now, home=home)
    if of.objective == ANSWERS.name and role != "engineering":
        pairs = take_snapshot(of, PAIRS.name, as_of=now, home=home)
        taken = pairs if pairs.trainable and pairs.trainable >= 0.5 * pairs.lines else taken
    if not taken.trainable:
        why = "; ".join(f"{count} {reason}" for reason, count in taken.rejected.items())
        raise InputError(f"bucket {taken.bucket}: none of {taken.lines} rows can be trained on{why and ': ' + why}")
    return taken


def _fitted(deployment: Deployment, role: str, snapshot: Snapshot, measured: Measured, model: str) -> FittedRecipe:
    device = deployment.gpu.device
    kind = ROW_KINDS[snapshot.objective]
    sides = len(kind.sides)
    longest = min(LONGEST[device], max(_STEP, math.ceil(measured.percentiles["p95"] / _STEP) * _STEP))
    over = sum(count for reason, count in measured.dropped.items() if reason.startswith("longer than"))
    left_out = over / measured.rows if longest == LONGEST[device] else 0.05
    batch = max(1, min(4, _TOKENS_AT_ONCE[device] // (longest * sides)))
    seconds = _TRAINING_SECONDS[device] - STARTUP_SECONDS
    share = DataOptions.model_fields["heldout_share"].default
    mean = min(measured.mean, longest) * (_PAIRS_COST if sides > 1 else 1)
    room = int(seconds * deployment.gpu.tokens_per_second / mean / (1 - share))
    rows = snapshot.trainable
    epochs = 2 if 2 * rows <= room else 1
    max_rows = None if rows <= room else max(2 * _FEWEST, room)
    threshold = min(_MOST, max(_FEWEST, rows // 10))
    fitted = FittedRecipe(
        role=role,
        objective=kind.name,
        rows=rows,
        max_length=longest,
        threshold=threshold,
        max_rows=max_rows,
        epochs=epochs,
        batch_size=batch,
        accumulation=4 // batch,
        percentiles=measured.percentiles,
        left_out=left_out,
        text="",
    )
    return replace(fitted, text=_text(fitted, deployment, model))


def _text(fitted: FittedRecipe, deployment: Deployment, model: str) -> str:
    cpu = deployment.gpu.device == "cpu"
    lines = [
        "# One adapter: how it is trained, and from which bucket. All keys: docs/recipes.md; `ec1 recipe show` prints "
        "the rest.",
        f"# Fitted to {fitted}.",
        f"extends: {_LIKE[fitted.objective]}",
        "version: 1",
        f"tenant: {deployment.tenant}",
        f"role: {fitted.role}",
        f"description: learns from training-corpus/{fitted.role}/",
    ]
    if cpu:
        lines += ["", "base_model:", f"  id: {model}"]
    lines += ["", "optimisation:", f"  epochs: {fitted.epochs}"]
    if cpu:
        lines += [
            f"  learning_rate: {_SMALL_MODELS_RATE[fitted.objective]}               # a small model takes a higher rate"
        ]
    lines += [
        f"  batch_size: {fitted.batch_size}",
        f"  gradient_accumulation: {fitted.accumulation}",
    ]
    if cpu:
        lines += ["  evaluation_steps: null", "  gradient_checkpointing: false"]
    if cpu and fitted.objective == PAIRS.name:
        lines += ["", "dpo:", "  sft_weight: 1.0                   # so small a model also needs the answer itself"]
    lines += [
        "",
        "data:",
        f"  threshold: {fitted.threshold}                     # new trainable tuples that start a training",
        f"  max_length: {fitted.max_length}                   # tokens",
    ]
    if fitted.left_out > DataOptions.model_fields["max_over_length_share"].default:
        share = min(1.0, math.ceil(fitted.left_out * 10 + 1) / 10)
        lines += [f"  max_over_length_share: {share:g}        # {fitted.left_out:.0%} of the rows are longer"]
    if fitted.max_rows is not None:
        minutes = _TRAINING_SECONDS[deployment.gpu.device] / 60
        lines += [
            f"  max_rows: {fitted.max_rows}                     # so many take about {minutes:.0f} minutes on "
            f"{deployment.gpu.name}: raise it with the hardware"
        ]
    answer = min(fitted.max_length, _LONGEST_ANSWER)
    lines += ["", "evaluation:", f"  sample_tokens: {answer}                # an answer is no longer than its row"]
    if cpu:
        lines += ["  max_examples: 60"]
        memory = f"  memory_gib: {deployment.gpu.memory_gib:g}"
        lines += ["", "hardware:", "  device: cpu", memory]
    return "\n".join(lines) + "\n"
