"""`ec1 doctor`: can a night run here?"""

import sys
from typing import Annotated

import typer

from ec1.commands.shell import DONE, FAILED, Options, out, print_json, run_module
from ec1.night.doctor import Finding, examine
from ec1.night.recipes import broken_recipes


def doctor(
    context: typer.Context,
    reconcile: Annotated[
        bool, typer.Option("--reconcile", help="after a reboot: fail orphaned runs and free what they held")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Check the machine, the configuration and the home: can a night run here?"""
    options: Options = context.obj
    deployment = options.deployment()
    recipes = options.recipes()
    if reconcile and (status := run_module(["jobs.reconcile"], options)):
        sys.exit(status)
    findings = list(examine(deployment, options.home))
    broken = broken_recipes(deployment, options.project)
    findings += [Finding("recipe", "problem", f"{each.problem}; the night leaves it out") for each in broken]
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        out.print(f"deployment {deployment.name}: {deployment.description}; {len(recipes)} recipes", markup=False)
        for finding in findings:
            out.print(f"  {finding.level:<8} {finding.subject:<13} {finding.detail}", markup=False)
    sys.exit(FAILED if any(finding.level == "problem" for finding in findings) else DONE)
