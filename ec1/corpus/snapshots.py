"""Snapshots: an immutable copy of a bucket as of one moment, named by what is in it.

Belongs here: which lines count at a moment, the copy, its digest. Does not: reading the bucket's files (index), the
files that the lines are in (pieces), the decision to train (threshold).

A snapshot folder holds the trainable tuples in pieces (`tuples-<digest>.jsonl`), and in others (`rejects-….jsonl`) what
is not trainable, with the reason and the place but not the content; and `manifest.json`. It shares with the bucket's
snapshot before it every piece that lost no line, so that a night's snapshot costs what changed.
Each file is checked against the manifest (`ec1/seals.py`) before it is read. Snapshots of earlier releases, in
`tuples.jsonl`, `tuples.1.jsonl`, … with their keys in `lines.npy` and `trainable.npy`, are read as they are.
"""

import datetime as dt
import hashlib
import heapq
import itertools
import json
import logging
import shutil
import sqlite3
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ec1.corpus.access import is_allowed
from ec1.corpus.buckets import Bucket
from ec1.corpus.folders import CorpusFolders
from ec1.corpus.index import KEY_BYTES, RULES, LineIndex, microseconds
from ec1.corpus.pieces import (
    Keys,
    OpenFiles,
    PieceWriter,
    contained,
    entries_of,
    files_of,
    indexes_of,
    is_small,
    keys_in,
    keys_of,
    lines_at,
    lines_in,
    pieces_of,
    places_of,
    share,
)
from ec1.corpus.tombstones import Tombstones
from ec1.corpus.tuples import Objective, load_record
from ec1.errors import DamagedError, DeferredError, RejectedError
from ec1.files import canonical_json, checked_name, digest_of, staged_directory
from ec1.seals import FILES, Files, check_files, read_sealed, set_aside, write_sealed

log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 3
_MEND = "run the night that took it again, and it is built from the corpus"
_TUPLES, _REJECTS = "tuples", "rejects"
# Of earlier releases.
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
    ignored: tuple[str, ...] = ()
    """Keys of its rows that its recipe says change nothing that is learnt."""
    labels: tuple[str, ...] = ()
    """Access labels of tuples that it may hold: those of the recipe that it was taken for."""

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[SnapshotRow]:
        """The trainable tuples, in the order of their digests: all, or those with the numbers `start` up to `stop`, for
        which only the pieces that hold them are read and checked. Raises DamagedError."""
        if self.is_in_pieces:
            pieces = pieces_of(self.sealed, _TUPLES)
            self.check(indexes_of(pieces))
            places = places_of(self.path, pieces)[start:stop]
            self.check(files_of(pieces[number] for number in np.unique(places[:, 0])))
            lines = lines_at(self.path, pieces, places)
        else:
            names = sorted(name for name in self.sealed if name.startswith(_TUPLES))
            self.check(names)
            lines = itertools.islice(heapq.merge(*(_read_lines(self.path / name) for name in names)), start, stop)
        for line in lines:
            row = json.loads(line)
            yield SnapshotRow(row["digest"], f"{row['origin']['file']}:{row['origin']['line']}", row["tuple"])

    @property
    def is_in_pieces(self) -> bool:
        """False of a snapshot of an earlier release."""
        return f"{_TUPLES}.jsonl" not in self.sealed

    def line_keys(self) -> Keys:
        """The keys of all distinct lines, sorted. Raises DamagedError."""
        return self._keys((_TUPLES, _REJECTS), _LINES)

    def trainable_keys(self) -> Keys:
        """The keys of the trainable tuples, sorted. Raises DamagedError."""
        return self._keys((_TUPLES,), _TRAINABLE)

    def _keys(self, stems: Iterable[str], earlier: str) -> Keys:
        if not self.is_in_pieces:
            self.check([earlier])
            return np.asarray(np.load(self.path / earlier, allow_pickle=False), dtype=np.uint64)
        pieces = [piece for stem in stems for piece in pieces_of(self.sealed, stem)]
        self.check(indexes_of(pieces))
        return keys_of(self.path, pieces)

    def check_name(self) -> None:
        """Whether the lines give the digest that the snapshot is named by. Raises DamagedError."""
        if not self.digest == self.path.name == _digest(self.line_keys(), self.objective, self.labels, self.ignored):
            raise DamagedError(f"{self.path} is not what its name says: {_MEND}")

    def check(self, names: Iterable[str] | None = None) -> None:
        """Compare files, by default all, with the digests of when they were written. Raises DamagedError."""
        check_files(self.path, self.sealed, _MEND, names)

    def newer_than(self, other: "Snapshot | None") -> int:
        """How many trainable tuples are in this snapshot and not in the other one."""
        if other is not None and other.digest == self.digest:
            return 0
        mine = self.trainable_keys()
        return len(mine) if other is None else int((~contained(mine, other.trainable_keys())).sum())


