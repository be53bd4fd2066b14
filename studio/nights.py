"""The pages of nights and of trainings."""

import datetime as dt
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ec1.queries import nights
from ec1.queries.curves import answers_of_steps, copies_of, curves_of
from ec1.queries.desk import Desk
from studio.drawing import Chart, bar, chart
from studio.web import render

PAGE = 30
_MOST_CURVES = 8


def overview(request: Request, desk: Desk) -> Response:
    page = nights.nights_page(desk.home, PAGE, request.query_params.get("after") or None)
    return render(request, "nights.html", page=page)


def night(request: Request, desk: Desk) -> Response:
    report = nights.report_of(desk.home, request.path_params["night"])
    timeline = [_timed(run, record) for run, record in report.timeline.items() if record.parts]
    return render(request, "night.html", report=report, facts=nights.report_rows(report), timeline=timeline)


def _timed(run: str, record: Any) -> tuple[str, Any, list[tuple[Any, Any]]]:
    """A run's parts, each with its bar."""
    began = [part.began for part in record.parts if part.began]
    first = min(began, default=record.asked)
    ends = [part.began + dt.timedelta(seconds=part.worked or 0) for part in record.parts if part.began]
    whole = (max(ends, default=first) - first).total_seconds()
    return run, record, [(part, bar(part.began, part.worked or 0, first, whole)) for part in record.parts]


def runs(request: Request, desk: Desk) -> Response:
    """The log book; of the runs that are chosen (`run=…`, repeated) the curves over each other."""
    chosen = request.query_params.getlist("run")[:_MOST_CURVES]
    page = nights.runs(desk.home, limit=200, cursor=request.query_params.get("after") or None)
    return render(request, "runs.html", page=page, chosen=chosen, charts=_charts(desk, chosen))


def run(request: Request, desk: Desk) -> Response:
    name = request.path_params["run"]
    details = nights.run_details(desk.home, name)
    return render(
        request,
        "run.html",
        run=details,
        charts=_charts(desk, [name]),
        live=details.result is None,
        answers=answers_of_steps(desk.home, name),
        copies=copies_of(desk.home, name),
    )


def _charts(desk: Desk, names: list[str]) -> list[Chart]:
    found = [curves_of(desk.home, name) for name in names]
    kinds = dict.fromkeys(kind for each in found for kind in each.curves)
    drawn = (chart(kind.replace("_", " "), {each.run: each.curves.get(kind, ()) for each in found}) for kind in kinds)
    return [each for each in drawn if each is not None]
