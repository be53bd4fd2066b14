"""What served answers leave for training, where the people who use them agreed: feedback on an answer becomes a tuple.

An answer and its prompt are scrubbed of secrets and personal data before they are written down, wait for feedback in
one database of the home, and are forgotten when it came or after `keep_days`; who asked is never kept. What a person
corrected becomes a pair (the correction chosen, the answer rejected), what he accepted a row of prompt and answer, in a
folder `feedback/` of the bucket that trains the role which answered. A thumb down is counted, nothing else: no
objective of ours learns from a rejected answer alone.

Belongs here: that database and those tuples. Does not: HTTP (`gateway.py`), what is trainable (`ec1/corpus`).
"""

import asyncio
import datetime as dt
import hashlib
import json
import math
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, model_validator

from ec1.corpus.buckets import Bucket, bucket
from ec1.corpus.cleaning import scrub
from ec1.corpus.tuples import TupleKind, parse_record, trainable
from ec1.errors import RejectedError
from ec1.files import canonical_json, digest_of, write_atomic
from ec1.serving.versions import RefusedError, ServedVersion
from ec1.settings import Settings

Verdict = Literal["accept", "correct", "up", "down"]
MAX_ANSWER_BYTES = 4 * 2**20
_MAX_PENDING = 256
_SCHEMA = """
CREATE TABLE IF NOT EXISTS answer (
    id TEXT PRIMARY KEY, at REAL NOT NULL, tenant TEXT NOT NULL, role TEXT NOT NULL, version INTEGER NOT NULL,
    prompt TEXT, text TEXT, verdict TEXT, request TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answer_at ON answer (at) WHERE text IS NOT NULL;
"""

Result = TypeVar("Result")


class Feedback(Settings):
    """What `POST /v1/feedback` takes. `response_id` is the `id` of the answer."""

    response_id: str = Field(min_length=1, max_length=200)
    verdict: Verdict
    correction: str | None = Field(None, description="verdict `correct`: what the answer should have been")

    @model_validator(mode="after")
    def _correction_with_correct(self) -> "Feedback":
        if (self.verdict == "correct") != bool(self.correction and self.correction.strip()):
            raise ValueError("verdict correct needs a correction, and no other verdict has one")
        return self


@dataclass(frozen=True)
class Outcome:
    """What became of feedback. `digest` is the tuple's, None with the `reason` why there is none."""

    version: ServedVersion
    verdict: Verdict
    digest: str | None
    reason: str | None


@dataclass(frozen=True)
class Tally:
    """What users said about one version. `good`: accepted or thumb up; `bad`: corrected or thumb down."""

    version: ServedVersion
    answers: int
    good: int
    bad: int

    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the share of good ones (Wilson); None without feedback."""
        count = self.good + self.bad
        if not count:
            return None
        share, z = self.good / count, 1.959964
        middle = share + z * z / (2 * count)
        half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
        return (middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)


class AnswerCapture:
    """Answers that wait for feedback, in the database at `path`, and the corpus that feedback goes to.

    All work is done by one thread, in the order in which it came, and never while somebody waits for an answer.
    """

    def __init__(self, path: Path, corpus_root: Path, *, keep_days: int) -> None:
        self._corpus_root = corpus_root
        self._keep_seconds = keep_days * 86400
        self._pending = 0
        self._swept = 0.0
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.executescript("PRAGMA journal_mode = WAL; PRAGMA secure_delete = ON;" + _SCHEMA)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="capture")

    def warm(self) -> None:
        """Load what finds personal data, which takes seconds, before the first answer."""
        self._thread.submit(scrub, "someone@example.com")

    def close(self) -> None:
        """Finish what was begun."""
        self._thread.shutdown()
        self._db.close()

    async def keep(self, version: ServedVersion, body: Mapping[str, Any], kind: str, content: bytes) -> str | None:
        """Keep an answer: the request, the answer's content type and bytes. Returns why it is not kept, else None."""
        if self._pending >= _MAX_PENDING:
            return "busy"
        return await self._run(lambda: self._keep(version, body, kind, content))

    async def feedback(self, given: Feedback, allowed: Callable[[str], bool]) -> Outcome:
        """Record feedback; `allowed` says for which tenants. Raises RefusedError: no such answer (404), other feedback
        on it before (409)."""
        for _ in range(10):
            outcome = await self._run(lambda: self._feedback(given, allowed))
            if outcome is not None:
                return outcome
            # An answer is kept a moment after its last byte was sent.
            await asyncio.sleep(0.1)
        raise RefusedError(404, "there is no such answer: its id is wrong, or it was not kept, or too long ago")

    def tallies(self, tenant: str, role: str) -> list[Tally]:
        """What users said about each version of a role, the newest first."""
        rows = self._db.execute(
            "SELECT version, COUNT(*), SUM(verdict IN ('accept', 'up')), SUM(verdict IN ('correct', 'down')) "
            "FROM answer WHERE tenant = ? AND role = ? GROUP BY version ORDER BY version DESC",
            (tenant, role),
        )
        return [
            Tally(ServedVersion(tenant, role, number), count, good or 0, bad or 0) for number, count, good, bad in rows
        ]

    async def _run(self, work: Callable[[], Result]) -> Result:
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._pending -= 1

    def _keep(self, version: ServedVersion, body: Mapping[str, Any], kind: str, content: bytes) -> str | None:
        try:
            identifier, text = answer_of(kind, content)
            prompt = [{**message, "content": scrub(message["content"])[0]} for message in prompt_of(body)]
            text, _ = scrub(text)
        except RejectedError as error:
            return str(error)
        now = time.time()
        self._db.execute(
            "INSERT OR IGNORE INTO answer VALUES (?, ?, ?, ?, ?, ?, ?, NULL, NULL)",
            (identifier, now, version.tenant, version.role, version.number, json.dumps(prompt), text),
        )
        if now - self._swept > 3600:
            self._swept = now
            self._db.execute(
                "UPDATE answer SET prompt = NULL, text = NULL WHERE text IS NOT NULL AND at < ?",
                (now - self._keep_seconds,),
            )
        return None

    def _feedback(self, given: Feedback, allowed: Callable[[str], bool]) -> Outcome | None:
        row = self._db.execute(
            "SELECT at, tenant, role, version, prompt, text, verdict, request FROM answer WHERE id = ?",
            (given.response_id,),
        ).fetchone()
        if row is None or not allowed(row[1]):
            return None
        at, tenant, role, number, prompt, text, verdict, request = row
        version = ServedVersion(tenant, role, number)
        digest = digest_of(given.model_dump())
        if verdict is not None:
            if request == digest:
                return Outcome(version, given.verdict, None, "was recorded before")
            raise RefusedError(409, f"this answer has feedback already ({verdict})")
        if text is None or at < time.time() - self._keep_seconds:
            return None
        found, reason = self._write(version, given, json.loads(prompt), text)
        # The tuple has the texts now, if anything should.
        self._db.execute(
            "UPDATE answer SET verdict = ?, request = ?, prompt = NULL, text = NULL WHERE id = ?",
            (given.verdict, digest, given.response_id),
        )
        return Outcome(version, given.verdict, found, reason)

    def _write(
        self, version: ServedVersion, given: Feedback, prompt: list[dict[str, str]], text: str
    ) -> tuple[str | None, str | None]:
        if given.verdict == "down":
            return None, "nothing is learnt from a rejected answer alone"
        try:
            correction = scrub(given.correction)[0] if given.correction else None
            record = tuple_of(version, given, prompt, text, correction, dt.datetime.now(dt.UTC))
            target = bucket(self._corpus_root, version.role, version.tenant)
            item = parse_record(record)
            reason = trainable(item, target.objective)
        except RejectedError as error:
            return None, str(error)
        if reason is not None:
            return None, reason
        name = hashlib.sha256(given.response_id.encode()).hexdigest()[:32]
        write_atomic(feedback_folder(target) / f"served-{name}.jsonl", canonical_json(record) + b"\n")
        return item.digest, None


