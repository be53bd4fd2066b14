"""A whole real night, run once for all tests that look at what it left."""

import time
from pathlib import Path

import pytest
from commandline import CommandLine, RealNight
from gcs_emulator import bucket, gcs_server
from s3_server import s3_bucket, s3_server
from ssh_server import ssh_server

from ec1.home import Home

__all__ = ["bucket", "gcs_server", "real_night", "s3_bucket", "s3_server", "ssh_server"]


@pytest.fixture(scope="session")
def real_night(project: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> RealNight:
    """One night of the embedded deployment on the bundled sample: real engine, real training, nothing mocked."""
    if (kept := request.config.getoption("--night-home")) is not None:
        home = Home(kept.resolve())
        return RealNight(CommandLine(project, home), 0, "", 0.0, max(path.name for path in home.nights.iterdir()))
    ec1 = CommandLine(project, Home(tmp_path_factory.mktemp("night") / "home"))
    began = time.monotonic()
    done = ec1.run("night")
    (night,) = ec1.home.nights.iterdir()
    return RealNight(ec1, done.returncode, done.stdout, time.monotonic() - began, night.name)
