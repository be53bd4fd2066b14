"""Buckets: which files of a corpus belong to one role of one tenant (docs/contracts.md).

Belongs here: names and places. Does not: what the files hold (tuples, snapshots).
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ec1.corpus.tuples import Objective
from ec1.files import checked_name

# role -> (objective, folders below the corpus root; True: with everything below them)
_KNOWN: dict[str, tuple[Objective, tuple[tuple[str, bool], ...]]] = {
    "engineering": ("sft", (("engineering", True),)),
    "apprenticeship": ("dpo", (("apprenticeship", True), ("feedback", False))),
}


@dataclass(frozen=True)
class Bucket:
    """The tuples of one role and tenant. `folders` are (path below root, whether folders below it count)."""

    name: str
    root: Path
    objective: Objective
    folders: tuple[tuple[str, bool], ...]
    tenant: str
    ignored: tuple[str, ...] = ()
    """Keys of its rows that a recipe says change nothing that is learnt (see `keys`)."""

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Every tuple file: path relative to the root, with forward slashes, and its stat. Order is not promised.

        Files that are hidden (a writer's temporary name), not regular, or lead outside the root through a symbolic
        link do not count.
        """
        root = os.path.realpath(self.root)
        for folder, below in self.folders:
            yield from _files(root, folder, below)


def bucket(corpus_root: Path, role: str, tenant: str, ignored: Sequence[str] = ()) -> Bucket:
    """The bucket `<role>-<tenant>`. A role without fixed folders holds generic records in `<root>/<role>/`.

    Raises InputError if role or tenant cannot be part of a path.
    """
    checked_name(role, "role")
    checked_name(tenant, "tenant")
    objective, folders = _KNOWN.get(role, ("sft", ((role, True),)))
    return Bucket(f"{role}-{tenant}", corpus_root, objective, folders, tenant, tuple(sorted(ignored)))


def watermark(bucket: Bucket) -> str:
    """A short text that changes when a file is added to the bucket, renamed or removed.

    Costs one stat per folder, two levels deep, and never lists the folders that hold the files: a sensor may call it
    every minute. A line appended to a file that is there already does not show; the nightly schedule finds it.
    """
    hasher = hashlib.sha256()
    for folder, below in bucket.folders:
        top = bucket.root / folder
        for path in [top, *(_subfolders(top) if below else [])]:
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            hasher.update(f"{path.relative_to(bucket.root)}\0{stat.st_mtime_ns}\0{stat.st_ino}\n".encode())
    return hasher.hexdigest()[:16]


def _subfolders(top: Path) -> list[Path]:
    try:
        with os.scandir(top) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def _files(root: str, folder: str, below: bool) -> Iterator[tuple[str, os.stat_result]]:
    try:
        entries = os.scandir(f"{root}/{folder}")
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            name = f"{folder}/{entry.name}"
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                if below:
                    yield from _files(root, name, below)
            elif entry.name.endswith(".jsonl") and entry.is_file() and _stays_inside(entry, root):
                yield name, entry.stat()


def _stays_inside(entry: os.DirEntry[str], root: str) -> bool:
    return not entry.is_symlink() or os.path.realpath(entry.path).startswith(root + os.sep)
