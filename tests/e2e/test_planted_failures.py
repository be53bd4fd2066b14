"""Failures of many kinds, planted: each is told in one line that says what to do, last at the terminal, in `--json` and
in the night's own record, and to somebody outside by one notice.

The nights are light (`light.py`): a stand-in for the engine, a tiny model. `make soak` runs all, `make test` those
that end before a night begins, and one that does not.
"""

import fcntl
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

import pytest
from light import FAKE_ENGINE, LightCommandLine, light_project
from notice_sink import notice_sink

NIGHT = "2026-06-05"
ENGINE = "vllm/entrypoints/openai/api_server.py"


@dataclass(frozen=True)
class PlantedCommandLine(LightCommandLine):
    """`ec1` with more in its environment, and perhaps in a mount namespace of its own."""

    variables: dict[str, str] = field(default_factory=dict)
    mounts: str = ""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **self.variables}

    def told(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [*self.command, *arguments]
        if self.mounts:
            command = ["unshare", "--mount", "sh", "-c", f'{self.mounts} && exec "$@"', "sh", *command]
        return subprocess.run(
            command, cwd=self.project, env=self.environment, capture_output=True, text=True, timeout=300
        )


@dataclass(frozen=True)
class Failure:
    """How to plant it, and what the line must say."""

    plant: Callable[[PlantedCommandLine], "PlantedCommandLine | None"]
    words: tuple[str, ...]
    status: int = 1
    begins: bool = True
    """Whether there is a run that ends by itself, with a record of its own, and tells somebody outside."""
    missed: bool = False
    """Whether it is left to `ec1 report --check` to tell somebody outside that there was no night."""
    arguments: tuple[str, ...] = ("night", "--date", NIGHT, "--json")
    train: bool = False


def deployment(old: str, new: str) -> Callable[[PlantedCommandLine], None]:
    """Change the deployment's file."""

    def plant(ec1: PlantedCommandLine) -> None:
        path = ec1.home.root.parent / "configs" / "deployments" / "light.yaml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return plant


def more(line: str) -> Callable[[PlantedCommandLine], None]:
    return deployment("\ntenant:", f"\n{line}\ntenant:")


def recipe(old: str, new: str) -> Callable[[PlantedCommandLine], None]:
    def plant(ec1: PlantedCommandLine) -> None:
        path = ec1.home.root.parent / "recipes" / "engineering.yaml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return plant


def home_is_a_file(ec1: PlantedCommandLine) -> None:
    ec1.home.root.write_text("in the way")


def path_too_long(ec1: PlantedCommandLine) -> PlantedCommandLine:
    return replace(ec1, variables={"EC1_HOME": str(ec1.home.root / ("h" * 300))})


def mounted(where: str, how: str) -> Callable[[PlantedCommandLine], PlantedCommandLine]:
    """Put a file system over a folder of the home, for this command alone."""

    def plant(ec1: PlantedCommandLine) -> PlantedCommandLine:
        folder = ec1.home.root / where
        folder.mkdir(parents=True)
        mounts = f"mount -t tmpfs -o {how} tmpfs {folder}"
        probe = subprocess.run(["unshare", "--mount", "sh", "-c", mounts], capture_output=True)
        if probe.returncode:
            pytest.skip("this user may not mount")
        return replace(ec1, mounts=mounts)

    return plant


def history_damaged(ec1: PlantedCommandLine) -> None:
    path = ec1.home.dagster / "history" / "runs.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\7" * 8192)


def in_the_way(where: str) -> Callable[[PlantedCommandLine], None]:
    def plant(ec1: PlantedCommandLine) -> None:
        path = ec1.home.root / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("in the way")

    return plant


def engine(code: str) -> Callable[[PlantedCommandLine], PlantedCommandLine]:
    """An engine of another kind."""

    def plant(ec1: PlantedCommandLine) -> PlantedCommandLine:
        folder = ec1.home.root.parent / "engine"
        shutil.copytree(FAKE_ENGINE, folder)
        path = folder / ENGINE
        path.write_text(path.read_text().replace("def main() -> None:\n", f"def main() -> None:\n    {code}\n"))
        return replace(ec1, variables={"PYTHONPATH": str(folder)})

    return plant


