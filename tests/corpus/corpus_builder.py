"""Small corpora for the tests of this folder: tuples of each format, written as files with a chosen time."""

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

NIGHT = dt.datetime(2026, 6, 2, tzinfo=dt.UTC)
LONG_AGO = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)


def edit(number: int, **changes: Any) -> dict[str, Any]:
    """An engineering edit, different for each number."""
    commit = f"{number:040x}"
    diff = (
        f"diff --git a/m{number}.py b/m{number}.py\n--- a/m{number}.py\n+++ b/m{number}.py\n@@ -1 +1,3 @@\n"
        f" def handler_{number}(request):\n+    check_{number * 7}(request.field_{number * 13})\n"
        f"+    return load_{number * 3}(request, limit={number})\n"
    )
    return {
        "tuple_type": "edit",
        "cluster": "project-demo",
        "source_commit": commit,
        "commit_msg": f"fix(m{number}): check the request of handler {number}",
        "author": "dev-one",
        "scope": None,
        "tenant": "acme",
        "doctrine_version": "0.0.13",
        "diff": diff,
        "diff_truncated": False,
    } | changes


def apprenticeship(number: int, **changes: Any) -> dict[str, Any]:
    """An apprenticeship tuple whose pair is long enough to train on."""

    def diff(line: str) -> str:
        return f"diff --git a/x{number} b/x{number}\n--- a/x{number}\n+++ b/x{number}\n@@ -1 +1 @@\n-retry=1\n+{line}\n"

    return {
        "tuple_type": "apprenticeship",
        "task_type": "git-commit",
        "brief": {"brief_id": f"B{number}", "created": "2026-06-01T00:00:00Z", "body": f"raise retry of x{number}"},
        "attempt": {
            "brief_id": f"B{number}",
            "created": "2026-06-01T00:10:00Z",
            "tier": "local",
            "diff": diff(f"retry=maybe_{number}  # a guess that was not asked for"),
        },
        "verdict": None,
        "actual_diff": diff(f"retry={number + 2}  # as the brief asks, and not more than that"),
        "final_diff": None,
        "tenant": "acme",
        "session_id": None,
        "created": "2026-06-01T00:10:05Z",
    } | changes


def feedback(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "tuple_type": "apprenticeship-feedback",
        "task_type": "doc-edit",
        "brief_id": f"B{number}",
        "attempt_id": f"A{number}",
        "tier_used": "local",
        "format": "canonical-envelope-v1",
        "prompt": f"Document the limit of m{number}.",
        "chosen": f"The limit of m{number} is {number * 3} requests a minute, counted by caller;"
        " whoever asks for more gets a 429 and has to wait.",
        "rejected": f"There may be some kind of limit on m{number}, which one can read in the code if one likes to.",
        "created": "2026-06-01T08:00:00Z",
    } | changes


def write_lines(path: Path, records: list[Any], *, at: dt.datetime = LONG_AGO, append: bool = False) -> Path:
    """Write records (or raw bytes) as lines, last modified `at`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    with path.open("ab" if append else "wb") as stream:
        stream.write(b"".join(line + b"\n" for line in lines))
    os.utime(path, (at.timestamp(), at.timestamp()))
    return path
