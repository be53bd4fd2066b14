"""The outbox: one immutable file for each finished unit of work, so that what the GPU has done is never done twice.

Belongs here: where a result lies and when it may be replaced. Does not: what is in it (`results`).
"""

import hashlib
import logging
import re
from pathlib import Path

from pydantic import ValidationError

from ec1.damage import damaged
from ec1.errors import DamagedError
from ec1.extraction.reading.answer_log import AnswerLog
from ec1.extraction.results import ExtractionResult
from ec1.files import write_atomic

log = logging.getLogger(__name__)
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Outbox:
    """Results by extractor fingerprint and content, at `<root>/<fingerprint>/<first two digits>/<sha256>.json`.

    What was answered about a unit that is not done lies beside it, in `<sha256>.answers.jsonl`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def get(self, fingerprint: str, content_sha256: str) -> ExtractionResult | None:
        """The result of a unit, or None if there is none yet; a deferred one is to be tried again.

        A damaged file is set aside as `<name>.damaged`: that unit is extracted again, and no other waits for it.
        """
        path = self.path(fingerprint, content_sha256)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        body = _unsealed(data)
        if body is None:
            _set_aside(path, "is damaged (it is not as it was written)")
            return None
        try:
            result = ExtractionResult.model_validate_json(body)
        except ValidationError as error:
            _set_aside(path, f"is damaged ({error.error_count()} errors)")
            return None
        if (result.fingerprint, result.content_sha256) != (fingerprint, content_sha256):
            _set_aside(path, "holds another unit's result")
            return None
        return result

    def has(self, fingerprint: str, content_sha256: str) -> bool:
        """Whether a unit has a final result. Asking for one that is not there costs one look at the folder."""
        if not self.path(fingerprint, content_sha256).exists():
            return False
        result = self.get(fingerprint, content_sha256)
        return result is not None and result.status != "deferred"

    def characters(self, fingerprint: str, content_sha256: str) -> int:
        """How long the text of a unit was; 0 where that is not known."""
        result = self.get(fingerprint, content_sha256)
        return result.characters if result is not None else 0

    def put(self, result: ExtractionResult) -> None:
        """Keep a result, in one step. A complete or rejected one that is there already stays as it is."""
        known = self.get(result.fingerprint, result.content_sha256)
        if known is None or known.status == "deferred":
            path = self.path(result.fingerprint, result.content_sha256)
            for leftover in path.parent.glob(f".{path.name}.*"):
                # A writer was killed before it could give this its name.
                leftover.unlink(missing_ok=True)
            write_atomic(path, _sealed(result.model_dump_json().encode()))
            if result.status != "deferred":
                self.answers(result.fingerprint, result.content_sha256).remove()

    def answers(self, fingerprint: str, content_sha256: str) -> AnswerLog:
        """What was answered about a unit that has no final result yet."""
        return AnswerLog(self.path(fingerprint, content_sha256).with_suffix(".answers.jsonl"))

    def path(self, fingerprint: str, content_sha256: str) -> Path:
        """Where a unit's result lies. Both names are hexadecimal SHA-256 digests."""
        for digest in (fingerprint, content_sha256):
            if not _DIGEST.fullmatch(digest):
                raise ValueError(f"{digest!r} is not a SHA-256 digest")
        return self.root / fingerprint / content_sha256[:2] / f"{content_sha256}.json"


def check_file(path: Path) -> None:
    """Raises DamagedError if a result is not as it was written."""
    body = _unsealed(path.read_bytes())
    try:
        if body is not None and ExtractionResult.model_validate_json(body).content_sha256 == path.stem:
            return
    except ValidationError:
        pass
    raise DamagedError(f"{path} is damaged: its document is extracted again when it is next needed")


_KEY = b'{"sha256":"'
_HEAD = len(_KEY) + 64 + len(b'",')


def _sealed(body: bytes) -> bytes:
    """A JSON object with the SHA-256 of its other keys, as they stand there, in front."""
    return _KEY + hashlib.sha256(body).hexdigest().encode() + b'",' + body[1:] + b"\n"


def _unsealed(data: bytes) -> bytes | None:
    """The object without its digest; None if that is another one's. An earlier release wrote none."""
    if not data.startswith(_KEY):
        return data
    body = b"{" + data[_HEAD:].rstrip(b"\n")
    return body if hashlib.sha256(body).hexdigest().encode() == data[len(_KEY) : len(_KEY) + 64] else None


def _set_aside(path: Path, problem: str) -> None:
    damaged(log, path, f"{path} {problem}: set aside, its document is extracted again")
    path.replace(path.with_suffix(".damaged"))
