"""Thirty nights in a row: the home stays as large as the nights that are kept."""

import datetime as dt
import json
import os
from pathlib import Path

import pytest
from light import light_project

from ec1.night.operations.cleanup import size_of
from ec1.night.records import Records, RetentionRecord

NIGHTS = 30
KEEP = 3


@pytest.mark.soak
def test_the_size_of_the_home_is_bounded(small_model: Path, project: Path, tmp_path: Path) -> None:
    ec1 = light_project(tmp_path, project, small_model, train=False)
    deployment = tmp_path / "configs" / "deployments" / "light.yaml"
    deployment.write_text(deployment.read_text() + f"retention: {{nights: {KEEP}}}\n")
    days = [dt.date(2026, 6, 1) + dt.timedelta(days=number) for number in range(NIGHTS)]
    sizes = []
    for day in days:
        done = ec1.run("night", "--date", day.isoformat())
        assert done.returncode == 0, done.stdout + done.stderr
        sizes.append(size_of(ec1.home.root) - size_of(ec1.home.models))
        # The nights after this one are days later.
        for path in (*ec1.home.nights.rglob("*"), ec1.home.nights):
            old = path.stat().st_mtime - 2 * 24 * 3600
            os.utime(path, (old, old))
        record = Records(ec1.home.night(day.isoformat())).find(RetentionRecord)
        assert record is not None and record.problem is None
    settled = sizes[KEEP + 2]
    assert max(sizes[KEEP + 2 :]) < settled * 1.15 + 2 * 2**20, sizes
    planned = json.loads(ec1.run("plan", "--date", days[-1].isoformat(), "--json").stdout)
    assert planned["home"]["nights"] == NIGHTS and planned["home"]["size"] > 0
