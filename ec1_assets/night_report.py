"""The end of the graph: the report of the night. What it shows is reported after each run (`jobs/conclusion.py`)."""

from collections.abc import Iterable
from pathlib import Path

import dagster as dg

from ec1.night.report.summary import NightReport
from ec1.night.report.text import as_markdown

KEY = dg.AssetKey("night_report")
GROUP = "night"
STUDIO = "http://127.0.0.1:3100"
"""Where `ec1 studio` answers unless it is told another port."""


def night_report_asset(nights: dg.DailyPartitionsDefinition, last: Iterable[dg.AssetKey]) -> dg.AssetSpec:
    """An asset behind `last`, the ends of both phases. No step makes it: it exists for nights that failed, too."""
    return dg.AssetSpec(
        KEY,
        deps=sorted(last),
        partitions_def=nights,
        group_name=GROUP,
        owners=["team:training"],
        kinds={"markdown"},
        code_version="1",
        description="What the night did, what it cost, what waits and what to do; also for a night that failed. "
        "`ec1 report` prints the same.",
    )


def metadata_of(report: NightReport, page: Path) -> dict[str, dg.MetadataValue | str | int | float]:
    """The report for the UI: the verdict first, then the figures that people follow over the nights."""
    accepted = sum(each.outcome == "accepted" for each in report.recipes)
    figures = {
        "documents": report.done.documents_read,
        "documents_deferred": report.documents_deferred,
        "graph_entities": report.graph_entities,
        "new_versions": accepted,
        "seconds": round(report.seconds, 1),
        "gpu_seconds": round(report.gpu_seconds, 1),
        "tokens_per_second": report.done.tokens_per_second,
        "cost_usd": report.cost if report.cost is None else round(report.cost, 2),
    }
    why = report.failure.cause if report.failure is not None else report.deferred_because
    return {
        "status": report.status,
        **({"why": why} if why else {}),
        "report": dg.MetadataValue.md(as_markdown(report)),
        **{name: value for name, value in figures.items() if value is not None},
        "page": dg.MetadataValue.path(page),
        "studio": dg.MetadataValue.url(f"{STUDIO}/nights/{report.night}"),
    }
