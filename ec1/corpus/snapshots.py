"""Snapshots: an immutable copy of a bucket as of one moment, named by what is in it.

Belongs here: which lines count at a moment, the copy, its digest. Does not: reading the bucket's files (index), the
decision to train (threshold).

A snapshot folder holds the trainable tuples, sorted by digest, in `tuples.jsonl` or, as the bucket grows, in a few such
files (`tuples.1.jsonl`, …); what is not trainable in `rejects*.jsonl`, with the reason and the place but not the
content; the keys of all lines and of the trainable ones, sorted (`lines.npy`, `trainable.npy`); and `manifest.json`.
A snapshot that only adds to an earlier one shares its files by hard links, so that a night costs what is new.
Each file is checked against the manifest (`ec1/seals.py`) before it is read.
"""

import datetime as dt
import hashlib
import heapq
import itertools
import json
import logging
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ec1.corpus.buckets import Bucket
from ec1.corpus.folders import CorpusFolders
from ec1.corpus.index import KEY_BYTES, RULES, LineIndex, microseconds
from ec1.corpus.tombstones import Tombstones
from ec1.corpus.tuples import Objective, load_record
from ec1.errors import DamagedError, DeferredError, RejectedError
from ec1.files import canonical_json, checked_name, digest_of, staged_directory
from ec1.seals import FILES, Files, check_files, read_sealed, set_aside, write_sealed

log = logging.getLogger(__name__)

Keys = NDArray[np.uint64]
"""Sorted row keys, shape (n, 2): the high and the low half of each."""

_MAX_ATTEMPTS = 3
_MEND = "run the night that took it again, and it is built from the corpus"
_LINES, _TRAINABLE = "lines.npy", "trainable.npy"


