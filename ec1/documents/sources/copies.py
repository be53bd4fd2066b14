"""Copies of what sources and containers hold, so that the scan finds files: nothing unchanged is read again.

Belongs here: which version of what was copied, what has to be copied now, and what is removed. Does not: where it comes
from (`source.py`), and what it means for the graph (`ec1.documents.scan`).

The copies lie in the cache: they may be deleted at any time, and are made again. A copy is written before its row, and
removed after it is known that the source no longer has it, so that a crash costs time and nothing else.
"""

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ec1.documents.sources.source import Item, has_hidden_part, places
from ec1.errors import PermanentError, RejectedError
from ec1.files import write_atomic

_SCHEMA = """
CREATE TABLE IF NOT EXISTS copies (
    folder TEXT NOT NULL, path TEXT NOT NULL, version TEXT NOT NULL, problem TEXT NOT NULL, PRIMARY KEY (folder, path)
);
CREATE TABLE IF NOT EXISTS folders (folder TEXT PRIMARY KEY, signature TEXT NOT NULL, stream TEXT NOT NULL);
"""
INDEX = ".copies.sqlite"
"""Its name begins with a dot, so that it is not taken for a document."""
Row = tuple[str, str]
"""Version and problem; the problem is "" where there is a copy."""


@dataclass(frozen=True)
class Brought:
    """What bringing changed: files that were read from the source, and copies that were removed."""

    read: int
    removed: int


class Copies:
    """The copies below one folder. A context manager; each row is kept as soon as its file is."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __enter__(self) -> "Copies":
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            self._connect()
        except sqlite3.DatabaseError:
            # A damaged index: begin again.
            shutil.rmtree(self.root)
            self.root.mkdir(parents=True)
            self._connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def _connect(self) -> None:
        self._database = sqlite3.connect(self.root / INDEX, isolation_level=None, timeout=60)
        # A row that a crash loses costs one reading.
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.executescript(_SCHEMA)

    def folders(self) -> dict[str, Row]:
        """What is copied here: by folder, the signature that it had then and the stream that it is for."""
        found = self._database.execute("SELECT folder, signature, stream FROM folders WHERE folder <> ''")
        return {folder: (signature, stream) for folder, signature, stream in found}

    def made_by(self, rules: str) -> bool:
        """Whether the copies were made by these rules; if not, they are removed, and the next ones are."""
        before = self._database.execute("SELECT signature FROM folders WHERE folder = ''").fetchone()
        if before == (rules,):
            return True
        for folder in self.folders():
            self.remove(folder)
        self._database.execute("INSERT OR REPLACE INTO folders VALUES ('', ?, '')", (rules,))
        return False

    def files(self, folder: str) -> dict[str, str]:
        """The copies of a folder with their versions."""
        return {path: row[0] for path, row in self._rows(folder).items() if (self.root / folder / path).is_file()}

    def problems(self, stream: str) -> dict[str, Row]:
        """What of a stream could not be copied, by its path below the root: version and reason."""
        query = "SELECT folder, path, version, problem FROM copies JOIN folders USING (folder) WHERE stream = ?"
        rows = self._database.execute(f"{query} AND problem <> ''", (stream,))
        return {f"{folder}/{path}".rstrip("/"): (version, problem) for folder, path, version, problem in rows}

    def refuse(self, folder: str, path: str, problem: str, *, version: str, stream: str, signature: str = "") -> None:
        """Keep why a file of a folder cannot be read, or the folder itself, with `path` "" and its `signature`."""
        self._keep(folder, path, (version, problem))
        if not path:
            self._sign(folder, signature, stream)

    def bring(
        self,
        folder: str,
        items: Iterable[Item],
        wanted: Callable[[str], bool],
        *,
        stream: str,
        max_bytes: int,
        signature: str = "",
        check: Callable[[int, int], None] = lambda known, gone: None,
    ) -> Brought:
        """Let `<root>/<folder>` hold the `wanted` of a source's items, by name; what the source no longer has is
        removed.

        `check` gets how many copies there were and how many of them are to go, and may raise. Raises what the source
        raises; then nothing was removed. `signature` is kept with the folder.
        """
        found = places(item for item in items if wanted(item.name) and not has_hidden_part(item.name))
        known = self._rows(folder)
        if not (known or found):
            return Brought(0, 0)
        gone = known.keys() - found.keys()
        check(len(known), len(gone))
        # Before anything is written: where a file was there may be a folder now.
        for path in gone:
            self._remove(folder, path)
        read = 0
        for path, item in found.items():
            target = self.root / folder / path
            version, problem = known.get(path, ("", ""))
            if version != item.version or not (problem or target.is_file()):
                read += self._copy(folder, path, item, target, max_bytes)
        self._sign(folder, signature, stream)
        return Brought(read, len(gone))

    def open_again(self, folder: str, stream: str) -> None:
        """Have the next scan open a container again; its copies stay."""
        self._sign(folder, "", stream)

    def remove(self, folder: str) -> None:
        """Remove all copies of a folder and of those in it."""
        shutil.rmtree(self.root / folder, ignore_errors=True)
        inside = f"{folder}/"
        for table in ("copies", "folders"):
            query = f"DELETE FROM {table} WHERE folder = ? OR substr(folder, 1, ?) = ?"
            self._database.execute(query, (folder, len(inside), inside))

    def _sign(self, folder: str, signature: str, stream: str) -> None:
        self._database.execute("INSERT OR REPLACE INTO folders VALUES (?, ?, ?)", (folder, signature, stream))

    def _rows(self, folder: str) -> dict[str, Row]:
        query = "SELECT path, version, problem FROM copies WHERE folder = ?"
        return {path: (version, problem) for path, version, problem in self._database.execute(query, (folder,))}

    def _copy(self, folder: str, path: str, item: Item, target: Path, max_bytes: int) -> int:
        """Copy one item; returns how many were read (1, or 0 where it was not)."""
        if item.size is not None and item.size > max_bytes:
            # Without its version, so that another limit counts at once.
            target.unlink(missing_ok=True)
            self._keep(folder, path, ("", f"{item.size:,} bytes are more than documents.max_bytes ({max_bytes:,})"))
            return 0
        try:
            data = item.read()
        except FileNotFoundError:
            # It went between the list and the reading; the next list says so.
            return 0
        except RejectedError as error:
            target.unlink(missing_ok=True)
            self._keep(folder, path, (item.version, str(error)))
            return 0
        try:
            write_atomic(target, data)
        except OSError as error:
            raise PermanentError(f"{target} cannot be written: {error.strerror}; free or mend {self.root}") from None
        os.utime(target, ns=(item.modified_ns, item.modified_ns))
        self._keep(folder, path, (item.version, ""))
        return 1

    def _keep(self, folder: str, path: str, row: Row) -> None:
        self._database.execute("INSERT OR REPLACE INTO copies VALUES (?, ?, ?, ?)", (folder, path, *row))

    def _remove(self, folder: str, path: str) -> None:
        target = self.root / folder / path
        if path:
            target.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            while path and target.parent != self.root / folder:
                target = target.parent
                target.rmdir()
        self._database.execute("DELETE FROM copies WHERE folder = ? AND path = ?", (folder, path))
