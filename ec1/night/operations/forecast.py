"""How large a home is, how fast it grows, and when its disk is full, from what past nights wrote down."""

import shutil
from dataclasses import dataclass

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
