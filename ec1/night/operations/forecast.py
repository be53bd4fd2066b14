"""What past nights say of the next one: how fast the home grows and when its disk is full, and how fast documents are
read."""

import shutil
from dataclasses import dataclass

from ec1.extraction.reading.progress import ExtractionRecord
from ec1.home import Home
from ec1.night.operations.cleanup import size_of
from ec1.night.records import Records, RetentionRecord

WINDOW = 30
"""How many of the newest nights the growth is taken from."""


@dataclass(frozen=True)
class HomeForecast:
    """Bytes. `growth` is the mean per night over `nights` nights, None before the second night; `until_full` counts
    nights, None where the home does not grow."""

    size: int
    free: int
    nights: int
    growth: float | None

    @property
    def until_full(self) -> int | None:
        return int(self.free / self.growth) if self.growth and self.growth > 0 else None


def forecast_home(home: Home) -> HomeForecast:
    """Measure the home now, and take its growth from the records of its nights."""
    sizes: list[tuple[float, int]] = []
    for night in sorted(home.nights.glob("[0-9]*"))[-WINDOW:]:
        record = Records(night).find(RetentionRecord)
        if record is not None and record.written is not None:
            sizes.append((record.written.timestamp(), record.home_bytes))
    # By the clock and not by their dates: a backfill's nights are old ones.
    sizes.sort()
    growth = (sizes[-1][1] - sizes[0][1]) / (len(sizes) - 1) if len(sizes) > 1 else None
    place = home.root if home.root.exists() else home.root.parent
    return HomeForecast(size_of(home.root), shutil.disk_usage(place).free, len(sizes), growth)


ENGINE_SECONDS = 60.0
"""Until the engine answers: seen 41 to 81 s on two cores."""
_SHIPPED_SECONDS = 0.6
"""Per chunk of 90 tokens, SmolLM2-135M with the shipped adapter on two cores: seen 0.4 to 0.7."""
_LEAST_CHUNKS = 20


@dataclass(frozen=True)
class ReadingSpeed:
    """Seconds per chunk. `measured` is False of the figure for the small model on two cores."""

    seconds_per_chunk: float
    measured: bool


def reading_speed(home: Home, *, small_model_on_cpu: bool) -> ReadingSpeed | None:
    """How fast the newest night with enough chunks read; without one, what was seen of the small model; None if nothing
    is known."""
    for night in sorted(home.nights.glob("[0-9]*"), reverse=True)[:WINDOW]:
        record = Records(night).total(ExtractionRecord)
        if record is not None and record.chunks >= _LEAST_CHUNKS and record.seconds > 0:
            return ReadingSpeed(record.seconds / record.chunks, measured=True)
    return ReadingSpeed(_SHIPPED_SECONDS, measured=False) if small_model_on_cpu else None
