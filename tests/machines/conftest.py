"""A fake cloud, and a machine of it by a clock that a test moves."""

from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from cloud_machines import Cloud
from fake_compute import fake_compute
from ssh_server import ssh_server

__all__ = ["cloud", "ssh_server"]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with fake_compute() as compute:
        yield Cloud(compute, tmp_path, ZoneInfo("Europe/Berlin"))
