"""Failures of many kinds, planted: each is told in one line that says what to do, last at the terminal, in `--json`, in
the night's own record and report, and to somebody outside by one notice; and the doctor says what it can see of it.

What each says is the table in docs/operations.md, which is read here: words in a cell that are divided by ` … ` must
all be said, and `-` means that nothing is. The nights are light (`light.py`): a stand-in for the engine, a tiny model.
`make test` runs one of each kind that ends before a night begins; `make soak` runs all.
"""

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import planted
import pytest
from failure_table import rows_of_the_table, says
from light import light_project
from notice_sink import notice_sink
from planted import (
    KILLED,
    NIGHT,
    Plant,
    PlantedCommandLine,
    both,
    deployment,
    engine,
    holding,
    in_each_process,
    more,
    mounted,
    recipe,
    torn_database,
    unreadable,
    variable,
    when_listed,
    with_file,
)

RUNS = "dagster/history/runs.db"
FULL = "head -c 16k /dev/urandom > {0}/runs.db; head -c 64k /dev/zero > {0}/x; true"


@dataclass(frozen=True)
class Fault:
    """How to plant it, and how the night ends."""

    plant: Plant
    status: int = 1
    train: bool = False
    arguments: tuple[str, ...] = ("night", "--date", NIGHT, "--json")
    usage: bool = False
    """Whether nothing was asked for that could fail: the command line or the deployment is wrong."""


BEFORE = {
    "unknown deployment": Fault(variable("EC1_DEPLOYMENT", "nowhere"), 2, usage=True),
    "misspelt setting": Fault(more("grahp: {}"), 2, usage=True),
    "a night to come": Fault(lambda _: None, 2, arguments=("night", "--date", "2099-01-01", "--json"), usage=True),
    "a damaged `first-night`": Fault(
        both(deployment(", first_night: 2026-06-01", ""), holding("first-night", b"soon")), 2, usage=True
    ),
    "a file where the home should be": Fault(planted.home_is_a_file),
    "a path that is too long": Fault(planted.path_too_long),
    "a full disk": Fault(mounted("", "size=400k")),
    "a disk without a byte": Fault(mounted("", "size=400k", "head -c 400k /dev/zero > {}/x; true")),
    "a disk without inodes": Fault(mounted("", "size=400m,nr_inodes=1")),
    "less room than the deployment asks for": Fault(deployment("budgets: {", "budgets: {min_free_gib: 999999, ")),
    "a read-only home": Fault(mounted("", "ro")),
    "a read-only graph": Fault(mounted("graph", "ro")),
    "a read-only history": Fault(mounted("dagster/history", "ro")),
    "a damaged history on a full disk": Fault(mounted("dagster/history", "size=64k", FULL)),
    "a damaged history": Fault(holding(RUNS, b"\7" * 8192)),
    "a torn page in the history": Fault(torn_database(RUNS)),
    "a damaged index of runs": Fault(holding("dagster/history/runs/index.db", b"\7" * 8192)),
    "a damaged list of schedules": Fault(holding("dagster/schedules/schedules.db", b"\7" * 8192)),
    "a damaged list of deliveries": Fault(holding("service-content/fernhollow.sqlite", b"\7" * 8192)),
    "a disk that fails under the graph": Fault(unreadable("graph/live")),
    "a disk that fails under its copy": Fault(unreadable("graph/published")),
    "a disk that fails under the history": Fault(unreadable(RUNS)),
    "a file where nights should be": Fault(holding("nights")),
    "a file where logs should be": Fault(holding("logs")),
    "a file where the outbox should be": Fault(holding("outbox")),
    "a file where the graph should be": Fault(holding("graph")),
    "a file where Dagster's folder should be": Fault(holding("dagster")),
    "a clock that went back": Fault(planted.clock_behind),
    "no model": Fault(deployment("source: directory, path: ", "source: directory, path: /nowhere")),
    "a model without its configuration": Fault(
        with_file("model.txt", "", deployment("source: directory, path: ", "source: directory, path: /usr/share/"))
    ),
    "a package of a model that is missing": Fault(
        lambda ec1: _other_source(ec1, "{source: gguf-package, package: no_such_package, file: a.gguf}")
    ),
    "a cron that never comes": Fault(deployment("schedule: {", "schedule: {cron: '0 2 31 4 *', ")),
}
QUICK = (
    "misspelt setting",
    "a disk without a byte",
    "a read-only home",
    "a torn page in the history",
    "a damaged history on a full disk",
    "a disk that fails under the graph",
    "a clock that went back",
    "no model",
)
"""One of each kind is in every run of the tests."""
LIGHT = {
    "decisions that cannot be read": Fault(
        with_file("decisions.yaml", "same: [1", more("graph: {overrides: decisions.yaml}"))
    ),
}
HEAVY = {
    "a disk that fills in mid-night": Fault(
        both(deployment("budgets: {", "budgets: {min_free_gib: 0, "), mounted("", "size=2500k"))
    ),
    "a small disk under the graph": Fault(
        both(deployment("budgets: {", "budgets: {min_free_gib: 0, "), mounted("graph", "size=1m"))
    ),
    "a file where records should be": Fault(holding(f"nights/{NIGHT}/records")),
    "an engine that does not start": Fault(engine("sys.exit('CUDA error: no kernel image is available')")),
    "too little memory": Fault(deployment("min_free_gib: 1", "min_free_gib: 99999")),
    "the lease is held": Fault(planted.lease_held),
    "gold that cannot be read": Fault(
        with_file("gold.jsonl", "{", deployment("extraction: {", "extraction: {gold: gold.jsonl, ")), 0
    ),
    "a step that is killed": Fault(
        in_each_process(
            f"if 'multiprocessing.forkserver' in words: os.register_at_fork(after_in_child=lambda: {KILLED})"
        )
    ),
    "a night that is killed": Fault(in_each_process(when_listed("SIGKILL"))),
    "a night that is interrupted": Fault(in_each_process(when_listed("SIGINT")), 130),
    "a night that is terminated": Fault(in_each_process(when_listed("SIGTERM")), 130),
    "a trainer that is killed": Fault(in_each_process(f"if '-m ec1.training' in words: {KILLED}"), train=True),
    "a base model without a chat template": Fault(planted.no_chat_template, train=True),
    "rows that are too long": Fault(recipe("max_length: 192", "max_length: 24"), train=True),
    "a training that does not fit": Fault(deployment("memory_gib: 12", "memory_gib: 0.01"), train=True),
}
FAULTS = BEFORE | LIGHT | HEAVY


