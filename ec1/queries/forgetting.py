"""What faces ask before something is forgotten: by what a row can be named, what would go, and what learnt from it.

Belongs here: looking. Does not: removing (`doors`), where things are looked for and how (`ec1.night.forgetting`).
"""

from dataclasses import dataclass

from ec1.adapters.registry import AdapterRegistry
from ec1.corpus.tuples import parse_record
from ec1.errors import RejectedError
from ec1.files import digest_of
from ec1.night.forgetting import forget as forgetting
from ec1.night.forgetting.forget import Forgotten, Learnt
from ec1.night.forgetting.wanted import Wanted
from ec1.queries.adapters import descendants
from ec1.queries.desk import Desk
from ec1.queries.graph import check_sees_all
from ec1.queries.rows import Row

__all__ = ["Forgotten", "RowNames", "Wanted", "learnt_from", "look", "names_of", "seen", "wanted_of"]


@dataclass(frozen=True)
class RowNames:
    """What can be said to take a row out: one of the `sources` that it was cut from (`key:value`), or its longest
    `text`."""

    sources: tuple[str, ...]
    text: str


def names_of(row: Row) -> RowNames:
    """By what a row can be forgotten, as it stands in the corpus."""
    sources: tuple[str, ...] = ()
    try:
        sources = parse_record(row.raw or {}).sources
    except RejectedError:
        # A row of a dataset, whose tuple is no longer here; or a line that is no tuple.
        if row.group and not row.group.startswith("prompt:"):
            sources = (row.group,)
    # Checks are written out for the page: no record says them in these words.
    parts = [row.prompt, *(messages for side, messages in row.answers.items() if side != "checks")]
    texts = [str(each.get("content") or "") for part in parts for each in part]
    return RowNames(sources, max(texts, key=len, default=""))


def wanted_of(source: str, text: str) -> Wanted:
    """What a page asked to forget: a source, or else a text. Raises InputError for neither."""
    return Wanted(source=source) if source.strip() else Wanted(match=text)


def look(desk: Desk, wanted: Wanted) -> Forgotten:
    """What would be forgotten, anywhere in the home; nothing is changed. Raises InputError for somebody who may not
    read everything."""
    check_sees_all(desk.deployment, desk.labels, "what would be forgotten")
    return forgetting.look(wanted, desk.deployment, desk.home, learnt_from(desk.registry))


def seen(found: Forgotten) -> str:
    """A digest of what would go, by which it is known whether that is still what a person looked at."""
    rows = [[each.file, each.line, each.row] for each in found.tuples]
    return digest_of([found.documents, rows, found.snapshots, found.datasets, found.versions])[:16]


def learnt_from(registry: AdapterRegistry) -> Learnt:
    """Which usable versions rest on snapshots or datasets, with what went on from them."""

    def versions(snapshots: set[str], datasets: set[str]) -> list[tuple[str, tuple[str, str, int]]]:
        usable = {
            (manifest := registry.get(tenant, role, version)).name: (manifest, (tenant, role, version))
            for tenant, role in registry.roles()
            for version in registry.usable(tenant, role)
        }
        own = {
            name
            for name, (manifest, _) in usable.items()
            if manifest.snapshot.digest in snapshots or manifest.dataset.digest in datasets
        }
        return [(name, usable[name][1]) for name in descendants(registry, own) if name in usable]

    return versions
