"""The part of a published graph that some documents alone would give, as a published graph of its own.

Belongs here: making that copy. Does not: who may read which document (`ec1.documents.settings`), and reading
(`reader.py`).

What a reader may not see is not in the file that it reads, so every list, count and free query is right by itself. The
copy is built from the visible documents and not cut out of the whole: names are spelt, and entities resolved, as if the
other documents had never been read, and nothing tells how many there are.
"""

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ec1.documents.ledger import DocumentKey
from ec1.graph import tables
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.news import Change
from ec1.graph.reader import GraphReader
from ec1.graph.resolution import tables as resolved_tables
from ec1.graph.resolution.overrides import Overrides

_Rows = dict[str, list[dict[str, Any]]]


def publish_visible(
    published: Path,
    destination: Path,
    is_visible: Callable[[DocumentKey], bool],
    *,
    overrides: Overrides,
    buffer_pool_mib: int,
) -> None:
    """Publish at `destination` the graph that the visible documents of `published` give; resolved, if that one is.

    Takes about as long as applying them. Raises what `GraphReader` and `LadybugStore` raise.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=destination.parent, prefix=".building-"))
    try:
        with (
            GraphReader(published, buffer_pool_mib=buffer_pool_mib) as reader,
            reader.reading() as connection,
            LadybugStore.open(beside / "graph", buffer_pool_mib=buffer_pool_mib, wait_seconds=0) as store,
        ):
            nodes = [row for row in tables.all_documents(connection) if is_visible(tables.ledger_entry(row).key)]
            store.fill(nodes, _changes(connection, {row["key"]: row for row in nodes}))
            if resolved_tables.record(connection) is not None:
                store.update_resolution(overrides)
            store.publish(beside / "published")
        (beside / "published").replace(destination)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _changes(connection: Any, nodes: dict[str, dict[str, Any]]) -> Iterator[Change]:
    """What the visible documents say."""
    traits = _by_document(tables.all_traits(connection), nodes)
    relations = _by_document(tables.all_relations(connection), nodes)
    silent = set(nodes)
    for page in tables.mention_pages(connection):
        for document, mentions in _by_document(page, nodes).items():
            silent.discard(document)
            said = tuple({**row, "entity_class": row["entity"].partition(":")[0]} for row in mentions)
            yield _change(nodes[document], said, traits, relations)
    for document in sorted(silent):
        yield _change(nodes[document], (), traits, relations)


def _change(node: dict[str, Any], mentions: tuple[dict[str, Any], ...], traits: _Rows, relations: _Rows) -> Change:
    return Change(
        key=tables.ledger_entry(node).key,
        document_id="",
        content_sha256="",
        fingerprint="",
        outcome="complete",
        mentions=mentions,
        traits=tuple(traits[node["key"]]),
        relations=tuple(relations[node["key"]]),
    )


def _by_document(rows: Iterable[dict[str, Any]], nodes: dict[str, dict[str, Any]]) -> _Rows:
    found: _Rows = defaultdict(list)
    for row in rows:
        if row["document"] in nodes:
            found[row["document"]].append(row)
    return found
