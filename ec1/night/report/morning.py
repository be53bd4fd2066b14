"""What a run leaves for the morning: notices, the report of its night as JSON and as a page, and Prometheus figures.

Called after every run, however it ended (`jobs/conclusion.py`). Nothing here may fail a night that went well.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from ec1.deployment import Deployment
from ec1.files import write_atomic, write_json
from ec1.home import Home
from ec1.night.report.metrics import write_textfile
from ec1.night.report.notices import tell
from ec1.night.report.outgoing import undelivered
from ec1.night.report.summary import NightReport
from ec1.night.report.text import as_html

PAGE, REPORT = "report.html", "report.json"


def pictures_of(report: NightReport, home: Home) -> dict[str, Path]:
    """The plots that the night's steps left, by caption."""
    folder = home.night(report.night)
    wanted = {"Entities in the graph, by night": folder / "growth-entities.png"}
    for each in report.recipes:
        if each.training is not None and each.recipe.count("/") == 1:
            tenant, role = each.recipe.split("/")
            run = home.run(tenant, role, report.night)
            wanted[f"{each.recipe}: training loss"] = run / "loss.png"
            wanted[f"{each.recipe}: held-out loss"] = run / "evaluation.png"
            wanted[f"{each.recipe}: gain by version"] = run / "versions.png"
    return {caption: path for caption, path in wanted.items() if path.is_file()}


def page_of(report: NightReport, home: Home) -> str:
    """The report as one HTML page with the night's plots in it."""
    return as_html(report, pictures_of(report, home))


def conclude_night(report: NightReport, deployment: Deployment, home: Home, environment: Mapping[str, str]) -> Path:
    """Tell whoever is to be told, keep the report, and write the figures. Returns the page. Raises OSError."""
    try:
        tell(report, deployment, home, environment)
    finally:
        # Kept whatever became of the notices; what could not be told is in it.
        report.notices = undelivered(home, report.night)
        page = write_report(report, home)
    if deployment.metrics.textfile is not None:
        write_textfile(home, deployment.metrics.textfile)
    return page


def write_report(report: NightReport, home: Home) -> Path:
    """Keep the report with its night, as JSON and as a page. Returns the page. Raises OSError."""
    folder = home.night(report.night)
    write_json(folder / REPORT, json.loads(report.model_dump_json()))
    write_atomic(folder / PAGE, page_of(report, home))
    return folder / PAGE
