"""`ec1 night`, `ec1 ui`, `ec1 plan` and `ec1 score`: run a night, look at it, plan it, score it."""

import contextlib
import datetime as dt
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ec1.commands.report import print_advice, print_rows
from ec1.commands.shell import (
    DONE,
    FAILED,
    INTERRUPTED,
    PARTIAL,
    Options,
    err,
    fill_with_sample,
    out,
    print_json,
    printable,
    run_module,
)
from ec1.deployment import Deployment
from ec1.errors import EC1Error, InputError
from ec1.night.clock import clock_problem, newest_record
from ec1.night.health.preflight import why_not
from ec1.night.report.failure import one_line
from ec1.night.report.first import begin
from ec1.night.report.summary import NightReport, night_report
from ec1.night.report.text import headline, summary
from ec1.night.report.unbegun import UNBEGUN, did_not_begin, keep_reserve
from ec1.night.steps.recipes import broken_recipes
from ec1.nights import Night
from ec1.plural import counted
from ec1.refused import advice_for

if TYPE_CHECKING:
    from ec1.night.operations.forecast import HomeForecast
    from ec1.night.operations.preview import NightPlan
    from ec1.recipes.resolution import ResolvedRecipe


def night(
    context: typer.Context,
    date: Annotated[str | None, typer.Option(help="the night, YYYY-MM-DD; default: the one that is open now")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
) -> None:
    """Run one whole night: new documents to the graph, then tuples to adapters."""
    options: Options = context.obj
    deployment = options.deployment()
    now = dt.datetime.now(dt.UTC)
    chosen = _chosen_night(options, deployment, date, now)
    if (why := why_not(deployment, options.home, now)) is not None:
        _end_unbegun(options, deployment, chosen.date, why, as_json)
    began = time.monotonic()
    log = options.home.logs / f"night-{chosen.date}.log"
    try:
        fill_with_sample(deployment, options.home)
        begin(deployment, options.home, now, date)
        keep_reserve(options.home)
        with tempfile.TemporaryDirectory() as folder:
            run_file = Path(folder) / "run"
            command = ["jobs.run_night", "--date", chosen.date, "--run-id-file", str(run_file)]
            status = run_module(command, options, log, quiet=as_json)
            run = run_file.read_text(encoding="utf-8") if run_file.exists() else None
    except OSError as error:
        _end_unbegun(options, deployment, chosen.date, advice_for(error), as_json)
    if run is None and status != INTERRUPTED:
        # A disk that filled meanwhile took no last words either.
        why = why_not(deployment, options.home, dt.datetime.now(dt.UTC)) or _killed(status) or _last_words(log)
        _end_unbegun(options, deployment, chosen.date, why, as_json)
    if status == INTERRUPTED:
        _end_interrupted(options, chosen.date, run, as_json)
    if status < 0:
        # It could write down nothing: whoever ends its run does.
        run_module(["jobs.reconcile"], options, log, quiet=True)
    # As they are now: the run read them when it began.
    pairs = [(each.recipe.tenant, each.recipe.role) for each in options.recipes()]
    broken = broken_recipes(deployment, options.project)
    report = night_report(options.home, chosen.date, run, pairs, broken)
    if as_json:
        print_json(report)
    else:
        _print_report(report, options, time.monotonic() - began)
    if status:
        # The last thing that is said is why, and what to do.
        cause = report.failure.cause if report.failure else _killed(status) or _last_words(log)
        err.print(f"error: night {chosen.date} failed: {cause}")
    sys.exit(FAILED if status else PARTIAL if report.partial else DONE)


def _end_unbegun(options: Options, deployment: Deployment, night: str, why: str, as_json: bool) -> NoReturn:
    """Leave with what a night that did not begin leaves: a failure, a report, a notice, one line."""
    report = did_not_begin(deployment, options.home, night, UNBEGUN, why, options.environment)
    if as_json:
        print_json(report)
    err.print(f"error: night {night} did not begin: {why}")
    sys.exit(FAILED)


def _end_interrupted(options: Options, night: str, run: str | None, as_json: bool) -> NoReturn:
    """Leave a night that somebody stopped."""
    with contextlib.suppress(EC1Error, OSError):
        report = night_report(options.home, night, run)
        if as_json:
            print_json(report)
        elif report.status == "interrupted":
            out.print(headline(report))
    err.print("interrupted: finished work is kept; run the same command again to continue")
    sys.exit(INTERRUPTED)


def _killed(status: int) -> str | None:
    """Why a night ended without a word: a signal that cannot be caught."""
    if status >= 0:
        return None
    return (
        f"its process was killed ({signal.Signals(-status).name}; by the system, if memory ran out). Run the "
        "same night again: it ends what is left of this run, and goes on from what is finished"
    )


def _last_words(log: Path) -> str:
    """The last line of a night's log: the error of a night that could write down nothing else."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    last = next((line for line in reversed(lines) if line.strip()), "no error was recorded")
    return f"{one_line('', last)} ({log})"


def _print_report(report: NightReport, options: Options, seconds: float) -> None:
    rows = [
        *summary(report),
        ("files", f"{options.home.root} (adapters/, quarantine/, graph/published, nights/{report.night})"),
        ("look", "ec1 report, or make ui, then http://127.0.0.1:3000/locations/ec1/asset-groups"),
    ]
    out.print(f"\nNight {report.night}, {seconds:.0f} s, run {report.run[:8]}")
    print_rows(rows)
    print_advice(report)


def ui(
    context: typer.Context,
    port: Annotated[int, typer.Option(help="on 127.0.0.1")] = 3000,
    read_only: Annotated[bool, typer.Option("--read-only", help="show everything and change nothing")] = False,
) -> None:
    """Open the Dagster UI, with its daemon, on this home's persistent instance.

    With EC1_UI_TOKEN set, each request must carry that token: open /?token=... once.
    """
    options: Options = context.obj
    deployment = options.deployment()
    fill_with_sample(deployment, options.home)
    now = dt.datetime.now(dt.UTC)
    if problem := clock_problem(options.home, now):
        err.print(f"warning: the clock is wrong: {problem}")
    else:
        begin(deployment, options.home, now)
    status = run_module(["jobs.ui", "--port", str(port), *(["--read-only"] if read_only else [])], options)
    # Ctrl-C is how one leaves it.
    sys.exit(DONE if status == INTERRUPTED else status)


def _chosen_night(options: Options, deployment: Deployment, date: str | None, now: dt.datetime) -> Night:
    """The night of a date, or the one that is open.

    Raises InputError for one that no deployment of this kind has. One that has begun by the records, and not by the
    clock, is for the preflight: it says that the clock is wrong.
    """
    chosen = deployment.night(date) if date else deployment.current_night(now)
    if chosen.start > max(now, newest_record(options.home) or now):
        problem = clock_problem(options.home, now)
        raise InputError(f"night {chosen.date} has not begun" + (f"; {problem}" if problem else ""))
    fixed = deployment.schedule.first_night
    if fixed is not None and chosen.date < fixed.isoformat():
        raise InputError(f"night {chosen.date} is before schedule.first_night {fixed}")
    return chosen


def plan(
    context: typer.Context,
    date: Annotated[str | None, typer.Option(help="the night, YYYY-MM-DD; default: the one that is open now")] = None,
    base: Annotated[
        str | None,
        typer.Option("--diff", help="git revision: only recipes that changed since, before and after, as Markdown"),
    ] = None,
    card: Annotated[
        list[str] | None,
        typer.Option(
            help="each training on this card instead, such as L4, A100-80 or H100; can be given several times"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Show what a night would do: documents, decisions, tokens, time, memory and cost. Starts no model."""
    options: Options = context.obj
    now = dt.datetime.now(dt.UTC)
    fill_with_sample(options.deployment(), options.home)
    if base is not None:
        _print_changes(options, base, _chosen_night(options, options.deployment(), date, now), now, as_json)
        return
    if card:
        _print_cards(options, card, _chosen_night(options, options.deployment(), date, now), now, as_json=as_json)
        return
    print_plan(options, options.recipes(), now, date, as_json=as_json)


def print_plan(
    options: Options,
    recipes: "Sequence[ResolvedRecipe]",
    now: dt.datetime,
    date: str | None = None,
    *,
    as_json: bool = False,
) -> None:
    """Plan a night, by default the one that is open, and print it."""
    # Imported here: it loads libraries that the other commands do without.
    from ec1.night.operations.preview import plan_whole_night

    deployment = options.deployment()
    chosen = _chosen_night(options, deployment, date, now)
    if problem := clock_problem(options.home, now):
        raise InputError(problem)
    planned = plan_whole_night(deployment, options.home, chosen, recipes, now, options.project)
    if as_json:
        print_json({**planned.model_dump(mode="json"), "seconds": planned.seconds})
        return
    out.print(f"Night {planned.night}, as of {planned.as_of:%Y-%m-%d %H:%M} UTC")
    for name, text in (*_of_documents(planned), *_of_recipes(planned), *_of_the_rest(planned)):
        out.print(f"  {name:<26} {printable(text)}")


def _print_cards(options: Options, names: list[str], night: "Night", now: dt.datetime, *, as_json: bool) -> None:
    from ec1.night.operations.other_cards import plan_on_cards
    from ec1.training.cards import card_named

    chosen = [card_named(name) for name in names]
    found = plan_on_cards(options.deployment(), options.home, night, options.recipes(), chosen, now)
    if as_json:
        print_json([{**each.model_dump(mode="json"), "fits": each.fits} for each in found])
        return
    out.print("Each training as its bucket is now, by the cards' data sheets: computed, not measured there")
    for each in found:
        text = f"refused: {each.refused}"
        if each.plan is not None:
            fits = "fits" if each.fits else "does not fit"
            text = (
                f"{each.card}: about {each.plan.seconds:.0f} s for {each.plan.tokens} tokens; "
                f"{each.plan.peak_memory_gib:.1f} GiB of {each.room_gib:.1f}, {fits}"
            )
        out.print(f"  {each.recipe:<26} {printable(text)}")
    if notes := [note for each in found if each.plan is not None for note in each.plan.notes if "data sheet" in note]:
        for note in dict.fromkeys(notes):
            out.print(f"  {'':<26} {printable(note)}")


def _of_documents(planned: "NightPlan") -> Iterator[tuple[str, str]]:
    asked = planned.extraction
    yield (
        "documents",
        f"{asked.documents} to read, {asked.reused} of them extracted before, {asked.rejected} rejected; "
        f"{counted(asked.chunks, 'LLM call')}, {counted(asked.prompt_tokens, 'token')} of text",
    )
    if asked.stale:
        yield (
            "changed extractor",
            f"{counted(asked.stale, 'document')} read by an earlier one; {asked.policy}: {asked.again} of them again "
            f"tonight, {asked.again_free} from the outbox",
        )
    yield from (("", note) for note in (*asked.problems, *asked.notes))


def _of_recipes(planned: "NightPlan") -> Iterator[tuple[str, str]]:
    for each in planned.recipes:
        text = f"{'train' if each.train else 'skip'}: {each.reason}"
        yield each.recipe, f"refused: {each.refused}" if each.refused is not None else text
        for reason, count in sorted(each.left_out.items(), key=lambda item: -item[1]):
            yield "", f"left out: {count} {reason}"
        if each.plan is not None:
            yield (
                "",
                f"{counted(each.plan.rows, 'row')}, {counted(each.plan.tokens, 'token')}, "
                f"{counted(each.plan.steps, 'step')}, about "
                f"{each.plan.seconds:.0f} s and {each.plan.peak_memory_gib:.1f} GiB on {each.plan.hardware}, "
                f"{each.plan.cost:.2f} USD",
            )
            yield from (("", note) for note in each.plan.notes)
    yield from (("", note) for note in planned.unread)


def _of_the_rest(planned: "NightPlan") -> Iterator[tuple[str, str]]:
    if (machine := planned.machine) is not None:
        text = f"boots for {', '.join(machine.needed_for)}" if machine.needed_for else "nothing boots"
        text += f"; not now: {machine.refused}" if machine.refused else f"; at most {machine.seconds / 3600:.1f} h"
        yield "machine", text
    if planned.seconds is None:
        yield "time", "how fast documents are read here is known after the first night"
    elif planned.seconds:
        read = f"{(planned.extraction.seconds or 0) / 60:.0f} min to read"
        yield "time", f"about {planned.seconds / 60:.0f} min, {read}; what is trained is judged after that"
    yield "home", _forecast(planned.home)


def _print_changes(options: Options, base: str, chosen: Night, now: dt.datetime, as_json: bool) -> None:
    from ec1.night.experiments.recipe_changes import as_markdown, plan_changes

    changes = plan_changes(options.deployment(), options.home, options.project, base, chosen, now)
    if as_json:
        print_json([each.model_dump(mode="json") for each in changes])
    else:
        out.print(as_markdown(base, changes), end="")


def _forecast(home: "HomeForecast") -> str:
    def mib(size: float) -> str:
        return f"{size / 2**20:,.1f} MiB" if abs(size) < 2**30 else f"{size / 2**30:,.1f} GiB"

    text = f"{mib(home.size)}, {mib(home.free)} free on its disk; "
    if home.growth is None:
        return text + "its growth is known after two nights"
    text += f"{mib(home.growth)} a night over the last {home.nights}"
    return text + ("" if home.until_full is None else f", full after {counted(home.until_full, 'night')}")


def score(
    context: typer.Context,
    gold: Annotated[Path | None, typer.Option(help="gold file (JSON lines); default: the deployment's")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Precision and recall of what the graph knows, per class, against a gold file, beside a base line."""
    from ec1.extraction.reading.outbox import Outbox
    from ec1.extraction.scoring import read_gold, score_ledger
    from ec1.graph.reader import published_ledger

    options: Options = context.obj
    deployment = options.deployment()
    path = gold or deployment.extraction.gold
    if path is None:
        raise InputError("this deployment has no gold file: name one with --gold, or set extraction.gold")
    table = score_ledger(
        published_ledger(options.home.published_graph),
        Outbox(options.home.outbox),
        read_gold(path, deployment.extraction.vocabulary.classes),
        deployment.document_reader(options.home),
        deployment.extraction.vocabulary,
    )
    if as_json:
        print_json({**table.record(), **({"left_out": table.left_out} if table.left_out else {})})
    else:
        left_out = "".join(f", {number} left out ({reason})" for reason, number in table.left_out.items())
        out.print(f"{counted(table.documents, 'document')}{left_out}, gold {path}")
        out.print(str(table))
