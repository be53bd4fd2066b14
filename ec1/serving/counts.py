"""What the gateway counts and must not lose when it is started again: tokens by key and day, and what the arms of a
trial came to. Limits of keys are held here, because they are counts, too.

Belongs here: counting, and refusing what goes over a limit. Does not: what makes an arm worse (`canary.py`), figures
for Prometheus (`metrics.py`). Each gateway counts for itself: two replicas allow twice as much.
"""

import sqlite3
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from pathlib import Path

from ec1.adapters.decisions import ArmResult
from ec1.serving.keys import Key
from ec1.serving.versions import RefusedError, ServedVersion

_SCHEMA = """
CREATE TABLE IF NOT EXISTS used (
    key TEXT NOT NULL, day TEXT NOT NULL, requests INT NOT NULL, tokens INT NOT NULL, PRIMARY KEY (key, day)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS arm (
    tenant TEXT NOT NULL, role TEXT NOT NULL, began TEXT NOT NULL, version INT NOT NULL,
    answers INT NOT NULL DEFAULT 0, errors INT NOT NULL DEFAULT 0, refusals INT NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, role, began, version)
) WITHOUT ROWID;
"""
_DAY = 86400


class ServingCounts:
    """The counts in the database at `path`."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        # A power cut may cost the last seconds' counts; syncing for each request would cost every request.
        self._db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;" + _SCHEMA)
        self._at_once: Counter[str] = Counter()
        self._lately: defaultdict[str, deque[float]] = defaultdict(deque)

    def close(self) -> None:
        self._db.close()

    def enter(self, key: Key | None) -> None:
        """Count a request in; `free` and `leave` must follow. Raises RefusedError (429) if it goes over a limit."""
        if key is None:
            return
        limits, now = key.limits, self._clock()
        lately = self._lately[key.name]
        while lately and lately[0] <= now - 60:
            lately.popleft()
        if limits.at_once is not None and self._at_once[key.name] >= limits.at_once:
            raise RefusedError(429, f"the key {key.name!r} has {limits.at_once} requests at once", retry_after=1)
        if limits.requests_per_minute is not None and len(lately) >= limits.requests_per_minute:
            wait = int(lately[0] + 60 - now) + 1
            said = f"the key {key.name!r} has {limits.requests_per_minute} requests a minute"
            raise RefusedError(429, said, retry_after=wait)
        if limits.tokens_per_day is not None and self.used_today(key.name)[1] >= limits.tokens_per_day:
            said = f"the key {key.name!r} has used its {limits.tokens_per_day} tokens of today (UTC)"
            raise RefusedError(429, said, retry_after=int(_DAY - now % _DAY) + 1)
        if limits.requests_per_minute is not None:
            lately.append(now)
        self._at_once[key.name] += 1

    def free(self, key: Key | None) -> None:
        """The request has its whole answer: its key may ask again."""
        if key is not None:
            self._at_once[key.name] -= 1

    def leave(self, key: Key | None, tokens: int) -> None:
        """Count a request out, with the tokens that it took."""
        if key is None:
            return
        self._db.execute(
            "INSERT INTO used VALUES (?, ?, 1, ?) ON CONFLICT DO UPDATE SET requests = requests + 1, "
            "tokens = tokens + excluded.tokens",
            (key.name, self._today(), tokens),
        )

    def used_today(self, key: str) -> tuple[int, int]:
        """Requests and tokens of a key since midnight (UTC)."""
        query = "SELECT requests, tokens FROM used WHERE key = ? AND day = ?"
        found: tuple[int, int] | None = self._db.execute(query, (key, self._today())).fetchone()
        return found or (0, 0)

    def _today(self) -> str:
        return time.strftime("%Y-%m-%d", time.gmtime(self._clock()))

    def answered(self, version: ServedVersion, began: str, *, error: bool, refusal: bool) -> None:
        """Count an answer of an arm of the trial that began at `began`."""
        self._db.execute(
            "INSERT INTO arm VALUES (?, ?, ?, ?, 1, ?, ?) ON CONFLICT DO UPDATE SET answers = answers + 1, "
            "errors = errors + excluded.errors, refusals = refusals + excluded.refusals",
            (version.tenant, version.role, began, version.number, error, refusal),
        )

    def arms(self, tenant: str, role: str, began: str) -> dict[int, ArmResult]:
        """What each version came to in a trial; without feedback, which `capture.py` counts."""
        query = "SELECT version, answers, errors, refusals FROM arm WHERE tenant = ? AND role = ? AND began = ?"
        return {
            number: ArmResult(answers=answers, errors=errors, refusals=refusals)
            for number, answers, errors, refusals in self._db.execute(query, (tenant, role, began))
        }
