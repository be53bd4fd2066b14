"""Files of rows as people bring them: JSON Lines, JSON, Parquet, CSV, folders of `datasets.save_to_disk`.

Belongs here: which files of a folder hold rows, and reading them one by one. Does not: what a row means (formats).
"""

import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from ec1.errors import InputError, RejectedError

_BATCH = 1000
_CSV_FIELD_BYTES = 64 * 2**20


@dataclass(frozen=True)
class SourceRow:
    """One row where it stands. `record` is None if it cannot be read, and `problem` says why."""

    file: str
    number: int
    record: dict[str, Any] | None
    problem: str | None = None


@dataclass
class Sources:
    """What a path holds: files (or saved data sets) of rows, and of all other files how many of each ending."""

    root: Path
    files: list[Path] = field(default_factory=list)
    other: Counter[str] = field(default_factory=Counter)

    def rows(self) -> Iterator[SourceRow]:
        """Every row of every file, in the order of their names. Raises InputError for a file that is damaged."""
        for path in self.files:
            name = path.name if path == self.root else path.relative_to(self.root).as_posix()
            for number, (record, problem) in enumerate(_read(path), start=1):
                yield SourceRow(name, number, record, problem)


def find_sources(path: Path) -> Sources:
    """The files of rows at a path, a file or a folder with all below it. Raises InputError if there is none."""
    if not path.exists():
        raise InputError(f"{path} does not exist")
    found = Sources(path)
    _walk(path, found)
    if not found.files:
        others = ", ".join(f"{count} {ending}" for ending, count in sorted(found.other.items())) or "nothing"
        raise InputError(
            f"{path} holds no .jsonl, .json, .parquet, .csv or .tsv file (.gz too) and no data set saved to disk, but "
            f"{others}"
        )
    return found


def _walk(path: Path, found: Sources) -> None:
    if path.is_dir():
        if _is_saved(path):
            found.files.append(path)
            return
        for child in sorted(path.iterdir()):
            if child.name.startswith(".") or child.is_symlink():
                found.other["hidden files or links"] += 1
            else:
                _walk(child, found)
    elif _kind(path) is not None and path.name not in ("dataset_info.json", "dataset_infos.json"):
        found.files.append(path)
    else:
        found.other[path.suffix or path.name] += 1


def _is_saved(folder: Path) -> bool:
    """True for what `datasets.Dataset.save_to_disk` and `DatasetDict.save_to_disk` leave."""
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    )


def _kind(path: Path) -> str | None:
    name = path.name.lower().removesuffix(".gz")
    kinds = {".jsonl": "lines", ".ndjson": "lines", ".json": "json", ".csv": "csv", ".tsv": "tsv"}
    if name.endswith(".parquet"):
        return None if path.name.lower().endswith(".gz") else "parquet"
    return next((kind for ending, kind in kinds.items() if name.endswith(ending)), None)


def _read(path: Path) -> Iterator[tuple[dict[str, Any] | None, str | None]]:
    try:
        if path.is_dir():
            yield from _saved(path)
            return
        kind = _kind(path)
        if kind == "parquet":
            yield from _parquet(path)
            return
        with _opened(path) as stream:
            if kind == "json":
                yield from _json(stream)
            elif kind == "lines":
                yield from _lines(stream)
            else:
                yield from _csv(stream, "\t" if kind == "tsv" else ",")
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _opened(path: Path) -> TextIO:
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    return io.TextIOWrapper(opened(path, "rb"), encoding="utf-8-sig", newline="")


def _lines(stream: TextIO) -> Iterator[tuple[dict[str, Any] | None, str | None]]:
    for line in stream:
        if line.strip():
            yield _object(line)


def _json(stream: TextIO) -> Iterator[tuple[dict[str, Any] | None, str | None]]:
    """A list of rows, an object that holds one, or (often) lines under another name."""
    text = stream.read()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        for line in text.splitlines():
            if line.strip():
                yield _object(line)
        return
    if isinstance(value, dict):
        lists = [item for item in value.values() if isinstance(item, list) and item and isinstance(item[0], dict)]
        is_row = {"messages", "conversations", "conversation", "chosen"} & value.keys()
        value = lists[0] if len(lists) == 1 and not is_row else [value]
    for item in value if isinstance(value, list) else [value]:
        yield (item, None) if isinstance(item, dict) else (None, "not a JSON object")


def _object(line: str) -> tuple[dict[str, Any] | None, str | None]:
    # Here, not above: the module of our own tuples is the one that says what a JSON line may be.
    from ec1.corpus.tuples import load_record

    try:
        return load_record(line), None
    except RejectedError as error:
        return None, str(error)


def _csv(stream: TextIO, delimiter: str) -> Iterator[tuple[dict[str, Any] | None, str | None]]:
    csv.field_size_limit(_CSV_FIELD_BYTES)
    for row in csv.DictReader(stream, delimiter=delimiter):
        if None in row or None in row.values():
            yield None, "a line with another number of fields than the first"
        else:
            yield dict(row), None


def _parquet(path: Path) -> Iterator[tuple[dict[str, Any] | None, str | None]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH):
                for record in batch.to_pylist():
                    yield _without_nulls(record), None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}") from None


def _saved(folder: Path) -> Iterator[tuple[dict[str, Any] | None, str | None]]:
    import datasets

    try:
        loaded = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{folder} is not a readable data set: {str(error).splitlines()[0]}") from None
    for part in loaded.values() if isinstance(loaded, dict) else [loaded]:
        for record in part:
            yield _without_nulls(record), None


def _without_nulls(value: Any) -> Any:
    """A table writes a null for each field that other rows have: that is not what the row said."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
