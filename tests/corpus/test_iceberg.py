"""A bucket as an Iceberg table that somebody else's warehouse reads."""

from pathlib import Path
from typing import Any

import pytest
from corpus_builder import NIGHT, write_lines

pytest.importorskip("pyiceberg", reason="the extra iceberg is not installed")

from pyiceberg.catalog.sql import SqlCatalog

from ec1.corpus.buckets import bucket
from ec1.corpus.export import Export
from ec1.corpus.iceberg import CATALOG, DIGEST, export_iceberg
from ec1.corpus.snapshots import take_snapshot
from ec1.home import Home


def rows(first: int, count: int) -> list[dict[str, str]]:
    return [{"prompt": f"Question {n}?", "completion": f"Answer {n}."} for n in range(first, first + count)]


def table(folder: Path) -> Any:
    """As a stranger opens it: with pyiceberg alone."""
    catalog = SqlCatalog("ec1", uri=f"sqlite:///{folder / CATALOG}", warehouse=folder.as_uri())
    return catalog.load_table("acme.research_sft")


def questions(found: Any) -> list[str]:
    return sorted(row["prompt"][-1]["content"] for row in found.to_pylist())


def test_the_table_follows_the_bucket_and_keeps_what_it_held(tmp_path: Path, home: Home) -> None:
    corpus, folder = tmp_path / "corpus", tmp_path / "warehouse"

    def exported() -> Export | None:
        snapshot = take_snapshot(bucket(corpus, "research", "acme"), "sft", as_of=NIGHT, home=home)
        return export_iceberg(snapshot, "sft", folder, tenant="acme", role="research")

    write_lines(corpus / "research/a.jsonl", rows(0, 3))
    assert exported() == Export(3, {})
    assert exported() is None and len(table(folder).metadata.snapshots) == 1

    write_lines(corpus / "research/b.jsonl", rows(3, 2))
    assert exported() == Export(5, {})
    now = table(folder)
    assert questions(now.scan().to_arrow()) == [f"Question {n}?" for n in range(5)]
    first = now.metadata.snapshots[0]
    assert questions(now.scan(snapshot_id=first.snapshot_id).to_arrow()) == [f"Question {n}?" for n in range(3)]

    (corpus / "research/b.jsonl").unlink()
    assert exported() == Export(3, {})
    again = table(folder)
    assert questions(again.scan().to_arrow()) == [f"Question {n}?" for n in range(3)]
    digests = [each.summary.additional_properties.get(DIGEST) for each in again.metadata.snapshots]
    assert digests[0] == digests[-1] and len(set(digests) - {None}) == 2
