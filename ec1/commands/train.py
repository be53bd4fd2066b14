"""`ec1 train` and `ec1 sweep`: trainings that are started manually, after their cost was confirmed. Nothing is
published."""

import contextlib
import datetime as dt
import functools
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ec1.commands.following import following
from ec1.commands.shell import Options, err, out, print_json
from ec1.deployment import Deployment
from ec1.errors import InputError
from ec1.launch.process import inherited
from ec1.night.steps.recipes import recipe_folders
from ec1.recipes.resolution import ResolvedRecipe, find_recipe, parse_overrides
from ec1.training.plan import TrainingPlan

if TYPE_CHECKING:
    from ec1.night.experiments.sweep import SweepResult, Trial

RecipeName = Annotated[str, typer.Argument(help="a recipe file, or a name such as pointsav/pretraining")]
ConfirmCost = Annotated[
    float | None, typer.Option(min=0, help="start if the plan costs at most this, in USD; default: ask")
]
AsJson = Annotated[bool, typer.Option("--json", help="print the result as JSON")]


def train(
    context: typer.Context,
    recipe: RecipeName,
    confirm_cost: ConfirmCost = None,
    hours: Annotated[float | None, typer.Option(min=0.01, help="budget; default: the deployment's")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="default: the recipe's")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value, over what the recipe says")] = None,
    evaluate: Annotated[bool, typer.Option("--evaluate", help="score it on the held-out examples afterwards")] = False,
    as_json: AsJson = False,
) -> None:
    """Train one recipe now, after its cost was confirmed, and evaluate it if asked to. Nothing is published."""
    # Imported here: these load libraries that the other commands do without.
    from ec1.night.experiments.by_hand import check_evaluable, evaluate_by_hand, prepare, run_by_hand

    # A cluster ends a job by a termination: like Ctrl-C, it leaves the trainer the time for a checkpoint.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options: Options = context.obj
    deployment = options.deployment()
    resolved = _find(options, recipe, parse_overrides(settings or []))
    if evaluate:
        check_evaluable(resolved)
    budget = deployment.budgets.training_seconds if hours is None else hours * 3600
    prepared = prepare(resolved, deployment, options.home, dt.datetime.now(dt.UTC), budget, seed)
    _confirm(resolved.recipe.name, [prepared.plan], confirm_cost)
    name = f"{resolved.recipe.tenant}-{resolved.recipe.role}"
    log = options.home.logs / f"training-{name}-by-hand.log"
    env = inherited(options.environment)
    scoring = options.home.logs / f"evaluation-{name}-by-hand.log"
    plan = prepared.plan
    err.print(f"  {plan.steps} steps, about {plan.seconds:.0f} s; log: {log}")
    judged = None
    with _going_on(), following([log, scoring], _holder(deployment, options)):
        result = run_by_hand(prepared.spec, deployment, options.home, env, log, "ec1 train")
        if evaluate:
            judged = evaluate_by_hand(prepared, env, scoring, "ec1 train")
    run = prepared.spec.output.relative_to(options.home.runs).as_posix()
    if as_json:
        shown = {"run": run, **result.model_dump(mode="json")}
        print_json(shown if judged is None else {**shown, "evaluation": judged.verdict.model_dump(mode="json")})
        return
    where = prepared.spec.output / result.weights if result.weights else "nowhere"
    out.print(
        f"{result.status}: {result.steps} of {result.planned_steps} steps in {result.seconds:.0f} s, loss "
        f"{result.loss_first} to {result.loss_last}; run {run}, weights in {where}"
    )
    if judged is not None:
        out.print(f"the gate would say {judged.verdict.verdict}: {judged.verdict.told}")


def sweep(
    context: typer.Context,
    recipe: RecipeName,
    settings: Annotated[
        list[str],
        typer.Option(
            "--set", help="key=v1,v2 or key=low..high: the values to try; several --set give every combination"
        ),
    ],
    seeds: Annotated[int, typer.Option(min=1, max=20, help="trainings of each setting")] = 1,
    count: Annotated[
        int | None, typer.Option("--trials", min=1, max=1000, help="try so many combinations, drawn at random")
    ] = None,
    race: Annotated[
        bool, typer.Option("--race", help="after each seed, drop the settings that are surely behind the best")
    ] = False,
    on_held_out: Annotated[
        bool, typer.Option("--on-held-out", help="choose on what the gate holds out; each candidate is a look at it")
    ] = False,
    confirm_cost: ConfirmCost = None,
    hours: Annotated[float | None, typer.Option(min=0.01, help="budget of each training")] = None,
    as_json: AsJson = False,
) -> None:
    """Train and evaluate every combination of settings with several seeds; a table, and the curves in one picture.

    A part of the training side is held out for it, so that the gate's rows stay unseen.

    Started again after an interruption, it goes on where it was.
    """
    from ec1.night.experiments.sweep import CURVES, table, trials, write_sweep

    options: Options = context.obj
    deployment, home = options.deployment(), options.home
    budget = deployment.budgets.training_seconds if hours is None else hours * 3600
    now = dt.datetime.now(dt.UTC)
    find = functools.partial(_find, options, recipe)
    planned = trials(find, settings, seeds, deployment, home, now, budget, inner=not on_held_out, count=count)
    _confirm(recipe, [trial.prepared.plan for trial in planned], confirm_cost)
    done: list[Any] = []
    try:
        _try_all(planned, done, deployment, options, as_json, race)
    except KeyboardInterrupt:
        if done and not as_json:
            _print_table(table(done))
        err.print(f"{len(done)} of {len(planned)} trials are done; the same command goes on")
        raise
    rows = table(done)
    folder = write_sweep(done, rows)
    if as_json:
        shown = [{**vars(row), "behind": row.behind and row.behind.model_dump()} for row in rows]
        print_json({"rows": shown, "folder": str(folder), "curves": str(folder / CURVES)})
        return
    _print_table(rows)
    out.print(f"curves: {folder / CURVES}")


