"""What a night's training and evaluation leave in their folders, and how they are started.

Belongs here: the folders' contents as objects, and the check that a finished process kept its contract. Does not: what
is trained or compared (`recipe_night.py`), and what follows from the verdict (`settlement.py`).
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ec1.adapters.evaluation import EvaluationSpec
from ec1.adapters.gate import Verdict, judge
from ec1.adapters.manifest import EvaluationSummary
from ec1.adapters.scores import CANDIDATE, EVALUATION, EXAMPLES, Scores, load_scores
from ec1.errors import InputError, PermanentError
from ec1.extraction.naming.calibration import CALIBRATION
from ec1.files import write_json
from ec1.launch.launcher import DeviceWork, Launcher, Subject
from ec1.night.records import EvaluationRecord
from ec1.recipes.evaluation import EvaluationOptions
from ec1.recipes.schema import Recipe
from ec1.training.spec import CHECKPOINTS, METRICS, SUMMARY, TrainingResult, TrainingSpec, check_result, read_result
from ec1.training.tracking import local_environment

SPEC = "spec.json"
EVALUATION_FOLDER = "evaluation"
BY_HAND = "by-hand"
"""Below a night's folder: trainings that a person started."""
INCUMBENT, BEST = "incumbent", "best"


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
        )


def run_training(
    spec: TrainingSpec, subject: Subject, launcher: Launcher, env: Mapping[str, str], log: Path
) -> TrainingResult:
    """Train through the launcher. Raises as `Launcher.run` and `check_result`."""
    path = spec.output / SPEC
    write_json(path, spec.model_dump(mode="json"))
    folder = spec.tracking_folder or spec.output / "tracking"
    if spec.tracking:
        folder.mkdir(parents=True, exist_ok=True)
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
        processes=spec.processes,
        environment=local_environment(folder),
    )
    launcher.run(work, env, log)
    return check_result(spec)


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
        inputs=(spec.model, spec.heldout, spec.general, *dict.fromkeys(adapters)),
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


def earlier_looks(night: Path) -> dict[str, int]:
    """How often each held-out group was evaluated on, on other nights of the same role; `night` is this one's folder.

    A night's own evaluation is one look, and so is all that was evaluated by hand on a day: what is chosen from it is
    one candidate.
    """
    groups: Counter[str] = Counter()
    for folder in sorted(path for path in night.parent.glob("*") if path.is_dir()):
        own = [] if folder == night else [folder / EVALUATION_FOLDER / EXAMPLES]
        for looks in (own, list(folder.glob(f"{BY_HAND}/*/{EVALUATION_FOLDER}/{EXAMPLES}"))):
            groups.update({group for path in looks if path.is_file() for group in _groups(path)})
    return dict(groups)


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
