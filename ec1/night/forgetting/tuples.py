"""Where tuples stand and went: lines of the corpus, snapshots, datasets.

Belongs here: finding them, by what they hold or by their digest. Does not: the rest of the home (`places`).
"""

import gzip
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ec1.corpus.tuples import TrainingTuple, load_record, parse_record
from ec1.errors import RejectedError
from ec1.files import digest_of, read_json
from ec1.home import Home


@dataclass(frozen=True)
class FoundTuple:
    """One tuple of the corpus: where it stands, and its digest; a line that is not a tuple has an empty one."""

    file: str
    line: int
    row: str


@dataclass(frozen=True)
class Trace:
    """Where a tuple stands and where it went; snapshots and datasets by digest, versions by name."""

    tuples: list[FoundTuple] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    datasets: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)


def trace_row(row: str, corpus: Path, home: Home) -> Trace:
    """The tuples whose digests begin with `row`, and the snapshots and datasets that hold them."""
    found = Trace()
    digests = set()
    for path, number, record, _ in corpus_lines(corpus):
        if record is not None and (digest := digest_of(record)).startswith(row):
            found.tuples.append(FoundTuple(path.relative_to(corpus).as_posix(), number, digest))
            digests.add(digest)
    parts: dict[int, set[str]] = {}
    for snapshot in sorted(path for path in home.snapshots.glob("*/*") if path.is_dir()):
        for part in snapshot.glob("tuples*.jsonl"):
            # Snapshots share files: each is read once.
            if part.stat().st_ino not in parts:
                rows = (str(entry.get("digest")) for entry in entries_of(part))
                parts[part.stat().st_ino] = {each for each in rows if each.startswith(row)}
        rows_here = {each for part in snapshot.glob("tuples*.jsonl") for each in parts[part.stat().st_ino]}
        digests |= rows_here
        if rows_here:
            found.snapshots.append(snapshot.name)
    for dataset in sorted(path for path in home.datasets.glob("*") if (path / "manifest.json").is_file()):
        if not digests.isdisjoint(rows_of_dataset(dataset) or ()):
            found.datasets.append(dataset.name)
    return found


def corpus_lines(corpus: Path) -> Iterator[tuple[Path, int, dict[str, Any] | None, bytes]]:
    """Every line of the corpus's files with its number from 1 and its record, if it is one. Files may be packed."""
    for path in sorted([*corpus.rglob("*.jsonl"), *corpus.rglob("*.jsonl.gz")]):
        opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                yield path, number, record_of(line), line


def record_of(line: bytes) -> dict[str, Any] | None:
    """A line's record; None if it is none."""
    try:
        return load_record(line)
    except RejectedError:
        return None


def tuple_of(record: Mapping[str, Any]) -> TrainingTuple | None:
    """A record's tuple; None if it is none."""
    try:
        return parse_record(record)
    except RejectedError:
        return None


def entries_of(part: Path) -> Iterator[dict[str, Any]]:
    """The lines of a snapshot's file: `digest` and `tuple`."""
    with part.open("rb") as stream:
        yield from filter(None, map(record_of, stream))


def made_of(dataset: Path) -> set[str]:
    """The digests of the snapshots that a dataset was made of; none can be told of a damaged one."""
    try:
        manifest = read_json(dataset / "manifest.json")
        return {manifest.get("snapshot"), *(part["snapshot"] for part in manifest.get("mixed", {}).values())}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return set()


def rows_of_dataset(dataset: Path) -> list[str] | None:
    """The digests of a dataset's rows; None for a damaged one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return [
            row
            for path in dataset.glob("*/rows.parquet")
            for row in pq.read_table(path, columns=["row"])["row"].to_pylist()
        ]
    except (pa.ArrowException, OSError, ValueError):
        return None