@contextlib.contextmanager
def _going_on() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        err.print("stopped after a whole step; the same command goes on from there")
        raise


def _holder(deployment: Deployment, options: Options) -> Callable[[], str | None]:
    return deployment.gpu_lease(options.home).held_by


def _try_all(
    planned: "Sequence[Trial]", done: list[Any], deployment: Deployment, options: Options, as_json: bool, race: bool
) -> None:
    """Run each trial; what it gave is added to `done`. In a race, those of settings without a hope are left out."""
    from ec1.night.experiments.sweep import hopeless, run_trial, table

    dropped: dict[str, str] = {}
    for number, trial in enumerate(planned, start=1):
        if race and done and trial.seed != done[-1][0].seed:
            for setting, why in hopeless(table(done)).items():
                if dropped.setdefault(setting, why) is why:
                    err.print(f"  {setting}: no more seeds, {why}")
        if trial.setting in dropped:
            continue
        plan = trial.prepared.plan
        # A training takes minutes or hours: say which one before it, not only after.
        err.print(
            f"  {number}/{len(planned)}  {trial.setting}, seed {trial.seed}: {plan.steps} steps, about "
            f"{plan.seconds:.0f} s, and its evaluation; log: {trial.logs(options.home)[0]}"
        )
        with following(trial.logs(options.home), _holder(deployment, options)):
            result, judged = run_trial(trial, deployment, options.home, inherited(options.environment))
        done.append((trial, result, judged))
        if not as_json:
            said = judged.verdict.told if judged else result.verdict
            took = f"{result.steps} steps in {result.seconds:.0f} s"
            out.print(f"  {number}/{len(planned)}  {trial.setting}, seed {trial.seed}: {took}; {said}")


def _print_table(rows: "Sequence[SweepResult]") -> None:
    out.print("gain over the base in nats/token, on held-out examples that none of them was trained on:")
    head = f"  {'right':<14}  {'gain':>7}  {'of the seeds':<16}  {'against the best':<26}  {'verdicts':<22}  setting"
    out.print(head)
    for row in rows:
        gain = "none" if row.gain is None else f"{row.gain:+.3f}"
        right = "" if row.right is None else "{:.0%} ({:.0%}-{:.0%})".format(*row.right)
        spread = "" if row.lowest is None else f"{row.lowest:+.3f} to {row.highest:+.3f}"
        behind = "" if row.behind is None else str(row.behind).removesuffix(" nats/token")
        lost = f", {row.diverged} of {row.seeds} diverged" if row.diverged else ""
        verdicts = ", ".join(
            f"{count} {verdict}" if row.seeds > 1 else verdict for verdict, count in Counter(row.verdicts).items()
        )
        line = f"  {right:<14}  {gain:>7}  {spread:<16}  {behind:<26}  {verdicts:<22}  {row.setting}{lost}"
        out.print(line)


def _find(options: Options, recipe: str, overrides: Mapping[str, Any]) -> ResolvedRecipe:
    return find_recipe(recipe, recipe_folders(options.deployment(), options.project), overrides)


def _confirm(recipe: str, plans: Sequence[TrainingPlan], confirmed: float | None) -> None:
    """Raise InputError unless the cost of all was confirmed."""
    cost = sum(plan.cost for plan in plans)
    many = f"{len(plans)} trainings, " if len(plans) > 1 else ""
    text = (
        f"{recipe}: {many}{plans[0].rows} rows, {sum(plan.tokens for plan in plans)} tokens, "
        f"{sum(plan.steps for plan in plans)} steps, {plans[0].trainable_parameters} weights; "
        f"about {sum(plan.seconds for plan in plans) / 3600:.2f} h and "
        f"{max(plan.peak_memory_gib for plan in plans):.1f} GiB on {plans[0].hardware}, {cost:.2f} USD"
    )
    if confirmed is not None:
        if cost > confirmed:
            raise InputError(f"{text}: more than the {confirmed:.2f} USD that were confirmed")
        return
    if not sys.stdin.isatty():
        raise InputError(f"{text}: confirm it with --confirm-cost {cost:.2f}")
    if not typer.confirm(f"{text}. Start?"):
        raise InputError("not confirmed: nothing was started")
