"""How failures are planted: real file systems, flipped bytes, lost files, killed processes. Each takes a project of
`light.py` that has not run yet, and may return the command line to use."""

import contextlib
import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

import pytest
from light import FAKE_ENGINE, LightCommandLine

NIGHT = "2026-06-05"
ENGINE = "vllm/entrypoints/openai/api_server.py"
HELD: list[TextIO] = []
"""Locks that a planted failure holds until its test is over."""


@dataclass(frozen=True)
class PlantedCommandLine(LightCommandLine):
    """`ec1` with more in its environment, and perhaps in a mount namespace of its own."""

    variables: dict[str, str] = field(default_factory=dict)
    mounts: str = ""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **self.variables}

    @property
    def folder(self) -> Path:
        return self.home.root.parent

    def told(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self.all_told([arguments])[0]

    def all_told(self, commands: "list[tuple[str, ...]]") -> "list[subprocess.CompletedProcess[str]]":
        """Several commands one after the other; on what is mounted for this command line, the same for all."""
        found = []
        for number, arguments in enumerate(commands):
            command = [*self.command, *arguments]
            if self.mounts:
                keeper = self._namespace()
                mount = self.mounts if not number else "true"
                inner = ["sh", "-c", f'{mount} && exec "$@"', "sh", *command]
                command = ["nsenter", f"--mount=/proc/{keeper.pid}/ns/mnt", f"--wd={self.project}", *inner]
            found.append(
                subprocess.run(
                    command, cwd=self.project, env=self.environment, capture_output=True, text=True, timeout=600
                )
            )
        return found

    def _namespace(self) -> "subprocess.Popen[bytes]":
        """A process that keeps the mounts as long as this test runs."""
        if self.mounts not in KEEPERS:
            KEEPERS[self.mounts] = subprocess.Popen(["unshare", "--mount", "sleep", "600"])
            deadline = time.monotonic() + 10
            mine, theirs = Path("/proc/self/ns/mnt"), Path(f"/proc/{KEEPERS[self.mounts].pid}/ns/mnt")
            while theirs.readlink() == mine.readlink() and time.monotonic() < deadline:
                time.sleep(0.02)
        return KEEPERS[self.mounts]


KEEPERS: "dict[str, subprocess.Popen[bytes]]" = {}


def let_go() -> None:
    """Give back what plants hold."""
    for stream in HELD:
        stream.close()
    HELD.clear()
    for keeper in KEEPERS.values():
        keeper.kill()
        keeper.wait()
    KEEPERS.clear()


Plant = Callable[[PlantedCommandLine], "PlantedCommandLine | None"]


def deployment(old: str, new: str) -> Plant:
    """Change the deployment's file."""

    def plant(ec1: PlantedCommandLine) -> None:
        path = ec1.folder / "configs" / "deployments" / "light.yaml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return plant


def more(line: str) -> Plant:
    return deployment("\ntenant:", f"\n{line}\ntenant:")


def recipe(old: str, new: str) -> Plant:
    def plant(ec1: PlantedCommandLine) -> None:
        path = ec1.folder / "recipes" / "engineering.yaml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return plant


def variable(name: str, value: str) -> Plant:
    return lambda ec1: replace(ec1, variables={name: value})


def home_is_a_file(ec1: PlantedCommandLine) -> None:
    ec1.home.root.write_text("in the way")


def path_too_long(ec1: PlantedCommandLine) -> PlantedCommandLine:
    return replace(ec1, variables={"EC1_HOME": str(ec1.home.root / ("h" * 300))})


def mounted(where: str, how: str, then: str = "true") -> Plant:
    """Put a file system over a folder of the home, for these commands alone; `{}` in `then` is the folder."""

    def plant(ec1: PlantedCommandLine) -> PlantedCommandLine:
        folder = ec1.home.root / where
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        mounts = f"mount -t tmpfs -o mode=700,{how} tmpfs {folder} && {then.format(folder)}"
        probe = subprocess.run(
            ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs tmpfs {folder}"], capture_output=True
        )
        if probe.returncode or shutil.which("nsenter") is None:
            pytest.skip("this user may not mount")
        return replace(ec1, mounts=mounts)

    return plant


def holding(where: str, content: bytes = b"in the way") -> Plant:
    """A file with this content in the home."""

    def plant(ec1: PlantedCommandLine) -> None:
        path = ec1.home.root / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return plant


def torn_database(where: str) -> Plant:
    """A real SQLite file, a page of which holds something else."""

    def plant(ec1: PlantedCommandLine) -> None:
        path = ec1.home.root / where
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, body TEXT)")
            db.executemany("INSERT INTO runs (body) VALUES (?)", [("x" * 900,)] * 200)
            db.commit()
        data = bytearray(path.read_bytes())
        data[4096:8192] = b"\xa5" * 4096
        path.write_bytes(data)

    return plant


