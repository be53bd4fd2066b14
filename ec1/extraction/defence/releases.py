"""Sentences that were held back as instructions and that a person released to be read after all, and took back.

Belongs here: the log of who released what and when, and what of it counts. Does not: which sentences are held back
(`instructions`), and the command (`ec1.commands.extraction`).

A release is of the characters `[start, end)` of one content: whoever released a sentence has read it where it stands. A
document that was edited is another content, and what is held back there is held back anew.
"""

import datetime as dt
import fcntl
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from ec1.errors import InputError
from ec1.files import digest_of, write_atomic
from ec1.settings import Settings

Span = tuple[int, int]
"""Character offsets `[start, end)` in the parsed text."""


class Release(Settings):
    """One line of the log: a sentence was released, or is to be held back again."""

    action: Literal["release", "hold"]
    id: str = Field(description="`sentence_id` of the sentence")
    content_sha256: str = Field(description="of the document's bytes")
    start: int
    end: int
    path: str = Field(description="a document with these bytes")
    sentence: str = Field(description="its beginning, for people")
    by: str = Field(description="who did it")
    at: dt.datetime

    @property
    def span(self) -> Span:
        return self.start, self.end


@dataclass(frozen=True)
class Releases:
    """The log, as far as it goes: the last line about a sentence counts."""

    lines: Sequence[Release] = ()

    @property
    def counting(self) -> dict[str, Release]:
        """The sentences that are released, by id."""
        last = {each.id: each for each in self.lines}
        return {key: each for key, each in last.items() if each.action == "release"}

    def by_content(self) -> dict[str, tuple[Span, ...]]:
        """What is released of each content that the log names; nothing where all was taken back."""
        spans: dict[str, set[Span]] = defaultdict(set)
        for each in self.lines:
            spans[each.content_sha256] = set()
        for each in self.counting.values():
            spans[each.content_sha256].add(each.span)
        return {content: tuple(sorted(each)) for content, each in spans.items()}


def sentence_id(content_sha256: str, start: int, end: int) -> str:
    """What names a sentence of a content, in 12 hexadecimal digits."""
    return digest_of([content_sha256, start, end])[:12]


def read_releases(path: Path) -> Releases:
    """The log at `path`; empty if there is none. Raises InputError if it is damaged."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return Releases()
    try:
        return Releases(tuple(Release.model_validate_json(line) for line in lines))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"]
        raise InputError(f"{path} is damaged ({problem}): restore it from a backup, or delete it") from None


def add(path: Path, choose: Callable[[Releases], Iterable[Release]]) -> list[Release]:
    """Add what `choose` makes of the log to it, while nobody else may."""
    with _alone(path):
        known = read_releases(path)
        new = list(choose(known))
        if new:
            write_atomic(path, "".join(each.model_dump_json() + "\n" for each in (*known.lines, *new)))
    return new


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def released_fingerprint(fingerprint: str, spans: Sequence[Span]) -> str:
    """The fingerprint of an extractor that reads a content with these sentences in it."""
    return digest_of({"extractor": fingerprint, "released": [list(each) for each in spans]}) if spans else fingerprint
