"""What served answers leave for training, where the people who use them agreed: feedback on an answer becomes a tuple.

An answer and its prompt are scrubbed of secrets and personal data before they are written down, wait for feedback in
one database of the home, and are forgotten when it came or after `keep_days`; of who asked only a pseudonym is kept.
What a person corrected becomes a pair (the correction chosen, the answer rejected), what he accepted a row of prompt
and answer; both wait behind a door (`held.py`). A thumb down is counted, nothing else: no objective of ours learns from
a rejected answer alone.

Belongs here: answers that wait for feedback, what feedback makes of them, and the count of people who gave some. Does
not: HTTP (`gateway.py`), what is trainable (`ec1/corpus`).
"""

import asyncio
import datetime as dt
import json
import logging
import math
import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from pydantic import Field, model_validator

from ec1.corpus.access import KEY as ACCESS_LABELS
from ec1.corpus.buckets import bucket
from ec1.corpus.cleaning import scrub
from ec1.corpus.served import ORIGIN
from ec1.corpus.tuples import TupleKind, load_record, parse_record, trainable
from ec1.errors import EC1Error, RejectedError
from ec1.files import digest_of
from ec1.serving.answers import answer_of
from ec1.serving.held import HeldRows, Pseudonyms
from ec1.serving.versions import RefusedError, ServedVersion
from ec1.settings import Settings

log = logging.getLogger(__name__)

Verdict = Literal["accept", "correct", "up", "down"]
MAX_ANSWER_BYTES = 4 * 2**20
_MAX_PENDING = 256
_SCHEMA = """
CREATE TABLE IF NOT EXISTS answer (
    id TEXT PRIMARY KEY, at REAL NOT NULL, tenant TEXT NOT NULL, role TEXT NOT NULL, version INTEGER NOT NULL,
    prompt TEXT, text TEXT, verdict TEXT, request TEXT, key TEXT NOT NULL DEFAULT '', person TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answer_at ON answer (at) WHERE text IS NOT NULL;
"""

Result = TypeVar("Result")


class Feedback(Settings):
    """What `POST /v1/feedback` takes. `response_id` is the `id` of the answer."""

    response_id: str = Field(min_length=1, max_length=200)
    user: str | None = Field(None, max_length=1000, description="who says so; default: who asked")
    verdict: Verdict
    correction: str | None = Field(None, description="verdict `correct`: what the answer should have been")

    @model_validator(mode="after")
    def _correction_with_correct(self) -> "Feedback":
        if (self.verdict == "correct") != bool(self.correction and self.correction.strip()):
            raise ValueError("verdict correct needs a correction, and no other verdict has one")
        return self


@dataclass(frozen=True)
class Giver:
    """Who asks or gives feedback: the name of the API key, and the user behind it as he is called there."""

    key: str = ""
    user: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of feedback. `digest` is the tuple's, None with the `reason` why there is none; `held` names the row
    that waits for its release."""

    version: ServedVersion
    verdict: Verdict
    digest: str | None
    reason: str | None
    held: str | None = None


@dataclass(frozen=True)
class Tally:
    """What users said about one version. A person counts once: `good` if he said good of it (accepted, thumb up) more
    often than bad (corrected, thumb down), else `bad`. Of one API key all who are nobody in particular are one."""

    version: ServedVersion
    answers: int
    good: int
    bad: int

    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the share of good ones (Wilson); None without feedback."""
        return wilson(self.good, self.good + self.bad)


def wilson(good: int, count: int) -> tuple[float, float] | None:
    """Wilson's 95 % interval of a share; None of nothing. https://doi.org/10.1080/01621459.1927.10502953"""
    if not count:
        return None
    share, z = good / count, 1.959964
    middle = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return (middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)


