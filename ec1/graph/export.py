"""The graph as plain Parquet: a copy that any tool can read and that outlives the database's file format.

Belongs here: what is in the files, of the whole graph or of what changed. Does not: which are written (`exports.py`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ec1.graph import resolved_tables, tables
from ec1.graph.resolution import Cluster, Link

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
REPLACED = "replaced"
"""The file of a night's export that says which rows of earlier ones count no more: `table` (or `all`), and in `key` the
document of a mention, relation or trait, the entity, the cluster, or the ends of a link with a tab between them."""
OWNERS = {
    "documents": "key", "entities": "key", "mentions": "document", "relations": "document", "traits": "document",
    "clusters": "cluster",
}  # fmt: skip
"""The column that `key` of `REPLACED` is about; of links it is both ends."""
_NOTED = {"mentions": "documents", "relations": "documents", "traits": "documents"}


def write_parquet(connection: Any, directory: Path, number: int | None = None) -> list[Path]:
    """Write a `.parquet` file for each table under `directory`, each in one step.

    Rows are sorted over all columns, so that equal graphs give equal bytes (with the same pyarrow). With `number`, the
    place of the export among those of all nights, each row has it in a column `export`.
    """
    resolution = resolved_tables.read(connection)
    paths = [
        _write(directory, "documents", tables.all_documents(connection), number),
        _write(directory, "entities", tables.all_entities(connection), number),
        _write_table(directory, "mentions", _joined(tables.mention_tables(connection), _schema("mentions")), number),
        _write(directory, "relations", tables.all_relations(connection), number),
        _write(directory, "traits", tables.all_traits(connection), number),
        _write(directory, "clusters", _members(resolution.clusters), number),
        _write(directory, "links", _links(resolution.links), number),
    ]
    if number is not None:
        paths.append(_write(directory, REPLACED, [{"table": "all", "key": ""}], number))
    return paths


def write_changes(connection: Any, directory: Path, noted: Mapping[str, list[str]], number: int) -> list[Path]:
    """Write, as `write_parquet`, only the rows that are `noted` as others (`unexported.py`), and which they replace."""
    documents = noted.get("documents", [])
    clusters = filter(None, (resolved_tables.cluster(connection, key) for key in noted.get("clusters", ())))
    pairs = [tuple(key.split("\t")) for key in noted.get("links", ())]
    links = filter(None, (resolved_tables.link(connection, one, other) for one, other in pairs))
    replaced = [{"table": table, "key": key} for table in COLUMNS for key in noted.get(_NOTED.get(table, table), ())]
    return [
        _write(directory, "documents", tables.documents(connection, documents), number),
        _write(directory, "entities", tables.entities(connection, noted.get("entities", [])), number),
        _write(directory, "mentions", tables.mentions_in(connection, documents), number),
        _write(directory, "relations", tables.relations_in(connection, documents), number),
        _write(directory, "traits", tables.traits_in(connection, documents), number),
        _write(directory, "clusters", _members(clusters), number),
        _write(directory, "links", _links(links), number),
        _write(directory, REPLACED, replaced, number),
    ]


def _members(clusters: Iterable[Cluster]) -> Iterator[dict[str, Any]]:
    for each in clusters:
        for member in each.members:
            yield {"cluster": each.key, "entity": member, "name": each.name}


def _links(links: Iterable[Link]) -> Iterator[dict[str, Any]]:
    return ({**asdict(link), "band": str(link.band)} for link in links)


def _schema(name: str) -> Any:
    import pyarrow as pa

    text, whole, real = pa.string(), pa.int64(), pa.float64()
    numbers = dict.fromkeys(("chunk", "start_char", "end_char", "attempts", "mentions"), whole)
    numbers |= dict.fromkeys(("confidence", "score"), real)
    return pa.schema([(column, numbers.get(column, text)) for column in COLUMNS.get(name, ("table", "key"))])


def _write(directory: Path, name: str, records: Iterable[dict[str, Any]], number: int | None) -> Path:
    return _write_table(directory, name, _table(iter(records), _schema(name)), number)


def _write_table(directory: Path, name: str, table: Any, number: int | None) -> Path:
    import pyarrow as pa

    from ec1.files import write_atomic

    order = [(column, "ascending") for column in _sort_columns(tuple(table.schema.names))]
    table = table.sort_by(order).combine_chunks()
    if number is not None:
        table = table.append_column("export", pa.array([number] * table.num_rows, pa.int64()))
    path = directory / f"{name}.parquet"
    write_atomic(path, _parquet_bytes(table, pa))
    return path


def _sort_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    return ("key",) if columns[0] == "key" else columns


def _joined(pages: Iterator[Any], schema: Any) -> Any:
    import pyarrow as pa

    return pa.concat_tables([schema.empty_table(), *(page.select(schema.names).cast(schema) for page in pages)])


def _table(records: Iterator[dict[str, Any]], schema: Any) -> Any:
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
