"""People's corrections of what was extracted: chunks go out with what was found, and come back as tuples to learn from.

Belongs here: the file that a person edits, and what of it may be learnt. Does not: how a tuple is trained on
(`tuples`).

One JSON object a line: `stream`, `path`, `content_sha256`, `start` (of the chunk in the parsed text), `text`, and
`entities`, a list of `name` and `class`. A person changes `entities` only, and deletes lines that they did not read.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.corpus.tuples import parse_record
from ec1.documents.chunks import Chunk
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


def take(source: Path, bucket: Path, now: dt.datetime) -> Taken:
    """Add the corrected records of a file to the extractor's bucket; the same record again adds nothing.

    Raises InputError with the line that is wrong; then nothing is added.
    """
    if not source.is_file():
        raise InputError(f"there is no file {source}: `ec1 extraction label --out {source}` writes one to correct")
    known = {_identity(record) for file in sorted(bucket.glob("*.jsonl")) for record in _records(file)}
    tuples: dict[str, dict[str, Any]] = {}
    read = 0
    for number, record in enumerate(_records(source), 1):
        read += 1
        try:
            made = {
                "tuple_type": "extraction",
                "document_id": f"{record['stream']}/{record['path']}",
                "text": record["text"],
                "entities": record["entities"],
            }
            parse_record(made)
        except KeyError as error:
            raise InputError(f"{source}, record {number}: {error} is missing") from None
        except RejectedError as error:
            raise InputError(f"{source}, record {number}: {error}") from None
        if _identity(made) not in known:
            tuples[_identity(made)] = {**made, "created": now.astimezone(dt.UTC).isoformat(timespec="seconds")}
    if tuples:
        lines = b"".join(canonical_json(each) + b"\n" for each in tuples.values())
        bucket.mkdir(parents=True, exist_ok=True)
        write_atomic(bucket / f"labels-{hashlib.sha256(lines).hexdigest()[:16]}.jsonl", lines)
    return Taken(len(tuples), read - len(tuples))


def _identity(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json([record.get("text"), record.get("entities")])).hexdigest()


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            raise InputError(f"{path}:{number}: not JSON: write one object a line") from None
        if not isinstance(value, dict):
            raise InputError(f"{path}:{number}: not a JSON object")
        yield value
