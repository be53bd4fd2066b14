"""Files of rows as people bring them: JSON Lines, JSON, Parquet, CSV, folders of `datasets.save_to_disk`.

Belongs here: which files of a folder hold rows, of which split, and reading them one by one. Does not: how a file of
text is packed and encoded (packed), what a row means (formats).

Splits are named as on the Hub: https://huggingface.co/docs/datasets/repository_structure
"""

import csv
import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from ec1.corpus.packed import MAX_LINE_BYTES, PackedText, plain_name
from ec1.corpus.tuples import DECODER, load_record
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import parse_document
from ec1.errors import DeferredError, InputError, RejectedError
from ec1.streams import CONVERTED, PICTURES

_BATCH = 1000
_SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_BETWEEN = re.compile(r"[-._ ]|(?<=[a-z])(?=[0-9])")
_KINDS = {
    **{".jsonl": "lines", ".ndjson": "lines", ".json": "json", ".csv": "csv", ".tsv": "tsv"},
    ".parquet": "parquet",
}
_TEXT_FILES = (".txt", ".md")
# Read as phase 1 reads them. Of a workbook's cells nobody learns to write.
_DOCUMENTS = {*CONVERTED, ".html", ".htm"}.difference(PICTURES, (".xlsx", ".xlsm", ".xls", ".ods"))
_MAX_DOCUMENT_BYTES = 64 * 2**20
_LISTS = frozenset({"data", "rows", "examples", "instances", "items", "records", "samples", "train", "dataset"})
"""Under which keys one object holds the rows of a file; an object with a list of others is a row."""

_NO_TEXT = "the file is neither UTF-8 nor UTF-16 nor Windows-1252"
_WRONG_LINE = f"not UTF-8, or longer than {MAX_LINE_BYTES // 2**20} MiB"
_Row: TypeAlias = tuple[dict[str, Any] | None, str | None]


@dataclass(frozen=True)
class SourceRow:
    """One row where it stands. `record` is None if it cannot be read, and `problem` says why."""

    file: str
    number: int
    record: dict[str, Any] | None
    problem: str | None = None


@dataclass(frozen=True)
class SourceFile:
    """A file, or one part of a saved data set; `split` as its name says, None if it says nothing."""

    path: Path
    split: str | None
    saved: bool = False


@dataclass
class Sources:
    """What a path holds: files (or saved data sets) of rows, of all other files how many of each ending, and which
    files were in another encoding than UTF-8."""

    root: Path
    files: list[SourceFile] = field(default_factory=list)
    other: Counter[str] = field(default_factory=Counter)
    encodings: dict[str, str] = field(default_factory=dict)
    texts: bool = False
    """Whether a text or a document is a row, too."""

    def rows(self) -> Iterator[SourceRow]:
        """Every row of every file, in the order of their names. Of a damaged file the last one says what is wrong."""
        for file in self.files:
            name = file.path.name if file.path == self.root else file.path.relative_to(self.root).as_posix()
            if file.saved and file.split is not None:
                name = f"{name}/{file.split}"
            number = 0
            try:
                for number, (record, problem) in enumerate(self._read(file, name), start=1):
                    yield SourceRow(name, number, record, problem)
            except (OSError, EOFError, UnicodeError, csv.Error) as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                yield SourceRow(name, number + 1, None, f"from here on the file cannot be read: {reason}")

    def _read(self, file: SourceFile, name: str) -> Iterator[_Row]:
        kind = _kind(file.path)
        if file.saved:
            yield from _saved(file)
            return
        if kind == "parquet":
            yield from _parquet(file.path)
            return
        if file.path.suffix.lower() in _DOCUMENTS:
            yield _document(file.path, name)
            return
        text = PackedText(file.path)
        if kind is None:
            whole = text.text()
            problem = _NO_TEXT if whole is None else _WRONG_LINE if len(whole) > MAX_LINE_BYTES else None
            yield ({"text": whole, "document_id": name}, None) if problem is None else (None, problem)
        elif kind == "json":
            yield from _json(text)
        elif kind == "lines":
            yield from (_object(line) for line in text.lines() if line is None or line.strip())
        else:
            yield from _csv(text, "\t" if kind == "tsv" else ",;\t")
        if text.encoding is not None:
            self.encodings[name] = text.encoding


