"""What a page asks of rows: the snapshots and datasets of a home, and any rows of one by number, without loading it.

A row's number is its place in its source: of a snapshot the trainable tuples by their digests and then the lines that
are not; of a dataset the training side, the held-out side, and what was left out. Reading rows costs what they weigh.
Belongs here: which sources there are and reading rows by number. Does not: which rows a filter finds (`row_index`).
"""

import contextlib
import ctypes
import datetime as dt
import functools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from ec1.corpus.access import access_labels
from ec1.corpus.buckets import bucket
from ec1.corpus.dataset_tables import SIDES
from ec1.corpus.pieces import entries_of, files_of, indexes_of, lines_at, lines_in, pieces_of, places_of
from ec1.corpus.row_kinds import ROW_KINDS
from ec1.corpus.snapshots import Snapshot, load_snapshot
from ec1.corpus.tuples import metadata_of, parse_record
from ec1.errors import DamagedError, EC1Error, InputError, RejectedError
from ec1.files import checked_name
from ec1.queries.desk import Desk
from ec1.seals import FILES, check_files, read_sealed

Side: TypeAlias = Literal["trainable", "train", "heldout", "rejected"]
Message: TypeAlias = Mapping[str, Any]
_MEND = "the night that made it makes it again"
_REJECTS = "rejects.jsonl"
_LARGEST_SCORE = 1e300
_CHOSEN_SCORES = tuple(
    f"{first}{separator}{second}"
    for what in ("score", "rating")
    for first, second in (("chosen", what), (what, "chosen"))
    for separator in "_-"
)


@dataclass(frozen=True)
class SourceSummary:
    """A snapshot or a dataset in a list. `name` is the bucket, or the objective; `problem` says why it cannot be read,
    and nothing but its digest and age is known then."""

    kind: Literal["snapshot", "dataset"]
    name: str
    digest: str
    made: dt.datetime
    rows: Mapping[str, int] = field(default_factory=dict)
    """Of each side."""
    rejected: Mapping[str, int] = field(default_factory=dict)
    tokens: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @property
    def key(self) -> str:
        """What names it in an address: `snapshot/<bucket>/<digest>` or `dataset/<digest>`."""
        return f"snapshot/{self.name}/{self.digest}" if self.kind == "snapshot" else f"dataset/{self.digest}"


@dataclass(frozen=True)
class Row:
    """One row. `answers` are the completion, the chosen and the rejected answer, or checks, by their columns; `raw`
    is the record as it stands, None of what was left out. `reason`: why it was."""

    number: int
    side: Side
    digest: str
    origin: str
    prompt: tuple[Message, ...] = ()
    answers: Mapping[str, tuple[Message, ...]] = field(default_factory=dict)
    kind: str = ""
    group: str | None = None
    tokens: int | None = None
    created: dt.datetime | None = None
    reason: str | None = None
    raw: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """All that can be searched in it."""
        said = (str(each.get("content") or "") for part in (self.prompt, *self.answers.values()) for each in part)
        return "\n".join([*said, self.origin, self.group or "", self.reason or ""])

    @property
    def score(self) -> float | None:
        """The score that a tuple came with: of the chosen answer, or in its metadata. Nothing here reads it."""
        raw = self.raw or {}
        metadata = metadata_of(raw)
        found = [*(raw.get(name) for name in _CHOSEN_SCORES), *(metadata.get(name) for name in ("score", "rating"))]
        return next((float(each) for each in found if isinstance(each, int | float) and _is_score(each)), None)


def _is_score(value: float) -> bool:
    # Neither true or false, nor infinite or no number, nor an integer that no float holds.
    return not isinstance(value, bool) and abs(value) < _LARGEST_SCORE


class RowSource(Protocol):
    """A snapshot or a dataset that is open for reading."""

    summary: SourceSummary
    labels: tuple[str, ...]

    def at(self, numbers: Sequence[int]) -> list[Row]:
        """The rows of these numbers, in this order. Raises DamagedError."""

    def every(self) -> Iterator[Row]:
        """All rows by number, each file compared with what was written. Raises DamagedError."""


def count_of(summary: SourceSummary) -> int:
    """How many rows a source has, with those that were left out."""
    return sum(summary.rows.values())


def sources(desk: Desk) -> list[SourceSummary]:
    """All snapshots and datasets of a home, the newest first."""
    home, found = desk.home, []
    for path in home.snapshots.glob("*/*"):
        if path.is_dir() and not path.name.startswith("."):
            found.append(_summary(desk, f"snapshot/{path.parent.name}/{path.name}", path))
    for path in home.datasets.glob("*"):
        if path.is_dir() and not path.name.startswith("."):
            found.append(_summary(desk, f"dataset/{path.name}", path))
    return sorted(found, key=lambda each: each.made, reverse=True)


