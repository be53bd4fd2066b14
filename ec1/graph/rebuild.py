"""The whole graph as a new extractor sees it: built beside the live one, compared with it, and put in its place.

Belongs here: the steps and the comparison. Does not: which documents are read again (`ec1/documents/refresh.py`), and
applying them (`ladybug_store.py`).

Until every document that an earlier extractor read has been read again, the graph keeps what that one said. So it never
holds two extractors' opinions of the same stock of documents, except of those that changed meanwhile.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from ec1.documents.ledger import DocumentKey
from ec1.extraction.results import ExtractionResult
from ec1.graph.ladybug_store import LadybugStore, rebuilding_folder
from ec1.graph.model import GraphStats, Rebuild


def rebuild_graph(
    store: LadybugStore,
    results: Iterable[tuple[DocumentKey, str, ExtractionResult]],
    night: str,
    *,
    documents: int,
    published: Path,
    buffer_pool_mib: int,
    quarantine_after: int,
    max_shrink_share: float,
) -> Rebuild:
    """Apply `results` (of so many `documents`) to a copy of the graph; the copy becomes the graph unless it lost more
    than `max_shrink_share` of the entities.

    A crash at any moment leaves the old graph or the new one. Raises what `LadybugStore` raises.
    """
    before = store.stats()
    store.publish(published)
    beside = rebuilding_folder(published)
    beside.mkdir(parents=True)
    try:
        copy = beside / "graph"
        shutil.copyfile(published, copy)
        with LadybugStore.open(copy, buffer_pool_mib=buffer_pool_mib, wait_seconds=0) as other:
            other.apply_many(results, night, quarantine_after=quarantine_after)
            after = other.stats()
        lost = before.total_entities - after.total_entities
        share = lost / before.total_entities if before.total_entities else 0.0
        swapped = share <= max_shrink_share
        if swapped:
            store.adopt(copy)
            reason = f"the new extractor's graph took the old one's place: {_change(before, after)}"
        else:
            reason = (
                f"the old graph stays, since the new extractor's would lose {share:.0%} of the entities "
                f"({_change(before, after)}); if that is meant, set graph.max_shrink_share to {share + 0.01:.2f} "
                "for one night"
            )
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return Rebuild(
        documents=documents,
        swapped=swapped,
        reason=reason,
        entities_before=before.total_entities,
        entities_after=after.total_entities,
        mentions_before=before.mentions,
        mentions_after=after.mentions,
    )


def _change(before: GraphStats, after: GraphStats) -> str:
    return f"{before.total_entities} -> {after.total_entities} entities, {before.mentions} -> {after.mentions} mentions"
