"""A sweep: one recipe with several values of some settings and several seeds, on one dataset, held against each other.

Each trial is an ordinary training by hand with its evaluation, under the lease; one that has finished is not repeated,
so a sweep that was interrupted goes on when it is started again. Belongs here: which trials there are, and what they
say together. Does not: one training (`by_hand.py`), how two are compared (`comparison.py`).
"""

import datetime as dt
import itertools
import json
import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.adapters.gate import ScoreDifference
from ec1.adapters.scores import BASE, CANDIDATE
from ec1.deployment import Deployment
from ec1.errors import InputError
from ec1.files import digest_of, write_atomic, write_json
from ec1.home import Home
from ec1.night.experiments.by_hand import Prepared, check_evaluable, evaluate_by_hand, prepare, run_by_hand
from ec1.night.experiments.comparison import SeedSpread, check_same, paired, spread_of, widened
from ec1.night.steps.candidate import CandidateVerdict, TrainedCandidate
from ec1.recipes.resolution import ResolvedRecipe, parse_overrides
from ec1.training.spec import TrainingResult, finished

SWEEPS = "sweeps"
CURVES, TABLE = "curves.png", "sweep.json"


@dataclass(frozen=True)
class Trial:
    """One setting with one seed."""

    setting: str
    seed: int
    prepared: Prepared

    def logs(self, home: Home) -> tuple[Path, Path]:
        """Of its training and of its evaluation."""
        recipe = self.prepared.step.recipe
        name = f"{recipe.tenant}-{recipe.role}-{self.prepared.spec.identity[:12]}-by-hand.log"
        return home.logs / f"training-{name}", home.logs / f"evaluation-{name}"


@dataclass(frozen=True)
class SweepResult:
    """What one setting gave, over its seeds. Gains are over the base, nats per token; `right` is the share of right
    answers, the seeds' mean, least and most: None where no answers are counted beside the scores.

    `behind`: this setting's scores, averaged over the seeds, less those of the best one, with what seeds change in its
    bounds where some setting has several; None of the best itself, and where fewer trials than seeds left an adapter.
    """

    setting: str
    seeds: int
    diverged: int
    right: tuple[float, float, float] | None
    gain: float | None
    lowest: float | None
    highest: float | None
    verdicts: tuple[str, ...]
    loss_last: float | None
    seconds: float
    behind: ScoreDifference | None