def in_each_process(code: str) -> Callable[[PlantedCommandLine], PlantedCommandLine]:
    """Code that every Python of the night begins with; `words` are its command line."""

    def plant(ec1: PlantedCommandLine) -> PlantedCommandLine:
        folder = ec1.home.root.parent / "first"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(
            f"import os, signal, sys\nwords = ' '.join(sys.orig_argv)\nHOME = {str(ec1.home.root)!r}\n{code}"
        )
        return replace(ec1, variables={"PYTHONPATH": f"{folder}{os.pathsep}{FAKE_ENGINE}"})

    return plant


WHEN_LISTED = f"""
def watch():
    import time
    while not os.path.exists(HOME + "/nights/{NIGHT}/source_documents.json"):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
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


HELD: list[TextIO] = []
"""Locks that a planted failure holds until its test is over."""


def with_file(name: str, content: str, plant: Callable[[PlantedCommandLine], None]) -> Callable[..., None]:
    """Plant, and put a file into the project."""

    def both(ec1: PlantedCommandLine) -> None:
        (ec1.home.root.parent / name).write_text(content)
        plant(ec1)

    return both


def no_chat_template(ec1: PlantedCommandLine) -> None:
    path = ec1.home.root.parent / "configs" / "deployments" / "light.yaml"
    line = next(each for each in path.read_text().splitlines() if "path: " in each)
    model = Path(line.split("path: ")[1].rstrip("}"))
    copy = ec1.home.root.parent / "plain"
    shutil.copytree(model, copy)
    (copy / "chat_template.jinja").unlink(missing_ok=True)
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (copy / "tokenizer_config.json").write_text(json.dumps(settings))
    path.write_text(path.read_text().replace(str(model), str(copy)))


BEFORE = {
    "unknown deployment": Failure(
        lambda ec1: replace(ec1, variables={"EC1_DEPLOYMENT": "nowhere"}),
        ("unknown deployment", "choose one of"),
        2,
        False,
    ),
    "misspelt setting": Failure(more("grahp: {}"), ("light.yaml", "grahp"), 2, False),
    "a cron that never comes": Failure(
        deployment("schedule: {", "schedule: {cron: '0 2 31 4 *', "),
        ("schedule.cron", "'0 2 31 4 *' never comes"),
        1,
        False,
        missed=True,
    ),
    "a night to come": Failure(
        lambda _: None, ("2099-01-01 has not begun",), 2, False, arguments=("night", "--date", "2099-01-01", "--json")
    ),
    "a file where the home should be": Failure(home_is_a_file, ("a file is in the way",), 1, False),
    "a path that is too long": Failure(path_too_long, ("shorter path",), 1, False),
}
LIGHT = {
    "decisions that cannot be read": Failure(
        with_file("decisions.yaml", "same: [1", more("graph: {overrides: decisions.yaml}")),
        ("graph_mutations", "decisions.yaml"),
    ),
}
HEAVY = {
    "a full disk": Failure(mounted("", "size=400k"), ("free some space",), 1, False, missed=True),
    "a read-only home": Failure(mounted("", "ro"), ("mount it writable",), 1, False, missed=True),
    "a disk that fills in mid-night": Failure(mounted("graph", "size=1m"), ("free some space",)),
    "a read-only folder": Failure(mounted("graph", "ro"), ("mount it writable",)),
    "a damaged history": Failure(history_damaged, ("runs.db", "begins a new history"), 1, False, missed=True),
    "a file where a folder should be": Failure(in_the_way(f"nights/{NIGHT}/records"), ("a file is in the way",)),
    "no model": Failure(deployment("source: directory, path: ", "source: directory, path: /nowhere"), ("/nowhere",)),
    "an engine that does not start": Failure(
        engine("sys.exit('CUDA error: no kernel image is available')"), ("extract_entities", "no kernel image")
    ),
    "too little memory": Failure(deployment("min_free_gib: 1", "min_free_gib: 99999"), ("99999", "GiB")),
    "the lease is held": Failure(lease_held, ("extract_entities", "a friend")),
    "gold that cannot be read": Failure(
        with_file("gold.jsonl", "{", deployment("extraction: {", "extraction: {gold: gold.jsonl, ")),
        ("gold.jsonl",),
    ),
    "a step that is killed": Failure(
        in_each_process(
            f"if 'multiprocessing.forkserver' in words: os.register_at_fork(after_in_child=lambda: {KILLED})"
        ),
        ("its process was killed", "memory ran out"),
    ),
    "a night that is killed": Failure(in_each_process(WHEN_LISTED), ("SIGKILL", "again"), 1, False, missed=True),
    "a trainer that is killed": Failure(
        in_each_process(f"if '-m ec1.training' in words: {KILLED}"), ("adapter_candidate", "the training"), train=True
    ),
    "a base model without a chat template": Failure(no_chat_template, ("chat template",), train=True),
    "rows that are too long": Failure(
        recipe("max_length: 192", "max_length: 24"), ("training_dataset", "data.max_length"), train=True
    ),
    "a training that does not fit": Failure(
        deployment("memory_gib: 12", "memory_gib: 0.01"), ("training_dataset", "GiB"), train=True
    ),
}


def is_told(name: str, failure: Failure, folder: Path, checkout: Path, model: Path) -> None:
    with notice_sink() as sink:
        plain = light_project(folder, checkout, model, train=failure.train)
        ec1 = PlantedCommandLine(plain.project, plain.home, plain.deployment)
        more(f"notify: {{urls: ['{sink.target}']}}")(ec1)
        ec1 = failure.plant(ec1) or ec1
        done = ec1.told(*failure.arguments)
        if failure.missed:
            assert sink.titles == []
            assert ec1.told("report", "--check").returncode == 1
    print(f"{name}: {done.stderr.splitlines()[-1:]}")
    assert done.returncode == failure.status, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ") and all(word in last for word in failure.words), done.stderr
    assert "Traceback" not in done.stderr and len(last) < 1000
    records = list(plain.home.nights.glob(f"{NIGHT}/failure-*.json")) if plain.home.nights.is_dir() else []
    assert bool(records) == failure.begins
    if failure.begins:
        (record,) = records
        cause = json.loads(record.read_text())["cause"]
        assert last.endswith(cause) and json.loads(done.stdout)["failure"]["cause"] == cause
        assert sink.titles == [f"EC1: night {NIGHT} failed"] and cause in sink.bodies[0]
    elif failure.missed:
        (title,) = sink.titles
        assert title.startswith("EC1: ") and "night" in title, title
        print(f"{name}: {title}")
    else:
        assert sink.titles == []


@pytest.fixture(autouse=True)
def let_go() -> Iterator[None]:
    yield
    for stream in HELD:
        stream.close()
    HELD.clear()


@pytest.mark.parametrize("name", BEFORE)
def test_what_ends_before_a_night_begins_is_told(name: str, tmp_path: Path, project: Path) -> None:
    is_told(name, BEFORE[name], tmp_path, project, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_a_failure_in_the_night_is_told(name: str, tmp_path: Path, project: Path, tiny_model: Path) -> None:
    is_told(name, LIGHT[name], tmp_path, project, tiny_model)


@pytest.mark.soak
@pytest.mark.parametrize("name", HEAVY)
def test_each_kind_of_failure_is_told(name: str, tmp_path: Path, project: Path, tiny_model: Path) -> None:
    is_told(name, HEAVY[name], tmp_path, project, tiny_model)


@pytest.mark.soak
def test_an_engine_that_dies_in_mid_night_says_why(tmp_path: Path, project: Path, tiny_model: Path) -> None:
    plain = light_project(tmp_path, project, tiny_model, train=False)
    ec1 = PlantedCommandLine(plain.project, plain.home, plain.deployment)
    done = engine(
        "Handler.do_POST = lambda self: sys.exit(print('CUDA error: unspecified launch failure', flush=True) "
        "or __import__('os')._exit(1))"
    )(ec1).told("night", "--date", NIGHT, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 3, done.stderr
    why = "vLLM ended with status 1: CUDA error: unspecified launch failure"
    assert report["documents_deferred"] and why in report["deferred_because"], report
    assert f"work is put off to a later night: {why}" in done.stderr and "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_told(tmp_path: Path, project: Path) -> None:
    plain = light_project(tmp_path, project, tmp_path, train=False)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = PlantedCommandLine(plain.project, plain.home, plain.deployment).told("ui", "--port", str(port))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"error: port {port} is taken on this machine: choose another one with --port"
    )
