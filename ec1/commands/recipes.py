"""`ec1 recipe`: check, print, compare, write and import recipes."""

import datetime as dt
import sys
from pathlib import Path
from typing import Annotated

import typer

from ec1.commands.shell import DONE, PARTIAL, USAGE, Options, err, out, print_json
from ec1.errors import InputError
from ec1.files import write_atomic
from ec1.night.steps.recipes import recipe_folders
from ec1.plural import counted
from ec1.recipes.compare import differences
from ec1.recipes.importing import import_recipe
from ec1.recipes.lint import lint
from ec1.recipes.resolution import find_recipe
from ec1.recipes.show import show
from ec1.strict_yaml import load_mapping

recipe_app = typer.Typer(help="Recipes: check, print, compare, write and import them.", no_args_is_help=True)


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
    findings = lint(
        paths or folders,
        folders,
        getattr(deployment.inference, "max_lora_rank", None),
        deployment.models,
        processes=deployment.gpu.processes,
        fsdp=deployment.gpu.fsdp,
    )
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        for finding in findings:
            out.print(str(finding))
        errors = sum(finding.level == "error" for finding in findings)
        out.print(f"{counted(errors, 'error')}, {counted(len(findings), 'finding')}")
    sys.exit(USAGE if any(finding.level == "error" for finding in findings) else DONE)


@recipe_app.command("new")
def recipe_new(
    context: typer.Context,
    role: Annotated[str, typer.Option(help="whose bucket it learns: the folder of that name in the corpus")],
    output: Annotated[
        Path | None, typer.Option("--out", help="the file to write; default: in the deployment's first recipe folder")
    ] = None,
) -> None:
    """Write a recipe for a role, with lengths, threshold and steps that fit its rows and the card."""
    # Imported here: it loads libraries that the other commands do without.
    from ec1.night.operations.new_recipe import fit_recipe, write_recipe

    options: Options = context.obj
    deployment = options.deployment()
    if output is None and not deployment.recipes:
        raise InputError(
            f"deployment {deployment.name} names no folder of recipes: add `recipes:` to it, or give --out"
        )
    fitted = fit_recipe(deployment, options.home, role, dt.datetime.now(dt.UTC))
    path = write_recipe(fitted, output or deployment.recipes[0] / f"{role}.yaml")
    out.print(f"wrote {path}: {fitted}")
    for finding in lint([path], recipe_folders(deployment, options.project)):
        out.print(str(finding))


@recipe_app.command("show")
def recipe_show(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="a recipe file, or a name such as pointsav/engineering")],
) -> None:
    """Print a recipe resolved, with the origin of each value."""
    options: Options = context.obj
    resolved = find_recipe(recipe, recipe_folders(options.deployment(), options.project))
    out.print(show(resolved), end="")


@recipe_app.command("diff")
def recipe_diff(
    context: typer.Context,
    left: Annotated[str, typer.Argument(help="a recipe file, or a name such as pointsav/engineering")],
    right: Annotated[str, typer.Argument(help="another one")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Print what two recipes set otherwise, with the origin of each value."""
    options: Options = context.obj
    folders = recipe_folders(options.deployment(), options.project)
    found = differences(find_recipe(left, folders), find_recipe(right, folders))
    if as_json:
        print_json([vars(each) for each in found])
        return
    for each in found:
        out.print(f"{each.key}: {each.left} ({each.left_origin}) -> {each.right} ({each.right_origin})")
    out.print(counted(len(found), "difference"))


@recipe_app.command("import")
def recipe_import(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="a configuration of Axolotl or LLaMA-Factory, as YAML")],
    tenant: Annotated[str, typer.Option(help="whose adapter")],
    role: Annotated[str, typer.Option(help="what for; also names the bucket")],
    output: Annotated[Path | None, typer.Option("--out", help="the recipe file to write; default: print it")] = None,
) -> None:
    """Turn a configuration of Axolotl or LLaMA-Factory into a recipe; names each key that it cannot hold (status 3)."""
    options: Options = context.obj
    try:
        found = import_recipe(load_mapping(file), tenant, role)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    if output is None:
        out.print(found.text, end="")
    elif output.exists():
        raise InputError(f"{output} exists: choose another name, or delete it")
    else:
        write_atomic(output, found.text)
        for finding in lint([output], recipe_folders(options.deployment(), options.project)):
            out.print(str(finding))
    for key, reason in found.not_carried.items():
        err.print(f"not carried: {key}: {reason}")
    sys.exit(PARTIAL if found.not_carried else DONE)
