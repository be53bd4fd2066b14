"""`ec1 report`: the report of a night again, or of a range of nights."""

import datetime as dt
import itertools
import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ec1.commands.shell import DONE, FAILED, Options, out, output_of_module, print_json, printable
from ec1.errors import InputError
from ec1.files import write_atomic
from ec1.night.report.morning import page_of
from ec1.night.report.notices import Watched, look_at_due, watch
from ec1.night.report.outgoing import undelivered
from ec1.night.report.summary import NightReport
from ec1.night.report.text import Table, headline, machine, summary, tables
from ec1.night.report.totals import Totals
from ec1.plural import counted
from ec1.queries import nights as queries

WIDTH = 26
_NARROWEST = 8
COLUMNS = 100
"""Of what is printed; a command that is longer stands on a line of its own."""


def report(
    context: typer.Context,
    date: Annotated[str | None, typer.Option(help="the night, YYYY-MM-DD; default: the last one")] = None,
    since: Annotated[str | None, typer.Option(help="all nights from this one on, and totals per tenant")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    html: Annotated[Path | None, typer.Option(help="write the page with plots to this file")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="is the night that is due done? exit status 1, and a notice, if not")
    ] = False,
) -> None:
    """Print what a night did: verdicts, times, speed, cost, what waits, what to do next."""
    options: Options = context.obj
    if check:
        if date is not None or since is not None or html is not None:
            raise InputError("--check looks at the night that is due: leave --date, --since and --html out")
        _check(options, as_json)
        return
    if since is not None:
        if date is not None or html is not None:
            raise InputError("--since is a range: leave --date and --html out")
        _print_range(options, since, as_json)
        return
    due = look_at_due(options.deployment(), options.home, dt.datetime.now(dt.UTC)) if date is None else None
    if due is not None and not due.done and not as_json:
        # First of all: the rest is about another night.
        print_line(f"Last night: {_of_due(options, due)}")
    found = _as_it_stands(options, date)
    if html is not None:
        write_atomic(html, page_of(found, options.home))
    if as_json:
        print_json(found)
        return
    print_summary(found)
    for table in tables(found):
        _print_table(table)
    print_advice(found)


def _of_due(options: Options, due: Watched) -> str:
    """About the night that was due and is not done: that it goes or waits, or else why it did not run."""
    if due.night is not None and _ask_the_queue(options, [found := NightReport(night=due.night, run="")]):
        return f"night {due.night} is {found.status} (due by {options.deployment().notify.by})"
    return due.sentence


def _as_it_stands(options: Options, date: str | None) -> NightReport:
    """The report of a night; of one that is not done, whether a run of it goes or waits. Raises as `report_of`."""
    try:
        found = queries.report_of(options.home, date)
    except InputError:
        if date is None or not _ask_the_queue(options, [found := NightReport(night=date, run="")]):
            raise
        return found
    _ask_the_queue(options, [found])
    return found


def _ask_the_queue(options: Options, reports: Sequence[NightReport]) -> bool:
    """Mark the nights of which a run goes or waits. Returns whether there are any."""
    unsettled = {each.night: each for each in reports if not each.succeeded}
    if not unsettled or not options.home.dagster.is_dir():
        return False
    try:
        states = json.loads(output_of_module(["jobs.nights", *unsettled], options))
    except ValueError:
        # An instance that cannot be read is the doctor's to tell; the records are.
        return False
    for each in states:
        if each["state"] in ("going", "queued"):
            unsettled[each["night"]].status, unsettled[each["night"]].failure = each["state"], None
    return any(each.in_flight for each in reports)


def print_summary(found: NightReport) -> None:
    """The night and its rows."""
    print_line(headline(found))
    print_rows((*summary(found), *machine(found)))


def print_advice(found: NightReport) -> None:
    """What to do next, if anything."""
    lines: list[str] = []
    for each in found.advice():
        # A command is copied in one piece.
        fits = each.command is None or len(str(each)) <= COLUMNS - WIDTH - 3
        lines += [str(each)] if fits else [f"{each.sentence}:", str(each.command)]
    lines += found.notices
    print_rows([("" if number else "next", line) for number, line in enumerate(lines)])


