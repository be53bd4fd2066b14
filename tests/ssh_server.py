"""A real sshd on loopback with keys of its own, whose connections can be cut."""

import contextlib
import getpass
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from debian import program

from ec1.storage.ssh import SshHost

CONFIG = """
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
MaxSessions 100
MaxStartups 100
"""


@dataclass
class SshServer:
    process: "subprocess.Popen[bytes]"
    options: tuple[str, ...]
    address: str
    host_key: str = ""
    """Its public key, as `type base64`."""
    login: tuple[str, ...] = ()
    """The options without those that say which key is its own."""

    def host(self, retry_seconds: float = 60) -> SshHost:
        return SshHost(self.address, self.options, retry_seconds=retry_seconds)

    def cut(self) -> int:
        """Cut all connections; returns how many there were."""
        sessions = psutil.Process(self.process.pid).children()
        for session in sessions:
            # Its own family is sshd's too, until a shell begins.
            for each in [*session.children(), session]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    if each.name() == "sshd":
                        each.kill()
        return len(sessions)


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    sshd = program("sshd")
    program("ssh")
    program("rsync")
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(CONFIG.format(port=port, folder=folder))
    host_key = (folder / "host.pub").read_text().split()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key[0]} {host_key[1]}\n")
    # As Debian's service does before it starts.
    with contextlib.suppress(PermissionError):
        Path("/run/sshd").mkdir(exist_ok=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([sshd, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    options = ("-F", "none", "-p", str(port), "-i", str(folder / "user"), f"-oUserKnownHostsFile={folder}/known_hosts")
    server = SshServer(process, options, f"{getpass.getuser()}@127.0.0.1", " ".join(host_key[:2]), options[:-1])
    deadline = time.monotonic() + 30
    while True:
        try:
            server.host(0).run("true")
            break
        except Exception as error:  # noqa: BLE001
            if time.monotonic() > deadline or process.poll() is not None:
                pytest.skip(f"sshd does not let us in: {error}; {(folder / 'log').read_text()[-300:]}")
            time.sleep(0.2)
    yield server
    server.cut()
    process.kill()
    process.wait()