def _other_source(ec1: PlantedCommandLine, source: str) -> None:
    path = ec1.folder / "configs" / "deployments" / "light.yaml"
    path.write_text(re.sub(r"\{source: directory, path: [^}]*\}", source, path.read_text()))


ROWS = rows_of_the_table()


def is_told(name: str, fault: Fault, folder: Path, checkout: Path, model: Path) -> None:
    terminal, reported, noticed, seen = ROWS[name]
    with notice_sink() as sink:
        plain = light_project(folder, checkout, model, train=fault.train)
        ec1 = PlantedCommandLine(plain.project, plain.home, plain.deployment)
        more(f"notify: {{urls: ['{sink.target}']}}")(ec1)
        ec1 = fault.plant(ec1) or ec1
        done, report, doctor = ec1.all_told([fault.arguments, ("report",), ("doctor",)])
    last = done.stderr.splitlines()[-1]
    print(f"{name}\n  terminal: {last}\n  report: {report.stdout[:300]}{report.stderr[:300]}\n  notice: {sink.titles}")
    print("  doctor: ", *(line for line in doctor.stdout.splitlines() if line.startswith(("  problem", "  note"))))
    assert done.returncode == fault.status, done.stderr
    assert says(last, terminal) and "Traceback" not in done.stderr and len(last) < 1000, done.stderr
    assert says(report.stdout + report.stderr, reported), report.stdout + report.stderr
    assert says(doctor.stdout + doctor.stderr, seen), doctor.stdout + doctor.stderr
    assert "move" not in doctor.stdout or " move " in last, doctor.stdout
    if noticed == ("-",):
        assert sink.titles == []
    else:
        assert len(sink.titles) == 1 and says(sink.titles[0], noticed), sink.titles
    if not fault.usage and fault.status == 1:
        found = json.loads(done.stdout)
        assert found["failure"]["cause"] in last and found["failure"]["cause"] in " ".join(sink.bodies)


@pytest.fixture(autouse=True)
def let_go() -> Iterator[None]:
    yield
    planted.let_go()


def test_the_table_names_each_fault_once() -> None:
    assert list(ROWS)[: len(FAULTS)] == list(FAULTS)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Enough of a model for a night that does not begin."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return tmp_path / "model"


@pytest.mark.parametrize("name", QUICK)
def test_what_ends_before_a_night_begins_is_told(name: str, tmp_path: Path, project: Path, model: Path) -> None:
    is_told(name, BEFORE[name], tmp_path, project, model)


@pytest.mark.soak
@pytest.mark.parametrize("name", [each for each in BEFORE if each not in QUICK])
def test_whatever_ends_before_a_night_begins_is_told(name: str, tmp_path: Path, project: Path, model: Path) -> None:
    is_told(name, BEFORE[name], tmp_path, project, model)


@pytest.mark.system
@pytest.mark.parametrize("name", LIGHT)
def test_a_failure_in_the_night_is_told(name: str, tmp_path: Path, project: Path, tiny_model: Path) -> None:
    is_told(name, LIGHT[name], tmp_path, project, tiny_model)


@pytest.mark.soak
@pytest.mark.parametrize("name", HEAVY)
def test_each_kind_of_failure_is_told(name: str, tmp_path: Path, project: Path, tiny_model: Path) -> None:
    is_told(name, FAULTS[name], tmp_path, project, tiny_model)


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
