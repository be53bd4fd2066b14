"""People's corrections of what was extracted: chunks go out with what was found, and come back as tuples to learn from.

Belongs here: the file that a person edits, and what of it may be learnt. Does not: how a tuple is trained on
(`tuples`).

One JSON object a line: `stream`, `path`, `content_sha256`, `start` (of the chunk in the parsed text), `text`, and
`entities`, a list of `name` and `class`. A person changes `entities` only, and deletes lines that they did not read.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.corpus.access import KEY
from ec1.corpus.tuples import parse_record
from ec1.documents.chunks import Chunk
from ec1.documents.ledger import DocumentKey
from ec1.errors import InputError, RejectedError
from ec1.extraction.results import Mention
from ec1.files import canonical_json, write_atomic


@dataclass(frozen=True)
class Taken:
    """What came of a file of labels. `known` were in the corpus already."""

    written: int
    known: int


def records_of(
    stream: str, path: str, content_sha256: str, chunks: Sequence[Chunk], mentions: Iterable[Mention]
) -> Iterator[dict[str, Any]]:
    """The records of one document: each chunk with what was found wholly inside it, each name once."""
    found = list(mentions)
    for chunk in chunks:
        inside = {each.name: each.entity_class for each in found if chunk.start <= each.start and each.end <= chunk.end}
        yield {
            "stream": stream,
            "path": path,
            "content_sha256": content_sha256,
            "start": chunk.start,
            "text": chunk.text,
            "entities": [{"name": name, "class": entity_class} for name, entity_class in inside.items()],
        }


def take(
    source: Path, bucket: Path, now: dt.datetime, labels_of: Callable[[DocumentKey], Collection[str]] = lambda key: ()
) -> Taken:
    """Add the corrected records of a file to the extractor's bucket; the same record again adds nothing, and another
    answer about the same text is newer than the one that is there: only the newest is trained on. A tuple has the
    access labels of its document.

    Raises InputError with the line that is wrong; then nothing is added.
    """
    if not source.is_file():
        raise InputError(f"there is no file {source}: `ec1 extraction label --out {source}` writes one to correct")
    return take_records(_records(source), str(source), bucket, now, labels_of)


def take_records(
    records: Iterable[Mapping[str, Any]],
    source: str,
    bucket: Path,
    now: dt.datetime,
    labels_of: Callable[[DocumentKey], Collection[str]] = lambda key: (),
    **noted: str,
) -> Taken:
    """As `take`, for records that came another way; `source` names them in errors, `noted` stands in their metadata."""
    made: list[dict[str, Any]] = []
    beside = {"metadata": noted} if noted else {}
    for number, record in enumerate(records, 1):
        try:
            _check_classes(record)
            document = DocumentKey(str(record["stream"]), str(record["path"]))
            access = {KEY: labels} if (labels := sorted(labels_of(document))) else {}
            name = f"{document.stream}/{document.path}"
            made.append(tuple_of(name, record["text"], record["entities"], **access, **beside))
        except KeyError as error:
            raise InputError(f"{source}, record {number}: {error} is missing") from None
        except RejectedError as error:
            raise InputError(f"{source}, record {number}: {error}") from None
    return add(made, bucket, "labels", now)


def tuple_of(document_id: str, text: str, entities: object, **origin: object) -> dict[str, Any]:
    """The training tuple of a chunk and what is named in it. Raises RejectedError if that cannot be meant."""
    made = {"tuple_type": "extraction", "document_id": document_id, "text": text, "entities": entities, **origin}
    parse_record(made)
    return made


def add(tuples: Iterable[dict[str, Any]], bucket: Path, name: str, now: dt.datetime) -> Taken:
    """Add tuples to the extractor's bucket, in a file of their own whose name begins with `name`; what the newest
    tuple of a text says already, from whatever source, adds nothing."""
    known: dict[str, tuple[str, str]] = {}
    for file in sorted(bucket.glob("*.jsonl")):
        for record in _records(file):
            answer = str(record.get("created") or ""), _answer_of(record)
            known[_text_of(record)] = max(known.get(_text_of(record), answer), answer)
    new: dict[str, dict[str, Any]] = {}
    read = 0
    for each in tuples:
        read += 1
        text = _text_of(each)
        if text not in known or known[text][1] != _answer_of(each):
            new[text] = {**each, "created": now.astimezone(dt.UTC).isoformat()}
    if new:
        lines = b"".join(canonical_json(each) + b"\n" for each in new.values())
        bucket.mkdir(parents=True, exist_ok=True)
        write_atomic(bucket / f"{name}-{hashlib.sha256(lines).hexdigest()[:16]}.jsonl", lines)
    return Taken(len(new), read - len(new))


def _check_classes(record: Mapping[str, Any]) -> None:
    """Raises RejectedError if a name has two classes: what is not well formed is found later."""
    classes: dict[object, object] = {}
    for each in record["entities"] if isinstance(record["entities"], list) else ():
        if isinstance(each, dict) and classes.setdefault(str(each.get("name")), each.get("class")) != each.get("class"):
            raise RejectedError(f"{each.get('name')!r} has two classes: keep one")


def _text_of(record: Mapping[str, Any]) -> str:
    return str(record.get("text"))


def _answer_of(record: Mapping[str, Any]) -> str:
    return canonical_json(record.get("entities")).decode()


def _records(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: no text in UTF-8 (byte {error.start})") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            raise InputError(f"{path}:{number}: not JSON: write one object a line") from None
        if not isinstance(value, dict):
            raise InputError(f"{path}:{number}: not a JSON object")
        yield value
