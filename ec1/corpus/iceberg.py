"""A bucket's trainable tuples as an Apache Iceberg table, for those whose warehouse reads such.

Belongs here: the table. Does not: its rows (`export.py`). Inside EC1 nothing reads it: datasets are named by content.

A folder holds a catalog in SQLite, called `ec1`, and one table for each bucket and kind of row,
`<tenant>.<role>_<kind>`. An export replaces the table's rows in one transaction, and its Iceberg snapshot carries the
digest of ours: an unchanged bucket writes nothing.
https://py.iceberg.apache.org/api/
"""

from pathlib import Path
from typing import Any

from ec1.corpus.export import Export, export
from ec1.corpus.snapshots import Snapshot
from ec1.corpus.tuples import Objective
from ec1.errors import InputError

CATALOG = "catalog.db"
DIGEST = "ec1.snapshot"


def export_iceberg(snapshot: Snapshot, objective: Objective, folder: Path, *, tenant: str, role: str) -> Export | None:
    """Make the table of a bucket hold the snapshot's rows, in the columns of a Parquet export; None if it does already.

    Raises InputError where pyiceberg is not installed.
    """
    try:
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.expressions import AlwaysTrue
    except ImportError:
        raise InputError("an Iceberg table needs the extra iceberg: pip install 'ec1[iceberg]'") from None
    import pyarrow.parquet as pq

    folder, name = folder.absolute(), f"{tenant}.{role}_{objective}"
    folder.mkdir(parents=True, exist_ok=True)
    catalog: Any = SqlCatalog("ec1", uri=f"sqlite:///{folder / CATALOG}", warehouse=folder.as_uri())
    try:
        table = catalog.load_table(name)
        if _digest_in(table) == snapshot.digest:
            return None
    except NoSuchTableError:
        table = None
    rows = folder / tenant / f"{role}_{objective}" / "data" / f"{snapshot.digest}.parquet"
    rows.parent.mkdir(parents=True, exist_ok=True)
    written = export(snapshot, objective, rows)
    if table is None:
        catalog.create_namespace_if_not_exists(tenant)
        table = catalog.create_table_if_not_exists(name, schema=pq.read_schema(rows))
    with table.transaction() as change:
        if table.current_snapshot() is not None:
            change.delete(AlwaysTrue())
        # The same digest may come back after another one: its file is the same.
        change.add_files([rows.as_uri()], snapshot_properties={DIGEST: snapshot.digest}, check_duplicate_files=False)
    return written


def _digest_in(table: Any) -> str | None:
    """The digest of our snapshot whose rows a table holds."""
    current = table.current_snapshot()
    return None if current is None or current.summary is None else current.summary.additional_properties.get(DIGEST)
