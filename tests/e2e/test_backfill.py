"""Nights that were missed and are backfilled by clicks leave, record by record, what the same nights left on time."""

import datetime as dt
import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from dagster_ui import Ui
from light import LightCommandLine, light_project
from patience import until

from ec1.files import sha256_file
from ec1.night.operations.sample import install_sample
from ec1.night.records import DecisionRecord, GraphRecord, Records

pytestmark = pytest.mark.system
NIGHTS = ("2026-06-03", "2026-06-04", "2026-06-05")
# The other two train: the second on what came since the first.
QUIET = "2026-06-04"
# As the UI writes it (`LaunchAssetChoosePartitionsDialog`), from the graph and from a job's own page.
LAUNCH = """mutation LaunchPartitionBackfill($backfillParams: LaunchBackfillParams!) {
    launchPartitionBackfill(backfillParams: $backfillParams) {
        __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
ASSETS = """{ assetNodes { assetKey { path } isMaterializable } }"""
STATE = """{ partitionBackfillOrError(backfillId: "%s") { ... on PartitionBackfill { status } } }"""
ALL_RUNS = """{ runsOrError { ... on Runs { results {
    runId status pipelineName startTime endTime tags { key value } } } } }"""
OF_THE_JOB = {
    "partitionSetName": "nightly_job_partition_set",
    "repositorySelector": {"repositoryLocationName": "ec1", "repositoryName": "__repository__"},
}
# What tells one run from another, and how fast the machine was.
OF_A_RUN = frozenset(
    {
        "run",
        "written",
        "as_of",
        "seconds",
        "training_seconds",
        "tokens_per_second",
        "documents_per_second",
        "peak_memory_gib",
        "free_gib",
        # How many files are newer than the night: on its day there were none yet. `newer` holds it.
        "later",
        # The digest of a file that names the base model by its path in the home.
        "adapter_config.json",
    }
)


def told(value: Any, home: Path) -> Any:
    """A record without what differs between two runs of the same work."""
    if isinstance(value, dict):
        return {key: told(each, home) for key, each in value.items() if key not in OF_A_RUN}
    if isinstance(value, list):
        return [told(each, home) for each in value]
    # What lies in quarantine is named by its night and what is in it; that is compared as it is.
    return (
        re.sub(r"(/quarantine/.*)-[0-9a-f]{12}$", r"\1", value.replace(str(home), "HOME"))
        if isinstance(value, str)
        else value
    )


def records_of(ec1: LightCommandLine) -> dict[str, Any]:
    """Every record that the nights' steps wrote, by its folder, and the bytes of the adapters."""
    root = ec1.home.root
    found: dict[str, Any] = {}
    for path in sorted([*root.glob("nights/*/records/*/*.json"), *root.glob("runs/*/*/*/records/*/*.json")]):
        # How long the parts took and what the clean-up freed is the run's own.
        if path.parent.name not in ("run", "retention"):
            found.setdefault(str(path.parent.relative_to(root)), []).append(told(json.loads(path.read_text()), root))
    of_adapters = root.glob("*/fernhollow/engineering/**/adapter_model.safetensors")
    for weights in sorted(of_adapters, key=lambda path: path.parent.name[:10]):
        if weights.is_relative_to(ec1.home.adapters) or weights.is_relative_to(ec1.home.quarantine):
            found.setdefault("weights", []).append(sha256_file(weights))
    return found


def newer(ec1: LightCommandLine, night: str) -> int:
    """How many documents were written after that day."""
    end = dt.datetime.fromisoformat(f"{night}T23:59:59.999999+00:00").timestamp()
    return sum(path.is_file() and path.stat().st_mtime > end for path in ec1.home.documents.rglob("*"))


@pytest.fixture
def on_time(
    nights: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory, project: Path, tiny_model: Path
) -> LightCommandLine:
    """The nights, each run on its day."""
    ec1 = light_project(tmp_path_factory.mktemp("on-time"), project, tiny_model)
    for night in sorted(nights):
        install_sample(project / "examples", ec1.home, until=dt.date.fromisoformat(night))
        done = ec1.run("night", "--date", night)
        assert done.returncode == 0, done.stdout
    return ec1


@pytest.fixture
def late(tmp_path: Path, project: Path, tiny_model: Path) -> Iterator[tuple[LightCommandLine, Ui]]:
    ec1 = light_project(tmp_path, project, tiny_model)
    install_sample(project / "examples", ec1.home)
    ui = Ui(ec1)
    yield ec1, ui
    ui.kill()
    for left in ec1.processes():
        left.kill()


def backfill(ec1: LightCommandLine, ui: Ui, nights: Sequence[str], **how: Any) -> list[dict[str, Any]]:
    """Ask for the nights as the browser does, and wait for the end. Returns the runs in the order of their starts."""
    assets = [{"path": node["assetKey"]["path"]} for node in ui.ask(ASSETS)["assetNodes"] if node["isMaterializable"]]
    params = {"tags": [], "assetSelection": assets, "partitionNames": list(nights), "fromFailure": False, **how}
    asked = ui.ask(LAUNCH, {"backfillParams": params})["launchPartitionBackfill"]
    assert asked["__typename"] == "LaunchBackfillSuccess", asked
    until(lambda: len(ui.ask(ALL_RUNS)["runsOrError"]["results"]) == len(nights))
    waiting = ec1.run("report", "--date", max(nights))
    assert waiting.returncode == 0 and f"Night {max(nights)}: queued" in waiting.stdout, waiting.stdout
    assert "Run the night again" not in waiting.stdout, waiting.stdout
    until(
        lambda: ui.ask(STATE % asked["backfillId"])["partitionBackfillOrError"]["status"].startswith("COMPLETED"), 1800
    )
    return sorted(ui.ask(ALL_RUNS)["runsOrError"]["results"], key=lambda run: run["startTime"] or 0)


@pytest.mark.parametrize(
    ("nights", "how"),
    [
        pytest.param((NIGHTS[0], NIGHTS[2]), {}, id="assets"),
        # Newest first: a script may ask in any order.
        pytest.param(NIGHTS[::-1], {"selector": OF_THE_JOB}, id="job", marks=pytest.mark.soak),
    ],
)
def test_a_backfill_equals_the_nights_on_time(
    on_time: LightCommandLine, late: tuple[LightCommandLine, Ui], nights: tuple[str, ...], how: dict[str, Any]
) -> None:
    ec1, ui = late
    trains = [night != QUIET for night in sorted(nights)]
    runs = backfill(ec1, ui, nights, **how)
    tags = [{tag["key"]: tag["value"] for tag in run["tags"]} for run in runs]
    # One run for each night, in their order, never two at once, and each known as a night.
    assert [
        (each["dagster/partition"], run["status"], run["pipelineName"]) for each, run in zip(tags, runs, strict=True)
    ] == [(night, "SUCCESS", "nightly_job") for night in sorted(nights)]
    assert all(earlier["endTime"] <= later["startTime"] for earlier, later in pairwise(runs))
    assert all(each["ec1/night-run"] == "yes" for each in tags)
    assert ["ec1/verdict" in each for each in tags] == trains
    found, wanted = records_of(ec1), records_of(on_time)
    assert found.keys() == wanted.keys()
    for name, records in wanted.items():
        assert found[name] == records, name
    for night in nights:
        assert Records(ec1.home.night(night)).read(GraphRecord).later == newer(ec1, night)
    decided = [
        Records(ec1.home.run("fernhollow", "engineering", night)).read(DecisionRecord).decision.train
        for night in sorted(nights)
    ]
    assert decided == trains
