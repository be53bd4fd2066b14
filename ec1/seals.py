"""Folders that are named by their content: what is in them is noted as SHA-256 when they are complete, and checked when
it is read.

Belongs here: the note (in the folder's `manifest.json`, with a digest of that file itself) and the check. Does not:
what follows from damage, which whoever can build the thing again decides.

A file is hashed once per process: after that its inode, size and time of change stand for its bytes.
"""

import contextlib
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ec1.damage import damaged
from ec1.errors import DamagedError, InputError
from ec1.files import digest_of, fsync_dir, read_json, sha256_file, write_json

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
FILES, SEAL = "files", "seal"

Files = Mapping[str, Mapping[str, Any]]
"""`bytes` and `sha256` of each file, by its path in the folder."""

_hashed: dict[tuple[int, ...], str] = {}


def sha256_once(path: Path) -> str:
    """SHA-256 (hex) of a file; in one process the same file is read once. Raises OSError."""
    status = path.stat()
    # The change time is the one that nobody can set back: a file in another's place is another file.
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if key not in _hashed:
        _hashed[key] = sha256_file(path)
    return _hashed[key]


def described(folder: Path, known: Files | None = None) -> dict[str, Mapping[str, Any]]:
    """Size and digest of every file below a folder but its manifest. Those that are `known` are taken as they are."""
    found: dict[str, Mapping[str, Any]] = dict(known or {})
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != MANIFEST and name not in found:
            found[name] = {"bytes": path.stat().st_size, "sha256": sha256_once(path)}
    return found


def write_sealed(folder: Path, manifest: Mapping[str, Any], known: Files | None = None) -> None:
    """Write a folder's manifest, with what else is in the folder, and a digest of the manifest. `known`: files that are
    shared with a folder that was sealed before; damage that came since must not be sealed as if it were right."""
    content = {**manifest, FILES: described(folder, known)}
    write_json(folder / MANIFEST, {**content, SEAL: digest_of(content)})


def read_sealed(folder: Path, mend: str) -> dict[str, Any]:
    """A folder's manifest. Raises DamagedError, which ends with `mend`, if it is not there or not as it was written."""
    path = folder / MANIFEST
    try:
        manifest = read_json(path)
        seal = manifest.pop(SEAL, None)
    except FileNotFoundError:
        raise DamagedError(f"{folder} is not there, or not complete: {mend}") from None
    except (InputError, AttributeError):
        # No JSON, or no object.
        raise DamagedError(f"{path} is damaged: {mend}") from None
    if seal is None:
        raise DamagedError(f"{path} is of an earlier release, which noted no digests: {mend}")
    if seal != digest_of(manifest):
        raise DamagedError(f"{path} is damaged (it is not as it was written): {mend}")
    return dict(manifest)


def check_files(folder: Path, files: Files, mend: str, names: Iterable[str] | None = None) -> None:
    """Compare files, by default all, with their digests. Raises DamagedError, which ends with `mend`."""
    for name in files if names is None else names:
        path = folder / name
        if not path.is_file():
            raise DamagedError(f"{path} is gone: {mend}")
        if path.stat().st_size != files[name]["bytes"] or sha256_once(path) != files[name]["sha256"]:
            raise DamagedError(f"{path} is damaged (its SHA-256 is not the one that was noted): {mend}")


@contextlib.contextmanager
def set_aside(folder: Path) -> Iterator[None]:
    """Make room for a folder that is built again by the block; what was there comes back if the block fails."""
    aside = folder.with_name(f".damaged-{folder.name}")
    moved = folder.exists()
    if moved:
        damaged(log, folder, f"{folder} is not as it was written: it is built again")
        _remove(aside)
        folder.rename(aside)
    try:
        yield
    except BaseException:
        if moved and not folder.exists():
            aside.rename(folder)
        raise
    _remove(aside)
    fsync_dir(folder.parent)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
