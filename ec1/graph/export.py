"""The graph as plain Parquet: a copy that any tool can read and that outlives the database's file format.

Belongs here: what is in the files. Does not: which exports nights keep (`exports.py`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ec1.graph import tables
from ec1.graph.resolution import tables as resolved_tables

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "documents": tables.DOCUMENT_COLUMNS,
    "entities": tables.ENTITY_COLUMNS,
    "mentions": ("entity", "document", *tables.MENTION_COLUMNS),
    "relations": ("subject", "object", *tables.RELATION_COLUMNS),
    "traits": ("entity", "document", "kind", "value"),
    "clusters": ("cluster", "entity", "name"),
    "links": resolved_tables.LINK_COLUMNS,
}
"""The files of an export with their columns; clusters have one row a member."""


def write_parquet(connection: Any, directory: Path) -> list[Path]:
    """Write a `.parquet` file for each table under `directory`, each in one step.

    Rows are sorted over all columns, so that equal graphs give equal bytes (with the same pyarrow).
    """
    resolution = resolved_tables.read(connection)
    members = (
        {"cluster": each.key, "entity": member, "name": each.name}
        for each in resolution.clusters
        for member in each.members
    )
    links = ({**asdict(link), "band": str(link.band)} for link in resolution.links)
    return [
        _write(directory, "documents", tables.all_documents(connection)),
        _write(directory, "entities", tables.all_entities(connection)),
        _write_table(directory, "mentions", _joined(tables.mention_tables(connection), _schema("mentions"))),
        _write(directory, "relations", tables.all_relations(connection)),
        _write(directory, "traits", tables.all_traits(connection)),
        _write(directory, "clusters", members),
        _write(directory, "links", links),
    ]


def _schema(name: str) -> Any:
    import pyarrow as pa

    text, whole, real = pa.string(), pa.int64(), pa.float64()
    numbers = dict.fromkeys(("chunk", "start_char", "end_char", "attempts", "mentions"), whole)
    numbers |= dict.fromkeys(("confidence", "score"), real)
    return pa.schema([(column, numbers.get(column, text)) for column in COLUMNS[name]])


def _write(directory: Path, name: str, records: Iterable[dict[str, Any]]) -> Path:
    return _write_table(directory, name, _table(records, _schema(name)))


def _write_table(directory: Path, name: str, table: Any) -> Path:
    import pyarrow as pa

    from ec1.files import write_atomic

    order = [(column, "ascending") for column in _sort_columns(tuple(table.schema.names))]
    table = table.sort_by(order).combine_chunks()
    path = directory / f"{name}.parquet"
    write_atomic(path, _parquet_bytes(table, pa))
    return path


def _sort_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    return ("key",) if columns[0] == "key" else columns


def _joined(pages: Iterator[Any], schema: Any) -> Any:
    import pyarrow as pa

    return pa.concat_tables([schema.empty_table(), *(page.select(schema.names).cast(schema) for page in pages)])


def _table(records: Iterable[dict[str, Any]], schema: Any) -> Any:
    import pyarrow as pa

    batches, page = [], []
    for record in records:
        page.append(record)
        if len(page) == 20_000:
            batches.append(pa.RecordBatch.from_pylist(page, schema=schema))
            page = []
    batches.append(pa.RecordBatch.from_pylist(page, schema=schema))
    return pa.Table.from_batches(batches, schema=schema)


def _parquet_bytes(table: Any, pa: Any) -> bytes:
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())