def feedback_folder(target: Bucket) -> Path:
    """Where a bucket finds what users said: `feedback/` if it reads that, else a folder of that name in its first."""
    folders = [folder for folder, _ in target.folders]
    return target.root / ("feedback" if "feedback" in folders else f"{folders[0]}/feedback")


def tuple_of(
    version: ServedVersion,
    given: Feedback,
    prompt: Sequence[Mapping[str, str]],
    text: str,
    correction: str | None,
    now: dt.datetime,
) -> dict[str, Any]:
    """The training tuple of accepted or corrected feedback (docs/contracts.md), with where it comes from."""
    # Answers to one prompt belong on one side of the split.
    brief = "served-" + digest_of([dict(message) for message in prompt])[:24]
    record: dict[str, Any] = {
        "brief_id": brief,
        "attempt_id": given.response_id,
        "tenant": version.tenant,
        "tier_used": "local",
        "created": now.isoformat(timespec="seconds"),
        "metadata": {"origin": "ec1-serve", "adapter": version.name, "verdict": given.verdict},
    }
    if correction is None:
        return record | {
            "prompt": [dict(message) for message in prompt],
            "completion": [{"role": "assistant", "content": text}],
        }
    alone = len(prompt) == 1 and prompt[0]["role"] == "user"
    return record | {
        "tuple_type": TupleKind.FEEDBACK.value,
        "task_type": version.role,
        "format": "canonical-envelope-v1",
        "prompt": prompt[0]["content"] if alone else [dict(message) for message in prompt],
        "chosen": correction,
        "rejected": text,
    }


def wanted(body: Mapping[str, Any]) -> bool:
    """Whether an answer to this request can be kept: `store: false` forbids it, and several answers have no one id."""
    return body.get("store") is not False and body.get("n") in (None, 1)


def prompt_of(body: Mapping[str, Any]) -> list[dict[str, str]]:
    """The messages of a chat request. Raises RejectedError for those that are more than text."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or body.get("tools"):
        raise RejectedError("tools or no messages")
    found = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("content"), str) or message.get("tool_calls"):
            raise RejectedError("not plain text")
        found.append({"role": str(message.get("role")), "content": message["content"]})
    return found


def answer_of(kind: str, content: bytes) -> tuple[str, str]:
    """Id and text of a chat completion, streamed or whole. Raises RejectedError if it is not a whole answer in
    words."""
    try:
        if not kind.startswith("text/event-stream"):
            body = json.loads(content)
            (choice,) = body["choices"]
            identifier, text, finish = body["id"], choice["message"]["content"], choice["finish_reason"]
            called = choice["message"].get("tool_calls")
        else:
            identifier, text, finish, called = _streamed(content)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise RejectedError("not understood") from None
    if finish != "stop" or called or not isinstance(identifier, str) or not isinstance(text, str) or not text.strip():
        raise RejectedError("not a whole answer")
    return identifier, text


def _streamed(content: bytes) -> tuple[str, str, str | None, bool]:
    identifier, words, finish, called = "", [], None, False
    for line in content.splitlines():
        if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
            continue
        event = json.loads(line[5:])
        identifier = event["id"]
        for choice in event["choices"]:
            words.append(choice["delta"].get("content") or "")
            called = called or bool(choice["delta"].get("tool_calls"))
            finish = choice.get("finish_reason") or finish
    return identifier, "".join(words), finish, called
