"""A home in one file, and back: `ec1 backup` and `ec1 restore`.

The archive is a tar file: the home's files, and last `backup.json` with the SHA-256 of each. It may be made while a
night runs: what was finished by then is in it. What refers to something is read before what it refers to, files
appear whole in a home, SQLite files are copied through SQLite's own backup, and of the graph the published copy
counts, from which the live one is made again. Dagster's instance in PostgreSQL goes through pg_dump.

Left out: base models and caches (made again), locks, temporary files. Inputs and stores outside the home are not in it.
"""

import datetime as dt
import hashlib
import os
import re
import secrets
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from pydantic import Field

from ec1.errors import InputError, PermanentError, ServiceError
from ec1.files import atomic_file, canonical_json, fsync_dir
from ec1.home import Home
from ec1.settings import Settings
from ec1.strict_yaml import load_mapping, validate

MANIFEST = "backup.json"
DUMP = "dagster-postgres.sql"
POSTGRES_URL = "EC1_DAGSTER_POSTGRES_URL"
_VERSION = 1
_FIRST = ("high-water-marks", "nights", "runs", "graph", "service-content")
"""They refer to what the others hold."""
_REMADE = ("models", "cache", "work")
_TEMPORARY = re.compile(r"\.(?:ec1-tmp-|building-).*|\..+\.[a-z0-9_]{8}")
_LIVE_GRAPH = re.compile(r"graph/live(\..*)?")
_SQLITE = b"SQLite format 3\0"
_PIECE = 2**20


class Backup(Settings):
    """What an archive says of itself. `files`: path below the home -> SHA-256."""

    version: int = Field(ge=1)
    made: dt.datetime
    files: dict[str, str]
    postgres: bool = False


@dataclass(frozen=True)
class Summary:
    """What was written or restored; `files` and `bytes` of the home, and whether a PostgreSQL dump came along."""

    files: int
    bytes: int
    postgres: bool


def back_up(home: Home, archive: Path, environment: Mapping[str, str]) -> Summary:
    """Write the home to `archive`, for its owner alone; it appears when it is whole.

    Raises InputError if there is no home or `archive` exists, ServiceError if PostgreSQL cannot be dumped.
    """
    if not home.root.is_dir():
        raise InputError(f"{home.root} is not a home: nothing to back up")
    if archive.exists():
        raise InputError(f"{archive} exists: name a file that does not")
    if archive.resolve().is_relative_to(home.root.resolve()):
        raise InputError(f"{archive} lies in the home: name a place outside it, on another disk")
    url = _postgres_url(home, environment)
    digests: dict[str, str] = {}
    total = 0
    with (
        atomic_file(archive, exclusive=True) as temporary,
        tempfile.TemporaryDirectory(dir=archive.parent, prefix=".ec1-tmp-") as scratch,
    ):
        temporary.chmod(0o600)
        with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as tar:
            for name, path in _files(home):
                try:
                    source = _sqlite_copy(path, Path(scratch)) if _is_sqlite(path) else path
                    digests[name], size = _add(tar, name, source, path)
                    total += size
                except FileNotFoundError:
                    # The night that runs has removed it.
                    digests.pop(name, None)
            if url is not None:
                dump = Path(scratch) / DUMP
                _postgres("pg_dump", url, ["--no-owner", "--no-privileges", "--file", str(dump)])
                digests[DUMP], _ = _add(tar, DUMP, dump, dump)
            about = Backup(version=_VERSION, made=dt.datetime.now(dt.UTC), files=digests, postgres=url is not None)
            data = canonical_json(about.model_dump(mode="json"))
            (Path(scratch) / MANIFEST).write_bytes(data)
            _add(tar, MANIFEST, Path(scratch) / MANIFEST, Path(scratch) / MANIFEST)
    return Summary(len(digests), total, url is not None)


def restore(archive: Path, home: Home, environment: Mapping[str, str]) -> Summary:
    """Make `home` from an archive, all at once, after every file's digest was checked.

    Raises InputError if the home is not empty, or the archive is none or of a later version; PermanentError if it is
    damaged; ServiceError if PostgreSQL cannot take its dump, which needs an empty data base.
    """
    if home.root.exists() and any(home.root.iterdir()):
        raise InputError(f"{home.root} is not empty: restore into a folder that does not exist yet")
    if not archive.is_file():
        raise InputError(f"{archive} does not exist")
    home.root.parent.mkdir(parents=True, exist_ok=True)
    staging = home.root.with_name(f".ec1-tmp-{home.root.name}-{secrets.token_hex(4)}")
    staging.mkdir(mode=0o700)
    try:
        about = _extract(archive, staging)
        total = _check(staging, about, archive)
        if about.postgres:
            _fill_postgres(staging / DUMP, environment)
            (staging / DUMP).unlink()
        for path in staging.rglob("*"):
            if path.is_file():
                with path.open("rb") as stream:
                    os.fsync(stream.fileno())
        if home.root.exists():
            home.root.rmdir()
        staging.rename(home.root)
        fsync_dir(home.root.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Summary(len(about.files), total, about.postgres)


def _files(home: Home) -> Iterator[tuple[str, Path]]:
    """Every file that belongs into a backup, what refers to others first."""
    top = sorted(path.name for path in home.root.iterdir())
    for name in [*(each for each in _FIRST if each in top), *(each for each in top if each not in _FIRST)]:
        start = home.root / name
        for path in [start] if not start.is_dir() or start.is_symlink() else sorted(start.rglob("*")):
            relative = path.relative_to(home.root)
            if path.is_symlink() or not path.is_file() or _is_left_out(relative):
                continue
            yield relative.as_posix(), path


def _is_left_out(relative: Path) -> bool:
    name = relative.name
    return (
        relative.parts[0] in _REMADE
        or name.endswith((".lock", ".lock.waiting", "-wal", "-shm", "-journal"))
        or _LIVE_GRAPH.fullmatch(relative.as_posix()) is not None
        or any(_TEMPORARY.fullmatch(part) for part in relative.parts)
    )


def _is_sqlite(path: Path) -> bool:
    if path.suffix not in (".db", ".sqlite"):
        return False
    with path.open("rb") as stream:
        return stream.read(len(_SQLITE)) == _SQLITE


def _sqlite_copy(path: Path, scratch: Path) -> Path:
    """A consistent copy of a data base that others may be writing to. https://www.sqlite.org/backup.html"""
    copy = scratch / "copy.sqlite"
    copy.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, timeout=60)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


