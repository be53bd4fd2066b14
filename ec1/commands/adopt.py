"""`ec1 adopt`: a training that was made elsewhere is verified, evaluated here, and published by the gate's verdict."""

import datetime as dt
import signal
from typing import Annotated

import typer

from ec1.commands.shell import Options, err, out, print_json
from ec1.launch.process import inherited
from ec1.night.steps.recipes import recipe_folders
from ec1.recipes.resolution import find_recipe


def adopt(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(help="a run (`ec1 run list`), a folder, or store:PREFIX, gs://… or s3://… in the store")
    ],
    recipe: Annotated[str | None, typer.Option(help="default: the one that trained it, by its name")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> None:
    """Take over a training that was made elsewhere: verify it, evaluate it on this home's held-out rows, and publish it
    or put it in quarantine, as a night would have done."""
    # Imported here: these load libraries that the other commands do without.
    from ec1.night.experiments.adoption import adopt as adopted
    from ec1.night.experiments.adoption import brought, recipe_in

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options: Options = context.obj
    deployment, home = options.deployment(), options.home
    with brought(source, deployment, home) as folder:
        name = recipe or recipe_in(folder)
        resolved = find_recipe(name, recipe_folders(deployment, options.project))
        log = home.logs / f"evaluation-{resolved.recipe.tenant}-{resolved.recipe.role}-adopted.log"
        if not as_json:
            err.print(f"  verifying and evaluating {source}; log: {log}")
        now, env = dt.datetime.now(dt.UTC), inherited(options.environment)
        outcome = adopted(folder, resolved, deployment, home, now, env, log)
    if as_json:
        print_json(outcome.model_dump(mode="json"))
        return
    out.print(f"{outcome.outcome}: {outcome.detail}; {outcome.path}")
