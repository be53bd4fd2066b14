"""What a night's training and evaluation leave in their folders, and how they are started.

Belongs here: the folders' contents as objects, and the check that a finished process kept its contract. Does not: what
is trained or compared (`recipe_night.py`), and what follows from the verdict (`settlement.py`).
"""

import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ec1.adapters.evaluation import EvaluationSpec
from ec1.adapters.gate import Verdict, judge
from ec1.adapters.manifest import EvaluationSummary
from ec1.adapters.scores import BASE, CANDIDATE, EVALUATION, EXAMPLES, Scores, load_scores
from ec1.errors import InputError, PermanentError
from ec1.extraction.naming.calibration import CALIBRATION
from ec1.files import digest_of, write_json
from ec1.launch.checkpoints import Checkpoints
from ec1.launch.launcher import DeviceWork, Launcher, Subject
from ec1.night.records import EvaluationRecord, Records
from ec1.recipes.evaluation import EvaluationOptions
from ec1.recipes.schema import Recipe
from ec1.training.checkpoints import SEAL
from ec1.training.spec import (
    CHECKPOINTS,
    METRICS,
    RUN,
    SUMMARY,
    TrainingResult,
    TrainingSpec,
    check_result,
    read_result,
)
from ec1.training.tracked_verdict import TrackedVerdict
from ec1.training.tracking import local_environment

log = logging.getLogger(__name__)

SPEC = "spec.json"
TRACKED = "verdict.json"
_TRACKING_SECONDS = 120
EVALUATION_FOLDER = "evaluation"
BY_HAND = "by-hand"
"""Below a night's folder: trainings that a person started."""
INCUMBENT, BEST = "incumbent", "best"
RESUMABLE = Checkpoints(folder=CHECKPOINTS, seal=SEAL, beside=(RUN,))
"""What a training on another machine goes on from."""


@dataclass(frozen=True)
class TrainedCandidate:
    """What a training left in its folder."""

    folder: Path
    result: TrainingResult

    @property
    def adapter(self) -> Path:
        return self.folder / (self.result.weights or "adapter")

    @property
    def metrics(self) -> Path:
        return self.folder / METRICS

    @property
    def diverged(self) -> bool:
        return self.result.status == "diverged"

    def trained(self, recipe: Recipe) -> str:
        """In a few words, how."""
        return f"learning rate {recipe.optimisation.learning_rate:g} over {self.result.steps} steps"

    def problems(self) -> list[str]:
        """Why this is not an adapter that changes the model and can be served; empty if it is."""
        from ec1.adapters.checks import adapter_problems

        if self.diverged:
            return [f"training diverged: {self.result.verdict}"]
        return adapter_problems(self.adapter, self.result.base_model)

    def curves(self) -> dict[str, list[float]]:
        """The columns of the step metrics: step, loss, learning_rate, grad_norm and more."""
        import pyarrow.parquet as parquet

        columns: dict[str, list[float]] = parquet.read_table(self.metrics).to_pydict()
        return columns


@dataclass(frozen=True)
class CandidateVerdict:
    """Scores of all models and the gate's verdict on the candidate."""

    scores: Scores
    verdict: Verdict

    def summary(self, objective: str) -> EvaluationSummary:
        """What a manifest says of it."""
        return EvaluationSummary(
            verdict=self.verdict.verdict,
            reasons=self.verdict.reasons,
            objective="extraction" if self.scores.objective == "extraction" else objective,
            examples=len(self.scores.examples),
            scores=self.scores.means(),
            differences=self.verdict.differences,
            scored=self.scores.scored[CANDIDATE],
            judge=self.verdict.judge,
            success=self.verdict.success,
            right=self.verdict.right,
            general={model: sum(each) for model, each in self.scores.general_right.items()},
            general_asked=len(self.scores.general_right.get(CANDIDATE, ())),
            overlap=self.scores.overlap,
            looks=self.scores.looks,
        )

    def record(self) -> EvaluationRecord:
        return EvaluationRecord(
            verdict=self.verdict.verdict,
            reasons=list(self.verdict.reasons),
            unit=self.scores.unit,
            mean_scores=self.scores.means(),
            mean_losses=self.scores.mean_losses(),
            examples=len(self.scores.examples),
            differences=self.verdict.differences,
            success=self.verdict.success,
            scored=self.scores.scored[CANDIDATE],
        )


def run_training(
    spec: TrainingSpec, subject: Subject, launcher: Launcher, env: Mapping[str, str], log: Path
) -> TrainingResult:
    """Train through the launcher. Raises as `Launcher.run` and `check_result`."""
    path = spec.output / SPEC
    write_json(path, spec.model_dump(mode="json"))
    if spec.tracking:
        spec.tracked_in.mkdir(parents=True, exist_ok=True)
    start = () if spec.start_adapter is None else (spec.start_adapter.folder,)
    work = DeviceWork(
        "the training",
        "ec1.training",
        path,
        spec.device,
        subject,
        inputs=(spec.dataset, spec.base_model, *start),
        output=spec.output,
        last=(SUMMARY,),
        leave=(CHECKPOINTS, SPEC),
        checkpoints=RESUMABLE,
        processes=spec.processes,
        environment=_tracking_environment(spec),
    )
    launcher.run(work, env, log)
    return check_result(spec)


