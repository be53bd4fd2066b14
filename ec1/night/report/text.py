"""A night's report as text: rows and tables that the terminal, the Markdown in Dagster and the HTML page all show.

Belongs here: wording and layout. Does not: facts (`report.py`).
"""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ec1.adapters.scores import CANDIDATE
from ec1.extraction.scoring import shown_figure
from ec1.night.health.storage_health import summary_of
from ec1.night.records import GenerationRecord, Part, RunRecord, ScoreRecord
from ec1.night.report.summary import NightReport
from ec1.plural import counted

SHOWN_RUNS = 5
"""Newest runs whose parts are listed."""


@dataclass(frozen=True)
class Table:
    """A titled table of plain text."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def summary(report: NightReport) -> list[tuple[str, str]]:
    """The night in a few rows of (name, text)."""
    done = report.done
    rows = [
        ("documents", _documents(report) if done.documents_read is not None else "not reached"),
        (
            "entities",
            _entities(report) if done.entities_found is not None or report.reading is not None else "not reached",
        ),
        *((("scores", _scores(report.scores)),) if report.scores is not None else ()),
        *((("storage", summary_of(report.storage)),) if report.storage else ()),
        *((("generated rows", said),) if (said := _generated(report.generated)) else ()),
        *((each.recipe, f"{each.outcome}: {each.detail}") for each in report.recipes),
    ]
    return rows


def _generated(done: GenerationRecord | None) -> str:
    if done is None:
        return ""
    return done.problem or "; ".join(f"{name}: {report}" for name, report in done.made.items())


def machine(report: NightReport) -> list[tuple[str, str]]:
    """Time, speed, memory and cost, as far as they were measured, as rows of (name, text)."""
    rows = []
    if report.timeline:
        runs = f" in {counted(len(report.timeline), 'run')}" if len(report.timeline) > 1 else ""
        queued = sum(record.queued for record in report.timeline.values())
        rows.append(("time", f"{seconds(report.seconds)}{runs}, {seconds(queued)} in the queue before"))
    if report.done.tokens and report.done.tokens_per_second is not None:
        rows.append(("extraction", f"{report.done.tokens} tokens, {report.done.tokens_per_second:g} tokens/s"))
    if report.gpu_seconds:
        free = f", {report.free_gib:.1f} GiB free at the handover" if report.free_gib is not None else ""
        rows.append(("GPU", f"held for {seconds(report.gpu_seconds)} ({report.device or 'unknown device'}{free})"))
    if (used := report.machine) is not None:
        boots = counted(used.boots, "boot")
        lost = f", taken away {counted(used.lost, 'time')}" if used.lost else ""
        asked = f", asked for in vain: {', '.join(used.refused)}" if used.refused else ""
        rows.append(
            ("machine", f"{seconds(used.seconds)} in {', '.join(used.zones) or 'no zone'}, {boots}{lost}{asked}")
        )
    if report.cost is not None:
        shares = ", ".join(f"{name} {cost:.2f}" for name, cost in report.costs.items())
        rows.append(("cost", f"{report.cost:.2f} USD{f' ({shares})' if shares else ''}"))
    return rows


def timeline(report: NightReport) -> list[Table]:
    """What each part of the newest runs waited and worked."""
    header = ("part", "status", "began", "waited", "lease", "worked")
    worked = [(run, record) for run, record in report.timeline.items() if run not in report.idle and record.parts]
    found = [Table(_run_title(run, each), header, [_part_row(part) for part in each.parts]) for run, each in worked]
    if report.idle:
        names = ", ".join(run[:8] for run in report.idle[-SHOWN_RUNS:])
        spent = sum(report.timeline[run].seconds for run in report.idle)
        title = f"{counted(len(report.idle), 'run')} found nothing new to do, {seconds(spent)}: {names}"
        found.append(Table(title, (), ()))
    return found[-SHOWN_RUNS - 1 :]


def evaluations(report: NightReport) -> Table | None:
    """Verdicts with right answers, held-out losses or F1, and what the trainings measured."""
    header = ("recipe", "verdict", "right answers", "held-out loss (nats/token)", "gain over base", "training")
    rows = []
    for each in report.recipes:
        if not each.losses and not each.f1 and each.training is None:
            continue
        figures = each.f1 or each.losses
        losses = ", ".join(f"{model} {figure:.3f}" for model, figure in figures.items() if figure is not None)
        losses = f"F1: {losses}" if each.f1 else losses
        gain = "{:+.3f} [{:+.3f}, {:+.3f}]".format(*each.gain) if each.gain else ""
        trained = each.training
        training = (
            f"{counted(trained.steps, 'step')}, {trained.tokens_per_second:g} tokens/s, {seconds(trained.seconds)}, "
            f"peak {trained.peak_memory_gib:.1f} GiB"
            if trained
            else ""
        )
        right = each.success.of(CANDIDATE) if each.success is not None else ""
        rows.append((each.recipe, each.outcome, right, losses, gain, training))
    return Table("Evaluations", header, rows) if rows else None


def scores(report: NightReport) -> Table | None:
    """What was found against the gold file by class, with the base line of capital letters beside it."""
    if report.scores is None or not report.scores.figures:
        return None
    columns = ("precision", "recall", "f1", "baseline_precision", "baseline_recall", "baseline_f1")
    rows = [
        (
            label,
            *(f"{figures[name]:.0f}" for name in ("gold", "found", "right")),
            *(_scored(figures, name) for name in columns),
        )
        for label, figures in report.scores.figures.items()
    ]
    header = ("class", "gold", "found", "right", "precision", "recall", "F1")
    beside = ("base line: precision", "recall", "F1")
    return Table("Found against the gold file (95 % intervals over documents)", (*header, *beside), rows)


def deferred(report: NightReport) -> Table | None:
    """What waits for a later night, and why."""
    rows = [(each.what, each.reason) for each in report.deferred]
    return Table("Deferred to a later night", ("document", "reason"), rows) if rows else None


def rejected(report: NightReport) -> Table | None:
    """What cannot be a document, and why."""
    rows = [(each.what, each.reason) for each in report.rejected]
    return Table("Rejected", ("document", "reason"), rows) if rows else None


def held(report: NightReport) -> Table | None:
    """Sentences that were held back, or the names in them, and where they stand."""
    rows = [(each.what, each.path, each.sentence, each.names) for each in report.held]
    title = "Held back: what tells a machine what to answer, or may do so"
    return Table(title, ("held back", "document", "sentence", "names in it"), rows) if rows else None


def tables(report: NightReport) -> list[Table]:
    """All tables of a report, in their order."""
    found = (
        *(scores(report), evaluations(report), deferred(report), rejected(report), held(report)),
        *timeline(report),
    )
    return [each for each in found if each is not None]


def headline(report: NightReport) -> str:
    """The night and how it ended, in one line."""
    if report.status == "did not begin":
        return f"Night {report.night} did not begin: {report.failure.cause if report.failure else 'see its records'}"
    last = list(report.timeline.values())[-1:]
    if report.status == "interrupted" and last and last[0].stopped_by:
        return f"Night {report.night}: interrupted (stopped at {last[0].ended:%H:%M} UTC by {last[0].stopped_by})"
    failed = f": {report.failure.cause}" if report.failure else ""
    return f"Night {report.night}: {report.status}{failed}"


def as_markdown(report: NightReport) -> str:
    """The whole report as CommonMark with tables. What came from outside cannot become markup."""
    lines = [f"### {_escaped(headline(report))}", ""]
    lines += _markdown_table(Table("", ("", ""), [*summary(report), *machine(report)]))
    if todo := [*map(str, report.advice()), *report.notices]:
        lines += ["**What to do next**", "", *(f"- {_escaped(each)}" for each in todo), ""]
    for table in tables(report):
        lines += [f"**{_escaped(table.title)}**", "", *(_markdown_table(table) if table.header else ())]
    return "\n".join(lines)


def as_html(report: NightReport, pictures: Mapping[str, Path]) -> str:
    """The whole report as one page without scripts or links outside; `pictures` are PNG files by caption."""
    from markdown_it import MarkdownIt

    text = MarkdownIt("commonmark", {"html": False}).enable("table").render(as_markdown(report))
    figures = "".join(
        f'<figure><img alt="{html.escape(caption)}" src="data:image/png;base64,'
        f'{base64.b64encode(path.read_bytes()).decode()}"><figcaption>{html.escape(caption)}</figcaption></figure>\n'
        for caption, path in pictures.items()
    )
    return _PAGE.format(title=html.escape(headline(report)), text=text, figures=figures)


def seconds(value: float) -> str:
    """A time span for people: 4.2 s, 312 s, 1 h 12 min."""
    if value < 10:
        return f"{value:.1f} s"
    if value < 3600:
        return f"{value:.0f} s"
    return f"{value // 3600:.0f} h {value % 3600 // 60:.0f} min"


def count(value: int | None) -> str:
    """A figure, or that nobody got so far."""
    return "not reached" if value is None else str(value)


def _documents(report: NightReport) -> str:
    done = report.done
    if report.reading is not None:
        return f"{count(done.documents_read)} read so far and in the graph, {report.reading} still to read"
    again = (
        f" in {counted(report.runs, 'run')} ({count(report.this_run.documents_read)} in this one)"
        if report.runs > 1
        else ""
    )
    because = f" ({report.deferred_because})" if report.deferred_because else ""
    first = "".join(f" ({each.what}: {each.reason})" for each in report.rejected[:1])
    return (
        f"{count(done.documents_read)} read{again}, {count(report.documents_deferred)} deferred to a later "
        f"night{because}, {count(done.documents_rejected)} rejected{first}, {count(done.documents_vanished)} vanished"
        + (f", {report.documents_later} newer than the night" if report.documents_later else "")
    )


def _entities(report: NightReport) -> str:
    done = report.done
    if report.reading is not None:
        return f"the graph holds {count(report.graph_entities)}; which of them are one is decided when all are read"
    found = ", ".join(f"{number} {name}" for name, number in (done.entities_found or {}).items() if number) or "none"
    calls = "1 LLM call" if done.llm_calls == 1 else f"{count(done.llm_calls)} LLM calls"
    if report.runs > 1:
        calls += f", {count(report.this_run.llm_calls)} in this run"
    return f"{found} ({calls}); the graph holds {count(report.graph_entities)}"


def _scores(scores: ScoreRecord) -> str:
    if scores.problem is not None:
        return f"not measured: {scores.problem}"
    left_out = "".join(f", {number} left out ({reason})" for reason, number in scores.left_out.items())
    ours = ", ".join(f"{name} {_scored(scores.figures['all'], name)}" for name in ("precision", "recall", "f1"))
    base = _scored(scores.figures["all"], "baseline_f1")
    return f"{ours}; base line f1 {base} ({counted(scores.documents, 'document')} of the gold file{left_out})".replace(
        "f1", "F1"
    )


def _scored(figures: Mapping[str, float | None], name: str) -> str:
    """One figure of a class with its interval, as `ec1 score` shows it."""
    figure, low, high = (figures.get(each) for each in (name, f"{name}_low", f"{name}_high"))
    return shown_figure(figure, (low, high) if low is not None and high is not None else None)


def _run_title(run: str, record: RunRecord) -> str:
    began = f"{record.began:%Y-%m-%d %H:%M:%S} UTC" if record.began else "never began"
    queued = f"{seconds(record.queued)} in the queue"
    return f"Run {run[:8]}, {record.status}, {began}, {seconds(record.seconds)} after {queued}"


def _part_row(part: Part) -> tuple[str, ...]:
    def span(value: float | None) -> str:
        return "" if value is None else seconds(value)

    lease = seconds(part.lease_waited) if part.gpu or part.lease_waited else ""
    return (
        part.name,
        part.status,
        f"{part.began:%H:%M:%S}" if part.began else "",
        span(part.waited),
        lease,
        span(part.worked),
    )


def _markdown_table(table: Table) -> list[str]:
    def row(cells: Iterable[str]) -> str:
        return f"| {' | '.join(map(_escaped, cells))} |"

    return [row(table.header), f"|{' --- |' * len(table.header)}", *map(row, table.rows), ""]


def _escaped(text: str) -> str:
    """One line of text in which nothing is markup."""
    line = " ".join(text.split())
    return "".join(f"\\{each}" if each in "\\`*_[]<>|#&!" else each for each in line)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
table {{ border-collapse: collapse; margin: 0 0 1.5rem }}
td, th {{ border-bottom: 1px solid #ddd; padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top }}
figure {{ display: inline-block; margin: 0 1.5rem 1.5rem 0 }}
figcaption {{ color: #666 }}
</style></head><body>
{text}
{figures}</body></html>
"""
