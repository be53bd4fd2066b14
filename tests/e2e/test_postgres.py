"""A night whose Dagster instance lies in a real PostgreSQL, as on a server with several users."""

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg
import psycopg2
import pytest
from debian import program
from light import light_project
from loopback_server import free_port

from ec1.home import Home

pytestmark = pytest.mark.system
NIGHT = "2026-06-05"


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A separate cluster on loopback, removed afterwards."""
    found = program("pg_ctl")
    # PostgreSQL refuses to run as root; Debian's package brings a user for it, who may not enter pytest's folders.
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="ec1-postgres-"))
    if user:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    port = free_port()

    def pg_ctl(*arguments: str) -> None:
        command = [found, "--silent", "--pgdata", str(folder / "data"), *arguments]
        subprocess.run(command, check=True, user=user, cwd="/", stdout=subprocess.DEVNULL)

    pg_ctl("initdb", "--options", "--auth=trust --username=ec1 --no-sync")
    options = f"-h 127.0.0.1 -p {port} -k {folder}"
    pg_ctl("start", "--wait", "--log", str(folder / "log"), "--options", options)
    try:
        yield f"postgresql://ec1@127.0.0.1:{port}/postgres"
    finally:
        pg_ctl("stop", "--mode", "immediate")
        shutil.rmtree(folder)


def test_a_night_runs_on_postgresql(
    tmp_path: Path, project: Path, tiny_model: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EC1_DAGSTER_POSTGRES_URL", postgres_url)
    ec1 = light_project(tmp_path, project, tiny_model, train=False)
    ec1.home.dagster.mkdir(parents=True)
    shutil.copy(project / "configs" / "dagster-postgres.yaml", ec1.home.dagster / "dagster.yaml")
    done = ec1.run("night", "--date", NIGHT)
    assert done.returncode == 0, done.stdout
    assert not list(ec1.home.dagster.rglob("*.db")), "nothing is kept in SQLite"
    with dg.DagsterInstance.from_config(str(ec1.home.dagster)) as instance:
        assert [run.status for run in instance.get_runs()] == [dg.DagsterRunStatus.SUCCESS]
        assert {info.name: info.limit for info in instance.event_log_storage.get_pool_limits()} == {"gpu": 1}
        materialised = instance.get_materialized_partitions(dg.AssetKey("graph_mutations"))
    assert materialised == {NIGHT}

    # What waits there is known before anything is forgotten.
    with dg.DagsterInstance.from_config(str(ec1.home.dagster)) as instance:
        (run,) = instance.get_runs()
        waiting = instance.add_run(run._replace(run_id=str(uuid.uuid4()), status=dg.DagsterRunStatus.QUEUED))
        busy = ec1.run("forget", "--match", "no such words")
        assert busy.returncode not in (0, 3) and waiting.run_id[:8] in busy.stdout, busy.stdout
        instance.delete_run(waiting.run_id)
    done = ec1.run("forget", "--match", "no such words")
    assert done.returncode == 3 and "Dagster's history" in done.stdout, "it is not opened, and that is told"
    monkeypatch.setenv("EC1_DAGSTER_POSTGRES_URL", f"{postgres_url}_of_nobody")
    untold = ec1.run("forget", "--match", "no such words")
    assert untold.returncode != 0 and "whether a night is at work cannot be told" in untold.stdout
    monkeypatch.setenv("EC1_DAGSTER_POSTGRES_URL", postgres_url)

    # Backed up, and restored into another home and another data base: the same runs and events.
    archive = tmp_path / "backup"
    assert ec1.run("backup", str(archive)).returncode == 0
    other_url = postgres_url.rpartition("/")[0] + "/other"
    with closing(psycopg2.connect(postgres_url)) as connection:
        connection.autocommit = True
        connection.cursor().execute("CREATE DATABASE other")
    elsewhere = Home(tmp_path / "elsewhere")
    command = [*ec1.command, "--home", str(elsewhere.root), "restore", str(archive)]
    refused = subprocess.run(command, cwd=project, env=ec1.environment, check=False)
    assert refused.returncode == 2 and not elsewhere.root.exists(), "this data base is not empty"
    environment = {**ec1.environment, "EC1_DAGSTER_POSTGRES_URL": other_url}
    subprocess.run(command, cwd=project, env=environment, check=True)
    before = _events(ec1.home)
    monkeypatch.setenv("EC1_DAGSTER_POSTGRES_URL", other_url)
    assert _events(elsewhere) == before and len(before) > 50


def _events(home: Home) -> list[str]:
    with dg.DagsterInstance.from_config(str(home.dagster)) as instance:
        return [entry.to_json() for run in instance.get_runs() for entry in instance.all_logs(run.run_id)]