def _tracking_environment(spec: TrainingSpec) -> dict[str, str]:
    return local_environment(spec.tracked_in, spec.identity[:32])


def tell_trackers(spec: TrainingSpec, judged: CandidateVerdict, env: Mapping[str, str]) -> None:
    """Add the gate's verdict to the training's run in each tracker. One that fails costs a warning, not the night."""
    if not spec.tracking:
        return
    means, success = judged.scores.means(), judged.verdict.success
    figures = {f"score of {model}": mean for model, mean in means.items() if mean is not None}
    if (base := means.get(BASE)) is not None and (own := means[CANDIDATE]) is not None:
        figures["gain"] = own - base
    if success is not None:
        figures["right"] = success.right[CANDIDATE] / success.prompts
    told = TrackedVerdict(trackers=spec.tracking, run=spec.run_name, verdict=judged.verdict.verdict, figures=figures)
    path = spec.output / TRACKED
    write_json(path, told.model_dump(mode="json"))
    command = [sys.executable, "-m", "ec1.training.tracked_verdict", str(path)]
    try:
        done = subprocess.run(
            command,
            env={**_tracking_environment(spec), **env},
            capture_output=True,
            text=True,
            timeout=_TRACKING_SECONDS,
        )
        problem = done.stderr.strip().rpartition("\n")[2] if done.returncode else ""
    except (subprocess.TimeoutExpired, OSError) as error:
        problem = str(error)
    if problem:
        log.warning("the trackers were not told the verdict on %s: %s", spec.run_name, problem)


def run_evaluation(
    spec: EvaluationSpec, subject: Subject, launcher: Launcher, env: Mapping[str, str], log: Path
) -> None:
    """Score through the launcher. Raises as `Launcher.run`, and PermanentError if no scores are left."""
    path = spec.output.with_suffix(".spec.json")
    write_json(path, spec.model_dump(mode="json"))
    adapters = tuple(folder for folder in spec.candidates.values() if folder is not None)
    work = DeviceWork(
        "the evaluation",
        "ec1.adapters.evaluation",
        path,
        spec.device,
        subject,
        inputs=(
            spec.model,
            spec.heldout,
            *([spec.train] if spec.train else []),
            spec.general,
            *dict.fromkeys(adapters),
        ),
        output=spec.output,
        last=(EVALUATION,),
    )
    launcher.run(work, env, log)
    if not (spec.output / EVALUATION).is_file():
        raise PermanentError(f"the evaluation ended without {spec.output / EVALUATION}: what it left is not trusted")


def evaluated_files(folder: Path) -> dict[str, Path]:
    """What an evaluation left for a version to keep, by name."""
    return {name: folder / name for name in (EVALUATION, EXAMPLES, CALIBRATION) if (folder / name).is_file()}


def candidate_in(folder: Path, night: str) -> TrainedCandidate:
    """The candidate that a training left in a folder. Raises InputError if there is none."""
    result = read_result(folder)
    if result is None:
        raise InputError(f"{folder} holds no finished training: materialise adapter_candidate of night {night} first")
    return TrainedCandidate(folder, result)


def earlier_looks(night: Path, candidate: Mapping[str, str] | None = None) -> dict[str, int]:
    """How often each held-out group of a role was looked at so far; `night` is the folder of the night that asks.

    Each candidate that was evaluated is one look, in a night, by hand or in a sweep: whoever chooses among twenty has
    looked twenty times. To score the same bytes again is not another one: `candidate` names, by digest, those that are
    to be scored now.
    """
    looks: Counter[str] = Counter()
    for path in sorted((*night.parent.glob(f"*/{EVALUATION_FOLDER}/{EXAMPLES}"), *_by_hand(night.parent))):
        scored = {digest_of(each.scored) for each in Records(path.parents[1]).all(EvaluationRecord) if each.scored}
        # Records of before they named what was scored: there was one candidate at least.
        count = len(scored - {digest_of(dict(candidate or {}))}) if scored else int(path.parents[1] != night)
        looks.update({group: count for group in _groups(path)})
    return {group: count for group, count in looks.items() if count}


def _by_hand(role: Path) -> list[Path]:
    return sorted(role.glob(f"*/{BY_HAND}/*/{EVALUATION_FOLDER}/{EXAMPLES}"))


def _groups(path: Path) -> set[str]:
    return {json.loads(line)["group"] for line in path.read_text(encoding="utf-8").splitlines()}


def judged_in(folder: Path, options: EvaluationOptions) -> CandidateVerdict:
    """The scores that an evaluation left in a folder, and the gate's verdict on the candidate.

    Raises InputError if there are none, PermanentError if they are damaged or do not say what was scored.
    """
    scores = load_scores(folder)
    if CANDIDATE not in scores.scored:
        raise PermanentError(f"{folder / EVALUATION} does not say which bytes were scored: evaluate again")
    return CandidateVerdict(scores, judge(scores, options, candidate=CANDIDATE))