def name_of_rows(path: Path) -> str:
    """What rows are called: as their file or folder, and a snapshot in the hub's cache as its data set."""
    place = path.resolve()
    repository = _repository_around(place) if place.parent.name == "snapshots" else None
    if repository is not None:
        return repository.name.rpartition("--")[2]
    # A link in such a snapshot leads to a digest.
    return (path if _is_of_the_hub(path) else place).name.split(".")[0]


def find_sources(path: Path, split: str | None = None, *, texts: bool = False) -> Sources:
    """The files of rows at a path, a file or a folder with all below it; with `texts` a text or a document is one, too.

    Of several splits those of `split` are taken, by default train's; what no split names always. Raises InputError if
    there is none, or none that is trained on by its name.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist")
    found = Sources(path, texts=texts)
    _walk(path, found)
    if not found.files:
        others = ", ".join(f"{count} {ending}" for ending, count in sorted(found.other.items())) or "nothing"
        raise InputError(
            f"{path} holds no .jsonl, .json, .parquet, .csv or .tsv file (.gz, .bz2, .zst, .xz too) and no data set "
            f"saved to disk, but {others}"
        )
    if path.is_dir() or split is not None:
        _choose(found, split)
    return found


def _choose(found: Sources, split: str | None) -> None:
    names = sorted({file.split for file in found.files if file.split is not None})
    unnamed = any(file.split is None for file in found.files)
    if split is None and (names == ["train"] or (len(names) == 1 and not unnamed and names[0] not in _SPLITS)):
        return
    if split not in names and (split is not None or (names and "train" not in names and not unnamed)):
        what = ", ".join(names) or "none"
        raise InputError(f"{found.root}: name one of its splits with --split: {what}")
    wanted = split or "train"
    for name in names:
        if name != wanted:
            left = sum(file.split == name for file in found.files)
            found.other[f"of the split {name} (--split {name} takes it)"] += left
    found.files = [file for file in found.files if file.split == wanted or (file.split is None and split is None)]


def _walk(path: Path, found: Sources) -> None:
    if path.is_dir():
        if (path / "dataset_dict.json").is_file():
            found.files += [SourceFile(path, name, saved=True) for name in _parts(path / "dataset_dict.json")]
            return
        if (path / "state.json").is_file() and (path / "dataset_info.json").is_file():
            found.files.append(SourceFile(path, None, saved=True))
            return
        for child in sorted(path.iterdir()):
            if child.name.startswith(".") or (child.is_symlink() and not _is_of_the_hub(child)):
                found.other["hidden files or links"] += 1
            else:
                _walk(child, found)
    elif _kind(path) is not None and path.name not in ("dataset_info.json", "dataset_infos.json"):
        found.files.append(SourceFile(path, _split_of(path, found.root)))
    elif found.texts and path.suffix.lower() in (*_TEXT_FILES, *_DOCUMENTS):
        found.files.append(SourceFile(path, None))
    else:
        found.other[path.suffix or path.name] += 1


def _repository_around(path: Path) -> Path | None:
    """The repository in the hub's cache in one of whose snapshots a path is. There `snapshots/<revision>/…` is links to
    `blobs/…` (https://huggingface.co/docs/huggingface_hub/guides/manage-cache)."""
    above = next((each.parent for each in path.parents if each.name == "snapshots"), None)
    return above if above is not None and (above / "blobs").is_dir() else None


def _is_of_the_hub(link: Path) -> bool:
    repository, target = _repository_around(link.parent.resolve() / link.name), link.resolve()
    return repository is not None and target.is_file() and target.parent == repository / "blobs"


def _parts(index: Path) -> list[str]:
    try:
        return [str(name) for name in json.loads(index.read_text(encoding="utf-8"))["splits"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{index} is not what `save_to_disk` writes: {type(error).__name__}") from None


def _split_of(path: Path, root: Path) -> str | None:
    """The split that a file's name, or else the name of a folder around it, says."""
    for name in (path.name, *reversed(path.relative_to(root).parent.parts)):
        words = set(_BETWEEN.split(name.lower()))
        for split, spellings in _SPLITS.items():
            if not words.isdisjoint(spellings):
                return split
    return None


def _kind(path: Path) -> str | None:
    name = plain_name(path)
    if name.endswith(".parquet") and name != path.name.lower():
        return None
    return next((kind for ending, kind in _KINDS.items() if name.endswith(ending)), None)


def _document(path: Path, name: str) -> _Row:
    if path.stat().st_size > _MAX_DOCUMENT_BYTES:
        return None, f"longer than {_MAX_DOCUMENT_BYTES // 2**20} MiB"
    try:
        text = parse_document(DocumentKey("", name), path.read_bytes()).text
    except (RejectedError, DeferredError) as error:
        return None, str(error)
    return ({"text": text, "document_id": name}, None) if len(text) <= MAX_LINE_BYTES else (None, _WRONG_LINE)


def _json(file: PackedText) -> Iterator[_Row]:
    """A list of rows, an object that holds one, or (often) lines under another name."""
    text = file.text()
    if text is None:
        yield None, _NO_TEXT
        return
    start = len(text) - len(text.lstrip())
    if text[start : start + 1] == "[":
        yield from _items(text, start + 1)
        return
    try:
        value = load_record(text)
    except RejectedError:
        yield from (_object(line) for line in text.split("\n") if line.strip())
        return
    lists = [key for key, item in value.items() if isinstance(item, list) and key in _LISTS]
    if len(lists) == 1 and all(isinstance(item, dict) for item in value[lists[0]]):
        yield from ((item, None) for item in value[lists[0]])
    else:
        yield value, None


def _items(text: str, place: int) -> Iterator[_Row]:
    """The rows of a list, one after the other: one that is refused does not take the others with it."""
    lax, blank = json.JSONDecoder(), re.compile(r"[\s,]*")
    while True:
        found = blank.match(text, place)
        place = place if found is None else found.end()
        if text[place : place + 1] == "]":
            return
        problem = None
        try:
            try:
                value, end = DECODER.raw_decode(text, place)
            except RejectedError as error:
                problem = str(error)
                value, end = lax.raw_decode(text, place)
        except (ValueError, RecursionError):
            yield None, "from here on not valid JSON"
            return
        if problem is None and not isinstance(value, dict):
            problem = "not a JSON object"
        if problem is None and end - place > MAX_LINE_BYTES:
            problem = _WRONG_LINE
        yield (value, None) if problem is None else (None, problem)
        place = end


def _object(line: str | None) -> _Row:
    if line is None or len(line) > MAX_LINE_BYTES:
        return None, _WRONG_LINE
    try:
        return load_record(line), None
    except RejectedError as error:
        return None, str(error)


def _csv(file: PackedText, delimiters: str) -> Iterator[_Row]:
    """The rows of a table. Of the delimiters it has the one that makes the most columns of its first line: where a
    comma stands in numbers, Excel writes semicolons."""
    csv.field_size_limit(MAX_LINE_BYTES)
    lines = _whole(file)
    first = next(lines, "")
    delimiter = max(delimiters, key=lambda each: len(next(csv.reader([first], delimiter=each), [])))
    for row in csv.DictReader(chain([first], lines), delimiter=delimiter):
        if None in row or None in row.values():
            yield None, "a line with another number of fields than the first"
        else:
            yield dict(row), None


def _whole(file: PackedText) -> Iterator[str]:
    """The lines of a table. Raises UnicodeError for one that is not text: a row may be several lines."""
    for line in file.lines():
        if line is None:
            raise UnicodeError(_WRONG_LINE)
        yield line


def _parquet(path: Path) -> Iterator[_Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH):
                for record in batch.to_pylist():
                    yield _without_nulls(record), None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise OSError(f"not a readable Parquet file: {error}") from None


def _saved(file: SourceFile) -> Iterator[_Row]:
    import datasets

    try:
        loaded = datasets.load_from_disk(str(file.path))
    except (OSError, ValueError, KeyError) as error:
        raise OSError(f"not a readable data set: {error}") from None
    for record in loaded if file.split is None else loaded[file.split]:
        yield _without_nulls(record), None


def _without_nulls(value: Any) -> Any:
    """A table writes a null for each field that other rows have: that is not what the row said."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    # JSON has no times: as text they are read as any other row's.
    return value.isoformat() if isinstance(value, dt.date) else value
