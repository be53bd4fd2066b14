"""What a night changed in the graph: its Parquet export against that of the night before it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.errors import InputError
from ec1.graph.exports import exports


@dataclass(frozen=True)
class NightDifference:
    """Entities by key, documents by stream and path. `renamed` holds key, old and new name."""

    night: str
    since: str | None
    """The night that it is compared with; None for the oldest that is kept, where everything is new."""
    entities_added: tuple[str, ...]
    entities_removed: tuple[str, ...]
    renamed: tuple[tuple[str, str, str], ...]
    documents_added: tuple[str, ...]
    documents_changed: tuple[str, ...]
    merged: tuple[tuple[str, str], ...]
    """Entity and the cluster that it joined."""
    parted: tuple[tuple[str, str], ...]
    mentions_before: int
    mentions_after: int


def difference(folder: Path, night: str) -> NightDifference:
    """Compare the export of a night with the one before it. Raises InputError where that night has none."""
    known = exports(folder)
    at = next((number for number, path in enumerate(known) if path.name.startswith(night)), None)
    if at is None:
        nights = ", ".join(path.name[:10] for path in known) or "none"
        raise InputError(f"no export of night {night} is kept in {folder}: there are {nights} (setting graph.exports)")
    new, old = known[at], known[at - 1] if at else None
    names_new, names_old = (_column_map(path, "entities", "key", "name") for path in (new, old))
    contents_new, contents_old = (_column_map(path, "documents", "key", "applied_content") for path in (new, old))
    homes_new, homes_old = (_column_map(path, "clusters", "entity", "cluster") for path in (new, old))
    return NightDifference(
        night=night,
        since=old.name[:10] if old else None,
        entities_added=tuple(sorted(names_new.keys() - names_old.keys())),
        entities_removed=tuple(sorted(names_old.keys() - names_new.keys())),
        renamed=tuple(
            (key, names_old[key], name)
            for key, name in sorted(names_new.items())
            if key in names_old and names_old[key] != name
        ),
        documents_added=tuple(sorted(contents_new.keys() - contents_old.keys())),
        documents_changed=tuple(
            key for key, content in sorted(contents_new.items()) if key in contents_old and contents_old[key] != content
        ),
        merged=tuple(sorted(each for each in homes_new.items() if homes_old.get(each[0]) != each[1])),
        parted=tuple(sorted(each for each in homes_old.items() if homes_new.get(each[0]) != each[1])),
        mentions_before=_rows(old, "mentions"),
        mentions_after=_rows(new, "mentions"),
    )


def _column_map(export: Path | None, table: str, key: str, value: str) -> dict[str, Any]:
    import pyarrow.parquet as pq

    if export is None:
        return {}
    found = pq.read_table(export / f"{table}.parquet", columns=[key, value])
    return dict(zip(found[key].to_pylist(), found[value].to_pylist(), strict=True))


def _rows(export: Path | None, table: str) -> int:
    import pyarrow.parquet as pq

    return 0 if export is None else int(pq.read_metadata(export / f"{table}.parquet").num_rows)
