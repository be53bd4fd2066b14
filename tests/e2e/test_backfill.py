"""Nights that were missed and are backfilled give, digest for digest, what the same nights gave on time."""

import datetime as dt
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from light import LightCommandLine, light_project

from ec1.documents.listing import Listing
from ec1.files import sha256_file
from ec1.night.operations.sample import install_sample
from ec1.night.records import DatasetRecord, DecisionRecord, GraphRecord, OutcomeRecord, Records, SnapshotRecord

pytestmark = pytest.mark.slow
NIGHTS = ("2026-06-03", "2026-06-04", "2026-06-05")


def digests(ec1: LightCommandLine, nights: Sequence[str]) -> dict[str, Any]:
    """Every digest that the nights left, down to the bytes of the adapters."""
    found: dict[str, Any] = {}
    for night in nights:
        folder = ec1.home.night(night)
        records = Records(ec1.home.run("fernhollow", "engineering", night))
        found[night] = {
            "documents": Listing.load(folder / "source_documents.json").digest,
            "graph": Records(folder).read(GraphRecord).digest,
            "snapshot": records.read(SnapshotRecord).digest,
            "decision": records.read(DecisionRecord).decision.train,
            "dataset": dataset.digest if (dataset := records.find(DatasetRecord)) else None,
            "adapter": outcome.verdict if (outcome := records.find(OutcomeRecord)) else None,
        }
    # Accepted or not: the weights that came out.
    for weights in sorted(ec1.home.root.glob("*/fernhollow/engineering/**/adapter_model.safetensors")):
        if weights.is_relative_to(ec1.home.adapters) or weights.is_relative_to(ec1.home.quarantine):
            found.setdefault("weights", []).append(sha256_file(weights))
    return found


def backfill(ec1: LightCommandLine, nights: Sequence[str]) -> list[dg.DagsterRun]:
    """Ask for all nights at once, newest first, as a person might; the daemon runs them. Returns the runs by start."""
    environment = {**ec1.environment, "DAGSTER_HOME": str(ec1.home.dagster)}
    # Sets the instance up, as `make ui` does before it starts the daemon.
    subprocess.run([sys.executable, "-m", "jobs.reconcile"], cwd=ec1.project, env=environment, check=True)
    log = ec1.home.root / "daemon.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-m", "dagster._daemon", "run", "-w", "workspace.yaml"],
            cwd=ec1.project,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as daemon,
    ):
        try:
            command = [sys.executable, "-m", "dagster", "job", "backfill", "-w", "workspace.yaml", "-j", "nightly_job"]
            asked = subprocess.run(
                [*command, "--partitions", ",".join(reversed(nights)), "--noprompt"],
                cwd=ec1.project,
                env=environment,
                capture_output=True,
                text=True,
            )
            assert asked.returncode == 0, asked.stdout + asked.stderr
            return wait(ec1, len(nights), daemon, log)
        finally:
            daemon.terminate()
            daemon.wait(60)


def wait(ec1: LightCommandLine, count: int, daemon: "subprocess.Popen[bytes]", log: Path) -> list[dg.DagsterRun]:
    with dg.DagsterInstance.from_config(str(ec1.home.dagster)) as instance:
        deadline = time.monotonic() + 900
        while True:
            runs = instance.get_run_records(ascending=True)
            ended = [record for record in runs if record.dagster_run.is_finished]
            if len(ended) == count:
                return [record.dagster_run for record in sorted(ended, key=lambda record: record.start_time or 0)]
            assert daemon.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(1)


@pytest.mark.parametrize("nights", [NIGHTS[:2], pytest.param(NIGHTS, marks=pytest.mark.soak)])
def test_a_backfill_equals_the_nights_on_time(
    tmp_path: Path, project: Path, tiny_model: Path, nights: tuple[str, ...]
) -> None:
    """Every day a night that trains and one that need not; in the soaks also one that goes on from what was learned."""
    on_time = light_project(tmp_path / "on-time", project, tiny_model)
    for night in nights:
        install_sample(project / "examples", on_time.home, until=dt.date.fromisoformat(night))
        done = on_time.run("night", "--date", night)
        assert done.returncode == 0, done.stdout
    late = light_project(tmp_path / "late", project, tiny_model)
    install_sample(project / "examples", late.home)
    runs = backfill(late, nights)
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS] * len(nights)
    assert [run.tags["dagster/partition"] for run in runs] == list(nights), "oldest first"
    found = digests(late, nights)
    assert found == digests(on_time, nights)
    trained = [found[night]["decision"] for night in nights]
    assert trained == [True, False, True][: len(nights)]
    assert len(set(found["weights"])) == trained.count(True)
