"""`ec1 recipe`: check and print recipes."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ec1.commands.shell import DONE, USAGE, Options, out, print_json
from ec1.night.recipes import recipe_folders
from ec1.recipes.lint import lint
from ec1.recipes.resolution import find_recipe
from ec1.recipes.show import show

recipe_app = typer.Typer(help="Recipes: check and print them.", no_args_is_help=True)


@recipe_app.command("lint")
def recipe_lint(
    context: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="recipe files or folders; default: the deployment's and the shipped ones"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Check recipes; each message says what is wrong, where, and how to correct it."""
    options: Options = context.obj
    deployment = options.deployment()
    folders = recipe_folders(deployment, options.project)
    findings = lint(paths or folders, folders, getattr(deployment.inference, "max_lora_rank", None))
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        for finding in findings:
            out.print(str(finding), markup=False)
        out.print(f"{sum(finding.level == 'error' for finding in findings)} errors, {len(findings)} findings")
    sys.exit(USAGE if any(finding.level == "error" for finding in findings) else DONE)


@recipe_app.command("show")
def recipe_show(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="a recipe file, or a name such as pointsav/engineering")],
) -> None:
    """Print a recipe resolved, with the origin of each value."""
    options: Options = context.obj
    resolved = find_recipe(recipe, recipe_folders(options.deployment(), options.project))
    out.print(show(resolved), markup=False, end="")
