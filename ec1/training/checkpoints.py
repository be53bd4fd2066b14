"""Checkpoints of one run: which of them is whole, which is the newest, which are old.

Trainer writes a checkpoint file by file, optimiser and random states as torch files that it reads back with
`weights_only`. They are for this run only and never published. A checkpoint counts once it is sealed, which happens
after its last file; what a killed process left half-written is not sealed, and what a disk has changed since does not
have the SHA-256 that was sealed. Then training goes on from the one before.
"""

import contextlib
import json
import logging
import os
import re
import shutil
from pathlib import Path

from ec1.damage import damaged
from ec1.errors import DamagedError
from ec1.files import fsync_dir, write_json
from ec1.seals import check_files, sha256_once

log = logging.getLogger(__name__)
SEAL = "sealed.json"
_NAME = re.compile(r"checkpoint-(\d+)")


def step_of(checkpoint: Path) -> int:
    """The step after which a checkpoint was taken."""
    match = _NAME.fullmatch(checkpoint.name)
    if match is None:
        raise ValueError(f"{checkpoint} is not a checkpoint")
    return int(match[1])


def seal(checkpoint: Path) -> None:
    """Flush a checkpoint's files to disk and mark it as whole."""
    files = {}
    for path in sorted(checkpoint.iterdir()):
        if path.is_file() and path.name != SEAL:
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
            files[path.name] = {"bytes": path.stat().st_size, "sha256": sha256_once(path)}
    fsync_dir(checkpoint)
    write_json(checkpoint / SEAL, files)


def is_whole(checkpoint: Path) -> bool:
    """Whether a checkpoint is sealed and its files are still as they were then."""
    if not (checkpoint / SEAL).is_file():
        return False
    problem = damage_of(checkpoint)
    if problem is not None:
        damaged(log, checkpoint, f"checkpoint left out: {problem}")
    return problem is None


def damage_of(checkpoint: Path) -> str | None:
    """What is wrong with a sealed checkpoint, or None."""
    try:
        check_files(checkpoint, json.loads((checkpoint / SEAL).read_bytes()), "another one is used")
    except (ValueError, TypeError, KeyError, AttributeError):
        return f"{checkpoint / SEAL} is damaged"
    except DamagedError as error:
        return str(error)
    return None


def whole_checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints below a folder, ordered by step: `checkpoint-75` before `checkpoint-100`."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and is_whole(path)]
    return sorted(found, key=step_of)


def newest_checkpoint(folder: Path) -> Path | None:
    whole = whole_checkpoints(folder)
    return whole[-1] if whole else None


def keep_newest(folder: Path, count: int, best: str | None = None) -> None:
    """Delete all but the `count` newest whole checkpoints and the one named `best`; damaged ones are deleted too."""
    whole = whole_checkpoints(folder)
    kept = {*(whole[-count:] if count else []), *(path for path in whole if path.name == best)}
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        if _NAME.fullmatch(path.name) and path not in kept:
            # Unsealed first, so that a half-deleted checkpoint never counts.
            with contextlib.suppress(FileNotFoundError):
                (path / SEAL).unlink()
            shutil.rmtree(path)


def discard_checkpoints(folder: Path) -> None:
    """Delete all checkpoints of a run."""
    keep_newest(folder, 0)
    shutil.rmtree(folder, ignore_errors=True)