@dataclass(frozen=True)
class RecipeBucket:
    """What a recipe learns from: `bucket` is the name that its snapshots have."""

    recipe: str
    tenant: str
    role: str
    objective: str
    bucket: str


def buckets(desk: Desk) -> list[RecipeBucket]:
    """The bucket of each recipe that the deployment runs. Looks at no file of it."""
    root = desk.deployment.corpus_root(desk.home)
    found = [each.recipe for each in desk.recipes()]
    return [
        RecipeBucket(each.name, each.tenant, each.role, str(each.objective), bucket(root, each.role, each.tenant).name)
        for each in found
    ]


def role_of(desk: Desk, source: RowSource) -> tuple[str, str] | None:
    """Whose rows a source holds (tenant, role), by the recipes that the deployment runs; None of others."""
    names = {source.summary.name}
    if source.summary.kind == "dataset":
        wanted = source.summary.facts["snapshot"]
        names = {path.parent.name for path in desk.home.snapshots.glob(f"*/{wanted}")}
    return next(((each.tenant, each.role) for each in buckets(desk) if each.bucket in names), None)


def labels_of(source: RowSource, row: Row) -> tuple[str, ...]:
    """The access labels of a row; of one in a dataset, which does not say its own, those of the whole."""
    if source.summary.kind == "dataset":
        return source.labels
    return access_labels(row.raw or {}, metadata_of(row.raw or {}))


def _summary(desk: Desk, key: str, path: Path) -> SourceSummary:
    try:
        return open_source(desk, key).summary
    except EC1Error as error:
        kind, name = ("snapshot", path.parent.name) if key.startswith("snapshot/") else ("dataset", "")
        return SourceSummary(kind, name, path.name, _made(path), problem=str(error))  # type: ignore[arg-type]


def open_source(desk: Desk, key: str) -> RowSource:
    """The source of a key (`SourceSummary.key`). Raises InputError for a name that is none, or one whose labels the
    reader lacks; DamagedError if it is not there or not as it was written."""
    kind, _, rest = key.partition("/")
    if kind == "snapshot" and rest.count("/") == 1:
        bucket, digest = rest.split("/")
        checked_name(bucket, "bucket"), checked_name(digest, "digest")
        source: SnapshotRows | DatasetRows = _snapshot(desk, bucket, digest)
    elif kind == "dataset":
        source = _dataset(desk, checked_name(rest, "digest"))
    else:
        raise InputError(f"{key!r} is neither snapshot/<bucket>/<digest> nor dataset/<digest>")
    if not desk.may_see(source.labels):
        raise InputError(f"{key} holds rows with access labels ({', '.join(source.labels)}): start with --as")
    return source


def _snapshot(desk: Desk, bucket: str, digest: str) -> "SnapshotRows":
    # Named by their content: what was opened stays true while the folder is the same.
    return _open_snapshot(desk.home, bucket, digest, _mark(desk.home.snapshots / bucket / digest))


@functools.lru_cache(maxsize=8)
def _open_snapshot(home: Any, bucket: str, digest: str, mark: tuple[int, ...]) -> "SnapshotRows":
    return SnapshotRows(load_snapshot(home, bucket, digest))


def _dataset(desk: Desk, digest: str) -> "DatasetRows":
    return _open_dataset(desk.home.datasets / digest, _mark(desk.home.datasets / digest))


@functools.lru_cache(maxsize=8)
def _open_dataset(path: Path, mark: tuple[int, ...]) -> "DatasetRows":
    return DatasetRows(path)


def _mark(path: Path) -> tuple[int, ...]:
    try:
        status = (path / "manifest.json").stat()
    except OSError:
        raise DamagedError(f"{path} is not there, or not complete: {_MEND}") from None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _made(path: Path) -> dt.datetime:
    return dt.datetime.fromtimestamp(path.stat().st_mtime, dt.UTC)


