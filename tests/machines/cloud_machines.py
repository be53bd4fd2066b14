"""A fake cloud with a clock that only waiting moves, and machines of it as a deployment would make them."""

import datetime as dt
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from fake_compute import PROJECT, FakeCompute

from ec1.machines.installation import Installation
from ec1.machines.machine import Machine
from ec1.machines.settings import GceSettings

NIGHT = "2026-06-03"
ZONES = ("us-central1-a", "us-east4-c")
A, B = ZONES


class Cloud:
    """The fake API under a clock in the night of the third of June."""

    def __init__(self, compute: FakeCompute, home: Path, zone: ZoneInfo) -> None:
        self.compute = compute
        self.home = home
        self.zone = zone
        self.now = dt.datetime(2026, 6, 3, 2, 0, tzinfo=zone).timestamp()
        self.said: list[str] = []
        compute.clock = lambda: self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def machine(self, owner: str = "gce@control", beat_seconds: float = 0, **settings: Any) -> Machine:
        """A machine as another process would see it: it shares files, nothing else."""
        values = {"kind": "gce", "project": PROJECT, "zones": ZONES, "daily_cost": 5.0, "daily_starts": 4, **settings}
        values |= {"endpoint": self.compute.address, "engine_port": self.compute.engine_port}
        place = Installation(self.home / "machine", self.home / "machine-off", self.zone, owner)
        return Machine(
            GceSettings.model_validate(values),
            place,
            usd_per_hour=1.0,
            min_free_gib=20.0,
            clock=lambda: self.now,
            sleep=self.sleep,
            beat_seconds=beat_seconds,
        )

    def tell(self, message: str) -> None:
        self.said.append(message)
