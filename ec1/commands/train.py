"""`ec1 train`: one training, started manually after its cost was confirmed. The only way to start pre-training."""

import datetime as dt
import sys
from typing import Annotated

import typer

from ec1.commands.shell import Options, out, print_json
from ec1.errors import InputError
from ec1.launch.process import inherited
from ec1.night.recipes import recipe_folders
from ec1.recipes.resolution import find_recipe
from ec1.training.plan import Plan


def train(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="a recipe file, or a name such as pointsav/pretraining")],
    confirm_cost: Annotated[
        float | None, typer.Option(min=0, help="start if the plan costs at most this, in USD; default: ask")
    ] = None,
    hours: Annotated[float | None, typer.Option(min=0.01, help="budget; default: the deployment's")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> None:
    """Train one recipe now, after its cost was confirmed. Nothing is evaluated or published."""
    # Imported here: these load libraries that the other commands do without.
    from ec1.night.by_hand import prepare, run_by_hand

    options: Options = context.obj
    deployment = options.deployment()
    resolved = find_recipe(recipe, recipe_folders(deployment, options.project))
    budget = deployment.budgets.training_seconds if hours is None else hours * 3600
    prepared = prepare(resolved, deployment, options.home, dt.datetime.now(dt.UTC), budget)
    _confirm(resolved.recipe.name, prepared.plan, confirm_cost)
    name = f"{resolved.recipe.tenant}-{resolved.recipe.role}"
    log = options.home.logs / f"training-{name}-by-hand.log"
    result = run_by_hand(prepared.spec, deployment, options.home, inherited(options.environment), log, "ec1 train")
    if as_json:
        print_json(result.model_dump(mode="json"))
        return
    where = prepared.spec.output / result.weights if result.weights else "nowhere"
    out.print(
        f"{result.status}: {result.steps} of {result.planned_steps} steps in {result.seconds:.0f} s, loss "
        f"{result.loss_first} to {result.loss_last}; weights in {where}",
        markup=False,
    )


def _confirm(recipe: str, plan: Plan, confirmed: float | None) -> None:
    """Raise InputError unless the cost was confirmed."""
    text = (
        f"{recipe}: {plan.rows} rows, {plan.tokens} tokens, {plan.steps} steps, {plan.trainable_parameters} weights; "
        f"about {plan.seconds / 3600:.2f} h and {plan.peak_memory_gib:.1f} GiB on {plan.hardware}, "
        f"{plan.cost:.2f} USD"
    )
    if confirmed is not None:
        if plan.cost > confirmed:
            raise InputError(f"{text}: more than the {confirmed:.2f} USD that were confirmed")
        return
    if not sys.stdin.isatty():
        raise InputError(f"{text}: confirm it with --confirm-cost {plan.cost:.2f}")
    if not typer.confirm(f"{text}. Start?"):
        raise InputError("not confirmed: nothing was started")
