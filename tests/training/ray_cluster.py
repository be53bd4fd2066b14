"""A real Ray cluster on this machine: a head without work, and nodes that can be lost as a machine without power."""

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import psutil
from loopback_server import free_port

HOST = "127.0.0.1"
START_SECONDS = 240
# On a busy machine a node may take longer than the half minute that it is given, and is not to be the last one served.
_PATIENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": str(START_SECONDS),
    "RAY_worker_niceness": "0",
}


def running(module: str, word: str) -> list[psutil.Process]:
    """The processes that run a module and were given this word; their wardens have the same words behind their own."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if words[1:3] == ["-m", module] and word in words:
            found.append(process)
    return found


class RayCluster:
    """Started with the context, ended with it; nothing of it is left, whatever happened to its processes.

    `environment` is that of all nodes, in addition to Ray's.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = dict(environment or {})
        # Short: its sockets lie below it, and their names are limited.
        self._folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self._port, self._dashboard = free_port(), free_port()
        # Whoever can reach a cluster without one runs what they like there.
        self._token = secrets.token_hex(32)
        self.token_file = self._folder / "token"
        self.token_file.write_text(f"{self._token}\n")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._all: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self._dashboard}"

    @property
    def settings(self) -> dict[str, Any]:
        """How it is reached, as a deployment says it."""
        return {"address": self.address, "token_file": self.token_file}

    def __enter__(self) -> "RayCluster":
        try:
            head = ["--head", "--port", self._port, "--dashboard-host", HOST, "--dashboard-port", self._dashboard]
            self._start("head", *head, "--num-cpus", 0, "--temp-dir", self._folder)
            self._wait(frozenset())
        except BaseException:
            self.__exit__()
            raise
        return self

    def add_node(self, *inside: object) -> int:
        """One more node, with one CPU, started by a command such as `bwrap …`. Returns its process's id."""
        before = frozenset(self.living())
        options = ["--address", f"{HOST}:{self._port}", "--num-cpus", 1]
        process = self._start(f"node-{len(self._all)}", *options, inside=inside)
        self._wait(before)
        return process.pid

    @property
    def nodes(self) -> int:
        """How many were started and not lost, the head not counted."""
        return len(self._processes) - 1

    def lose(self, node: int) -> None:
        """End a node with all that runs on it, at once and without a word."""
        self._processes = [each for each in self._processes if each.pid != node]
        root = psutil.Process(node)
        # Stopped first: nobody may see another one die, and act on it.
        everything = [root, *root.children(recursive=True)]
        for signal_number in (signal.SIGSTOP, signal.SIGKILL):
            for process in everything:
                try:
                    process.send_signal(signal_number)
                except psutil.NoSuchProcess:
                    continue

    def node_of(self, process: psutil.Process) -> int | None:
        """Which of the cluster's nodes a process belongs to, by its ancestors."""
        ours = {each.pid for each in self._processes}
        return next((parent.pid for parent in process.parents() if parent.pid in ours), None)

    def living(self) -> list[str]:
        """Ids of the nodes that the head counts as alive; on a busy machine it may take long to say."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                told = json.load(self._get("api/v0/nodes"))
                return [each["node_id"] for each in told["data"]["result"]["result"] if each["state"] == "ALIVE"]
            except (OSError, ValueError, KeyError, TypeError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def jobs(self, *states: str) -> list[str]:
        """Names of the jobs that are in one of these states."""
        with self._get("api/jobs/") as told:
            return [each["submission_id"] for each in json.load(told) if each["status"] in states]

    def _get(self, path: str) -> HTTPResponse:
        request = urllib.request.Request(f"{self.address}/{path}", headers={"Authorization": f"Bearer {self._token}"})
        found: HTTPResponse = urllib.request.urlopen(request, timeout=10)
        return found

    def _start(self, name: str, *arguments: object, inside: Sequence[object] = ()) -> "subprocess.Popen[bytes]":
        ray = Path(sys.executable).with_name("ray")
        # Where another cluster has the usual port, jobs find no agent.
        agent = ["--dashboard-agent-listen-port", free_port()]
        command = [*inside, ray, "start", "--node-ip-address", HOST, "--disable-usage-stats", "--block", *agent]
        command += arguments
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(each) for each in command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    **_PATIENT,
                    **self._environment,
                    "RAY_AUTH_MODE": "token",
                    "RAY_AUTH_TOKEN": self._token,
                },
                start_new_session=True,
            )
        self._processes.append(process)
        self._all.append(process)
        return process

    def _wait(self, before: frozenset[str]) -> None:
        """Until a node is there that was not there before."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self._answers() and set(self.living()) - before:
                return
            logs = {path.name: path.read_text(errors="replace")[-2000:] for path in self._folder.glob("*.log")}
            assert all(each.poll() is None for each in self._processes) and time.monotonic() < deadline, logs
            time.sleep(1)

    def _answers(self) -> bool:
        try:
            with self._get("api/version"):
                return True
        except OSError:
            return False

    def __exit__(self, *_: object) -> None:
        left = []
        for process in self._processes:
            try:
                root = psutil.Process(process.pid)
                left += [*root.children(recursive=True), root]
            except psutil.NoSuchProcess:
                continue
        # Its servers start in sessions of their own.
        for other in psutil.process_iter():
            try:
                if any(str(self._folder) in word for word in other.cmdline()):
                    left.append(other)
            except psutil.Error:
                continue
        for one in left:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue
        for process in self._all:
            process.wait(30)
        subprocess.run(["rm", "-rf", str(self._folder)], check=True)
