"""Nights on which nothing new came: every asset and check has its result of that night, and little stays."""

from pathlib import Path

import dagster as dg
import pytest
from light import LightCommandLine, light_project

from ec1.home import Home
from ec1.night.operations.cleanup import size_of
from ec1_assets.definitions import build_defs
from resources.environment import DeploymentChoice

pytestmark = pytest.mark.system
FIRST, *QUIET = ("2026-06-10", "2026-06-11", "2026-06-12")
MOST_BYTES, MOST_FILES = 0.3 * 2**20, 35


def files(home: Home) -> set[Path]:
    return {path for path in home.root.rglob("*") if path.is_file()}


def run(ec1: LightCommandLine, night: str) -> None:
    done = ec1.run("night", "--date", night)
    assert done.returncode == 0, done.stdout


def test_a_quiet_night_is_green_and_leaves_little(tmp_path: Path, project: Path, tiny_model: Path) -> None:
    ec1 = light_project(tmp_path, project, tiny_model)
    for night in (FIRST, QUIET[0]):
        run(ec1, night)
    size, there = size_of(ec1.home.root), files(ec1.home)
    run(ec1, QUIET[1])
    grown, new = size_of(ec1.home.root) - size, files(ec1.home) - there
    assert grown <= MOST_BYTES, f"{grown / 2**20:.2f} MiB"
    assert len(new) <= MOST_FILES, sorted(map(str, new))
    graph = build_defs(DeploymentChoice("light", ec1.home.root, tmp_path)).resolve_asset_graph()
    with dg.DagsterInstance.from_config(str(ec1.home.dagster)) as instance:
        for key in graph.get_all_asset_keys():
            assert instance.get_materialized_partitions(key) >= set(QUIET), key.to_user_string()
        for check in graph.asset_check_keys:
            history = instance.event_log_storage.get_asset_check_execution_history(check, limit=9)
            results = {each.partition: each.status.value for each in history if each.partition in QUIET}
            assert results == dict.fromkeys(QUIET, "SUCCEEDED"), (check, results)
