"""The database file under the live graph: opening, recovery, memory, one statement, one transaction.

Belongs here: whatever any user of LadybugDB needs. Does not: what is written (`changes.py`, `ladybug_store.py`).

How LadybugDB 0.22 wants to be used (each point was measured, see `benchmarks/apply_entities.py`):
- `LOAD FROM $batch MATCH (n {key: …})` goes through the key's index, so its time does not grow with the graph; `MERGE`
  and `UNWIND … MERGE` scan the whole table. So: look up, then CREATE what is missing and SET what changed.
- From a document or an entity to its mentions, `LOAD FROM` scans all of them (and filled a 256 MiB pool at 600,000);
  one prepared single-row query per node does not.
- A write that the disk refuses leaves a database whose closing aborts the process (SIGABRT): it is left open.
- The live file must not be opened, hashed or copied while the database is open: see `writer_lock.py`.
- https://docs.ladybugdb.com/concurrency
"""

import contextlib
import ctypes
import fcntl
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ec1 import refused
from ec1.damage import damaged
from ec1.errors import BusyError, DamagedError, DiskError, PermanentError
from ec1.files import fsync_dir, write_atomic
from ec1.graph import file_seal, tables
from ec1.graph.upgrade import upgrade

log = logging.getLogger(__name__)

BATCH_MENTIONS = 10_000
"""A transaction holds whole documents, up to about this many mentions."""

# A connection keeps the plan of a query for every Arrow table that it was ever given, 256 KiB of the pool a time, and
# the database keeps what was written since it was opened, about 100 KiB a small document even after a checkpoint: 250
# documents one by one filled 64 MiB. Renewing a connection takes 0.1 ms, opening the database again 50 ms.
_LOADS_PER_CONNECTION = 40
_TRANSACTIONS_PER_OPENING = 200
_MENTIONS_PER_OPENING = 50_000
_FICLONE = 0x40049409
"""Linux's request to share a file's blocks: `man ioctl_ficlonerange`."""
_LEAST_FREE_BYTES = 16 * 2**20
_DAMAGE = (
    *("wal file", "not a valid lbug database", "cannot read", "reading past", "corrupt", "checksum"),
    *("assertion", "serializ", "std::", "vector", "damaged on the disk"),
)
"""What it says of an open database that a disk changed. Of one that cannot be opened the seal says whether it is
damaged, whatever the words."""