def take_snapshot(
    bucket: Bucket,
    objective: Objective,
    *,
    as_of: dt.datetime,
    home: CorpusFolders,
    labels: Collection[str] = (),
    check_all: bool = False,
) -> Snapshot:
    """Copy what the bucket held at `as_of` (an aware time) and return the copy; the same content gives the same one.

    A file that was last modified by then counts whole. Of a file that was modified later, those lines count whose own
    time is not after `as_of`; the others might not have been there. A line that occurs twice counts once.
    Tuples with access labels are trainable for who has all of them in `labels`, and stay in the corpus for others.
    A damaged copy is built again; with `check_all` every byte of it is looked at, else only what counts the lines.
    Raises DeferredError if files keep changing while they are read.
    """
    with LineIndex(bucket, home.cache, Tombstones(home).refuses) as index:
        _sweep(home.snapshots / bucket.name)
        rebuilt = False
        for _ in range(_MAX_ATTEMPTS):
            try:
                index.refresh()
                return _take(index, bucket, objective, tuple(sorted(labels)), as_of, home, check_all)
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
        labels, ignored = (tuple(manifest.get(key, ())) for key in ("labels", "ignored"))
        values |= {"labels": labels, "ignored": ignored}
        return Snapshot(path=path, files=values.pop("files_read"), sealed=manifest[FILES], **values)
    except (KeyError, TypeError):
        raise DamagedError(f"{path / 'manifest.json'} is of another release: {_MEND}") from None


def mended_snapshot(
    bucket: Bucket,
    objective: Objective,
    digest: str,
    *,
    as_of: dt.datetime,
    home: CorpusFolders,
    why: DamagedError,
    labels: Collection[str] = (),
) -> Snapshot:
    """The snapshot of that digest, built again from the corpus. Raises DamagedError if the corpus is another by now."""
    snapshot = take_snapshot(bucket, objective, as_of=as_of, home=home, labels=labels, check_all=True)
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
class _Chosen:
    """The lines that count at a moment, each once, in the order of their keys: the `rows` of the index that they are
    in, whether the objective `accepted` them, and the order of their `places` in the corpus."""

    keys: Keys
    rows: NDArray[np.int64]
    accepted: NDArray[np.bool_]
    places: NDArray[np.int64]
    bytes: int
    files: int


# A file was there when it was indexed, whatever date it has.
_COUNTED = "(min(file.mtime_ns, file.indexed_ns) <= :moment * 1000 OR row.created_us <= :moment)"


def _take(
    index: LineIndex,
    bucket: Bucket,
    objective: Objective,
    labels: tuple[str, ...],
    as_of: dt.datetime,
    home: CorpusFolders,
    check_all: bool,
) -> Snapshot:
    allowed = [number for text, number in index.reasons().items() if is_allowed(text, labels)]
    chosen = _choose(index.db, objective, microseconds(as_of), allowed)
    digest = _digest(chosen.keys, objective, labels, bucket.ignored)
    final = home.snapshots / bucket.name / digest

    def build(base: Snapshot | None) -> None:
        with set_aside(final), staged_directory(final) as staging:
            _write(staging, index, chosen, bucket, objective, labels, digest, base)

    if not _is_whole(home, bucket.name, digest, check_all):
        base = None if check_all else _base(index, bucket.name, _named(objective, labels), home)
        try:
            build(base)
        except DamagedError as error:
            log.warning("%s; everything is copied from the corpus instead", error)
            build(None)
    index.db.execute("INSERT OR REPLACE INTO base VALUES (?, ?)", (_named(objective, labels), digest))
    return load_snapshot(home, bucket.name, digest)


def _is_whole(home: CorpusFolders, name: str, digest: str, all_of_it: bool) -> bool:
    """Whether a snapshot is there as it was written. Its tuples are read only if asked: they are checked again when a
    training reads them, and an unchanged corpus must not cost its size every night."""
    try:
        snapshot = load_snapshot(home, name, digest)
        snapshot.check(None if all_of_it else [name for name in snapshot.sealed if name.endswith(".npy")])
    except DamagedError:
        return False
    return all((snapshot.path / name).is_file() for name in snapshot.sealed)