class _Hashing:
    """A stream that hashes what is read from it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.digest.update(data)
        return data


def _add(tar: tarfile.TarFile, name: str, source: Path, original: Path) -> tuple[str, int]:
    """Add a file under a name, with the original's time and rights; returns its SHA-256 and size."""
    with source.open("rb") as stream:
        status = original.stat()
        info = tarfile.TarInfo(name)
        info.size = os.fstat(stream.fileno()).st_size
        info.mtime = status.st_mtime
        info.mode = status.st_mode & 0o777
        hashing = _Hashing(stream)
        # A file that is written to meanwhile, such as a log, counts as long as it was when it was opened.
        tar.addfile(info, hashing)
    return hashing.digest.hexdigest(), info.size


def _extract(archive: Path, staging: Path) -> Backup:
    try:
        with tarfile.open(archive, "r:") as tar:
            # Where Python has a filter (3.11.4), it looks as well.
            tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
            tar.extractall(staging, members=_plain(tar))
        manifest = staging / MANIFEST
        about = validate(Backup, _json(manifest), str(archive))
        manifest.unlink()
    except (tarfile.TarError, EOFError, FileNotFoundError, ValueError) as error:
        raise PermanentError(f"{archive} is not a whole backup of a home: {error}; take another one") from None
    if about.version > _VERSION:
        raise InputError(f"{archive} was made by a later version of EC1: restore it with that one")
    return about


def _json(path: Path) -> dict[str, Any]:
    import json

    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} is not an object")
    return value


def _plain(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Files only, none of which leads outside; theirs is who restores."""
    for member in tar:
        name = PurePosixPath(member.name)
        if not member.isfile() or name.is_absolute() or ".." in name.parts:
            raise tarfile.TarError(f"{member.name} is not a plain file")
        member.mode = member.mode & 0o755 | 0o600
        member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        yield member


def _check(staging: Path, about: Backup, archive: Path) -> int:
    """Compare every file with its digest; returns the bytes. Raises PermanentError."""
    found = {path.relative_to(staging).as_posix(): path for path in staging.rglob("*") if path.is_file()}
    if strange := sorted(found.keys() ^ about.files.keys()):
        raise PermanentError(f"{archive} is damaged: {strange[0]} is not in its list, or missing; take another one")
    for name, path in found.items():
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != about.files[name]:
                raise PermanentError(f"{archive} is damaged: {name} has other bytes than were backed up")
    return sum(path.stat().st_size for name, path in found.items() if name != DUMP)


def _postgres_url(home: Home, environment: Mapping[str, str]) -> str | None:
    """Where the home's Dagster instance is, if it is in PostgreSQL. Raises InputError if that cannot be told."""
    configuration = home.dagster / "dagster.yaml"
    storage = load_mapping(configuration).get("storage") if configuration.is_file() else None
    if storage is None:
        return None
    if not isinstance(storage, dict) or "postgres" not in storage:
        raise InputError(f"{configuration}: storage is neither SQLite nor postgres: back Dagster's storage up yourself")
    if not environment.get(POSTGRES_URL):
        raise InputError(f"{configuration} keeps Dagster's instance in PostgreSQL: set {POSTGRES_URL}")
    return environment[POSTGRES_URL]


def _fill_postgres(dump: Path, environment: Mapping[str, str]) -> None:
    url = environment.get(POSTGRES_URL)
    if not url:
        raise InputError(f"the backup holds a dump of PostgreSQL: set {POSTGRES_URL} to an empty data base")
    count = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
    if _postgres("psql", url, ["--tuples-only", "--no-align", "--command", count]).strip() != "0":
        raise InputError(f"the data base of {POSTGRES_URL} is not empty: restore into an empty one")
    _postgres("psql", url, ["--quiet", "--set", "ON_ERROR_STOP=1", "--single-transaction", "--file", str(dump)])


def _postgres(program: str, url: str, arguments: list[str]) -> str:
    """Run one of PostgreSQL's programs. The password goes through its environment: a command line is seen by all."""
    # Debian keeps them out of the path, by version.
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), key=lambda path: int(path.parts[-3]))
    found = str(versions[-1]) if versions else shutil.which(program)
    if found is None:
        raise ServiceError(f"{program} is not installed: install PostgreSQL's client (Debian: postgresql-client)")
    parts = urllib.parse.urlsplit(url)
    unquote: Callable[[str], str] = urllib.parse.unquote
    values = {
        "PGHOST": parts.hostname,
        "PGPORT": str(parts.port) if parts.port else None,
        "PGUSER": unquote(parts.username) if parts.username else None,
        "PGPASSWORD": unquote(parts.password) if parts.password else None,
        "PGDATABASE": unquote(parts.path.lstrip("/")) or None,
    }
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **{key: value for key, value in values.items() if value}}
    done = subprocess.run([found, *arguments], env=env, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise ServiceError(f"{program} failed: {lines[0] if lines else f'status {done.returncode}'}")
    return done.stdout