def unreadable(where: str) -> Plant:
    """A file that is answered with EIO where it is read, as by a dying disk: the kernel does so for this one."""

    def plant(ec1: PlantedCommandLine) -> None:
        path = ec1.home.root / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to("/proc/self/mem")

    return plant


def clock_behind(ec1: PlantedCommandLine) -> None:
    path = ec1.home.night("2031-01-01")
    path.mkdir(parents=True)
    os.utime(path, (time.time() + 86400, time.time() + 86400))


def both(*plants: Plant) -> Plant:
    def plant(ec1: PlantedCommandLine) -> PlantedCommandLine:
        for each in plants:
            ec1 = each(ec1) or ec1
        return ec1

    return plant


def engine(code: str) -> Plant:
    """An engine of another kind."""

    def plant(ec1: PlantedCommandLine) -> PlantedCommandLine:
        folder = ec1.folder / "engine"
        shutil.copytree(FAKE_ENGINE, folder)
        path = folder / ENGINE
        path.write_text(path.read_text().replace("def main() -> None:\n", f"def main() -> None:\n    {code}\n"))
        return replace(ec1, variables={"PYTHONPATH": str(folder)})

    return plant


def in_each_process(code: str) -> Plant:
    """Code that every Python of the night begins with; `words` are its command line."""

    def plant(ec1: PlantedCommandLine) -> PlantedCommandLine:
        folder = ec1.folder / "first"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(
            f"import os, signal, sys\nwords = ' '.join(sys.orig_argv)\nHOME = {str(ec1.home.root)!r}\n{code}"
        )
        return replace(ec1, variables={"PYTHONPATH": f"{folder}{os.pathsep}{FAKE_ENGINE}"})

    return plant


def when_listed(signal: str) -> str:
    """The night's process gets a signal as soon as its documents are listed."""
    return f"""
def watch():
    import time
    while not os.path.exists(HOME + "/nights/{NIGHT}/source_documents.json"):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.{signal})
if "jobs.run_night" in words:
    import threading
    threading.Thread(target=watch, daemon=True).start()
"""


KILLED = "os.kill(os.getpid(), signal.SIGKILL)"


def lease_held(ec1: PlantedCommandLine) -> None:
    deployment("lease_wait_seconds: 600", "lease_wait_seconds: 1")(ec1)
    ec1.home.create()
    stream = ec1.home.gpu_lock.open("w")
    stream.write(json.dumps({"phase": "serving", "night": "-", "holder": "a friend", "pid": 1, "since": "today"}))
    stream.flush()
    fcntl.flock(stream, fcntl.LOCK_EX)
    HELD.append(stream)


def with_file(name: str, content: str, plant: Plant) -> Plant:
    """Plant, and put a file into the project."""

    def also(ec1: PlantedCommandLine) -> "PlantedCommandLine | None":
        (ec1.folder / name).write_text(content)
        return plant(ec1)

    return also


def no_chat_template(ec1: PlantedCommandLine) -> None:
    path = ec1.folder / "configs" / "deployments" / "light.yaml"
    line = next(each for each in path.read_text().splitlines() if "path: " in each)
    model = Path(line.split("path: ")[1].rstrip("}"))
    copy = ec1.folder / "plain"
    shutil.copytree(model, copy)
    (copy / "chat_template.jinja").unlink(missing_ok=True)
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (copy / "tokenizer_config.json").write_text(json.dumps(settings))
    path.write_text(path.read_text().replace(str(model), str(copy)))