def free_unused() -> None:
    """Give back what reading many rows left: Arrow and the C library keep it for the next time."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):
        # glibc's alone; others give back by themselves.
        ctypes.CDLL(None).malloc_trim(0)


class SnapshotRows:
    """The rows of a snapshot. What is kept in memory is where each line lies: twelve bytes of it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, self.labels = snapshot, snapshot.labels
        if not snapshot.is_in_pieces:
            raise InputError(f"snapshot {snapshot.digest[:12]} is of an earlier release: the next night takes another")
        self.summary = SourceSummary(
            "snapshot",
            snapshot.bucket,
            snapshot.digest,
            _made(snapshot.path),
            {"trainable": snapshot.trainable, "rejected": snapshot.lines - snapshot.trainable},
            snapshot.rejected,
            facts={"objective": snapshot.objective, "files": snapshot.files, "bytes": snapshot.bytes},
        )

    @functools.cached_property
    def _pieces(self) -> list[str]:
        return pieces_of(self.snapshot.sealed, "tuples")

    @functools.cached_property
    def _places(self) -> Any:
        self.snapshot.check(indexes_of(self._pieces))
        return places_of(self.snapshot.path, self._pieces)

    def at(self, numbers: Sequence[int]) -> list[Row]:
        found: dict[int, Row] = {}
        tuples = [number for number in numbers if number < self.snapshot.trainable]
        places = self._places[tuples] if tuples else np.empty((0, 3), np.uint32)
        self.snapshot.check(files_of(self._pieces[number] for number in np.unique(places[:, 0])))
        lines = lines_at(self.snapshot.path, self._pieces, places)
        found |= {number: self._tuple(number, line) for number, line in zip(tuples, lines, strict=True)}
        if left := sorted({number for number in numbers if number >= self.snapshot.trainable}):
            wanted = set(left)
            found |= {row.number: row for row in self._rejects(left[-1]) if row.number in wanted}
        return [found[number] for number in numbers if number in found]

    def every(self) -> Iterator[Row]:
        self.snapshot.check()
        lines = lines_at(self.snapshot.path, self._pieces, self._places)
        yield from (self._tuple(number, line) for number, line in enumerate(lines))
        yield from self._rejects(self.snapshot.lines)

    def find(self, digest: str) -> Row | None:
        """The trainable tuple of a digest."""
        keys = self.snapshot.trainable_keys()
        high, low = int(digest[:16], 16), int(digest[16:32], 16)
        for number in np.flatnonzero((keys[:, 0] == high) & (keys[:, 1] == low)).tolist():
            return self.at([number])[0]
        return None

    def _tuple(self, number: int, line: bytes) -> Row:
        entry = json.loads(line)
        origin = f"{entry['origin']['file']}:{entry['origin']['line']}"
        return row_of(number, "trainable", entry["digest"], origin, entry["tuple"], self.snapshot.ignored)

    def _rejects(self, last: int) -> Iterator[Row]:
        number = self.snapshot.trainable
        for piece in pieces_of(self.snapshot.sealed, "rejects"):
            if number > last:
                return
            self.snapshot.check(files_of([piece]))
            for line in lines_in(self.snapshot.path, piece, entries_of(self.snapshot.path, piece)):
                entry = json.loads(line)
                origin = f"{entry['origin']['file']}:{entry['origin']['line']}"
                yield Row(number, "rejected", entry["digest"], origin, reason=entry["reason"])
                number += 1


def row_of(
    number: int, side: Side, digest: str, origin: str, record: Mapping[str, Any], ignored: Sequence[str] = ()
) -> Row:
    """A tuple of the corpus as a row; one that cannot be read any more is shown as it stands, with the reason."""
    try:
        item = parse_record(record, ignored)
    except RejectedError as error:
        return Row(number, side, digest, origin, reason=str(error), raw=record)
    sides = (("completion", item.completion), ("chosen", item.chosen), ("rejected", item.rejected))
    answers: dict[str, tuple[Message, ...]] = {name: messages for name, messages in sides if messages}
    if item.checks:
        # As a dataset has them: what answers are held against.
        answers["checks"] = (
            {"role": "checks", "content": json.dumps(item.checks, ensure_ascii=False, sort_keys=True)},
        )
    group = item.sources[0] if item.sources else None
    return Row(
        number, side, digest, origin, item.prompt, answers, str(item.kind), group, created=item.created, raw=record
    )


