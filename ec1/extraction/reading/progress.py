"""What an extraction did: its figures as they grow, and where it stands.

Belongs here: counting units and what came of them. Does not: the record that a night keeps of it, with the rates
(`ec1.night.records.ExtractionRecord`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from ec1.extraction.folding import normalised
from ec1.extraction.results import ENTITY_CLASSES, ExtractionResult

MAX_PROBLEM_ROWS = 200


@dataclass(frozen=True)
class Progress:
    """Where an extraction stands. Rates are over the time since it began."""

    done: int
    total: int
    documents_per_second: float
    tokens_per_second: float

    def __str__(self) -> str:
        return (
            f"extracted {self.done} of {self.total} documents, {self.documents_per_second:.2f} documents/s, "
            f"{self.tokens_per_second:.0f} tokens/s"
        )


@dataclass
class StreamCounts:
    """Units of one stream by how they ended. `postponed` ones were not tried to the end: no time, or no server."""

    complete: int = 0
    deferred: int = 0
    rejected: int = 0
    reused: int = 0
    postponed: int = 0


@dataclass
class ExtractionReport:
    """What one extraction did. `reused` units were in the outbox already and cost nothing."""

    classes: tuple[str, ...] = ENTITY_CLASSES
    streams: dict[str, StreamCounts] = field(default_factory=lambda: defaultdict(StreamCounts))
    dropped: Counter[str] = field(default_factory=Counter)
    llm_calls: int = 0
    sent_on: int = 0
    """Chunks that a second model was to read, too."""
    decisions: int = 0
    """Spans that the model decided on."""
    chunks: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    stopped: str | None = None
    """Why units were postponed: the deadline came, or the server went."""
    skipped: bool = False
    """An operator switched the server off, so nothing was asked."""
    problems: list[dict[str, str]] = field(default_factory=list)
    held: list[dict[str, str]] = field(default_factory=list)
    """Sentences that were kept from the model: stream, path, sentence, the names in it, and why."""
    _entities: dict[str, set[tuple[str, str]]] = field(default_factory=dict)

    @property
    def documents(self) -> int:
        """Units that were finished by this extraction."""
        return sum(counts.complete + counts.deferred + counts.rejected for counts in self.streams.values())

    @property
    def entities(self) -> dict[str, int]:
        """Different entities by class, over all documents of this extraction."""
        return self._by_class(set().union(*self._entities.values()))

    def entities_of(self, stream: str) -> dict[str, int]:
        """Different entities by class in one stream's documents."""
        return self._by_class(self._entities.get(stream, set()))

    def add_costs(self, parts: "Iterable[ExtractionReport]") -> None:
        """Add what these cost, and why they stopped; not what came of their documents."""
        for part in parts:
            self.llm_calls += part.llm_calls
            self.decisions += part.decisions
            self.chunks += part.chunks
            self.prompt_tokens += part.prompt_tokens
            self.completion_tokens += part.completion_tokens
            self.seconds += part.seconds
            self.stopped = self.stopped or part.stopped
            self.skipped = self.skipped or part.skipped

    def record(self) -> dict[str, Any]:
        """All figures as JSON types."""
        return {
            "streams": {stream: asdict(counts) for stream, counts in self.streams.items()},
            "entities": self.entities,
            "entities_by_stream": {stream: self.entities_of(stream) for stream in self.streams},
            "dropped": dict(sorted(self.dropped.items())),
            "llm_calls": self.llm_calls,
            "decisions": self.decisions,
            "chunks": self.chunks,
            "sent_on": self.sent_on,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "seconds": round(self.seconds, 3),
            "stopped": self.stopped,
            "skipped": self.skipped,
            "problems": self.problems,
            "held": self.held,
        }

    def count(self, result: ExtractionResult, path: str = "") -> None:
        """Add one finished unit; `path` is where one of its documents lies."""
        for each in result.held[: max(0, MAX_PROBLEM_ROWS - len(self.held))]:
            self.held.append(
                {
                    "stream": result.stream,
                    "path": path,
                    "held": "names" if each.read else "sentence",
                    "sentence": each.sentence,
                    "names": ", ".join(each.names),
                    "because": ", ".join(each.reasons),
                }
            )
        counts = self.streams[result.stream]
        setattr(counts, result.status, getattr(counts, result.status) + 1)
        self.dropped.update(each.reason for each in result.dropped)
        if result.status == "complete":
            found = self._entities.setdefault(result.stream, set())
            found |= {(normalised(each.name), each.entity_class) for each in result.mentions}
        elif len(self.problems) < MAX_PROBLEM_ROWS:
            self.problems.append(
                {
                    "stream": result.stream,
                    "content": result.content_sha256[:12],
                    "status": result.status,
                    "reason": result.reason or "",
                }
            )

    def _by_class(self, entities: set[tuple[str, str]]) -> dict[str, int]:
        counts = Counter(entity_class for _, entity_class in entities)
        return {entity_class: counts[entity_class] for entity_class in self.classes}
