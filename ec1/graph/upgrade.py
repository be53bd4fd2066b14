"""A graph that an earlier version wrote, brought to the present tables in a copy of its file.

Belongs here: the steps. Does not: when, and putting the copy in the file's place (`database.py`).

Before schema 5 a mention was stored with its document and with its entity. A night names entities from everywhere in
the graph, so each checkpoint wrote the entities' side of all mentions again: 0.8 s of CPU at a million of them. Stored
with the document alone it takes 0.2 s, and going from one entity to its mentions 10 ms instead of 1
(`python -m benchmarks.night_cost`).
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ec1.graph import tables

_BEFORE = "MENTIONS_BEFORE"
_LEAST_POOL = 512 * 2**20
"""Bytes. A million mentions did not fit 64 MiB, and fitted 256."""
_RANGES_PER_OPENING = 2


def upgrade(path: Path, buffer_pool_bytes: int) -> None:
    """Bring the closed database `path`, of `tables.TWO_WAY_SCHEMAS`, to the present schema; half a minute for a million
    mentions. Nobody else may use it. If it does not finish, the file is worth nothing. Raises RuntimeError, as the
    database does."""
    pool = max(buffer_pool_bytes, _LEAST_POOL)
    with _opened(path, pool) as connection:
        tables.rows(connection, f"ALTER TABLE MENTIONS RENAME TO {_BEFORE}")
        for statement in tables.SCHEMA:
            tables.rows(connection, statement)
        ranges = list(tables.mention_ranges(connection))
    values = ", ".join(f"{name}: m.{name}" for name in tables.MENTION_COLUMNS)
    copied = (
        f"MATCH (d:Document)-[m:{_BEFORE}]->(e:Entity) WHERE offset(id(d)) >= $low AND offset(id(d)) < $high "
        f"CREATE (d)-[:MENTIONS {{{values}}}]->(e)"
    )
    # What is written stays in the pool until the database is opened again.
    for at in range(0, len(ranges), _RANGES_PER_OPENING):
        with _opened(path, pool) as connection:
            for low, high in ranges[at : at + _RANGES_PER_OPENING]:
                tables.rows(connection, copied, {"low": low, "high": high})
    with _opened(path, pool) as connection:
        tables.rows(connection, f"DROP TABLE {_BEFORE}")
        schema = {"schema": tables.SCHEMA_VERSION}
        tables.rows(connection, "MATCH (m:Meta {name: 'schema'}) SET m.value = $schema", schema)


@contextlib.contextmanager
def _opened(path: Path, pool: int) -> Iterator[Any]:
    import ladybug

    with (
        ladybug.Database(path, buffer_pool_size=pool, max_num_threads=1) as database,
        ladybug.Connection(database) as connection,
    ):
        yield connection
        tables.rows(connection, "CHECKPOINT")
