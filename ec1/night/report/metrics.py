"""The last night's figures for Prometheus: a file for node_exporter's textfile collector, and part of a server's page.

https://prometheus.io/docs/practices/naming/ and https://github.com/prometheus/node_exporter#textfile-collector
"""

import datetime as dt
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ec1.errors import EC1Error
from ec1.files import write_atomic
from ec1.home import Home
from ec1.night.report.summary import NightReport, night_report, nights_since

LOOK_BACK = 30
"""Nights that are searched for the last success."""

Sample = tuple[tuple[str, ...], float | None]


class NightCollector(Collector):
    """Reads the figures from the home whenever it is asked."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def collect(self) -> Iterator[Metric]:
        """All figures; of a home without a night, or with damaged records, only `ec1_night_records_readable`."""
        readable = 1.0
        figures: list[Metric] = []
        try:
            figures = list(_figures(self._home))
        except (EC1Error, OSError):
            readable = 0.0
        yield GaugeMetricFamily("ec1_night_records_readable", "1 if the nights' records could be read", value=readable)
        yield from figures


def write_textfile(home: Home, path: Path) -> None:
    """Write the figures, whole or not at all. Raises OSError."""
    registry = CollectorRegistry()
    registry.register(NightCollector(home))
    write_atomic(path, generate_latest(registry))


def _figures(home: Home) -> Iterator[Metric]:
    last, success = None, None
    for night in reversed(nights_since(home, dt.date.min)[-LOOK_BACK:]):
        try:
            report = night_report(home, night)
        except EC1Error:
            # Begun, and nothing written.
            continue
        last = last or report
        if report.succeeded:
            success = report
            break
    if last is None:
        return
    yield from _ends(last, success)
    yield from _work(last)
    yield from _recipes(last)


def _ends(last: NightReport, success: NightReport | None) -> Iterator[Metric]:
    yield _gauge("ec1_night_success", "1 if the last night did all that it could", last.succeeded)
    for name, what, report in (
        ("ec1_night_last_run_timestamp_seconds", "When the last run of a night ended", last),
        ("ec1_night_last_success_timestamp_seconds", "When the last night that succeeded ended", success),
    ):
        ends = [record.ended.timestamp() for record in report.timeline.values()] if report else []
        yield _gauge(name, what, max(ends, default=None))
    yield _gauge("ec1_night_seconds", "How long the last night's runs took", last.seconds)
    queued = sum(record.queued for record in last.timeline.values())
    yield _gauge("ec1_night_queued_seconds", "How long they waited in the queue", queued)
    yield _gauge("ec1_night_gpu_seconds", "How long they held the GPU", last.gpu_seconds)
    yield _gauge("ec1_night_cost_usd", "What the machine cost for that time", last.cost)
    newest = list(last.timeline.values())[-1:]
    parts: list[Sample] = [((part.name,), part.worked) for record in newest for part in record.parts]
    yield _gauges("ec1_night_part_seconds", "How long each part of the last run worked", ("part",), parts)


def _work(last: NightReport) -> Iterator[Metric]:
    done = last.done
    documents: list[Sample] = [
        (("read",), done.documents_read),
        (("deferred",), last.documents_deferred),
        (("rejected",), done.documents_rejected),
        (("vanished",), done.documents_vanished),
    ]
    yield _gauges("ec1_night_documents", "Documents of the last night by what became of them", ("result",), documents)
    found: list[Sample] = [((name,), count) for name, count in (done.entities_found or {}).items()]
    yield _gauges("ec1_night_entities_found", "Entities that the last night found, by class", ("class",), found)
    yield _gauge("ec1_graph_entities", "Entities in the graph after the last night", last.graph_entities)
    yield _gauge("ec1_night_tokens_per_second", "Speed of the last extraction", done.tokens_per_second)


def _recipes(last: NightReport) -> Iterator[Metric]:
    verdicts: list[Sample] = [((each.recipe, each.outcome), 1) for each in last.recipes]
    yield _gauges("ec1_night_verdict", "What became of each recipe in the last night", ("recipe", "verdict"), verdicts)
    losses: list[Sample] = [
        ((each.recipe, model), loss) for each in last.recipes for model, loss in each.losses.items()
    ]
    what = "Mean loss on held-out answers, nats per token"
    yield _gauges("ec1_night_held_out_loss", what, ("recipe", "model"), losses)
    right: list[Sample] = [
        ((each.recipe, model), count / each.success.prompts)
        for each in last.recipes
        if each.success is not None
        for model, count in each.success.right.items()
    ]
    what = "Share of the answers to held-out prompts that are right"
    yield _gauges("ec1_night_right_answers", what, ("recipe", "model"), right)
    read: list[Sample] = [((each.recipe, model), f1) for each in last.recipes for model, f1 in each.f1.items()]
    yield _gauges("ec1_night_held_out_f1", "F1 of an extractor on held-out chunks", ("recipe", "model"), read)
    memory: list[Sample] = [
        ((each.recipe,), each.training.peak_memory_gib * 2**30) for each in last.recipes if each.training
    ]
    yield _gauges("ec1_night_peak_memory_bytes", "Most memory that each training held", ("recipe",), memory)


def _gauge(name: str, what: str, value: float | None) -> GaugeMetricFamily:
    return _gauges(name, what, (), [((), value)])


def _gauges(name: str, what: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> GaugeMetricFamily:
    """A figure that was not reached has no sample: it is not zero."""
    family = GaugeMetricFamily(name, what, labels=labels)
    for values, value in samples:
        if value is not None:
            family.add_metric(values, float(value))
    return family
