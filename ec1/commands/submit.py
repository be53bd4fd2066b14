"""`ec1 submit`: have a running instance train recipes now."""

import datetime as dt
import sys
from typing import Annotated

import typer

from ec1.commands.shell import DONE, Options, err, run_module
from ec1.errors import InputError


def submit(
    context: typer.Context,
    recipes: Annotated[
        list[str] | None, typer.Argument(help="names such as pointsav/engineering; default: those that changed")
    ] = None,
    since: Annotated[str | None, typer.Option(help="git revision: every recipe that changed since then")] = None,
    url: Annotated[str, typer.Option(help="of the running UI")] = "http://127.0.0.1:3000",
) -> None:
    """Put a run for these recipes into the queue of a running instance, as of tonight; prints it as JSON.

    Each still trains only if its corpus has gathered enough. EC1_UI_TOKEN is sent where it is set.
    """
    # Imported here: these load libraries that the other commands do without.
    from ec1.night.experiments.recipe_changes import changed_recipes

    options: Options = context.obj
    deployment = options.deployment()
    if bool(recipes) == (since is not None):
        raise InputError("name recipes, or a revision with --since")
    known = {each.recipe.name: f"{each.recipe.tenant}/{each.recipe.role}" for each in options.recipes()}
    if since is not None:
        changed = [change for change, _ in changed_recipes(deployment, options.project, since)]
        chosen = [
            f"{each.tenant}/{each.role}" for each in changed if each.nightly and each.change in ("new", "changed")
        ]
    else:
        unknown = [name for name in recipes or () if name not in known]
        if unknown:
            raise InputError(f"no night of this deployment runs {', '.join(unknown)}: choose of {', '.join(known)}")
        chosen = [known[name] for name in recipes or ()]
    if not chosen:
        err.print(f"no recipe that a night runs changed since {since}: nothing was submitted")
        sys.exit(DONE)
    night = deployment.current_night(dt.datetime.now(dt.UTC)).date
    sys.exit(run_module(["jobs.submit", "--url", url, "--night", night, *chosen], options))
