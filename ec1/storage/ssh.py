"""An object store in a folder of another machine, by the system's own ssh and rsync.

Theirs are the operator's keys, host names, jump hosts and known hosts, and they resume. The other side needs a POSIX
shell, GNU find, coreutils and rsync. What was cut off is tried again for `retry_seconds`; each write is checked there
before it takes its place. https://man.openbsd.org/ssh_config
"""

import datetime as dt
import hashlib
import shlex
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ec1.errors import ServiceError
from ec1.files import atomic_file, sha256_file
from ec1.storage.claimed_folder import put_claimed_folder
from ec1.storage.store import TEMPORARY, AlreadyExists, NotFound, ObjectInfo, checked_key

_MISSING, _TAKEN, _DAMAGED = 44, 17, 45
_BROKEN_SSH = (255,)
_WRONG_HOST = "Host key verification failed"
_BROKEN_RSYNC = (10, 11, 12, 30, 35, 255)
"""Sockets, protocol stream and time-outs; 11 also when the other side went away while it wrote."""


class SshHost:
    """Commands on `host`, as `ssh` reaches it with `options`. One connection serves many of them."""

    def __init__(
        self,
        host: str,
        options: Sequence[str] = (),
        *,
        retry_seconds: float = 120,
        gone: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`gone` says why there is no host any more, as far as is known: then nothing is tried again."""
        self.host = host
        self._retry_seconds = retry_seconds
        self._gone = gone
        # A socket's path may have 108 bytes.
        self._sockets = tempfile.TemporaryDirectory(prefix="ec1-ssh-")
        shared = {
            "BatchMode": "yes",
            "ConnectTimeout": "15",
            "ServerAliveInterval": "10",
            "ServerAliveCountMax": "3",
            "ControlMaster": "auto",
            "ControlPath": f"{self._sockets.name}/%C",
            "ControlPersist": "30",
        }
        self.command = ["ssh", *(f"-o{name}={value}" for name, value in shared.items()), *options]

    def run(self, script: str, data: bytes = b"", *, answers: Sequence[int] = ()) -> tuple[int, bytes]:
        """Run a shell script there, again if the connection breaks. Returns its status, 0 or one of `answers`, and
        what it printed. Raises ServiceError for any other."""
        return self._tried([*self.command, "--", self.host, f"sh -c {shlex.quote(script)}"], data, answers, _BROKEN_SSH)

    def rsync(self, source: str, target: str) -> None:
        """Copy one file; what is there of it already is kept."""
        partial = f"--partial-dir={TEMPORARY}partial"
        command = ["rsync", "-s", "--mkpath", partial, "--timeout=60", "-e", shlex.join(self.command)]
        self._tried([*command, "--", source, target], b"", (), _BROKEN_RSYNC)

    def _tried(
        self, command: Sequence[str], data: bytes, answers: Sequence[int], broken: Sequence[int]
    ) -> tuple[int, bytes]:
        deadline, pause = time.monotonic() + self._retry_seconds, 0.2
        while True:
            try:
                done = subprocess.run(command, input=data, capture_output=True, timeout=3600)
            except FileNotFoundError:
                raise ServiceError(f"{command[0]} is not installed: install openssh-client and rsync") from None
            if done.returncode == 0 or done.returncode in answers:
                return done.returncode, done.stdout
            message = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
            # Another machine answers than the one that is meant: it will the next time, too.
            final = done.returncode not in broken or _WRONG_HOST in message or self._gone()
            if final or time.monotonic() > deadline:
                raise ServiceError(f"{self.host}: {message} ({command[0]} ended with status {done.returncode})")
            time.sleep(pause)
            pause = min(5.0, pause * 2)


class SshStore:
    """`ObjectStore` in `folder` on a host."""

    def __init__(self, host: SshHost, folder: str) -> None:
        self._host = host
        self._folder = folder.rstrip("/")

    def put_file(self, key: str, path: Path, *, if_absent: bool = False) -> None:
        # A file that cannot be read here is not the other side's fault.
        path.open("rb").close()
        if not if_absent:
            self._host.rsync(str(path), f"{self._host.host}:{self._path(key)}")
            return
        staged = self._temporary(key)
        self._host.rsync(str(path), f"{self._host.host}:{staged}")
        self._place(key, f"true < {shlex.quote(staged)}", staged, sha256_file(path), b"", if_absent)

    def put_bytes(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        staged = self._temporary(key)
        self._place(key, f"cat > {shlex.quote(staged)}", staged, hashlib.sha256(data).hexdigest(), data, if_absent)

    def put_folder(self, prefix: str, files: Mapping[str, Path], *, seal: str, claim: str) -> None:
        put_claimed_folder(self, prefix, files, seal=seal, claim=claim, holds=self._holds)

    def get_bytes(self, key: str) -> bytes:
        status, data = self._host.run(
            f"test -f {self._quoted(key)} || exit {_MISSING}; cat {self._quoted(key)}", answers=[_MISSING]
        )
        if status == _MISSING:
            raise NotFound(f"nothing is stored as {self._host.host}:{self._path(key)}")
        return data

    def get_file(self, key: str, path: Path) -> None:
        if not self.exists(key):
            raise NotFound(f"nothing is stored as {self._host.host}:{self._path(key)}")
        with atomic_file(path, prefix=TEMPORARY) as temporary:
            self._host.rsync(f"{self._host.host}:{self._path(key)}", str(temporary))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        if prefix:
            checked_key(prefix.removesuffix("/"))
        folder = prefix.rpartition("/")[0]
        root = shlex.quote(f"{self._folder}/{folder}" if folder else self._folder)
        # What goes while we look is not there: find says so and fails, and that is not an error.
        _, found = self._host.run(f"test -d {root} || exit 0; find {root} -type f -printf '%P\\t%s\\t%T@\\n'; true")
        items = []
        for line in found.decode().splitlines():
            name, size, modified = line.rsplit("\t", 2)
            key = f"{folder}/{name}" if folder else name
            if key.startswith(prefix) and not any(part.startswith(TEMPORARY) for part in key.split("/")):
                items.append(ObjectInfo(key, int(size), dt.datetime.fromtimestamp(float(modified), dt.UTC)))
        yield from sorted(items, key=lambda item: item.key.encode())

    def exists(self, key: str) -> bool:
        status, _ = self._host.run(f"test -f {self._quoted(key)} || exit {_MISSING}", answers=[_MISSING])
        return status == 0

    def delete(self, key: str) -> None:
        self._host.run(f"rm -f {self._quoted(key)}")

    def rename(self, source: str, destination: str) -> None:
        old, new = self._quoted(source), self._quoted(destination)
        parent = shlex.quote(self._path(destination).rpartition("/")[0])
        # A link is made only where nothing is.
        script = f"test -f {old} || exit {_MISSING}; mkdir -p {parent}; ln {old} {new} || exit {_TAKEN}; rm {old}"
        status, _ = self._host.run(script, answers=[_MISSING, _TAKEN])
        if status == _MISSING:
            raise NotFound(f"nothing is stored as {self._host.host}:{self._path(source)}")
        if status == _TAKEN:
            raise AlreadyExists(f"{self._host.host}:{self._path(destination)} already exists")

    def _place(self, key: str, receive: str, staged: str, digest: str, data: bytes, if_absent: bool) -> None:
        """Receive, check and put in place. A connection that breaks ends the input early, so the digest is compared."""
        final, temporary = self._quoted(key), shlex.quote(staged)
        script = (
            f"mkdir -p {shlex.quote(staged.rpartition('/')[0])}; {receive}; "
            f'test "$(sha256sum < {temporary} | cut -c1-64)" = {digest} || {{ rm -f {temporary}; exit {_DAMAGED}; }}; '
        )
        if if_absent:
            # A link is made only where nothing is. After a lost answer it is there already, and it is ours.
            script = f"test {final} -ef {temporary} && exit 0; {script} ln {temporary} {final} || exit {_TAKEN}"
        else:
            script += f"mv -f {temporary} {final}"
        status, _ = self._host.run(script, data, answers=[_TAKEN, _DAMAGED])
        if if_absent:
            self._host.run(f"rm -f {temporary}")
        if status == _DAMAGED:
            raise ServiceError(f"{self._host.host}:{self._path(key)} was damaged on its way: try again")
        if status == _TAKEN:
            raise AlreadyExists(f"{self._host.host}:{self._path(key)} already exists")

    def _holds(self, key: str, path: Path) -> bool:
        _, found = self._host.run(f"sha256sum < {self._quoted(key)}")
        return found.decode()[:64] == sha256_file(path)

    def _path(self, key: str) -> str:
        return f"{self._folder}/{checked_key(key)}"

    def _quoted(self, key: str) -> str:
        return shlex.quote(self._path(key))

    def _temporary(self, key: str) -> str:
        parent = self._path(key).rpartition("/")[0]
        return f"{parent}/{TEMPORARY}{uuid.uuid4().hex}"
