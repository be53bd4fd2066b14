"""The Parquet exports that nights leave: which exist, when one is written, and which are removed.

Belongs here: names and retention. Does not: what is in an export (`export.py`).
"""

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ec1.files import fsync_dir, staged_directory

if TYPE_CHECKING:
    from ec1.graph.ladybug_store import LadybugStore

_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})-([0-9a-f]{12})")
_PARTIAL = "replaced.parquet"
"""Stands in the exports of earlier versions; many of them hold only what changed in a night."""


def exports(folder: Path) -> list[Path]:
    """The exports below `folder`, the oldest night first. Each is complete: they appear by a rename."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if _NAME.fullmatch(path.name) and not (path / _PARTIAL).exists())


def export_night(store: "LadybugStore", folder: Path, night: str, digest: str, keep: int) -> Path | None:
    """Export the graph of a night as `<night>-<first digits of its digest>`, unless the newest export says the same.

    `keep` nights remain, one export each; 0 writes none and removes none. Returns the export that holds the graph as it
    is, or None. Only the graph's writer may call this, since it removes what an interrupted call left.
    """
    if not keep:
        return None
    known = exports(folder)
    if known and known[-1].name.endswith(digest[:12]):
        return known[-1]
    for left in (*folder.glob(".*"), *(partial.parent for partial in folder.glob(f"*/{_PARTIAL}"))):
        shutil.rmtree(left)
    path = folder / f"{night}-{digest[:12]}"
    with staged_directory(path) as staging:
        store.export(staging)
    others = [each for each in known if each.name[:10] != night]
    for old in {*known} - {path, *others[max(0, len(others) - keep + 1) :]}:
        shutil.rmtree(old)
    fsync_dir(folder)
    return path
