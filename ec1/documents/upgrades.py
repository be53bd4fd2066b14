"""A new converter gives other texts of the same files, and another limit lets other files in: which contents that
changes, kept with the home.

Belongs here: comparing once, after an upgrade, what the converter before gave with what this one gives. Does not: what
becomes of the documents (`refresh.py`): those that changed count as read by an earlier extractor, all others do not.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ValidationError

from ec1.documents.convert import NoConverterError
from ec1.documents.ledger import DocumentKey, LedgerEntry, Status
from ec1.documents.reader import DocumentReader
from ec1.files import write_json
from ec1.streams import CONVERTED

_REFUSED = (Status.REJECTED, Status.QUARANTINED)
_A_LIMIT = re.compile(r"\bdocuments\.(conversion\.max_|max_chunks)")


class _Known(BaseModel):
    converter: str
    limits: str = ""
    changed: dict[str, str] = {}


def changed_contents(path: Path) -> Mapping[str, str]:
    """The contents whose text an upgrade or another limit changed, each with what did."""
    known = _read(path)
    return known.changed if known is not None else {}


def note_upgrade(path: Path, ledger: Mapping[DocumentKey, LedgerEntry], reader: DocumentReader, limits: str) -> None:
    """Keep at `path` which contents of the ledger the reader's converter reads otherwise than the one before; of a home
    without one before, none. One whose earlier text is not kept any more counts as changed; with
    other `limits` than before, so does what one of them refused. Where nothing can be converted now, nothing is noted,
    and the next night compares."""
    known, converter = _read(path), reader.converter
    if known is not None and (known.converter, known.limits) == (converter, limits):
        return
    changed: dict[str, str] = {}
    for key, entry in ledger.items() if known is not None else ():
        content = entry.content_sha256
        if entry.status is Status.DELETED:
            continue
        assert known is not None
        if content in known.changed:
            changed.setdefault(content, known.changed[content])
        if known.limits != limits and entry.status in _REFUSED and _A_LIMIT.search(entry.reason or ""):
            changed[content] = f"{converter}, limits {limits}"
            continue
        if known.converter == converter or PurePosixPath(key.path).suffix.lower() not in CONVERTED:
            continue
        try:
            otherwise = reader.converts_otherwise(key, content, known.converter)
        except NoConverterError:
            return
        if otherwise:
            changed[content] = converter
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"converter": converter, "limits": limits, "changed": changed})
    reader.drop_earlier_conversions()


def _read(path: Path) -> _Known | None:
    try:
        return _Known.model_validate(json.loads(path.read_bytes()))
    except (OSError, ValueError, ValidationError):
        return None
