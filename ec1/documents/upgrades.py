"""A new version of EC1 or of its converter gives other texts of the same files, and another limit lets other files in:
which contents that changes, kept with the home.

Belongs here: comparing once, after an upgrade, what was read before with what is read now. Of converted files the texts
are kept, of others their lengths. Does not: what becomes of the documents (`refresh.py`): those that changed count as
read by an earlier extractor, all others do not.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ValidationError

from ec1.documents.convert import NoConverterError
from ec1.documents.ledger import DocumentKey, LedgerEntry, Status, extractor_fingerprint
from ec1.documents.parse import TEXTS_VERSION
from ec1.documents.reader import DocumentReader
from ec1.files import write_json
from ec1.streams import CONVERTED

_REFUSED = (Status.REJECTED, Status.QUARANTINED)
_A_LIMIT = re.compile(r"\bdocuments\.(conversion\.max_|max_chunks)")


class _Known(BaseModel):
    converter: str
    limits: str = ""
    texts: int = 1
    changed: dict[str, str] = {}


def changed_contents(path: Path) -> Mapping[str, str]:
    """The contents whose text an upgrade or another limit changed, each with what did."""
    known = _read(path)
    return known.changed if known is not None else {}


def note_upgrade(
    path: Path,
    ledger: Mapping[DocumentKey, LedgerEntry],
    reader: DocumentReader,
    limits: str,
    characters: Callable[[str, str], int],
) -> None:
    """Keep at `path` which contents of the ledger are read otherwise than before the upgrade; of a home without one
    before, none. A converted one whose earlier text is not kept any more counts as changed, a text whose length is not
    known (`characters` of an extractor's fingerprint and a content is 0) does not; with other `limits` than before, so
    does what one of them refused. Where nothing can be converted now, nothing is noted, and the next night compares."""
    known, converter = _read(path), reader.converter
    if known is not None and (known.converter, known.limits, known.texts) == (converter, limits, TEXTS_VERSION):
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
        if PurePosixPath(key.path).suffix.lower() not in CONVERTED:
            if known.texts == TEXTS_VERSION:
                continue
            length = characters(extractor_fingerprint(entry.fingerprint), content)
            before = None if entry.status is Status.REJECTED else length
            if before != 0 and reader.reads_otherwise(key, content, before):
                changed[content] = f"texts {TEXTS_VERSION}"
            continue
        try:
            if known.converter != converter and reader.converts_otherwise(key, content, known.converter):
                changed[content] = converter
        except NoConverterError:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"converter": converter, "limits": limits, "texts": TEXTS_VERSION, "changed": changed})
    reader.drop_earlier_conversions()


def _read(path: Path) -> _Known | None:
    try:
        return _Known.model_validate(json.loads(path.read_bytes()))
    except (OSError, ValueError, ValidationError):
        return None
