"""An SQLite index beside the published graph: made once for each state of the graph, and never changed.

Belongs here: opening one that fits, and putting a new one in its place. Does not: what is in it (`search_index.py`,
`sentence_index.py`).
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from ec1.errors import InputError


def index_of(
    path: Path, state: str, schema: str, fill: Callable[[sqlite3.Connection], None], what: str
) -> sqlite3.Connection:
    """The index of this state of the graph, read only; made if there is none. Whoever gets it closes it.

    `schema` has a table `made_from` with a column `state`, whose row `fill` writes. Raises InputError if another
    program replaces it meanwhile; `what` is how the index is called there.
    """
    index = _opened(path, state)
    if index is None:
        _write(path, schema, fill)
        index = _opened(path, state)
    if index is None:
        raise InputError(f"the index of {what} beside the graph was replaced by another program: ask again")
    return index


def quoted(text: str) -> str:
    """A text as FTS5 takes it whole."""
    return '"' + text.replace('"', '""') + '"'


def _opened(path: Path, state: str) -> sqlite3.Connection | None:
    if not path.is_file():
        return None
    index = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    with contextlib.suppress(sqlite3.DatabaseError):
        if index.execute("SELECT state FROM made_from").fetchone() == (state,):
            return index
    index.close()
    return None


def _write(path: Path, schema: str, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Write the index under another name, then put it in its place: others may make the same at once."""
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    beside.unlink(missing_ok=True)
    try:
        index = sqlite3.connect(beside)
        try:
            index.executescript(schema)
            index.execute("PRAGMA synchronous=OFF")
            fill(index)
            index.commit()
        finally:
            index.close()
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