class GraphDatabase:
    """One open live database. Used by the one writer, which holds its lock (`writer_lock.py`)."""

    def __init__(self, path: Path, *, buffer_pool_mib: int, published: Path | None) -> None:
        self.path = path
        self.connection: Any = None
        self.recovered: str | None = None
        """None, or what was wrong with the live graph and what took its place when it was opened."""
        self.written = 0
        """Mentions written and taken back since the database was opened; `make_room` looks at it."""
        self._buffer_pool = buffer_pool_mib * 2**20
        self._published = published
        self._pid = os.getpid()
        self._database: Any = None
        self._loads = self._transactions = 0
        self._refused = False
        """Whether the disk refused a write: then the open database can only be left."""

    def open_or_recover(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # A missing or empty file would be opened as a new, empty graph.
        empty = not self.path.exists() or self.path.stat().st_size == 0
        problem = None
        if self._marker.exists():
            problem = "a recovery was interrupted"
        elif empty and (self.companions() or self._has_published()):
            problem = f"{self.path} is {'empty' if self.path.exists() else 'missing'}"
        elif file_seal.is_damaged(self.path):
            problem = f"{self.path} is not as it was written"
        problem = problem or self._connect_checked(as_written=file_seal.is_current(self.path) and not self.companions())
        if problem is not None:
            self._recover(problem)
        if tables.meta(self.connection)["schema"] != tables.SCHEMA_VERSION:
            self._upgrade()

    def _connect_checked(self, *, as_written: bool) -> str | None:
        """Open the database; what a crash or a stranger left is read from end to end. Returns what is wrong with it.

        `as_written`: its bytes are those that were sealed, so that whatever keeps it from being opened is not damage.
        """
        unknown = self.path.exists() and self.path.stat().st_size > 0 and not file_seal.is_current(self.path)
        if unknown:
            # Damage may end the whole process: the next one must not try it again.
            write_atomic(self._marker, "its check did not end")
        try:
            self.connect()
            if unknown:
                self._compare_totals()
        except _UnopenedError as error:
            self.close()
            # A file that another program wrote is not as it was sealed either. Without a copy it is left as it is.
            if as_written or ("different version" in str(error) and not self._has_published()):
                self._marker.unlink(missing_ok=True)
                raise PermanentError(
                    f"{self.path} was written by another version of ladybug or EC1 ({error}): install that version"
                ) from None
            return str(error)
        except BaseException:
            self._marker.unlink(missing_ok=True)
            raise
        self._marker.unlink(missing_ok=True)
        return None

    def _compare_totals(self) -> None:
        with _translated(self.path, opening=True):
            try:
                if tables.totals(self.connection).digest == tables.recount(self.connection).digest:
                    return
            except (ValueError, KeyError, TypeError):
                pass
        raise _UnopenedError(f"{self.path} does not hold what it says it holds")

    def connect(self) -> None:
        import ladybug

        self._loads = self._transactions = self.written = 0
        with _translated(self.path, opening=True):
            # One thread: the queries are small, and waking a second one for each took twice the time on a busy machine.
            self._database = ladybug.Database(self.path, buffer_pool_size=self._buffer_pool, max_num_threads=1)
            self.connection = ladybug.Connection(self._database)
            # Otherwise closing rewrites the file even where nothing was written.
            self.connection.execute("CALL force_checkpoint_on_close=false").close()
            record = tables.meta(self.connection)
            if not record:
                self._create_tables()
            elif record.get("schema") in tables.TWO_WAY_SCHEMAS:
                self._add_tables()
            elif record.get("schema") != tables.SCHEMA_VERSION:
                raise PermanentError(
                    f"{self.path} has schema {record.get('schema')}, this program needs {tables.SCHEMA_VERSION}: run "
                    "the version of EC1 that wrote it"
                )

    def make_room(self) -> None:
        import ladybug

        if self._transactions >= _TRANSACTIONS_PER_OPENING or self.written >= _MENTIONS_PER_OPENING:
            self.checkpoint_if_written()
            self.close()
            self.connect()
        elif self._loads >= _LOADS_PER_CONNECTION:
            self.connection.close()
            self.connection = ladybug.Connection(self._database)
            self._loads = 0

    def _add_tables(self) -> None:
        for statement in (*tables.SCHEMA, *tables.RESOLUTION_SCHEMA):
            self.execute(statement)

    def _upgrade(self) -> None:
        """Let a copy with the present tables take the place of an earlier version's graph."""
        self._check_space()
        log.info("%s is brought to schema %s", self.path, tables.SCHEMA_VERSION)
        self.execute("CHECKPOINT")
        self.close()
        copy = self.path.with_name(f".{self.path.name}.upgrading")
        for left in self.path.parent.glob(f"{copy.name}*"):
            left.unlink()
        shutil.copyfile(self.path, copy)
        with _translated(self.path):
            upgrade(copy, self._buffer_pool)
        self.replace_closed(copy)
        self.connect()

    def replace_closed(self, graph: Path) -> None:
        """Move a closed database file into the closed live one's place, in one step."""
        # An old log beside the new file would be replayed into it. After a checkpoint it holds nothing.
        for path in self.companions():
            path.unlink(missing_ok=True)
        move_into_place(graph, self.path)

    def _create_tables(self) -> None:
        self._add_tables()
        # One statement, so both records appear together and last: an interrupted start is simply done again.
        self.execute(
            "CREATE (:Meta {name: 'schema', value: $schema}), (:Meta {name: 'state', value: $state})",
            {"schema": tables.SCHEMA_VERSION, "state": uuid.uuid4().hex},
        )

    def checkpoint_if_written(self) -> None:
        if self._transactions and self.connection is not None:
            self.execute("CHECKPOINT")
            self._transactions = 0

    def close(self) -> None:
        connection, database = self.connection, self._database
        self.connection = self._database = None
        if self._refused and database is not None:
            # Closing would write its log once more, and end the whole process when that fails too.
            for each in (connection, database):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
            return
        if connection is not None:
            connection.close()
        if database is not None:
            database.close()

    def seal(self) -> None:
        """Note what the closed file holds, so that the next opening notices what the disk changed."""
        if self.path.exists() and not any(path.stat().st_size for path in self.companions()):
            file_seal.seal(self.path)

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Close the database for as long as the block runs: only then may its file be read or replaced."""
        with self.reading():
            self.connection.execute("CHECKPOINT").close()
        self.close()
        try:
            yield
        finally:
            self.connect()

    @property
    def _marker(self) -> Path:
        return _marker_of(self.path)

    def companions(self) -> list[Path]:
        """The database's own files beside the live one: its log and what a checkpoint leaves."""
        kept = (".lock", ".recovering", ".damaged", ".resolution", file_seal.SUFFIX)
        ours = tuple(self.path.name + suffix for suffix in kept)
        return [path for path in sorted(self.path.parent.glob(f"{self.path.name}.*")) if not path.name.startswith(ours)]

    def _has_published(self) -> bool:
        return self._published is not None and self._published.is_file() and self._published.stat().st_size > 0

    def _recover(self, problem: str) -> None:
        self.close()
        aside = self.path.with_name(self.path.name + ".damaged")
        if not self._marker.exists():
            shutil.rmtree(aside, ignore_errors=True)
        # While the marker stands, whatever lies at the live path is not trusted.
        write_atomic(self._marker, problem)
        aside.mkdir(exist_ok=True)
        self._move_to(aside)
        worse = self._restore()
        if worse is not None:
            self._move_to(aside)
        if worse is None and self._has_published():
            self.recovered = f"{problem}; restored {self._published}, damaged files are in {aside}"
        else:
            also = f" (the published copy: {worse})" if worse else ""
            self.recovered = f"{problem}{also}; started empty, damaged files are in {aside}"
        self._marker.unlink(missing_ok=True)
        if self.connection is None:
            self.connect()
        fsync_dir(self.path.parent)
        damaged(log, self.path, f"graph recovered: {self.recovered}")

    def _move_to(self, aside: Path) -> None:
        # The log goes first: an old log beside the restored file would be replayed into it.
        for path in [*self.companions(), self.path]:
            if path.exists():
                path.replace(aside / path.name)

    def _restore(self) -> str | None:
        """Put the published copy in the live one's place, and open it. Returns what is wrong with it."""
        if self._published is None or not self._has_published():
            return None
        if file_seal.is_damaged(self._published):
            return f"{self._published} is not as it was written"
        copy_into_place(self._published, self.path)
        return self._connect_checked(as_written=file_seal.is_current(self._published))

    def state_of(self, destination: Path) -> str | None:
        """The state that a published copy holds; None if it cannot be read and must be written again."""
        import ladybug

        try:
            with (
                ladybug.Database(destination, read_only=True, buffer_pool_size=2**26) as database,
                ladybug.Connection(database) as connection,
            ):
                return tables.meta(connection).get("state")
        except RuntimeError:
            return None

    def write_nodes(self, label: str, columns: tuple[str, ...], nodes: list[dict[str, Any]]) -> None:
        values = ", ".join(f"{name}: row_{name}" for name in columns)
        self.load(
            f"LOAD FROM $batch CREATE (:{label} {{{values}}})",
            [{name: node[name] for name in columns} for node in nodes],
        )

    def set_nodes(self, label: str, columns: tuple[str, ...], nodes: list[dict[str, Any]]) -> None:
        values = ", ".join(f"n.{name} = row_{name}" for name in columns if name != "key")
        self.load(
            f"LOAD FROM $batch MATCH (n:{label} {{key: row_key}}) SET {values}",
            [{name: node[name] for name in columns} for node in nodes],
        )

    def load(self, query: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Run a query that reads `$batch`; with no records there is nothing to do (an empty list is an error there)."""
        if not records:
            return []
        return self.load_columns(query, {name: [record[name] for record in records] for name in records[0]})

    def load_columns(self, query: str, columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
        """Run a query that reads `$batch`, whose columns are named `row_…` so that no query takes them for a node's."""
        import pyarrow as pa

        self._loads += 1
        arrays = [pa.array(values, type=arrow_type(name, pa)) for name, values in columns.items()]
        batch = pa.Table.from_arrays(arrays, names=[f"row_{name}" for name in columns])
        return self.execute(query, {"batch": batch})

    def execute(self, query: str, parameters: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        with self._watched():
            return tables.rows(self.connection, query, parameters)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            with _translated(self.path):
                yield
        except DiskError:
            self._refused = True
            raise

    def spoilt(self, what: str) -> DamagedError:
        """Damage that was noticed while the graph is open: the next opening restores the published copy."""
        return _spoilt(self.path, what)

    def check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError("this graph store was opened before a fork: open it in the process that uses it")
        if self.connection is None:
            raise RuntimeError(f"the graph store {self.path} is closed")

    def _check_space(self) -> None:
        """The database ends the whole process when the disk fills while it writes its log, so that must not begin.

        The log, the file itself after a checkpoint, and a copy of it to publish: three times the graph.
        """
        wanted = 3 * (self.path.stat().st_size if self.path.exists() else 0) + _LEAST_FREE_BYTES
        free = shutil.disk_usage(self.path.parent).free
        if free < wanted:
            raise PermanentError(
                f"{self.path.parent} has {free / 2**20:,.0f} MiB free, and writing the graph safely takes "
                f"{wanted / 2**20:,.0f} MiB (three times its size): free some space, then run the night again"
            )

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        self.check_usable()
        with self._watched():
            yield

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self._check_space()
        self._transactions += 1
        self.execute("BEGIN TRANSACTION")
        try:
            yield
            state = {"state": uuid.uuid4().hex}
            self.execute("MATCH (m:Meta {name: 'state'}) SET m.value = $state", state)
            self.execute("COMMIT")
        except BaseException:
            # An error inside the database has already rolled back, and says that there is nothing to roll back.
            with contextlib.suppress(RuntimeError):
                self.connection.execute("ROLLBACK").close()
            raise


def _marker_of(path: Path) -> Path:
    return path.with_name(path.name + ".recovering")


def _spoilt(path: Path, what: str) -> DamagedError:
    write_atomic(_marker_of(path), what)
    return DamagedError(f"{path}: {what}: the published copy takes its place as soon as it is opened again")


class _UnopenedError(Exception):
    """The live graph's files cannot be opened as they are. Whether that is damage, their seal says."""


@contextlib.contextmanager
def _translated(path: Path, *, opening: bool = False) -> Iterator[None]:
    """LadybugDB raises RuntimeError for everything: tell its messages apart."""
    try:
        yield
    except RuntimeError as error:
        message = str(error).splitlines()[0] if str(error) else "no message"
        low = message.replace(str(path), "").lower()
        if "could not set lock" in low:
            raise BusyError(f"{path} is open in a program that did not take its writer lock: close it") from None
        if (why := refused.refuses(message, path.parent)) is not None:
            raise DiskError(why) from None
        if "buffer pool is full" in low:
            raise PermanentError(f"{path}: the buffer pool is too small: raise graph.buffer_pool_mib") from error
        if opening:
            raise _UnopenedError(message) from None
        if any(word in low for word in _DAMAGE):
            raise _spoilt(path, message) from None
        raise PermanentError(f"{path}: {message}") from error


def arrow_type(name: str, pa: Any) -> Any:
    # Stated, not guessed from the first row, which may hold a None.
    if name in ("chunk", "start_char", "end_char", "attempts", "mentions", "members"):
        return pa.int64()
    return pa.float64() if name in ("confidence", "score") else pa.string()


def copy_into_place(source: Path, destination: Path, check: Callable[[Path], None] = lambda _: None) -> None:
    """Copy a file into place in one step; on Btrfs, XFS and the like it shares the blocks and costs nothing. The
    temporary name is fixed: what a crash left is overwritten. `check` may refuse the copy before it has the name."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    temporary = destination.with_name(f".{destination.name}.tmp")
    try:
        if not _cloned(source, temporary):
            shutil.copyfile(source, temporary)
        check(temporary)
        move_into_place(temporary, destination)
    finally:
        # On a full disk half a copy would keep it full.
        temporary.unlink(missing_ok=True)


def _cloned(source: Path, destination: Path) -> bool:
    """Whether the file system let the destination share the source's blocks."""
    with source.open("rb") as ours, destination.open("wb") as theirs:
        try:
            fcntl.ioctl(theirs, _FICLONE, ours.fileno())
        except OSError:
            return False
    return True


def move_into_place(source: Path, destination: Path) -> None:
    """Let a written file take another's place, so that a crash leaves one or the other, whole."""
    with source.open("rb") as stream:
        os.fsync(stream.fileno())
    source.replace(destination)
    fsync_dir(destination.parent)
