"""The Parquet exports that nights leave: which exist, when one is written, which are removed, and reading them back.

Belongs here: names, order and retention. Does not: what is in an export (`export.py`), or what changed since the last
one (`unexported.py`).

Most nights write what changed since the export before; every few nights one writes everything. Exports have a number
that grows, in the column `export` of each row. A row counts unless a later export replaces it (`replaced.parquet`).
"""

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ec1.errors import InputError
from ec1.files import fsync_dir, read_json, staged_directory, write_json
from ec1.graph.export import OWNERS, REPLACED

if TYPE_CHECKING:
    from ec1.graph.ladybug_store import LadybugStore

WHOLE_EVERY = 7
"""So many exports after a whole one, itself counted, the next is whole, unless the caller says otherwise."""
_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})-([0-9a-f]{12})")
_RECORD = "export.json"
# Beyond this share of the documents a whole export takes less time; below this number it never does.
_MANY = 0.2
_FEW = 1_000


class ExportRecord(BaseModel):
    """What an export says of itself: its number, and the export that it is the difference to; None if it is whole."""

    number: int = 0
    since: str | None = None


def exports(folder: Path) -> list[Path]:
    """The exports below `folder`, the oldest night first. Each is complete: they appear by a rename."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if _NAME.fullmatch(path.name) and path.is_dir())


def record_of(export: Path) -> ExportRecord:
    """The record of an export; one of an earlier program is whole and has none."""
    try:
        return ExportRecord.model_validate(read_json(export / _RECORD))
    except FileNotFoundError:
        return ExportRecord()


def chain(export: Path) -> list[Path]:
    """The exports that together hold the graph of an export's night: a whole one, then what changed.

    Raises InputError if one of them is gone.
    """
    found = [export]
    while (since := record_of(found[0]).since) is not None:
        if not _NAME.fullmatch(since) or not (export.parent / since).is_dir():
            raise InputError(f"{found[0]} goes back to {since}, which is gone: choose a later export, or a backup")
        found.insert(0, export.parent / since)
    return found


def read_table(export: Path, table: str, columns: list[str] | None = None) -> Any:
    """A table of the graph as it was in the night of an export, as an Arrow table. Raises InputError as `chain`."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    parts = []
    gone: set[str] = set()
    for each in reversed(chain(export)):
        part = pq.read_table(each / f"{table}.parquet")
        owner = (
            part[OWNERS[table]] if table in OWNERS else pc.binary_join_element_wise(part["one"], part["other"], "\t")
        )
        if gone:
            part = part.filter(pc.invert(pc.is_in(owner, pa.array(sorted(gone), pa.string()))))
        parts.append(part.drop_columns(["export"]) if "export" in part.schema.names else part)
        if record_of(each).since is not None:
            void = pq.read_table(each / f"{REPLACED}.parquet")
            gone |= set(void.filter(pc.equal(void["table"], table))["key"].to_pylist())
    found = pa.concat_tables(reversed(parts))
    return found.select(columns) if columns is not None else found


def export_night(
    store: "LadybugStore", folder: Path, night: str, digest: str, keep: int, whole_every: int = WHOLE_EVERY
) -> Path | None:
    """Export the graph of a night as `<night>-<first digits of its digest>`, unless the newest export says the same.

    `keep` nights remain, one export each, and what they go back to; 0 writes none. One export in `whole_every` is
    whole; so is the first, and one of a night that is not later than all others. Returns the export that holds the
    graph as it is, or None. Only the graph's writer may call this, since it removes what an interrupted call left.
    """
    if not keep:
        return None
    known = exports(folder)
    if known and known[-1].name.endswith(digest[:12]):
        return known[-1]
    if folder.is_dir():
        for left in folder.glob(".*"):
            shutil.rmtree(left)
    path = folder / f"{night}-{digest[:12]}"
    changed = store.unexported()
    number = 1 + max((record_of(each).number for each in known), default=0)
    since = (
        known[-1].name
        if known and _goes_on(store, known[-1], night, len(changed.get("documents", ())), whole_every)
        else None
    )
    with staged_directory(path) as staging:
        if since is None:
            store.export(staging, number)
        else:
            store.export_changes(staging, changed, number)
        write_json(staging / _RECORD, ExportRecord(number=number, since=since).model_dump())
    store.begin_export(path.name)
    _remove_old(folder, path, keep)
    return path


def _goes_on(store: "LadybugStore", last: Path, night: str, documents: int, whole_every: int) -> bool:
    """Whether an export of what changed since the last one is possible and worth it."""
    if store.last_export() != last.name or last.name[:10] >= night:
        return False
    parts = _parts(last)
    return 0 < len(parts) < whole_every and documents <= max(_FEW, _MANY * store.stats().documents)


def _parts(export: Path) -> list[Path]:
    """As `chain`; empty if a part is gone, which is no reason for a night to fail."""
    try:
        return chain(export)
    except InputError:
        return []


def _remove_old(folder: Path, newest: Path, keep: int) -> None:
    known = exports(folder)
    others = [each for each in known if each.name[:10] != newest.name[:10]]
    kept = {newest, *others[max(0, len(others) - keep + 1) :]}
    needed = kept.union(*map(_parts, kept))
    for old in set(known) - needed:
        shutil.rmtree(old)
    fsync_dir(folder)
