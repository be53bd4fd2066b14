"""Work on a machine behind a real sshd: sent, started detached, followed, brought back; the connection may break."""

import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ssh_server import SshServer
from worker_parts import HERE, light_work, markers_of

from ec1.errors import InputError, ServiceError
from ec1.launch.launcher import DeviceWork
from ec1.launch.ssh_launcher import SshLauncher
from ec1.storage.ssh import SshHost, SshStore

pytestmark = pytest.mark.slow


def launcher_to(server: SshServer, folder: Path, *, wake_seconds: float = 1) -> SshLauncher:
    host = server.host()
    worker = [sys.executable, HERE / "worker_parts.py", folder / "store", folder / "home", "there", "3", "0.2"]
    return SshLauncher(
        host,
        str(folder),
        markers_of(SshStore(host, f"{folder}/store")),  # type: ignore[arg-type]
        [str(each) for each in worker],
        wait_seconds=120,
        follow_seconds=0.2,
        wake_seconds=wake_seconds,
    )


def run(launcher: SshLauncher, work: DeviceWork, folder: Path) -> None:
    launcher.run(work, {}, folder / "log.txt")


def test_work_goes_there_and_its_result_comes_back(ssh_server: SshServer, tmp_path: Path) -> None:
    there, work = tmp_path / "there it's", light_work(tmp_path / "night")
    run(launcher_to(ssh_server, there), work, tmp_path)
    assert json.loads((work.output / "summary.json").read_text())["n"] == 0
    assert (work.output / "steps.txt").read_text() == "0\n1\n2\n"
    assert not (work.output / "checkpoints").exists()
    assert '"step 0"' in (tmp_path / "log.txt").read_text(), "what it prints is in the log here"


def test_a_machine_that_cannot_do_it_is_named_before_anything_is_sent(
    ssh_server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = light_work(tmp_path / "night")
    monkeypatch.setattr("ec1.launch.ssh_launcher.own_version", lambda: "99")
    with pytest.raises(InputError, match="install the same on both"):
        run(launcher_to(ssh_server, tmp_path / "there"), work, tmp_path)
    nobody = SshHost("127.0.0.1", ("-F", "none", "-p", "9"), retry_seconds=0)
    with pytest.raises(ServiceError, match="refused"):
        SshStore(nobody, "/x").exists("a")
    assert not (tmp_path / "there" / "store").exists()


@pytest.mark.soak
def test_ten_cuts_of_the_connection(ssh_server: SshServer, tmp_path: Path) -> None:
    """Large enough to be cut while it is sent, worked on and brought back."""
    rng = random.Random(3)
    work = light_work(tmp_path / "night", steps=200, seconds=0.1)
    for number in range(20):
        (work.inputs[0] / f"{number}.bin").write_bytes(rng.randbytes(4_000_000))
    there = tmp_path / "there"
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        night = pool.submit(run, launcher_to(ssh_server, there), work, tmp_path)
        cuts = 0
        while cuts < 10 and not night.done():
            time.sleep(rng.uniform(0.5, 4))
            cuts += ssh_server.cut() > 0
        night.result(300)
    assert cuts == 10, "it was done before the last cut"
    assert (work.output / "steps.txt").read_text().split() == [str(step) for step in range(200)], "each step once"
    assert len(json.loads((work.output / "summary.json").read_text())["sources"]) == 22
    lines = [line for line in (tmp_path / "log.txt").read_text().splitlines() if '"result"' in line]
    assert len(lines) == 1, "each line of the log once"
    print(f"10 cuts in {time.monotonic() - began:.0f} s: one result, every step once")
