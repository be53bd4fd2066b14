"""`ec1`, the command line. Thin: every command calls one thing in the domain, or starts Dagster.

This is the only module of the package that a shell's environment reaches, through the options' `envvar`.
Exit status: 0 done, 1 failed, 2 usage or configuration, 3 partial (work was deferred to a later night).
"""

import datetime as dt
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ec1.commands.adapters import adapters_app
from ec1.commands.corpus import corpus_app
from ec1.commands.graph import graph_app
from ec1.commands.runs import run_app
from ec1.commands.shell import DONE, FAILED, INTERRUPTED, PARTIAL, USAGE, Options, err, out, print_json
from ec1.commands.train import train
from ec1.deployment import Deployment
from ec1.doctor import examine
from ec1.errors import EC1Error, InputError
from ec1.home import Home
from ec1.nights import Night
from ec1.project import CHECKOUT, recipe_folders
from ec1.report import NightReport, night_report
from ec1.sample import install_sample
from ec1.training.recipes import find_recipe, lint, show

app = typer.Typer(
    help="EC1: turns what an organisation wrote and did today into a better model tonight.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
recipe_app = typer.Typer(help="Recipes: check and print them.", no_args_is_help=True)
app.add_typer(recipe_app, name="recipe")
app.add_typer(adapters_app, name="adapters")
app.add_typer(graph_app, name="graph")
app.add_typer(corpus_app, name="corpus")
app.add_typer(run_app, name="run")
app.command()(train)


@app.callback()
def _options(
    context: typer.Context,
    deployment: Annotated[
        str, typer.Option(envvar="EC1_DEPLOYMENT", help="a file of configs/deployments, without .yaml")
    ] = "embedded",
    home: Annotated[Path, typer.Option(envvar="EC1_HOME", help="where EC1 keeps its files")] = Path(".ec1"),
    project: Annotated[
        Path, typer.Option(envvar="EC1_PROJECT", help="the folder whose configs/ holds deployments and recipes")
    ] = CHECKOUT,
) -> None:
    project = project.expanduser().resolve()
    context.obj = Options(deployment, Home((project / home.expanduser()).resolve()), project, dict(os.environ))


def main() -> None:
    """Run the command line; errors that are meant for a person become one line and an exit status."""
    try:
        app()
    except InputError as error:
        _fail(error, USAGE)
    except EC1Error as error:
        _fail(error, FAILED)
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(INTERRUPTED)


def _fail(error: EC1Error, status: int) -> NoReturn:
    err.print(f"error: {error}", markup=False)
    sys.exit(status)


def _child(module: list[str], options: Options, log: Path | None = None, *, quiet: bool = False) -> int:
    """Run `python -m ...` with this choice of deployment and home. Returns its status, or INTERRUPTED.

    Signals reach it, and it ends its own children, so it is waited for and never killed from here. With `log`, what
    it writes to standard error (Dagster's own log) goes there. If `quiet`, what it prints goes to standard error.
    """
    environment = {
        **os.environ,
        "EC1_DEPLOYMENT": options.deployment_name,
        "EC1_HOME": str(options.home.root),
        "EC1_PROJECT": str(options.project),
        "DAGSTER_HOME": str(options.home.dagster),
        "PYTHONUNBUFFERED": "1",
    }
    if log is None:
        errors = None
    else:
        log.parent.mkdir(parents=True, exist_ok=True)
        errors = log.open("ab")
    interrupts: list[int] = []
    # The terminal interrupts the whole group. Before the start: a child would inherit that interrupts are ignored, as
    # they are in a script's background job, and Dagster ignores terminations where it finds interrupts ignored.
    previous = {signal.SIGINT: signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))}
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", *module],
            cwd=CHECKOUT,
            env=environment,
            stdout=sys.stderr if quiet else None,
            stderr=errors,
        )
        # A termination is sent to us alone, so it is passed on.
        previous[signal.SIGTERM] = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        status = process.wait()
        return INTERRUPTED if interrupts else status
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _fill_with_sample(deployment: Deployment, home: Home) -> None:
    if deployment.sample is None:
        return
    installed = install_sample(deployment.sample, home)
    if installed is not None:
        err.print(f"installed the bundled sample: {installed.documents} documents, {installed.tuples} tuples")


