"""A disk that is full on the far side is told at once, in its own words."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ssh_server import SshServer, ssh_server

from ec1.errors import DiskError
from ec1.launch.markers import PendingMarkers
from ec1.launch.ssh_launcher import SshLauncher
from ec1.storage.directory import DirectoryStore
from ec1.storage.ssh import SshStore

__all__ = ["ssh_server"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """One of a megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("this user may not mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_what_does_not_fit_is_told_at_once(ssh_server: SshServer, small_disk: Path, tmp_path: Path) -> None:
    store = SshStore(ssh_server.host(retry_seconds=60), str(small_disk / "store"))
    big = tmp_path / "big"
    big.write_bytes(bytes(3 * 2**20))
    began = time.monotonic()
    with pytest.raises(DiskError, match=r"No space left on device.*make room on that disk"):
        store.put_file("a", big)
    with pytest.raises(DiskError, match="No space left on device"):
        store.put_bytes("b", bytes(2 * 2**20))
    with pytest.raises(DiskError, match="No space left on device"):
        store.put_file("c", big, if_absent=True)
    assert time.monotonic() - began < 30, "nothing is tried again for a minute"
    assert not list(store.list(""))
    store.put_bytes("d", b"room for this")
    assert store.get_bytes("d") == b"room for this"


def test_a_disk_that_fills_up_under_the_worker_ends_the_wait(
    ssh_server: SshServer, small_disk: Path, tmp_path: Path
) -> None:
    markers = PendingMarkers(DirectoryStore(tmp_path / "elsewhere"))
    launcher = SshLauncher(
        ssh_server.host(), str(small_disk), markers, ["true"], wait_seconds=600, follow_seconds=0.1, wake_seconds=0
    )
    launcher._start_worker("m.json")
    with pytest.raises(OSError), (small_disk / "big").open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(2**16))
    with pytest.raises(DiskError, match="No space left on device"):
        launcher._start_worker("m.json")