@dataclass(frozen=True)
class _Range:
    """`low..high` of a setting: whole numbers evenly, others evenly over their magnitudes."""

    low: float
    high: float

    def draw(self, drawing: random.Random) -> float:
        """A value of three digits."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            return drawing.randint(self.low, self.high)
        return float(f"{math.exp(drawing.uniform(math.log(self.low), math.log(self.high))):.3g}")


def settings_of(given: Sequence[str], count: int | None = None) -> list[list[str]]:
    """`key=v1,v2` … as every combination of `key=value`, in the given order; with `count` so many, drawn,
    always the same ones, also from ranges (`key=1e-5..1e-3`). Raises InputError."""
    axes = [_axis(setting) for setting in given]
    keys = [key for key, _ in axes]
    if len(set(keys)) != len(keys):
        raise InputError("--set: a setting is named twice; write its values behind one another: key=v1,v2")
    values = [of for _, of in axes]
    listed = [of for of in values if not isinstance(of, _Range)]
    if count is not None:
        chosen = _drawn(values, count, random.Random(digest_of(list(given))))
    elif len(listed) == len(values):
        chosen = list(itertools.product(*listed))
    else:
        raise InputError("--set: values of a range are drawn; say how many settings to try: --trials 8")
    return [[f"{key}={json.dumps(value)}" for key, value in zip(keys, one, strict=True)] for one in chosen]


def _axis(setting: str) -> tuple[str, list[Any] | _Range]:
    key, equals, text = (part.strip() for part in setting.partition("="))
    low, dots, high = text.partition("..")
    if dots:
        try:
            found = _Range(*(int(end) if end.strip().isdigit() else float(end) for end in (low, high)))
        except ValueError:
            raise InputError(f"--set {setting!r}: a range is two numbers, such as {key or 'key'}=1e-5..1e-3") from None
        if not 0 < found.low < found.high < math.inf:
            raise InputError(f"--set {setting!r}: a range is of two numbers above 0, the smaller one first")
        return key, found
    # As one list; without its `=` it is refused as it was given.
    values: Any = parse_overrides([f"{key}=[{text}]" if equals else setting])
    for part in key.split("."):
        values = values[part]
    if not values:
        raise InputError(f"--set {setting!r}: name at least one value, such as {key or 'key'}=1e-4,2e-4")
    return key, values


def _drawn(axes: Sequence[list[Any] | _Range], count: int, drawing: random.Random) -> list[tuple[Any, ...]]:
    """So many combinations, or as many as differ."""
    found: dict[str, tuple[Any, ...]] = {}
    for _ in range(100 * count):
        one = tuple(of.draw(drawing) if isinstance(of, _Range) else drawing.choice(of) for of in axes)
        found.setdefault(repr(one), one)
        if len(found) == count:
            break
    return list(found.values())


def trials(
    find: Callable[[Mapping[str, Any]], ResolvedRecipe],
    given: Sequence[str],
    seeds: int,
    deployment: Deployment,
    home: Home,
    now: dt.datetime,
    budget_seconds: float,
    *,
    inner: bool,
    count: int | None = None,
) -> list[Trial]:
    """All trials of a sweep, prepared and planned, seed by seed; nothing is started. `find` resolves the recipe with
    overrides, `inner` as for `prepare`, `count` as for `settings_of`.

    Seeds count up from the recipe's own. Raises InputError for a recipe that is not evaluated or settings that do not
    fit, PermanentError for a trial that cannot fit the machine or the budget.
    """
    of_setting = []
    for combination in settings_of(given, count):
        resolved = find(parse_overrides(combination))
        check_evaluable(resolved)
        first = resolved.recipe.optimisation.seed
        each_seed = range(first, first + seeds)
        prepared = [prepare(resolved, deployment, home, now, budget_seconds, seed, inner=inner) for seed in each_seed]
        of_setting.append([Trial(", ".join(combination), *one) for one in zip(each_seed, prepared, strict=True)])
    found = [trial for of_seed in zip(*of_setting, strict=True) for trial in of_seed]
    if len({trial.prepared.dataset.digest for trial in found}) > 1:
        raise InputError(
            "--set: these settings change the dataset, and with it what is held out: nothing is comparable"
        )
    return found


def run_trial(
    trial: Trial, deployment: Deployment, home: Home, env: Mapping[str, str]
) -> tuple[TrainingResult, CandidateVerdict | None]:
    """Train and evaluate one trial, or take up what it left before. Judged is None where the training diverged."""
    prepared = trial.prepared
    training, evaluation = trial.logs(home)
    result = finished(prepared.spec)
    if result is None:
        result = run_by_hand(prepared.spec, deployment, home, env, training, "ec1 sweep")
    if result.weights is None:
        return result, None
    judged = prepared.judged()
    if judged is None:
        judged = evaluate_by_hand(prepared, env, evaluation, "ec1 sweep")
    return result, judged


def table(done: Sequence[tuple[Trial, TrainingResult, CandidateVerdict | None]]) -> list[SweepResult]:
    """One row a setting, the best first: most right answers, then most gain. Raises InputError if the trials were
    scored on different examples."""
    scored = [(trial, judged) for trial, _, judged in done if judged is not None]
    check_same([judged.scores for _, judged in scored], [f"{trial.setting}, seed {trial.seed}" for trial, _ in scored])
    settings = list(dict.fromkeys(trial.setting for trial, _, _ in done))
    columns = {each: _columns([judged for trial, judged in scored if trial.setting == each]) for each in settings}
    right = {each: _right([judged for trial, judged in scored if trial.setting == each]) for each in settings}

    def rank(setting: str) -> tuple[float, float]:
        share, column = right[setting], columns[setting]
        return (-share[0] if share else 0.0, -_mean(column) if column else math.inf)

    # What left no adapter at all comes last.
    ranked = sorted(settings, key=lambda each: (not columns[each], rank(each)))
    own = {each: [one for one in done if one[0].setting == each] for each in ranked}
    spread = spread_of([[_gain(judged) for _, _, judged in own[each] if judged is not None] for each in ranked])
    return [_row(each, own, columns, right[each], ranked[0], spread) for each in ranked]


def hopeless(rows: Collection[SweepResult]) -> dict[str, str]:
    """The settings that no further seed is worth, and why: behind the best one with all their bounds, or every seed of
    them diverged. The first rounds of a race (F-Race; Birattari et al. 2002)."""
    found = {row.setting: f"behind the best: {row.behind}" for row in rows if row.behind and row.behind.upper < 0}
    return found | {row.setting: "diverged" for row in rows if row.diverged == row.seeds}


def _gain(judged: CandidateVerdict) -> float:
    return _mean(judged.scores.values(CANDIDATE)) - _mean(judged.scores.values(BASE))


def _right(judged: Sequence[CandidateVerdict]) -> tuple[float, float, float] | None:
    counts = [each.verdict.success for each in judged]
    shares = [each.right[CANDIDATE] / each.prompts for each in counts if each is not None]
    return (_mean(shares), min(shares), max(shares)) if shares else None


def _columns(judged: Sequence[CandidateVerdict]) -> list[float]:
    """The score of each example, averaged over the seeds; empty where none was scored."""
    if not judged:
        return []
    return [_mean(values) for values in zip(*(each.scores.values(CANDIDATE) for each in judged), strict=True)]


def _row(
    setting: str,
    own: Mapping[str, Sequence[tuple[Trial, TrainingResult, CandidateVerdict | None]]],
    columns: Mapping[str, Sequence[float]],
    right: tuple[float, float, float] | None,
    best: str,
    spread: SeedSpread | None,
) -> SweepResult:
    mine = own[setting]
    judged = [each for _, _, each in mine if each is not None]
    gains = [_gain(each) for each in judged]
    losses = [result.loss_last for _, result, _ in mine if result.loss_last is not None]
    behind = None
    if setting != best and columns[setting] and columns[best]:
        groups = [example.group for example in judged[0].scores.examples]
        options = mine[0][0].prepared.step.recipe.evaluation
        behind = paired(columns[best], columns[setting], groups, options)
        if spread is not None:
            seeds = (sum(each is not None for _, _, each in own[best]), len(judged))
            behind = widened(behind, spread, seeds, options.confidence)
    return SweepResult(
        setting=setting or "as it is",
        seeds=len(mine),
        diverged=sum(result.status == "diverged" for _, result, _ in mine),
        right=right,
        gain=_mean(gains) if gains else None,
        lowest=min(gains, default=None),
        highest=max(gains, default=None),
        verdicts=tuple(each.verdict.verdict for each in judged),
        loss_last=_mean(losses) if losses else None,
        seconds=sum(result.seconds for _, result, _ in mine),
        behind=behind,
    )


def write_sweep(
    done: Sequence[tuple[Trial, TrainingResult, CandidateVerdict | None]], rows: Sequence[SweepResult]
) -> Path:
    """Write the table as JSON and all curves as one picture; return their folder."""
    first = done[0][0].prepared
    identities = sorted(trial.prepared.spec.identity for trial, _, _ in done)
    folder = first.step.folder / SWEEPS / digest_of(identities)[:12]
    runs = {f"{trial.setting}, seed {trial.seed}": str(trial.prepared.spec.output) for trial, _, _ in done}
    shown = [{**vars(row), "behind": row.behind and row.behind.model_dump()} for row in rows]
    write_json(folder / TABLE, {"recipe": first.step.recipe.name, "rows": shown, "runs": runs})
    curves = [(trial, TrainedCandidate(trial.prepared.spec.output, result).curves()) for trial, result, _ in done]
    _draw(first.step.recipe.name, curves, folder / CURVES)
    return folder


def _draw(title: str, curves: Sequence[tuple[Trial, dict[str, list[float]]]], png: Path) -> None:
    """The losses of all trials over their steps: a colour for each setting, a line for each seed."""
    import io

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    colours = {setting: f"C{n % 10}" for n, setting in enumerate(dict.fromkeys(trial.setting for trial, _ in curves))}
    labelled = set()
    for trial, columns in curves:
        label = None if trial.setting in labelled else trial.setting or "as it is"
        labelled.add(trial.setting)
        axes.plot(columns["step"], columns["loss"], color=colours[trial.setting], linewidth=1.1, alpha=0.8, label=label)
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel("step")
    axes.set_ylabel("training loss, nats/token")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": ""})
    write_atomic(png, buffer.getvalue())


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
