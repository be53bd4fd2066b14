"""What changed in the graph since the Parquet export of the last night, noted in the same transaction as the change.

Belongs here: the notes. Does not: what is written for them (`export.py`) and when (`exports.py`).

`Meta` names the export that the notes go back to; without it nothing is noted, and the next export is a whole one.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from ec1.graph import tables
from ec1.graph.database import GraphDatabase

_META = "exported"


def last_export(connection: Any) -> str | None:
    """The name of the export that the notes go back to."""
    return tables.meta(connection).get(_META)


def note(database: GraphDatabase, table: str, keys: Iterable[str]) -> None:
    """Note, in an open transaction, that rows of a table (`documents`, `entities`, `links`, `clusters`) are others now;
    a link's key is those of its ends with a tab between them."""
    wanted = [{"key": f"{table}:{key}"} for key in sorted(set(keys))]
    if not wanted or last_export(database.connection) is None:
        return
    query = "LOAD FROM $batch MATCH (u:Unexported {key: row_key}) RETURN u.key AS key"
    noted = {row["key"] for row in database.load(query, wanted)}
    database.write_nodes("Unexported", ("key",), [row for row in wanted if row["key"] not in noted])


def noted(connection: Any) -> dict[str, list[str]]:
    """What is noted, sorted, by table."""
    found = defaultdict(list)
    for row in sorted(tables.rows(connection, "MATCH (u:Unexported) RETURN u.key AS key"), key=lambda row: row["key"]):
        table, _, key = row["key"].partition(":")
        found[table].append(key)
    return found


def begin(database: GraphDatabase, export: str) -> None:
    """Begin anew: `export` holds the graph as it is."""
    with database.transaction():
        forget(database)
        database.execute(f"CREATE (:Meta {{name: '{_META}', value: $export}})", {"export": export})


def forget(database: GraphDatabase) -> None:
    """Note nothing until there is an export again, in an open transaction: more changed than is worth noting."""
    database.execute("MATCH (u:Unexported) DELETE u")
    database.execute(f"MATCH (m:Meta {{name: '{_META}'}}) DELETE m")
