"""Results for the graph's tests: seeded, with names that repeat, vary in spelling and collide by class."""

import hashlib
import random
from collections.abc import Callable

from ec1.documents.ledger import DocumentKey
from ec1.extraction.results import ENTITY_CLASSES, ChunkAnswer, ExtractionResult, Mention

NIGHT = "2026-06-01"
FINGERPRINT = "f" * 64
Change = tuple[DocumentKey, str, ExtractionResult]


def key(path: str) -> DocumentKey:
    return DocumentKey("meetings", path)


def result(
    content: str, *names: tuple[str, str], status: str = "complete", fingerprint: str = FINGERPRINT
) -> ExtractionResult:
    """A result for the bytes `content`; every name stands once, one after the other."""
    mentions, at = [], 0
    for name, entity_class in names:
        end = at + len(name)
        mentions.append(
            Mention(
                name=name,
                entity_class=entity_class,
                confidence=0.9,
                chunk=at // 100,
                start=at,
                end=end,
            )
        )
        at = end + 1
    answers = tuple(
        ChunkAnswer(chunk=chunk, start=chunk * 100, end=chunk * 100 + 100, finish_reason="stop", model=f"model-{chunk}")
        for chunk in range(at // 100 + 1)
    )
    return ExtractionResult(
        content_sha256=hashlib.sha256(content.encode()).hexdigest(),
        stream="meetings",
        fingerprint=fingerprint,
        status=status,
        reason=None if status == "complete" else f"{status}: test",
        mentions=tuple(mentions),
        answers=answers,
    )


def random_changes(seed: int, documents: int, changes: int) -> list[Change]:
    """A history of documents that are written, edited, deferred and written back to what they were."""
    rng = random.Random(seed)
    words = [f"Name{number}" for number in range(documents)]
    history: list[Change] = []
    for _ in range(changes):
        path, version = f"{rng.randrange(documents)}.md", rng.randrange(3)
        inner = random.Random(f"{seed} {path} {version}")
        names: list[tuple[str, str]] = []
        spellings: list[Callable[[str], str]] = [str.upper, str.lower, str]
        for _ in range(inner.randrange(1, 12)):
            name = inner.choice(words) + inner.choice(["", " Inc.", " Inc", " Smith"])
            names.append((inner.choice(spellings)(name), inner.choice(ENTITY_CLASSES)))
        status = rng.choices(["complete", "deferred", "rejected"], [8, 1, 1])[0]
        content = f"{path} {version} {status == 'rejected'}"
        history.append((key(path), f"mk-{path}-{version}", result(content, *names, status=status)))
    return history
