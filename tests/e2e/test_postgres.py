"""A night whose Dagster instance lies in a real PostgreSQL, as on a server with several users."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from light import light_project
from loopback_server import free_port

pytestmark = pytest.mark.slow
NIGHT = "2026-06-05"


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A separate cluster on loopback, removed afterwards."""
    # Debian keeps the server's programs out of the path, by version.
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3]))
    found = shutil.which("pg_ctl") or (str(programs[-1]) if programs else "")
    if not found:
        pytest.skip("no PostgreSQL on this machine (Debian: apt-get install postgresql)")
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