@app.command()
def night(
    context: typer.Context,
    date: Annotated[str | None, typer.Option(help="the night, YYYY-MM-DD; default: the one that is open now")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
) -> None:
    """Run one whole night: new documents to the graph, then tuples to adapters."""
    options: Options = context.obj
    deployment = options.deployment()
    recipes = options.recipes()
    now = dt.datetime.now(dt.UTC)
    chosen = _chosen_night(deployment, date, now)
    _fill_with_sample(deployment, options.home)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run_file = Path(folder) / "run"
        log = options.home.logs / f"night-{chosen.date}.log"
        command = ["jobs.run_night", "--date", chosen.date, "--run-id-file", str(run_file)]
        status = _child(command, options, log, quiet=as_json)
        if status == INTERRUPTED:
            err.print("interrupted: finished work is kept; run the same command again to go on where it stopped")
            sys.exit(INTERRUPTED)
        if not run_file.exists():
            err.print(
                f"error: night {chosen.date} did not come to its end ({log}); run it again to go on where it stopped",
                markup=False,
            )
            sys.exit(FAILED)
        run = run_file.read_text()
    pairs = [(each.recipe.tenant, each.recipe.role) for each in recipes]
    report = night_report(options.home, chosen.date, run, pairs)
    if as_json:
        print_json(report.model_dump())
    else:
        _print_report(report, options, time.monotonic() - began)
    sys.exit(FAILED if status else PARTIAL if report.partial else DONE)


def _print_report(report: NightReport, options: Options, seconds: float) -> None:
    found = ", ".join(f"{count} {name}" for name, count in report.entities_found.items() if count) or "none"
    rows = [
        (
            "documents",
            f"{report.documents_read} read, {report.documents_deferred} deferred to a later night, "
            f"{report.documents_rejected} rejected, {report.documents_vanished} vanished",
        ),
        ("entities", f"{found} ({report.llm_calls} LLM calls); the graph holds {report.graph_entities}"),
        *((each.recipe, f"{each.outcome}: {each.detail}") for each in report.recipes),
        ("files", f"{options.home.root} (adapters/, quarantine/, graph/published, nights/{report.night})"),
        ("look", "make ui, then http://127.0.0.1:3000/locations/ec1/asset-groups"),
    ]
    out.print(f"\nNight {report.night}, {seconds:.0f} s, run {report.run[:8]}")
    for name, text in rows:
        out.print(f"  {name:<26} {text}", markup=False)


@app.command()
def ui(
    context: typer.Context,
    port: Annotated[int, typer.Option(help="on 127.0.0.1")] = 3000,
) -> None:
    """Open the Dagster UI, with its daemon, on this home's persistent instance."""
    options: Options = context.obj
    deployment = options.deployment()
    options.recipes()
    _fill_with_sample(deployment, options.home)
    status = _child(["jobs.ui", "--port", str(port)], options)
    # Ctrl-C is how one leaves it.
    sys.exit(DONE if status == INTERRUPTED else status)


@app.command()
def doctor(
    context: typer.Context,
    reconcile: Annotated[
        bool, typer.Option("--reconcile", help="after a reboot: fail orphaned runs and free what they held")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Look at the machine, the configuration and the home: can a night run here?"""
    options: Options = context.obj
    deployment = options.deployment()
    recipes = options.recipes()
    if reconcile and (status := _child(["jobs.reconcile"], options)):
        sys.exit(status)
    findings = list(examine(deployment, options.home))
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        out.print(f"deployment {deployment.name}: {deployment.description}; {len(recipes)} recipes", markup=False)
        for finding in findings:
            out.print(f"  {finding.level:<8} {finding.subject:<13} {finding.detail}", markup=False)
    sys.exit(FAILED if any(finding.level == "problem" for finding in findings) else DONE)


@recipe_app.command("lint")
def recipe_lint(
    context: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="recipe files or folders; default: the deployment's and the shipped ones"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Check recipes; each message says what is wrong, where, and what was meant."""
    options: Options = context.obj
    folders = recipe_folders(options.deployment(), options.project)
    findings = lint(paths or folders, folders)
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


def _chosen_night(deployment: Deployment, date: str | None, now: dt.datetime) -> Night:
    """The night of a date, or the one that is open. Raises InputError for one that no deployment of this kind has."""
    chosen = deployment.night(date) if date else deployment.current_night(now)
    if chosen.start > now:
        raise InputError(f"night {chosen.date} has not begun")
    if chosen.date < deployment.schedule.first_night.isoformat():
        raise InputError(f"night {chosen.date} is before schedule.first_night {deployment.schedule.first_night}")
    return chosen


@app.command()
def plan(
    context: typer.Context,
    date: Annotated[str | None, typer.Option(help="the night, YYYY-MM-DD; default: the one that is open now")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Say what a night would do: its documents, decisions, tokens, time, memory and cost. Starts no model."""
    # Imported here: these load libraries that the other commands do without.
    from ec1.plan import plan_whole_night

    options: Options = context.obj
    deployment = options.deployment()
    recipes = options.recipes()
    now = dt.datetime.now(dt.UTC)
    chosen = _chosen_night(deployment, date, now)
    _fill_with_sample(deployment, options.home)
    planned = plan_whole_night(deployment, options.home, chosen, recipes, now)
    if as_json:
        print_json(planned.model_dump(mode="json"))
        return
    asked = planned.extraction
    out.print(f"Night {planned.night}, as of {planned.as_of:%Y-%m-%d %H:%M} UTC")
    out.print(
        f"  {'documents':<26} {asked.documents} to read, {asked.reused} of them extracted before, "
        f"{asked.rejected} rejected; {asked.chunks} LLM calls, {asked.prompt_tokens} tokens of text"
    )
    if asked.stale:
        out.print(
            f"  {'changed extractor':<26} {asked.stale} documents were read by an earlier one; {asked.policy}: "
            f"{asked.again} of them again tonight, {asked.again_free} from the outbox",
            markup=False,
        )
    for each in planned.recipes:
        text = f"{'train' if each.train else 'skip'}: {each.reason}"
        if each.refused is not None:
            text = f"refused: {each.refused}"
        out.print(f"  {each.recipe:<26} {text}", markup=False)
        if each.plan is not None:
            out.print(
                f"  {'':<26} {each.plan.rows} rows, {each.plan.tokens} tokens, {each.plan.steps} steps, about "
                f"{each.plan.seconds:.0f} s and {each.plan.peak_memory_gib:.1f} GiB on {each.plan.hardware}, "
                f"{each.plan.cost:.2f} USD",
                markup=False,
            )
            for note in each.plan.notes:
                out.print(f"  {'':<26} {note}", markup=False)


@app.command()
def score(
    context: typer.Context,
    gold: Annotated[Path | None, typer.Option(help="gold file (JSON lines); default: the deployment's")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Precision and recall of what the graph knows, per class, against a gold file."""
    from ec1.extraction.outbox import Outbox
    from ec1.extraction.scoring import read_gold, score_ledger
    from ec1.graph.reader import published_ledger

    options: Options = context.obj
    path = gold or options.deployment().extraction.gold
    if path is None:
        raise InputError("this deployment has no gold file: name one with --gold, or set extraction.gold")
    table = score_ledger(published_ledger(options.home.published_graph), Outbox(options.home.outbox), read_gold(path))
    if as_json:
        print_json(table.record())
    else:
        out.print(f"{table.documents} documents, gold {path}", markup=False)
        out.print(str(table), markup=False)


if __name__ == "__main__":
    main()
