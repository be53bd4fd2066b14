"""The graph as plain Parquet: a copy that any tool can read and that outlives the database's file format."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ec1.graph import resolved_tables, tables


def write_parquet(connection: Any, directory: Path) -> list[Path]:
    """Write a `.parquet` file for each table under `directory`, each in one step; clusters have one row a member.

    Rows are sorted over all columns, so that equal graphs give equal bytes (with the same pyarrow).
    """
    import pyarrow as pa

    from ec1.files import write_atomic

    text, whole, real = pa.string(), pa.int64(), pa.float64()
    numbers = dict.fromkeys(("chunk", "start_char", "end_char", "attempts", "mentions"), whole)
    numbers |= dict.fromkeys(("confidence", "score"), real)
    resolution = resolved_tables.read(connection)
    sources: dict[str, tuple[tuple[str, ...], Iterator[Any]]] = {
        "documents": (tables.DOCUMENT_COLUMNS, tables.all_documents(connection)),
        "entities": (tables.ENTITY_COLUMNS, tables.all_entities(connection)),
        "mentions": (("entity", "document", *tables.MENTION_COLUMNS), tables.mention_tables(connection)),
        "relations": (("subject", "object", *tables.RELATION_COLUMNS), tables.all_relations(connection)),
        "traits": (("entity", "document", "kind", "value"), tables.all_traits(connection)),
        "clusters": (
            ("cluster", "entity", "name"),
            (
                {"cluster": each.key, "entity": member, "name": each.name}
                for each in resolution.clusters
                for member in each.members
            ),
        ),
        "links": (
            resolved_tables.LINK_COLUMNS,
            ({**asdict(link), "band": str(link.band)} for link in resolution.links),
        ),
    }
    paths = []
    for name, (columns, records) in sources.items():
        schema = pa.schema([(column, numbers.get(column, text)) for column in columns])
        table = _joined(records, schema, pa) if name == "mentions" else _table(records, schema, pa)
        order = [(c, "ascending") for c in _sort_columns(columns)]
        paths.append(directory / f"{name}.parquet")
        write_atomic(paths[-1], _parquet_bytes(table.sort_by(order).combine_chunks(), pa))
    return paths


def _sort_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    return ("key",) if columns[0] == "key" else columns


def _joined(pages: Iterator[Any], schema: Any, pa: Any) -> Any:
    return pa.concat_tables([schema.empty_table(), *(page.select(schema.names).cast(schema) for page in pages)])


def _table(records: Iterator[dict[str, Any]], schema: Any, pa: Any) -> Any:
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
