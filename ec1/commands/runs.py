"""`ec1 run`: the log book of all trainings; repeat one of them."""

import datetime as dt
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ec1.commands.shell import DONE, FAILED, AsJson, Options, out, print_answer, print_json
from ec1.launch.process import inherited
from ec1.plural import counted
from ec1.queries import nights as queries

if TYPE_CHECKING:
    from ec1.night.experiments.comparison import ScoreComparison

run_app = typer.Typer(help="Trainings: what ran, from what, how it ended; repeat one.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="tenant/role/night, as `ec1 run list` prints it")]


@run_app.command("list")
def run_list(
    context: typer.Context,
    recipe: Annotated[str | None, typer.Option(help="only runs of this recipe (its name)")] = None,
    tenant: Annotated[str | None, typer.Option(help="only runs of this tenant")] = None,
    verdict: Annotated[str | None, typer.Option(help="accepted, no_effect, review, rejected or diverged")] = None,
    sort: Annotated[Literal["name", "gain"], typer.Option(help="gain: the largest over its base first")] = "name",
    as_json: AsJson = False,
) -> None:
    """List all trainings, one per line."""
    options: Options = context.obj
    found = queries.runs(options.home, recipe, tenant, verdict).items
    if sort == "gain":
        found = tuple(sorted(found, key=lambda run: -math.inf if run.gain is None else run.gain, reverse=True))
    print_answer(found, as_json, _run_lines)


def _run_lines(found: tuple[queries.RunSummary, ...]) -> Iterator[str]:
    for run in found:
        losses = f"{run.loss_first:.3f} to {run.loss_last:.3f}" if run.loss_last is not None else ""
        gain = "" if run.gain is None else f"{run.gain:+.3f}"
        yield (
            f"  {run.run:<44} {run.status:<10} {run.verdict or '-':<9} {gain:>7} {run.adapter or '-':<28} {run.recipe} "
            f"{run.recipe_digest[:8]}, dataset {run.dataset_digest[:8]}, seed {run.seed}, loss {losses}"
        )
    yield counted(len(found), "run")


@run_app.command("show")
def run_show(context: typer.Context, name: Name) -> None:
    """Print one training as JSON: resolved recipe, digests, code, packages, hardware, seeds, result."""
    options: Options = context.obj
    print_json(queries.run_details(options.home, name))


@run_app.command("replay")
def run_replay(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Train it again and compare: exit status 0 if every loss and every weight is the same."""
    from ec1.night.experiments.by_hand import run_by_hand
    from ec1.night.steps.log_book import compare, find_run, replay_of

    options: Options = context.obj
    run = find_run(options.home, name)
    spec = replay_of(run, dt.datetime.now(dt.UTC))
    log = options.home.logs / f"replay-{run.name.replace('/', '-')}.log"
    run_by_hand(spec, options.deployment(), options.home, inherited(options.environment), log, "ec1 run replay")
    again = find_run(options.home, spec.output.relative_to(options.home.runs).as_posix())
    found = compare(run, again)
    if as_json:
        print_json({"replay": again.name, "same": found.same, **asdict(found)})
    else:
        out.print(
            f"{again.name}: {'the same' if found.same else 'different'}; {found.steps} steps, losses differ by up to "
            f"{found.largest_loss_difference:.6f}; {found.different_tensors} of {found.tensors} tensors differ, by up "
            f"to {found.largest_weight_difference:.6f}"
        )
        for what, (before, now) in found.changed.items():
            out.print(f"  {what} was {before}, is {now}")
    sys.exit(DONE if found.same else FAILED)


@run_app.command("compare")
def run_compare(
    context: typer.Context,
    first: Name,
    second: Name,
    confidence: Annotated[float, typer.Option(min=0.5, max=0.999, help="of each bound")] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Say whether the second run learnt more than the first: paired, on the same held-out examples."""
    from ec1.night.experiments.comparison import compare_runs
    from ec1.night.steps.log_book import find_run
    from ec1.night.steps.log_book import runs as all_runs
    from ec1.recipes.evaluation import EvaluationOptions

    options: Options = context.obj
    runs = (find_run(options.home, first), find_run(options.home, second))
    found = compare_runs(*runs, EvaluationOptions(confidence=confidence), all_runs(options.home))
    print_answer(found, as_json, _comparison_lines)


def _comparison_lines(found: "ScoreComparison") -> Iterator[str]:
    for name, mean in zip(("base", found.first, found.second), found.means, strict=True):
        yield f"  {mean:+.3f} nats/token  {name}"
    yield (
        f"{found.second} is {found.verdict}: {found.difference}, {found.difference.examples} examples of "
        f"{found.difference.groups} sources; {found.seeds}"
    )