class AnswerCapture:
    """Answers that wait for feedback, in the database at `path`, and the corpus that feedback goes to.

    All work is done by one thread, in the order in which it came, and never while somebody waits for an answer.
    """

    def __init__(
        self,
        path: Path,
        corpus_root: Path,
        *,
        keep_days: int,
        recognizers: Sequence[str] = (),
        patterns: Sequence[str] = (),
        release_keys: Sequence[str] = (),
        labels_of: Callable[[ServedVersion], Sequence[str]] = lambda version: (),
    ) -> None:
        """`labels_of` says a version's access labels, which what it wrote has, too; EC1Error: nobody can tell."""
        self._corpus_root = corpus_root
        self._keep_seconds = keep_days * 86400
        self._recognizers, self._patterns = recognizers, [re.compile(pattern) for pattern in patterns]
        self._release_keys = frozenset(release_keys)
        self._labels_of = labels_of
        self._pending = 0
        self._swept = 0.0
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.executescript("PRAGMA journal_mode = WAL;" + _SCHEMA)
        known = {column for _, column, *_ in self._db.execute("PRAGMA table_info(answer)")}
        for column in sorted({"key", "person"} - known):
            # A database of an earlier release.
            self._db.execute(f"ALTER TABLE answer ADD COLUMN {column} TEXT NOT NULL DEFAULT ''")
        self.people = Pseudonyms(path.with_name("salt"))
        self.held = HeldRows(self._db, corpus_root)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="capture")

    def warm(self) -> None:
        """Load what finds personal data, which takes seconds, before the first answer."""
        self._thread.submit(self._scrub, "someone@example.com")

    def close(self) -> None:
        """Finish what was begun."""
        self._thread.shutdown()
        self._db.close()

    async def keep(
        self, version: ServedVersion, body: Mapping[str, Any], kind: str, content: bytes, asker: Giver
    ) -> str | None:
        """Keep an answer: the request, the answer's content type and bytes. Returns why it is not kept, else None."""
        if self._pending >= _MAX_PENDING:
            return "busy"
        return await self._run(lambda: self._keep(version, body, kind, content, asker))

    async def feedback(self, given: Feedback, giver: Giver, allowed: Callable[[str], bool]) -> Outcome:
        """Record feedback; `allowed` says for which tenants. Raises RefusedError: no such answer (404), other feedback
        on it before (409)."""
        for _ in range(10):
            outcome = await self._run(lambda: self._feedback(given, giver, allowed))
            if outcome is not None:
                return outcome
            # An answer is kept a moment after its last byte was sent.
            await asyncio.sleep(0.1)
        raise RefusedError(404, "there is no such answer: its id is wrong, or it was not kept, or too long ago")

    def judge(
        self,
        version: ServedVersion,
        given: Feedback,
        prompt: Sequence[Mapping[str, str]],
        text: str,
        giver: Giver,
        noted: Mapping[str, str],
        labels: Sequence[str] = (),
    ) -> Outcome:
        """Hold what a person says of an answer that was not served here, such as one in a page: it waits as feedback.

        Number 0 of the version is none: a row of the corpus. What is `noted` stands in the tuple's metadata, and the
        access `labels` of what it was written from. A person's last word on an answer of a version counts in its tally.
        """
        asked = [{"role": message["role"], "content": self._scrub(message["content"])} for message in prompt]
        text = self._scrub(text)
        person = self.people.of(giver.user)
        if version.number:
            identifier = "judged-" + digest_of([version.name, asked, text, giver.key, person])[:24]
            self._db.execute(
                "INSERT OR REPLACE INTO answer (id, at, tenant, role, version, verdict, key, person) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    identifier,
                    time.time(),
                    version.tenant,
                    version.role,
                    version.number,
                    given.verdict,
                    giver.key,
                    person,
                ),
            )
        return self._hold(version, given, asked, text, giver.key, person, self._noted(noted, labels))

    def record_of(
        self,
        version: ServedVersion,
        given: Feedback,
        prompt: Sequence[Mapping[str, str]],
        text: str,
        noted: Mapping[str, str],
        labels: Sequence[str] = (),
    ) -> dict[str, Any]:
        """The row that what a person says of an answer becomes, scrubbed; nothing is kept. Raises RejectedError for
        what no training takes."""
        asked = [{"role": message["role"], "content": self._scrub(message["content"])} for message in prompt]
        return self._record(version, given, asked, self._scrub(text), self._noted(noted, labels))

    def _noted(self, noted: Mapping[str, str], labels: Sequence[str]) -> dict[str, Any]:
        said: dict[str, Any] = {key: self._scrub(value) for key, value in noted.items()}
        return {**said, ACCESS_LABELS: list(labels)} if labels else said

    def tallies(self, tenant: str, role: str, since: float = 0) -> list[Tally]:
        """What users said about answers of each version of a role since a moment (seconds since 1970), the newest
        first."""
        rows = self._db.execute(
            "SELECT version, SUM(answers), SUM(good > bad), SUM(bad >= good AND bad > 0) FROM "
            "(SELECT version, COUNT(*) AS answers, SUM(IFNULL(verdict IN ('accept', 'up'), 0)) AS good, "
            "SUM(IFNULL(verdict IN ('correct', 'down'), 0)) AS bad FROM answer "
            "WHERE tenant = ? AND role = ? AND at >= ? GROUP BY version, key, person) "
            "GROUP BY version ORDER BY version DESC",
            (tenant, role, since),
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

    def forget(self, user: str) -> str:
        """Delete what a user left here; returns the pseudonym, by which his rows in the corpus are found."""
        person = self.people.of(user)
        self.held.forget(person)
        self._db.execute("DELETE FROM answer WHERE person = ?", (person,))
        # Else what was deleted stays in the write-ahead log.
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return person

    def _scrub(self, text: str) -> str:
        text, _ = scrub(text, self._recognizers)
        for pattern in self._patterns:
            text = pattern.sub("<REDACTED>", text)
        return text

    def _keep(
        self, version: ServedVersion, body: Mapping[str, Any], kind: str, content: bytes, asker: Giver
    ) -> str | None:
        try:
            identifier, text = answer_of(kind, content)
            prompt = [{**message, "content": self._scrub(message["content"])} for message in prompt_of(body)]
            text = self._scrub(text)
        except RejectedError as error:
            return str(error)
        now = time.time()
        self._db.execute(
            "INSERT OR IGNORE INTO answer (id, at, tenant, role, version, prompt, text, key, person) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                identifier,
                now,
                version.tenant,
                version.role,
                version.number,
                json.dumps(prompt),
                text,
                asker.key,
                self.people.of(asker.user),
            ),
        )
        if now - self._swept > 3600:
            self._swept = now
            self._db.execute(
                "UPDATE answer SET prompt = NULL, text = NULL WHERE text IS NOT NULL AND at < ?",
                (now - self._keep_seconds,),
            )
            self.held.sweep(now - self._keep_seconds)
        return None

    def _feedback(self, given: Feedback, giver: Giver, allowed: Callable[[str], bool]) -> Outcome | None:
        row = self._db.execute(
            "SELECT at, tenant, role, version, prompt, text, verdict, request, person FROM answer WHERE id = ?",
            (given.response_id,),
        ).fetchone()
        if row is None or not allowed(row[1]):
            return None
        at, tenant, role, number, prompt, text, verdict, request, asker = row
        version = ServedVersion(tenant, role, number)
        digest = digest_of(given.model_dump(exclude={"user"}))
        if verdict is not None:
            if request == digest:
                return Outcome(version, given.verdict, None, "was recorded before")
            raise RefusedError(409, f"this answer has feedback already ({verdict})")
        if text is None or at < time.time() - self._keep_seconds:
            return None
        person = self.people.of(given.user or giver.user) or asker
        try:
            noted = self._noted({}, self._labels_of(version))
        except EC1Error as error:
            log.warning("the access labels of %s cannot be told: %s", version.name, error)
            outcome = Outcome(version, given.verdict, None, "the access labels of its version cannot be told")
        else:
            outcome = self._hold(version, given, json.loads(prompt), text, giver.key, person, noted)
        # The row has the texts now, if anything should.
        self._db.execute(
            "UPDATE answer SET verdict = ?, request = ?, key = ?, person = ?, prompt = NULL, text = NULL WHERE id = ?",
            (given.verdict, digest, giver.key, person, given.response_id),
        )
        return outcome

    def _record(
        self,
        version: ServedVersion,
        given: Feedback,
        prompt: Sequence[dict[str, str]],
        text: str,
        noted: Mapping[str, Any],
    ) -> dict[str, Any]:
        correction = self._scrub(given.correction) if given.correction else None
        record = tuple_of(version, given, prompt, text, correction, dt.datetime.now(dt.UTC))
        record["metadata"] |= noted
        target = bucket(self._corpus_root, version.role, version.tenant)
        if (reason := trainable(parse_record(record), target.objective)) is not None:
            raise RejectedError(reason)
        return record

    def _hold(
        self,
        version: ServedVersion,
        given: Feedback,
        prompt: list[dict[str, str]],
        text: str,
        key: str,
        person: str,
        noted: Mapping[str, Any] = MappingProxyType({}),
    ) -> Outcome:
        if given.verdict == "down":
            return Outcome(version, "down", None, "nothing is learnt from a rejected answer alone")
        try:
            record = self._record(version, given, prompt, text, noted)
        except RejectedError as error:
            return Outcome(version, given.verdict, None, str(error))
        held = self.held.add(
            record, tenant=version.tenant, role=version.role, verdict=given.verdict, key=key, person=person
        )
        if key in self._release_keys:
            path = self.held.release(held, f"the rule for key {key}")
            digest = None if path is None else parse_record(load_record(path.read_bytes())).digest
            return Outcome(version, given.verdict, digest, "was given before" if digest is None else None, held)
        return Outcome(version, given.verdict, None, "waits for its release (ec1 feedback review)", held)


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
        "metadata": {"origin": ORIGIN, "adapter": version.name if version.number else "", "verdict": given.verdict},
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
