"""What the gateway counts, for Prometheus: requests, times and feedback of each version.

https://prometheus.io/docs/practices/naming/
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

# Seconds. A small model on a GPU answers in milliseconds, a long answer of a large one takes minutes.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """The figures of one gateway. `adapter` is `tenant/role@vN`, the base's id, or empty if no version was chosen."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "ec1_requests", "Requests that were answered, by HTTP status", ("adapter", "status"), registry=self.registry
        )
        self.first_byte = Histogram(
            "ec1_time_to_first_token_seconds",
            "From a request's arrival to the first byte of its answer",
            ("adapter",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.duration = Histogram(
            "ec1_request_seconds",
            "From a request's arrival to the end of its answer",
            ("adapter",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.in_flight = Gauge("ec1_requests_in_flight", "Requests without a whole answer yet", registry=self.registry)
        self.ready = Gauge("ec1_ready", "1 while an engine takes requests", registry=self.registry)
        self.feedback = Counter(
            "ec1_feedback", "What users said about answers", ("adapter", "verdict"), registry=self.registry
        )
        self.rolled_back = Counter(
            "ec1_trial_rollbacks", "Arms that were taken out of a trial", ("adapter",), registry=self.registry
        )
        self.uncaptured = Counter(
            "ec1_answers_not_captured", "Answers that could not be kept, by reason", ("reason",), registry=self.registry
        )

    def render(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self.registry)