def _named(objective: Objective, labels: tuple[str, ...]) -> str:
    """What distinguishes the snapshots of the same lines."""
    return f"{objective} with {', '.join(labels)}" if labels else objective


def _base(index: LineIndex, name: str, objective: str, home: CorpusFolders) -> Snapshot | None:
    """The bucket's last snapshot; the next one takes from it what did not change."""
    found = index.db.execute("SELECT digest FROM base WHERE objective = ?", (objective,)).fetchone()
    if found is None or not _is_whole(home, name, found[0], all_of_it=False):
        return None
    snapshot = load_snapshot(home, name, found[0])
    return snapshot if snapshot.is_in_pieces else None


def _choose(db: sqlite3.Connection, objective: Objective, moment: int, allowed: list[int]) -> _Chosen:
    """`allowed`: reasons of the index that do not hold for this snapshot."""
    # CROSS: by path and then by line, both from an index, so that nothing is sorted. A file's rows rise with its lines.
    found = db.execute(
        f"SELECT row.key, row.id, row.length, {_accepted(objective, allowed)}, file.id FROM file CROSS JOIN row "
        f"ON row.file = file.id WHERE {_COUNTED} ORDER BY file.path, row.id",
        {"moment": moment},
    )
    raw, rows, lengths, accepted, files = bytearray(), array("q"), array("L"), array("b"), array("q")
    while batch := found.fetchmany(10_000):
        keys, *columns = zip(*batch, strict=True)
        raw += b"".join(keys)
        for values, column in zip((rows, lengths, accepted, files), columns, strict=True):
            values.extend(column)
    keys_found: Keys = np.frombuffer(raw, dtype=">u8").astype(np.uint64).reshape(-1, 2)
    # Stable: of equal lines the first place comes first, and is the one that counts.
    order = np.lexsort((keys_found[:, 1], keys_found[:, 0]))
    ordered = keys_found[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    places = order[first]
    return _Chosen(
        keys=ordered[first],
        rows=np.frombuffer(rows, dtype=np.int64)[places],
        accepted=np.frombuffer(accepted, dtype=np.int8)[places].astype(bool),
        places=places,
        bytes=int(np.frombuffer(lengths, dtype=np.dtype("L"))[places].sum()),
        files=len(np.unique(np.frombuffer(files, dtype=np.int64))),
    )


def _accepted(objective: Objective, allowed: list[int]) -> str:
    return f"row.{objective} IS NULL OR row.{objective} IN ({', '.join(map(str, allowed))})"


def _write(
    staging: Path,
    index: LineIndex,
    chosen: _Chosen,
    bucket: Bucket,
    objective: Objective,
    labels: tuple[str, ...],
    digest: str,
    base: Snapshot | None,
) -> None:
    added = np.ones(len(chosen.keys), dtype=bool)
    rejected: Counter[str] = Counter()
    gone: Keys = chosen.keys[:0]
    if base is not None:
        before = base.line_keys()
        added = ~contained(chosen.keys, before)
        gone = before[~contained(before, chosen.keys)]
        rejected.update(base.rejected)
    shared: dict[str, Any] = {}
    with PieceWriter(staging, _TUPLES) as tuples, PieceWriter(staging, _REJECTS) as rejects:
        for stem, writer, fresh in (
            (_TUPLES, tuples, int((added & chosen.accepted).sum())),
            (_REJECTS, rejects, int((added & ~chosen.accepted).sum())),
        ):
            if base is not None:
                kept, removed = _carry_over(base, staging, stem, writer, gone, fresh)
                shared |= {name: base.sealed[name] for name in files_of(kept)}
                rejected.subtract(removed)
        rejected.update(_copy(tuples, rejects, index, chosen, added, bucket, objective))
    manifest = {
        "bucket": bucket.name,
        "objective": objective,
        "digest": digest,
        "rules": RULES,
        "lines": len(chosen.keys),
        "trainable": int(chosen.accepted.sum()),
        "rejected": {reason: count for reason, count in sorted(rejected.items()) if count},
        "files_read": chosen.files,
        "ignored": list(bucket.ignored),
        "bytes": chosen.bytes,
        **({"labels": labels} if labels else {}),
    }
    write_sealed(staging, manifest, {**shared, **tuples.files, **rejects.files})


def _carry_over(
    base: Snapshot, staging: Path, stem: str, writer: PieceWriter, gone: Keys, fresh: int
) -> tuple[list[str], Counter[str]]:
    """Share the pieces of the snapshot before, and write anew those that lose a line or are small beside the `fresh`
    lines that come; returns the shared ones, and how many lines went by their reason. Raises DamagedError."""
    left: dict[str, NDArray[np.bool_]] = {}
    untouched: list[tuple[int, str]] = []
    for piece in pieces_of(base.sealed, stem):
        entries = entries_of(base.path, piece)
        stays = ~contained(keys_in(entries), gone)
        if stays.all():
            untouched.append((len(entries), piece))
        else:
            left[piece] = stays
            fresh += int(stays.sum())
    # Few pieces, and each line is rarely copied again: of the small ones those not much larger than what comes.
    kept: list[str] = []
    for count, piece in sorted(untouched):
        if count < 2 * fresh and is_small(base.sealed[f"{piece}.jsonl"]["bytes"]):
            left[piece] = np.ones(count, dtype=bool)
            fresh += count
        else:
            kept.append(piece)
    base.check(files_of(left))
    removed: Counter[str] = Counter()
    for piece, stays in sorted(left.items()):
        entries = entries_of(base.path, piece)
        for entry, stay, line in zip(entries, stays, lines_in(base.path, piece, entries), strict=True):
            if stay:
                writer.add(int(entry["high"]), int(entry["low"]), line)
            elif stem == _REJECTS:
                removed[json.loads(line)["reason"]] += 1
    share(base.path, staging, kept)
    return kept, removed


def _copy(
    tuples: PieceWriter,
    rejects: PieceWriter,
    index: LineIndex,
    chosen: _Chosen,
    wanted: NDArray[np.bool_],
    bucket: Bucket,
    objective: Objective,
) -> Counter[str]:
    """Copy lines from the corpus, in the order of their places; returns the reasons' counts."""
    db, reasons = index.db, {number: text for text, number in index.reasons().items()}
    rejected: Counter[str] = Counter()
    db.execute("CREATE TEMP TABLE IF NOT EXISTS wanted (place INTEGER PRIMARY KEY, row INT, accepted INT)")
    db.execute("DELETE FROM wanted")
    columns = (chosen.places, chosen.rows, chosen.accepted)
    found = zip(*(column[wanted].tolist() for column in columns), strict=True)
    db.executemany("INSERT INTO wanted VALUES (?, ?, ?)", found)
    rows = db.execute(
        f"SELECT key, path, row.line, row.offset, length, wanted.accepted, {objective} FROM wanted "
        "CROSS JOIN row ON row.id = wanted.row CROSS JOIN file ON file.id = row.file ORDER BY wanted.place"
    )
    with OpenFiles(bucket.root) as files:
        for key, path, line, offset, length, accepted, reason in rows:
            try:
                raw = files.read(path, offset, length)
            except FileNotFoundError:
                raise _ChangedMeanwhile(path) from None
            halves = int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")
            origin = {"file": path, "line": line}
            if accepted:
                digest, record = _same_record(raw, key, path)
                tuples.add(*halves, canonical_json({"digest": digest, "origin": origin, "tuple": record}) + b"\n")
            else:
                entry = {"digest": key.hex(), "origin": origin, "reason": reasons[reason]}
                rejects.add(*halves, canonical_json(entry) + b"\n")
                rejected[reasons[reason]] += 1
    return rejected


def _same_record(raw: bytes, key: bytes, path: str) -> tuple[str, dict[str, Any]]:
    try:
        record = load_record(raw)
    except RejectedError:
        raise _ChangedMeanwhile(path) from None
    digest = digest_of(record)
    if bytes.fromhex(digest)[:KEY_BYTES] != key:
        raise _ChangedMeanwhile(path)
    return digest, record


def _read_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        yield from stream


def _sweep(folder: Path) -> None:
    """Remove what a killed process left behind; the caller holds the bucket's lock."""
    for path in folder.glob(".*"):
        shutil.rmtree(path, ignore_errors=True)


def _digest(lines: Keys, objective: Objective, labels: tuple[str, ...], ignored: Sequence[str]) -> str:
    keys = f", without {','.join(ignored)}" if ignored else ""
    hasher = hashlib.sha256(f"ec1 snapshot, rules {RULES}, {_named(objective, labels)}{keys}\n".encode())
    # As they are in the index: 16 bytes each, big-endian.
    hasher.update(lines.astype(">u8").tobytes())
    return hasher.hexdigest()
