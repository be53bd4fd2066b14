"""What lies in a corpus and no recipe reads: folders of roles without a recipe, and files that are not tuples.

Belongs here: looking at names and counting lines. Does not: rows of a bucket that cannot be trained on, which a
snapshot counts by reason (`snapshots.py`).
"""

import os
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path, PurePath

_FOLDERS = {"feedback": "apprenticeship"}
"""Folders that belong to the bucket of another role."""
_COUNTED_BYTES = 256 * 2**20


@dataclass(frozen=True)
class UnreadRows:
    """`rows` and `files` count by role; `others` counts, by suffix, files that no bucket takes."""

    rows: Counter[str] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    complete: bool = True
    """False where so much lies there that the lines of the rest were not counted."""


def unread_rows(corpus: Path, roles: Collection[str]) -> UnreadRows:
    """Look through a corpus whose recipes read `roles`. Hidden files and folders are skipped."""
    rows: Counter[str] = Counter()
    files: Counter[str] = Counter()
    others: Counter[str] = Counter()
    left = _COUNTED_BYTES
    for folder, names, found in os.walk(corpus):
        names[:] = [name for name in names if not name.startswith(".")]
        top = PurePath(os.path.relpath(folder, corpus)).parts
        role = _FOLDERS.get(top[0], top[0]) if top else ""
        for name in found:
            path = Path(folder, name)
            if name.startswith("."):
                continue
            if not name.endswith(".jsonl") or not role:
                others[path.suffix.lower()] += 1
            elif role not in roles:
                files[role] += 1
                left -= path.stat().st_size
                if left > 0:
                    with path.open("rb") as stream:
                        rows[role] += sum(bool(line.strip()) for line in stream)
    return UnreadRows(rows, files, others, complete=left > 0)
