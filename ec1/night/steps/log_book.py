"""The log book of all trainings: what ran, from what, how it ended, and how two runs compare.

Belongs here: reading run folders, and comparing two of them. Does not: writing them (`trainer.py`, `records.py`).

A run's name is its folder below `runs/`: `<tenant>/<role>/<night>`, with `/by-hand/<identity>` or `/replays/<time>`
behind it for what a person started.
"""

import datetime as dt
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.errors import InputError
from ec1.files import read_json
from ec1.home import Home
from ec1.night.records import EvaluationRecord, OutcomeRecord, Records
from ec1.training.spec import METRICS, RUN, TrainingResult, TrainingSpec, read_result, spec_in

TRAINING, REPLAYS = "training", "replays"


@dataclass(frozen=True)
class Run:
    """One training. `verdict` is the gate's, or `diverged`; None if it was not evaluated."""

    name: str
    folder: Path
    started: str | None
    spec: TrainingSpec
    provenance: dict[str, Any]
    result: TrainingResult | None
    verdict: str | None
    adapter: str | None
    gain: float | None = None
    """Over the base, on held-out examples; None if it was not evaluated."""

    @property
    def status(self) -> str:
        return self.result.status if self.result else "unfinished"


def runs(home: Home) -> list[Run]:
    """All runs, ordered by name."""
    found = [_read(home, path.parent) for path in home.runs.glob(f"*/*/*/**/{RUN}")]
    return sorted(found, key=lambda run: run.name)


def find_run(home: Home, name: str) -> Run:
    """The run of that name. Raises InputError if there is none."""
    for run in runs(home):
        if run.name == name:
            return run
    raise InputError(f"there is no run {name!r}: write tenant/role/night, as `ec1 run list` prints it")


def commit_of(folder: Path) -> str | None:
    """The git commit of the code that trained in this folder, with `-dirty` behind it if files differed from it."""
    if not (folder / RUN).is_file():
        return None
    git = read_json(folder / RUN).get("provenance", {}).get("git")
    return None if git is None else git["commit"] + ("-dirty" if git["dirty"] else "")


def replay_of(run: Run, now: dt.datetime) -> TrainingSpec:
    """The same training in a separate folder. Raises InputError if its dataset or model is gone."""
    spec = run.spec
    if spec.recipe.digest() != spec.recipe_digest:
        raise InputError(
            f"run {run.name} cannot be repeated: its recipe is one of another release of EC1; check out commit "
            f"{commit_of(run.folder) or 'that it ran with'}"
        )
    night = run.folder.parent if run.folder.name == TRAINING else run.folder.parent.parent
    for what, path in (("dataset", spec.dataset), ("base model", spec.base_model)):
        if not path.is_dir():
            raise InputError(f"run {run.name} cannot be repeated: its {what} {path} is gone")
    if spec.start_adapter is not None and not spec.start_adapter.folder.is_dir():
        raise InputError(
            f"run {run.name} cannot be repeated: it went on from {spec.start_adapter.name}; bring that back with "
            f"`ec1 adapters pull {spec.start_adapter.name}`"
        )
    output = night / REPLAYS / f"{now:%Y%m%dT%H%M%SZ}"
    return spec.model_copy(update={"output": output, "resume": False, "tracking": ()})


@dataclass(frozen=True)
class RunComparison:
    """Two runs of one specification. Differences are of absolute values, over the steps that both have."""

    steps: int
    largest_loss_difference: float
    tensors: int
    different_tensors: int
    largest_weight_difference: float
    """None of the tensors is compared, and these are zero, where one of the runs left no weights."""
    changed: dict[str, list[Any]]
    """What was not the same around them: name -> before and now."""

    @property
    def same(self) -> bool:
        """Whether every loss, and every weight, is equal to the last bit."""
        return self.largest_loss_difference == 0 and self.different_tensors == 0


def compare(first: Run, second: Run) -> RunComparison:
    """Curves and weights of two runs."""
    import pyarrow.parquet as pq

    curves = [pq.read_table(run.folder / METRICS)["loss"].to_pylist() for run in (first, second)]
    steps = min(map(len, curves))
    losses = [abs(a - b) for a, b in zip(*curves, strict=False) if not (math.isnan(a) and math.isnan(b))]
    weights = _compare_weights(first, second)
    return RunComparison(steps, max(losses, default=0.0), *weights, _changed(first, second))


def _compare_weights(first: Run, second: Run) -> tuple[int, int, float]:
    """Tensors that both have, how many differ, and the largest difference of one weight."""
    from safetensors import safe_open

    files = [_weights(run) for run in (first, second)]
    if None in files or first.status != second.status:
        return 0, 0, 0.0
    different, largest = 0, 0.0
    with safe_open(files[0], "pt") as one, safe_open(files[1], "pt") as other:
        names = sorted({*one.keys(), *other.keys()})
        if set(one.keys()) != set(other.keys()):
            return len(names), len(names), math.inf
        for name in names:
            gap = float((one.get_tensor(name).float() - other.get_tensor(name).float()).abs().max())
            different += gap != 0
            largest = max(largest, gap)
    return len(names), different, largest


def _weights(run: Run) -> Path | None:
    if run.result is None or run.result.weights is None:
        return None
    # A model of several files is compared by its first.
    return next(iter(sorted((run.folder / run.result.weights).glob("*.safetensors"))), None)


def _changed(first: Run, second: Run) -> dict[str, list[Any]]:
    pairs = {key: [first.provenance.get(key), second.provenance.get(key)] for key in ("git", "python", "hardware")}
    if first.result and second.result:
        pairs["packages"] = [first.result.versions, second.result.versions]
    return {key: value for key, value in pairs.items() if value[0] != value[1]}


def _read(home: Home, folder: Path) -> Run:
    record = read_json(folder / RUN)
    tenant, role, night, *rest = folder.relative_to(home.runs).parts
    nightly = rest == [TRAINING]
    # The night's records speak of the night's own training only; what was started by hand has its own.
    records = Records(home.run(tenant, role, night) if nightly else folder)
    evaluation = records.find(EvaluationRecord)
    adapter = records.find(OutcomeRecord)
    result = read_result(folder)
    verdict = "diverged" if result and result.status == "diverged" else evaluation.verdict if evaluation else None
    return Run(
        name="/".join([tenant, role, night, *([] if nightly else rest)]),
        folder=folder,
        started=record.get("started"),
        spec=spec_in(record),
        provenance=record.get("provenance", {}),
        result=result,
        verdict=verdict,
        adapter=adapter.name if adapter else None,
        gain=evaluation.differences["base"].mean if evaluation and "base" in evaluation.differences else None,
    )