def print_line(text: str) -> None:
    """A sentence, within the width of a report."""
    out.print(textwrap.fill(printable(text), COLUMNS, break_on_hyphens=False, break_long_words=False))


def print_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Names with their texts, within the width of a report. A name that is too long for its column has a line."""
    for name, text in rows:
        first, *rest = textwrap.wrap(printable(text), COLUMNS - WIDTH - 3, break_on_hyphens=False) or [""]
        if len(name) > WIDTH:
            out.print(f"  {printable(name)}")
        out.print(f"  {name if len(name) <= WIDTH else '':<{WIDTH}} {first}")
        for line in rest:
            out.print(f"  {'':<{WIDTH}} {line}")


def _check(options: Options, as_json: bool) -> None:
    found = watch(options.deployment(), options.home, options.environment, dt.datetime.now(dt.UTC))
    problems = undelivered(options.home, found.night) if found.night else []
    if as_json:
        print_json({"night": found.night, "done": found.done, "sentence": found.sentence, "notices": problems})
    else:
        for line in (found.sentence, *problems):
            out.print(printable(line))
    sys.exit(DONE if found.done else FAILED)


def _print_range(options: Options, since: str, as_json: bool) -> None:
    found = queries.reports_since(options.home, since, options.deployment().tenant)
    _ask_the_queue(options, found.nights)
    if as_json:
        print_json(found)
        return
    if not found.nights:
        raise InputError(f"no night since {since} in {options.home.nights}")
    header = ("night", "status", "documents", "deferred", "graph", "versions", "seconds", "USD")
    _print_table(
        Table(
            f"{counted(len(found.nights), 'night')} since {since}", header, [_night_row(each) for each in found.nights]
        )
    )
    _print_table(Table("Totals per tenant", ("tenant", *Totals.model_fields), _total_rows(found.tenants)))


def _night_row(found: NightReport) -> tuple[str, ...]:
    def shown(value: float | None) -> str:
        return "-" if value is None else f"{value:g}"

    versions = ", ".join(f"{each.recipe}@v{each.version}" for each in found.recipes if each.outcome == "accepted")
    return (
        found.night,
        found.status,
        shown(found.done.documents_read),
        shown(found.documents_deferred),
        shown(found.graph_entities),
        versions or "-",
        f"{found.seconds:.0f}",
        _cost(found.cost),
    )


def _cost(value: float | None) -> str:
    """USD; a hyphen where nothing was paid, or nobody says what a night costs."""
    return f"{value:.2f}" if value else "-"


def _total_rows(totals: dict[str, Totals]) -> list[tuple[str, ...]]:
    return [
        (tenant, *(f"{value:g}" for name, value in each.model_dump().items() if name != "cost"), _cost(each.cost))
        for tenant, each in sorted(totals.items())
    ]


def _print_table(table: Table) -> None:
    """Columns as wide as their widest cell, or the widest ones folded, so that a line fits."""
    lines: Sequence[tuple[str, ...]] = [table.header, *[tuple(map(printable, row)) for row in table.rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    while widths and sum(widths) + 2 * len(widths) > COLUMNS:
        # Names of recipes and parts stay whole if anything else can give way.
        widest = max(widths[1:], default=0)
        widths[widths.index(widest, 1) if widest > _NARROWEST else 0] -= 1
    out.print(f"\n{textwrap.fill(table.title, COLUMNS)}")
    for line in lines:
        folded = [textwrap.wrap(cell, width) or [""] for cell, width in zip(line, widths, strict=True)]
        for parts in itertools.zip_longest(*folded, fillvalue=""):
            cells = (f"{cell:<{width}}" for cell, width in zip(parts, widths, strict=True))
            out.print(f"  {'  '.join(cells).rstrip()}")
