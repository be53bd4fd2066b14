"""Whose machine it is: the installation of EC1 that keeps its books."""

from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo


@dataclass(frozen=True)
class Installation:
    """Where a machine's files are, and who we are. `zone` decides when a day begins; `owner` is written on the
    machine, so that two installations do not take it from each other."""

    folder: Path
    off: Path
    zone: ZoneInfo
    owner: str
