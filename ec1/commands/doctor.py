"""`ec1 doctor`: can a night run here?"""

import json
import sys
from typing import Annotated

import typer

from ec1.commands.shell import DONE, FAILED, Options, out, output_of_module, print_json, run_module
from ec1.night.health.finding import Symptom
from ec1.night.health.ray_nodes import examine_nodes
from ec1.night.health.storage_health import acknowledge, symptoms
from ec1.night.operations.doctor import examine, examine_sandbox
from ec1.night.operations.unread_rows import unread_notes
from ec1.night.report.failure import one_line
from ec1.night.steps.recipes import broken_recipes
from ec1.plural import counted
from ec1.who import who_acts


def doctor(
    context: typer.Context,
    reconcile: Annotated[
        bool, typer.Option("--reconcile", help="after a reboot: fail orphaned runs and free what they held")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="also read all that is named by its content, and compare it with its name")
    ] = False,
    seen: Annotated[
        list[str] | None,
        typer.Option("--acknowledge", help="an id of `storage`, or all: somebody has looked at what the disk damaged"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Check the machine, the configuration and the home: can a night run here?"""
    options: Options = context.obj
    if seen:
        chosen = acknowledge(options.home, [] if seen == ["all"] else seen, who_acts())
        out.print(f"acknowledged: {', '.join(each.id for each in chosen) or 'nothing waited'}")
        return
    deployment = options.deployment()
    recipes = options.recipes()
    if reconcile and (status := run_module(["jobs.reconcile"], options)):
        sys.exit(status)
    findings = [
        *examine(deployment, options.home),
        *symptoms(options.home),
        *examine_sandbox(deployment, recipes),
        *examine_nodes(deployment, options.home, options.project),
        *_of_dagster(options),
    ]
    if deep:
        # Imported here: it loads libraries that the quick look does without.
        from ec1.night.operations.deep import examine_deeply
        from ec1.night.stores import open_registry

        findings += examine_deeply(options.home, open_registry(deployment, options.home))
    broken = broken_recipes(deployment, options.project)
    findings += [Symptom("recipe", "problem", f"{each.problem}; the night leaves it out") for each in broken]
    findings += [Symptom("corpus", "note", note) for note in unread_notes(deployment, options.home, options.project)]
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        out.print(f"deployment {deployment.name}: {deployment.description}; {counted(len(recipes), 'recipe')}")
        for finding in findings:
            out.print(f"  {finding.level:<8} {finding.subject:<13} {finding.detail}")
    sys.exit(FAILED if any(finding.level == "problem" for finding in findings) else DONE)


def _of_dagster(options: Options) -> list[Symptom]:
    """Runs, daemon and schedule: asked of a process of its own, because Dagster takes seconds to load."""
    output = output_of_module(["jobs.doctor"], options)
    try:
        return [Symptom(**each) for each in json.loads(output)]
    except (ValueError, TypeError):
        return [Symptom("dagster", "problem", one_line("", output.strip().splitlines()[-1] if output.strip() else ""))]
