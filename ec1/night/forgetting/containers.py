"""The texts in a file, whatever it is: plain, packed, or a table or database of another program.

Belongs here: opening each kind of container that a home holds. Does not: what is looked for (`wanted`), documents that
phase 1's converter opens (`documents`), changing anything (`scrubbing`).

The kind is told by the first bytes, never by the name. What cannot be opened is read as plain bytes.
"""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import sqlite3
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ec1.night.forgetting.wanted import strings

SQLITE = b"SQLite format 3\0"
LADYBUG = b"LBUG"
_PARQUET = b"PAR1"
_ZIP = b"PK\3\4"
_PIECE = 4 * 2**20
_OVERLAP = 4096
"""Characters. A spelling that lies across two pieces of a large file is seen in one of them."""
_MOST_UNPACKED = 2 * 2**30
_DEEPEST = 4
_PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
_WEIGHTS_HEADER = 100 * 2**20


def head_of(path: Path) -> bytes:
    """The first bytes of a file, by which its kind is told."""
    with path.open("rb") as stream:
        return stream.read(16)


def is_weights(path: Path) -> bool:
    """Whether a file is a model's weights, where only what is written beside the numbers is text."""
    return path.suffix in (".safetensors", ".gguf")


def texts_in(path: Path) -> Iterator[str]:
    """Every text in a file, piece by piece. Raises OSError."""
    head = head_of(path)
    if is_weights(path):
        yield from _weights(path)
        return
    try:
        if head.startswith(SQLITE):
            yield from _sqlite(path)
        elif head.startswith(LADYBUG):
            yield from _ladybug(path)
        elif head.startswith(_PARQUET):
            yield from _parquet(path)
        elif head.startswith(_ZIP) or any(head.startswith(magic) for magic in _PACKED):
            with path.open("rb") as stream:
                yield from _unpacked(stream, path.name, _DEEPEST)
        elif tarfile.is_tarfile(path):
            with path.open("rb") as stream:
                yield from _tar(stream, _DEEPEST)
    except (sqlite3.Error, zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, _Unreadable):
        # A damaged one: its bytes below are all that there is.
        pass
    with path.open("rb") as stream:
        yield from _plain(stream)


class _Unreadable(Exception):
    """A container whose library refuses it."""


def _plain(stream: IO[bytes]) -> Iterator[str]:
    """The bytes as text, in pieces that overlap."""
    start = stream.read(2)
    encoding = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(start, "utf-8")
    before, piece = "", start + stream.read(_PIECE)
    while piece:
        text = before + piece.decode(encoding, "replace")
        yield text
        before, piece = text[-_OVERLAP:], stream.read(_PIECE)


def _unpacked(stream: IO[bytes], name: str, depth: int) -> Iterator[str]:
    """The texts of what is packed in a stream, and of what is packed in that."""
    head = stream.read(16)
    stream.seek(0)
    opener = next((each for magic, each in _PACKED.items() if head.startswith(magic)), None)
    if depth and opener is not None:
        with opener(stream) as inner:
            data = inner.read(_MOST_UNPACKED)
        yield from _unpacked(io.BytesIO(data), name, depth - 1)
    elif depth and head.startswith(_ZIP):
        with zipfile.ZipFile(stream) as archive:
            for member in archive.infolist():
                yield member.filename
                with contextlib.suppress(RuntimeError, NotImplementedError), archive.open(member) as inner:
                    yield from _unpacked(io.BytesIO(inner.read(_MOST_UNPACKED)), member.filename, depth - 1)
    elif depth and head.startswith(_PARQUET):
        yield from _parquet(stream)
    elif depth and name.endswith((".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")):
        yield from _tar(stream, depth)
    else:
        yield from _plain(stream)


def _tar(stream: IO[bytes], depth: int) -> Iterator[str]:
    with tarfile.open(fileobj=stream) as archive:
        for member in archive:
            yield member.name
            if member.isfile() and (inner := archive.extractfile(member)) is not None:
                yield from _unpacked(io.BytesIO(inner.read(_MOST_UNPACKED)), member.name, depth - 1)


def _parquet(source: Path | IO[bytes]) -> Iterator[str]:
    """The rows of a table, each as one text, and what its schema says."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(source)
        yield str(file.schema_arrow)
        yield from (f"{key!r} {value!r}" for key, value in (file.metadata.metadata or {}).items())
        for batch in file.iter_batches(batch_size=512):
            for row in batch.to_pylist():
                yield " | ".join(strings(row, keys=False))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _Unreadable from error


def _sqlite(path: Path) -> Iterator[str]:
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5)) as database:
        for row in cells(database):
            yield " | ".join(map(cell_text, row[2]))


def cells(database: sqlite3.Connection) -> Iterator[tuple[str, tuple[str, ...], tuple[Any, ...]]]:
    """Every row of every table: the table, its columns, and the values."""
    database.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        cursor = database.execute(f"SELECT * FROM {quoted(table)}")
        columns = tuple(column[0] for column in cursor.description)
        for row in cursor:
            yield table, columns, row


def quoted(name: str) -> str:
    """A table's or column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def cell_text(value: Any) -> str:
    """A value of a database as text; a blob may be a packed one."""
    if not isinstance(value, bytes):
        return str(value)
    with contextlib.suppress(zlib.error):
        value = zlib.decompress(value)
    return str(value, "utf-8", "replace")


def _ladybug(path: Path) -> Iterator[str]:
    """The nodes and relationships of a graph whose file nobody else has open for writing."""
    import ladybug

    from ec1.graph.tables import rows

    try:
        with (
            ladybug.Database(path, read_only=True, buffer_pool_size=2**28) as database,
            ladybug.Connection(database) as connection,
        ):
            for table in rows(connection, "CALL show_tables() RETURN name, type"):
                pattern = "(a:{0})" if table["type"] == "NODE" else "()-[a:{0}]->()"
                query = f"MATCH {pattern.format(table['name'])} RETURN a"
                with connection.execute(query) as result:
                    while result.has_next():
                        yield " | ".join(strings(result.get_next()))
    except RuntimeError as error:
        raise _Unreadable from error


def _weights(path: Path) -> Iterator[str]:
    """What is written beside the numbers of a model: the header of safetensors, the beginning of GGUF."""
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        if path.suffix == ".safetensors" and size <= _WEIGHTS_HEADER:
            header = stream.read(size)
            with contextlib.suppress(ValueError):
                yield " | ".join(strings(json.loads(header).get("__metadata__", {})))
        else:
            yield stream.read(2**20).decode("utf-8", "replace")
