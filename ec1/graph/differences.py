"""What a night changed in the graph, or of one entity: its Parquet export against that of the night before it."""

from collections.abc import Set
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


@dataclass(frozen=True)
class EntityNight:
    """What one night changed of an entity, with all that it was one with. `since` is the night that it is compared
    with; None for the oldest that is kept, which says how it was by then."""

    night: str
    since: str | None
    here: bool
    name: str
    name_before: str
    mentions: int
    mentions_before: int
    documents_added: tuple[str, ...]
    """That name it, by stream and path."""
    documents_gone: tuple[str, ...]
    joined: tuple[tuple[str, str], ...]
    """Each key that became one with it, and why; empty where only a third one ties them."""
    parted: tuple[str, ...]


def entity_history(folder: Path, key: str) -> tuple[EntityNight, ...]:
    """The nights that changed an entity, the newest first, as far as exports are kept."""
    found = []
    before = _EntityState()
    since = None
    for path in exports(folder):
        now, night = _state(path, key), path.name[:10]
        if now != before:
            found.append(_change(night, since, before, now, key))
        before, since = now, night
    return tuple(reversed(found))


@dataclass(frozen=True)
class _EntityState:
    """An entity in one export: its name, what it is one with and by which links, and the document of each mention."""

    name: str | None = None
    members: frozenset[str] = frozenset()
    links: tuple[tuple[str, str, str], ...] = ()
    mentions: tuple[str, ...] = ()


def _state(export: Path, key: str) -> _EntityState:
    names = _rows_of(export, "entities", ("key", "name"), "key", {key})
    if not names:
        return _EntityState()
    (home, *_) = [*_rows_of(export, "clusters", ("cluster", "entity"), "entity", {key}), (None, key)]
    members = {key}
    if home[0] is not None:
        members |= {entity for _, entity in _rows_of(export, "clusters", ("cluster", "entity"), "cluster", {home[0]})}
    mentions = _rows_of(export, "mentions", ("document", "entity"), "entity", members)
    links = _rows_of(export, "links", ("one", "other", "band", "reasons"), "one", members)
    return _EntityState(
        name=names[0][1],
        members=frozenset(members),
        links=tuple((one, other, why) for one, other, band, why in links if band == "merge" and other in members),
        mentions=tuple(document for document, _ in mentions),
    )


def _change(night: str, since: str | None, before: _EntityState, now: _EntityState, key: str) -> EntityNight:
    why = {end: reasons for one, other, reasons in now.links for end in (one, other)}
    return EntityNight(
        night=night,
        since=since,
        here=now.name is not None,
        name=now.name or "",
        name_before=before.name or "",
        mentions=len(now.mentions),
        mentions_before=len(before.mentions),
        documents_added=tuple(sorted(set(now.mentions) - set(before.mentions))),
        documents_gone=tuple(sorted(set(before.mentions) - set(now.mentions))),
        joined=tuple((each, why.get(each, "")) for each in sorted(now.members - before.members - {key})),
        parted=tuple(sorted(before.members - now.members - {key})),
    )


def _rows_of(export: Path, table: str, columns: tuple[str, ...], key: str, wanted: Set[str]) -> list[tuple[Any, ...]]:
    """The rows of a table whose `key` is among those wanted, in its order."""
    import pyarrow.parquet as pq

    found = pq.read_table(export / f"{table}.parquet", columns=list(columns), filters=[(key, "in", sorted(wanted))])
    return list(zip(*(found[column].to_pylist() for column in columns), strict=True))