@dataclass(frozen=True)
class SnapshotRow:
    """One trainable tuple of a snapshot. `origin` is where it stood: `file:line`, relative to the corpus root."""

    digest: str
    origin: str
    record: dict[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """A bucket as of one moment. `lines` are distinct lines, `trainable` those of them that its objective accepts;
    `rejected` counts the others by reason. `files` and `bytes` are what they were read from."""

    bucket: str
    objective: Objective
    digest: str
    path: Path
    lines: int
    trainable: int
    rejected: dict[str, int]
    files: int
    bytes: int
    sealed: Files

    def rows(self) -> Iterator[SnapshotRow]:
        """The trainable tuples, in the order of their digests. Raises DamagedError."""
        names = sorted(name for name in self.sealed if name.startswith("tuples"))
        self.check(names)
        for line in heapq.merge(*(_read_lines(self.path / name) for name in names)):
            row = json.loads(line)
            yield SnapshotRow(row["digest"], f"{row['origin']['file']}:{row['origin']['line']}", row["tuple"])

    def line_keys(self) -> Keys:
        """The keys of all distinct lines, sorted. Raises DamagedError."""
        self.check([_LINES])
        return _load_keys(self.path / _LINES)

    def trainable_keys(self) -> Keys:
        """The keys of the trainable tuples, sorted. Raises DamagedError."""
        self.check([_TRAINABLE])
        return _load_keys(self.path / _TRAINABLE)

    def check_name(self) -> None:
        """Whether the lines give the digest that the snapshot is named by. Raises DamagedError."""
        if not self.digest == self.path.name == _digest(self.line_keys(), self.objective):
            raise DamagedError(f"{self.path} is not what its name says: {_MEND}")

    def check(self, names: Iterable[str] | None = None) -> None:
        """Compare files, by default all, with the digests of when they were written. Raises DamagedError."""
        check_files(self.path, self.sealed, _MEND, names)

    def newer_than(self, other: "Snapshot | None") -> int:
        """How many trainable tuples are in this snapshot and not in the other one."""
        if other is not None and other.digest == self.digest:
            return 0
        mine = self.trainable_keys()
        return len(mine) if other is None else int((~_contained(mine, other.trainable_keys())).sum())


def take_snapshot(
    bucket: Bucket, objective: Objective, *, as_of: dt.datetime, home: CorpusFolders, check_all: bool = False
) -> Snapshot:
    """Copy what the bucket held at `as_of` (an aware time) and return the copy; the same content gives the same one.

    A file that was last modified by then counts whole. Of a file that was modified later, those lines count whose own
    time is not after `as_of`; the others might not have been there. A line that occurs twice counts once.
    A damaged copy is built again; with `check_all` every byte of it is looked at, else only what counts the lines.
    Raises DeferredError if files keep changing while they are read.
    """
    with LineIndex(bucket, home.cache, Tombstones(home).refuses) as index:
        _sweep(home.snapshots / bucket.name)
        rebuilt = False
        for _ in range(_MAX_ATTEMPTS):
            try:
                index.refresh()
                return _take(index, bucket, objective, as_of, home, check_all)
            except _ChangedMeanwhile as change:
                log.info("%s changed while it was read; trying again", change)
                index.forget(str(change))
            except sqlite3.DatabaseError:
                if rebuilt:
                    raise
                index.rebuild()
                rebuilt = True
    raise DeferredError(f"bucket {bucket.name}: its files change while they are read; it is tried again next night")


def load_snapshot(home: CorpusFolders, bucket_name: str, digest: str) -> Snapshot:
    """The snapshot of that digest. Raises DamagedError if it is not there, or its manifest is not as it was written."""
    path = home.snapshots / checked_name(bucket_name, "bucket") / checked_name(digest, "digest")
    manifest = read_sealed(path, _MEND)
    fields = ("bucket", "objective", "digest", "lines", "trainable", "rejected", "files_read", "bytes")
    try:
        values = {key: manifest[key] for key in fields}
        return Snapshot(path=path, files=values.pop("files_read"), sealed=manifest[FILES], **values)
    except (KeyError, TypeError):
        raise DamagedError(f"{path / 'manifest.json'} is of another release: {_MEND}") from None


def mended_snapshot(
    bucket: Bucket, objective: Objective, digest: str, *, as_of: dt.datetime, home: CorpusFolders, why: DamagedError
) -> Snapshot:
    """The snapshot of that digest, built again from the corpus. Raises DamagedError if the corpus is another by now."""
    snapshot = take_snapshot(bucket, objective, as_of=as_of, home=home, check_all=True)
    if snapshot.digest != digest:
        raise DamagedError(
            f"{why}. It was tried: the corpus has changed since {as_of:%Y-%m-%d %H:%M} UTC, so it can only come from a "
            "backup"
        )
    log.warning("built again from the corpus: %s", why)
    return snapshot


class _ChangedMeanwhile(Exception):
    """A file no longer holds what the index says; the message is its path."""


@dataclass(frozen=True)
class _Selection:
    """The index rows that count at a moment: all of them (no base), or those on top of an earlier snapshot."""

    base: Snapshot | None
    where: str
    values: dict[str, int]

    def keys(self, db: sqlite3.Connection, condition: str = "TRUE") -> Keys:
        found = db.execute(f"SELECT DISTINCT key FROM row WHERE {self.where} AND {condition}", self.values)
        keys = _sorted_keys(b"".join(key for (key,) in found))
        return keys if self.base is None else keys[~_contained(keys, self.base.line_keys())]


_COUNTED = "(file NOT IN (SELECT id FROM late) OR IFNULL(created_us, 1e18) <= :moment)"
_ADDED = "(row.id > :last_row OR row.id IN (SELECT id FROM excluded))"
# Beyond this many lines that were left out, remembering them costs more than selecting anew.
_MAX_EXCLUDED = 100_000


def _take(
    index: LineIndex, bucket: Bucket, objective: Objective, as_of: dt.datetime, home: CorpusFolders, check_all: bool
) -> Snapshot:
    db, moment = index.db, microseconds(as_of)
    db.execute("CREATE TEMP TABLE IF NOT EXISTS late (id INTEGER PRIMARY KEY)")
    db.execute("DELETE FROM late")
    db.execute("INSERT INTO late SELECT id FROM file WHERE mtime_ns > ?", (moment * 1000,))
    everything = _Selection(None, _COUNTED, {"moment": moment})
    selection = _added(index, bucket.name, objective, moment, home) or everything
    new = selection.keys(db)
    lines = new if selection.base is None else _merged(selection.base.line_keys(), new)
    digest = _digest(lines, objective)
    final = home.snapshots / bucket.name / digest
    if not _is_whole(home, bucket.name, digest, check_all):

        def build(chosen: _Selection) -> None:
            with set_aside(final), staged_directory(final) as staging:
                _write(staging, index, chosen, bucket, objective, lines, digest)

        try:
            build(everything if check_all else selection)
        except DamagedError as error:
            log.warning("%s; everything is copied from the corpus instead", error)
            build(everything)
    _remember(index, selection, objective, digest, moment)
    return load_snapshot(home, bucket.name, digest)


def _is_whole(home: CorpusFolders, name: str, digest: str, all_of_it: bool) -> bool:
    """Whether a snapshot is there as it was written. Its tuples are read only if asked: they are checked again when a
    training reads them, and an unchanged corpus must not cost its size every night."""
    try:
        snapshot = load_snapshot(home, name, digest)
        quick = [name for name in snapshot.sealed if name in (_LINES, _TRAINABLE)]
        snapshot.check(None if all_of_it else quick)
    except DamagedError:
        return False
    return all((snapshot.path / name).is_file() for name in snapshot.sealed)


def _added(index: LineIndex, name: str, objective: Objective, moment: int, home: CorpusFolders) -> _Selection | None:
    """What came on top of the last snapshot, or None if something of that one no longer counts."""
    db = index.db
    taken = db.execute(
        "SELECT digest, as_of_us, last_row, generation, excluded FROM taken WHERE objective = ?", (objective,)
    ).fetchone()
    if taken is None:
        return None
    digest, as_of_us, last_row, generation, excluded = taken
    if generation != index.generation or moment < as_of_us:
        return None
    if not _is_whole(home, name, digest, all_of_it=False):
        return None
    db.execute("CREATE TEMP TABLE IF NOT EXISTS excluded (id INTEGER PRIMARY KEY)")
    db.execute("DELETE FROM excluded")
    db.executemany("INSERT INTO excluded VALUES (?)", ((identifier,) for identifier in json.loads(excluded)))
    values = {"moment": moment, "last_row": last_row}
    # CROSS: the few late files first, and their rows by index, whatever SQLite guesses of a table it has no figures of.
    gone = db.execute(
        f"SELECT 1 FROM late CROSS JOIN row ON row.file = late.id WHERE NOT {_ADDED} "
        "AND IFNULL(created_us, 1e18) > :moment LIMIT 1",
        values,
    ).fetchone()
    return None if gone else _Selection(load_snapshot(home, name, digest), f"{_ADDED} AND {_COUNTED}", values)


def _remember(index: LineIndex, selection: _Selection, objective: Objective, digest: str, moment: int) -> None:
    """Note what this snapshot left out, so that the next one can build on it."""
    db = index.db
    last_row = db.execute("SELECT IFNULL(MAX(id), 0) FROM row").fetchone()[0]
    candidates = "TRUE" if selection.base is None else _ADDED
    left_out = db.execute(
        f"SELECT row.id FROM row WHERE {candidates} AND NOT {_COUNTED} LIMIT {_MAX_EXCLUDED + 1}", selection.values
    ).fetchall()
    if len(left_out) > _MAX_EXCLUDED:
        db.execute("DELETE FROM taken WHERE objective = ?", (objective,))
        return
    excluded = json.dumps([identifier for (identifier,) in left_out])
    db.execute(
        "INSERT OR REPLACE INTO taken VALUES (?, ?, ?, ?, ?, ?)",
        (objective, digest, moment, last_row, index.generation, excluded),
    )


def _write(
    staging: Path,
    index: LineIndex,
    selection: _Selection,
    bucket: Bucket,
    objective: Objective,
    lines: Keys,
    digest: str,
) -> None:
    base = selection.base
    parts = [] if base is None else list(read_sealed(base.path, _MEND)["parts"])
    tuples, rejects = staging / "tuples.new", staging / "rejects.new"
    rejected, size = _copy(tuples, rejects, index, selection, bucket, objective)
    written = {"tuples": len(selection.keys(index.db, f"{objective} IS NULL")), "rejects": sum(rejected.values())}
    # A new part takes in those before it that are not much larger: few parts, and each line is rarely copied again.
    absorbed: list[int] = []
    while parts and sum(parts[-1].values()) < 2 * sum(written.values()):
        absorbed.append(len(parts) - 1)
        written = {key: count + parts[-1][key] for key, count in written.items()}
        parts.pop()
    shared: dict[str, Mapping[str, Any]] = {}
    for number in range(len(parts)):
        assert base is not None
        for stem in ("tuples", "rejects"):
            _link(base.path / _part(stem, number), staging / _part(stem, number))
            shared[_part(stem, number)] = base.sealed[_part(stem, number)]
    for stem, added in (("tuples", tuples), ("rejects", rejects)):
        target = staging / _part(stem, len(parts))
        if absorbed:
            assert base is not None
            earlier = [_part(stem, number) for number in absorbed]
            base.check(earlier)
            sources = [added, *(base.path / name for name in earlier)]
            with target.open("wb") as output:
                output.writelines(heapq.merge(*(_read_lines(path) for path in sources)))
            added.unlink()
        else:
            added.rename(target)
    parts.append(written)
    trainable = selection.keys(index.db, f"{objective} IS NULL")
    if base is not None:
        trainable = _merged(base.trainable_keys(), trainable)
        rejected.update(base.rejected)
        size += base.bytes
    np.save(staging / _LINES, lines, allow_pickle=False)
    np.save(staging / _TRAINABLE, trainable, allow_pickle=False)
    files = index.db.execute(
        "SELECT COUNT(*) FROM file WHERE lines > 0 AND (id NOT IN (SELECT id FROM late) OR EXISTS "
        "(SELECT 1 FROM row WHERE row.file = file.id AND row.created_us <= :moment))",
        selection.values,
    ).fetchone()[0]
    manifest = {
        "bucket": bucket.name,
        "objective": objective,
        "digest": digest,
        "rules": RULES,
        "lines": len(lines),
        "trainable": len(trainable),
        "rejected": dict(rejected),
        "files_read": files,
        "bytes": size,
        "parts": parts,
    }
    write_sealed(staging, manifest, shared)


def _copy(
    tuples: Path, rejects: Path, index: LineIndex, selection: _Selection, bucket: Bucket, objective: Objective
) -> tuple[Counter[str], int]:
    """Copy the selected lines, sorted by digest, each once; returns the reasons' counts and the bytes copied."""
    reasons = {number: text for text, number in index.reasons().items()}
    rejected: Counter[str] = Counter()
    size = 0
    known = None if selection.base is None else {bytes(key) for key in _as_bytes(selection.keys(index.db))}
    rows = index.db.execute(
        f"SELECT key, path, row.line, row.offset, length, {objective} FROM row JOIN file ON file.id = row.file "
        f"WHERE {selection.where} ORDER BY key, path, row.line",
        selection.values,
    )
    with _Files(bucket.root) as files, tuples.open("wb") as accepted, rejects.open("wb") as refused:
        for key, group in itertools.groupby(rows, key=lambda row: row[0]):
            if known is not None and key not in known:
                continue
            _, path, line, offset, length, reason = next(group)
            raw = files.read(path, offset, length)
            size += length
            origin = {"file": path, "line": line}
            if reason is None:
                record = _same_record(raw, key, path)
                accepted.write(canonical_json({"digest": digest_of(record), "origin": origin, "tuple": record}) + b"\n")
            else:
                refused.write(
                    canonical_json({"digest": key.hex(), "origin": origin, "reason": reasons[reason]}) + b"\n"
                )
                rejected[reasons[reason]] += 1
    return rejected, size


def _same_record(raw: bytes, key: bytes, path: str) -> dict[str, Any]:
    try:
        record = load_record(raw)
    except RejectedError:
        raise _ChangedMeanwhile(path) from None
    if bytes.fromhex(digest_of(record))[:KEY_BYTES] != key:
        raise _ChangedMeanwhile(path)
    return record


class _Files:
    """Reads pieces of many files in any order, with a bounded number of them open."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: dict[str, BinaryIO] = {}

    def __enter__(self) -> "_Files":
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._open.values():
            stream.close()

    def read(self, path: str, offset: int, length: int) -> bytes:
        stream = self._open.pop(path, None)
        if stream is None:
            if len(self._open) >= 128:
                self._open.pop(next(iter(self._open))).close()
            try:
                stream = (self._root / path).open("rb")
            except FileNotFoundError:
                raise _ChangedMeanwhile(path) from None
        self._open[path] = stream
        return os.pread(stream.fileno(), length, offset)


def _part(stem: str, number: int) -> str:
    return f"{stem}.{number}.jsonl" if number else f"{stem}.jsonl"


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        # A file system without hard links: the copy costs time and room, nothing else.
        shutil.copyfile(source, target)


def _read_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        yield from stream


def _sweep(folder: Path) -> None:
    """Remove what a killed process left behind; the caller holds the bucket's lock."""
    for path in folder.glob(".*"):
        shutil.rmtree(path, ignore_errors=True)


def _digest(lines: Keys, objective: Objective) -> str:
    hasher = hashlib.sha256(f"ec1 snapshot, rules {RULES}, {objective}\n".encode())
    hasher.update(_as_bytes(lines).tobytes())
    return hasher.hexdigest()


def _as_bytes(keys: Keys) -> NDArray[np.void]:
    """Keys as they are in the index: 16 bytes each, big-endian."""
    return np.ascontiguousarray(keys, dtype=">u8").view(np.dtype((np.void, KEY_BYTES))).reshape(-1)


def _load_keys(path: Path) -> Keys:
    keys: Keys = np.load(path, mmap_mode="r", allow_pickle=False)
    return keys


def _sorted_keys(data: bytes) -> Keys:
    keys: Keys = np.frombuffer(data, dtype=">u8").astype(np.uint64).reshape(-1, 2)
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    return np.asarray(keys[order])


def _merged(keys: Keys, added: Keys) -> Keys:
    """Two sorted sets of keys that share none, as one."""
    if not len(added):
        return keys
    merged = np.insert(keys, np.searchsorted(keys[:, 0], added[:, 0]), added, axis=0)
    # Only where two high halves are equal can the insertion have missed the order of the low ones.
    if bool((merged[1:, 0] == merged[:-1, 0]).any()):
        merged = merged[np.lexsort((merged[:, 1], merged[:, 0]))]
    return merged


def _contained(keys: Keys, within: Keys) -> NDArray[np.bool_]:
    """For each of `keys`, whether it is one of `within`; both are sorted."""
    if not len(within):
        return np.zeros(len(keys), dtype=bool)
    if bool((within[1:, 0] == within[:-1, 0]).any()):
        known = {bytes(key) for key in _as_bytes(within)}
        return np.array([bytes(key) in known for key in _as_bytes(keys)], dtype=bool)
    place = np.minimum(np.searchsorted(within[:, 0], keys[:, 0]), len(within) - 1)
    return np.asarray((within[place] == keys).all(axis=1))
