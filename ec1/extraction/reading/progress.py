"""What an extraction did: its figures as they grow, and where it stands.

Belongs here: counting units and what came of them. Does not: where a night keeps the record (`ec1.night.records`).
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from ec1.extraction.defence.releases import sentence_id
from ec1.extraction.folding import normalised
from ec1.extraction.results import ExtractionResult
from ec1.records import Record, added

MAX_PROBLEM_ROWS = 200
_COSTS = ("llm_calls", "decisions", "chunks", "prompt_tokens", "completion_tokens", "seconds")


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


class StreamCounts(BaseModel):
    """Units of one stream by how they ended. `postponed` ones were not tried to the end: no time, or no server."""

    complete: int = 0
    deferred: int = 0
    rejected: int = 0
    reused: int = 0
    postponed: int = 0

    def plus(self, later: Self) -> Self:
        """What was done adds up; what is left is what the later run left."""
        done = {name: getattr(self, name) + getattr(later, name) for name in ("complete", "rejected", "reused")}
        return later.model_copy(update=done)


class ExtractionRecord(Record):
    """What one extraction did, by stream; it grows while documents are read. `reused` units were in the outbox already
    and cost nothing.

    `entities` are different ones of one run: an entity that two runs found counts twice in their total.
    """

    model_config = ConfigDict(frozen=False)
    step: ClassVar[str] = "extraction"

    streams: dict[str, StreamCounts] = Field({})
    entities: dict[str, int] = Field({}, description="different entities by class")
    entities_by_stream: dict[str, dict[str, int]] = Field({})
    dropped: dict[str, int] = Field({}, description="names that were not trusted, by reason")
    llm_calls: int = 0
    decisions: int = Field(0, description="spans that the model decided on")
    chunks: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    stopped: str | None = Field(None, description="why units were postponed: the deadline came, or the server went")
    skipped: bool = Field(False, description="an operator switched the server off, so nothing was asked")
    problems: list[dict[str, str]] = Field([])
    held: list[dict[str, str]] = Field(
        [], description="sentences that were kept from the model, or lost names: id, stream, path, sentence, names, why"
    )
    _seen: dict[str, set[tuple[str, str]]] = PrivateAttr(default_factory=dict)
    """Entities by stream, and of all under ""."""

    @classmethod
    def of(cls, streams: Iterable[str], classes: Iterable[str]) -> Self:
        """The record of an extraction that has not begun."""
        zeros = dict.fromkeys(classes, 0)
        names = list(streams)
        return cls(
            streams={name: StreamCounts() for name in names},
            entities=dict(zeros),
            entities_by_stream={name: dict(zeros) for name in names},
        )

    @property
    def documents(self) -> int:
        """Units that were finished."""
        return sum(counts.complete + counts.deferred + counts.rejected for counts in self.streams.values())

    @property
    def documents_per_second(self) -> float | None:
        """None if nothing was read."""
        return self.documents / self.seconds if self.seconds else None

    @property
    def tokens_per_second(self) -> float | None:
        """None if nothing was read."""
        return (self.prompt_tokens + self.completion_tokens) / self.seconds if self.seconds else None

    def only(self, streams: Collection[str]) -> Self:
        """The record with the counts of these streams alone."""
        return self.model_copy(update={"streams": {name: self.streams[name] for name in streams}})

    def count(self, result: ExtractionResult, path: str = "") -> None:
        """Add one finished unit; `path` is where one of its documents lies."""
        for each in result.held[: max(0, MAX_PROBLEM_ROWS - len(self.held))]:
            self.held.append(
                {
                    "id": sentence_id(result.content_sha256, each.start, each.end),
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
        self.dropped = added(self.dropped, Counter(each.reason for each in result.dropped))
        if result.status == "complete":
            for mention in result.mentions:
                entity = (normalised(mention.name), mention.entity_class)
                self._count_entity(entity, "", self.entities)
                self._count_entity(entity, result.stream, self.entities_by_stream[result.stream])
        elif len(self.problems) < MAX_PROBLEM_ROWS:
            self.problems.append(
                {
                    "stream": result.stream,
                    "content": result.content_sha256[:12],
                    "path": path,
                    "status": result.status,
                    "reason": result.reason or "",
                }
            )

    def _count_entity(self, entity: tuple[str, str], where: str, counts: dict[str, int]) -> None:
        seen = self._seen.setdefault(where, set())
        if entity not in seen:
            seen.add(entity)
            counts[entity[1]] = counts.get(entity[1], 0) + 1

    def plus(self, later: Self) -> Self:
        """What was done adds up; what is left is what the later run left, in the streams that it read."""
        streams = {
            **self.streams,
            **{
                name: self.streams[name].plus(counts) if name in self.streams else counts
                for name, counts in later.streams.items()
            },
        }
        kept = [row for row in self.problems if row.get("stream") not in later.streams]
        by_stream = {
            name: added(self.entities_by_stream.get(name, {}), later.entities_by_stream.get(name, {}))
            for name in {**self.entities_by_stream, **later.entities_by_stream}
        }
        return later.model_copy(
            update={
                "streams": streams,
                "entities": added(self.entities, later.entities),
                "entities_by_stream": by_stream,
                "dropped": added(self.dropped, later.dropped),
                **{name: getattr(self, name) + getattr(later, name) for name in _COSTS},
                "problems": [*kept, *later.problems],
                "held": [*self.held, *(row for row in later.held if row not in self.held)],
            }
        )
