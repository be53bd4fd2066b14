"""How the graph grew, night by night, from what the nights wrote down."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ec1.extraction.results import ENTITY_CLASSES
from ec1.night.records import GraphRecord, Records

NIGHTS = 90
"""How many of the last nights are looked at."""


@dataclass(frozen=True)
class Growth:
    """What the graph held after each of `nights`, by class; all sequences are as long as `nights`."""

    nights: tuple[dt.date, ...]
    entities: Mapping[str, tuple[int, ...]]
    mentions: Mapping[str, tuple[int, ...]]


def growth(nights: Path, until: str) -> Growth:
    """The growth up to the night `until`, from the records below `nights`; nights without a graph are left out."""
    days: list[dt.date] = []
    entities: list[dict[str, int]] = []
    mentions: list[dict[str, int]] = []
    folders = sorted(path for path in nights.iterdir() if path.name <= until and path.is_dir())
    for folder in folders[-NIGHTS:]:
        record = Records(folder).find(GraphRecord)
        if record is not None:
            days.append(dt.date.fromisoformat(folder.name))
            entities.append(record.entities_by_class or {})
            mentions.append(record.mentions_by_class or {})
    # The contract's classes, and whatever others the graph held in one of these nights.
    names = list(dict.fromkeys([*ENTITY_CLASSES, *(name for counts in (*entities, *mentions) for name in counts)]))
    return Growth(
        tuple(days),
        {name: tuple(counts.get(name, 0) for counts in entities) for name in names},
        {name: tuple(counts.get(name, 0) for counts in mentions) for name in names},
    )