class DatasetRows:
    """The rows of a dataset, read from its Parquet files by row groups."""

    def __init__(self, path: Path) -> None:
        manifest = read_sealed(path, _MEND)
        self.path, self._files = path, manifest[FILES]
        try:
            self.labels = tuple(manifest.get("labels", ()))
            self._columns = ROW_KINDS[manifest["objective"]].columns
            self.snapshot: str = manifest["snapshot"]
            rows: dict[str, int] = {side: manifest[f"{side}_rows"] for side in SIDES}
            rejected = manifest["rejected"]
            told = ("snapshot", "scrubbed", "over_length", "percentiles", "heldout_tokens", "options")
            self.summary = SourceSummary(
                "dataset",
                manifest["objective"],
                path.name,
                _made(path),
                {**rows, "rejected": sum(rejected.values())},
                rejected,
                manifest["tokens"],
                {key: manifest[key] for key in told},
            )
        except KeyError:
            raise DamagedError(f"{path / 'manifest.json'} is of another release: {_MEND}") from None

    @functools.cached_property
    def _tables(self) -> dict[str, tuple[Any, Any]]:
        """Of each side the file, and where its row groups end."""
        import pyarrow.parquet as pq

        found: dict[str, tuple[Any, Any]] = {}
        for side in SIDES:
            # Buffered before, the whole file would be in memory.
            file = pq.ParquetFile(self.path / side / "rows.parquet", pre_buffer=False)
            groups = file.metadata.num_row_groups
            found[side] = file, np.cumsum([file.metadata.row_group(number).num_rows for number in range(groups)])
        return found

    def at(self, numbers: Sequence[int]) -> list[Row]:
        found: dict[int, Row] = {}
        first = 0
        for side in SIDES:
            count = self.summary.rows[side]
            found |= self._read(side, [each for each in numbers if first <= each < first + count], first)
            first += count
        if left := {number for number in numbers if number >= first}:
            found |= {row.number: row for row in self._rejects() if row.number in left}
        return [found[number] for number in numbers if number in found]

    def _read(self, side: Any, numbers: list[int], first: int, columns: Sequence[str] = ()) -> dict[int, Row]:
        if not numbers:
            return {}
        file, ends = self._tables[side]
        of_group: dict[int, list[int]] = {}
        for number in numbers:
            of_group.setdefault(int(np.searchsorted(ends, number - first, side="right")), []).append(number)
        wanted = [*self._columns, "group", "origin", "row", "tokens"]
        found = {}
        for group, members in of_group.items():
            begin = first + (int(ends[group - 1]) if group else 0)
            table = file.read_row_group(group, columns=wanted).take([number - begin for number in members])
            for number, record in zip(members, table.to_pylist(), strict=True):
                found[number] = self._row(number, side, record)
        return found

    def _row(self, number: int, side: Side, record: dict[str, Any]) -> Row:
        answers = {name: tuple(record[name]) for name in self._columns[1:]}
        prompt, group = tuple(record["prompt"]), record["group"]
        desk = (number, side, record["row"], record["origin"])
        return Row(*desk, prompt, answers, group=group, tokens=record["tokens"], raw=record)

    def every(self) -> Iterator[Row]:
        check_files(self.path, self._files, _MEND)
        first = 0
        for side in SIDES:
            file, _ = self._tables[side]
            number = first
            columns = [*self._columns, "group", "origin", "row", "tokens"]
            for batch in file.iter_batches(256, columns=columns, use_threads=False):
                for record in batch.to_pylist():
                    yield self._row(number, side, record)
                    number += 1
            first += self.summary.rows[side]
        yield from self._rejects()

    def _rejects(self) -> Iterator[Row]:
        number = self.summary.rows["train"] + self.summary.rows["heldout"]
        with (self.path / _REJECTS).open("rb") as stream:
            for line in stream:
                entry = json.loads(line)
                yield Row(number, "rejected", entry["row"], entry["origin"], reason=entry["reason"])
                number += 1

    def held_out_numbers(self, digests: Collection[str]) -> dict[str, int]:
        """The numbers of held-out rows by their digest; those that are not here are left out."""
        file, _ = self._tables["heldout"]
        first = self.summary.rows["train"]
        stored = file.read(columns=["row"])["row"].to_pylist()
        return {digest: first + place for place, digest in enumerate(stored) if digest in digests}

    def tokens_of(self, number: int) -> tuple[list[int], list[int]]:
        """What the model reads of a row of single answers, and which of it is learnt. Raises InputError for a row that
        says neither."""
        side, first = ("train", 0) if number < self.summary.rows["train"] else ("heldout", self.summary.rows["train"])
        if "completion" not in self._columns or not 0 <= number - first < self.summary.rows[side]:
            raise InputError("only rows of single answers, on either side of the split, say which tokens are learnt")
        file, ends = self._tables[side]
        group = int(np.searchsorted(ends, number - first, side="right"))
        begin = int(ends[group - 1]) if group else 0
        table = file.read_row_group(group, columns=["input_ids", "completion_mask"]).slice(number - first - begin, 1)
        (record,) = table.to_pylist()
        return record["input_ids"], record["completion_mask"]
