"""Fixtures that several test folders share. Everything is written under pytest's temporary folders."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from debian import packages_that_skipped, program
from tiny_model import make_tiny_model
from xdist.scheduler import LoadScopeScheduling

from ec1.deployment import Deployment, load_deployment
from ec1.home import Home
from ec1.models import precision_on, prepare_model, weight_bytes_in
from ec1.records import Record

PROJECT = Path(__file__).resolve().parent.parent

# Workers that share the cores must not each take all of them: threads that wait for one another made a night three
# times as long. Before torch is imported, and for the processes that tests start.
if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // int(workers))))


@pytest.fixture(scope="session", autouse=True)
def records_refuse_unknown_keys() -> None:
    """What a step writes is all read again: a key that nobody declared would be dropped without a word."""
    import ec1.graph.service_content_store  # noqa: F401
    import ec1.night.records  # noqa: F401

    classes = [Record]
    while classes:
        each = classes.pop()
        each.model_config["extra"] = "forbid"
        each.model_rebuild(force=True)
        classes += each.__subclasses__()


@pytest.fixture(autouse=True)
def leaves_no_instance() -> Iterator[None]:
    """Preparing an instance sets DAGSTER_HOME in this process; the next test's processes must not find this one's."""
    yield
    os.environ.pop("DAGSTER_HOME", None)


@pytest.fixture(scope="session")
def project() -> Path:
    """The project's root."""
    return PROJECT


@pytest.fixture(scope="session")
def embedded(project: Path) -> Deployment:
    """The deployment that `make night` runs."""
    return load_deployment("embedded", project)


@pytest.fixture(scope="session")
def small_model(embedded: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real small model as safetensors: the one that `make night` converted if it is there, else made now, once for
    all workers."""
    models = Home(PROJECT / ".ec1").models
    if not models.is_dir():
        # A worker's own folder lies in the folder of the whole test run.
        whole = tmp_path_factory.getbasetemp()
        models = (whole.parent if "PYTEST_XDIST_WORKER" in os.environ else whole) / "models"
    models.parent.mkdir(parents=True, exist_ok=True)
    with (models.parent / ".models.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return prepare_model(embedded.inference.model, embedded.inference.revision, embedded.models, models)


@pytest.fixture(scope="session")
def small_precision(small_model: Path) -> Any:
    """The torch dtype that EC1 computes the small model in on this machine; another takes ten times as long on some."""
    import torch

    return getattr(torch, precision_on("cpu", weight_bytes_in(small_model)))


@pytest.fixture(scope="session")
def tiny_model(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that trains in a second, for tests of what happens to a training and not of what is learnt."""
    return make_tiny_model(small_model, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder whose tokenizer counts words: tests of what is asked and kept need no real one."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(["?", *LABELS])}, unk_token="?"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    folder = tmp_path_factory.mktemp("words")
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home."""
    return Home(tmp_path / "home")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Public data sets that lie beside a checkout; tests that need them skip elsewhere."""
    data = PROJECT.parent / "shared" / "data"
    if not data.is_dir():
        pytest.skip(f"the shared data sets are not at {data}")
    return data


LABELS = ("person", "company", "project", "account", "place", "none")
OWN_COMMANDS = ("soak", "system")
"""Marks of tests that `make test` leaves out; `make soak` runs what has both."""
ONE_NIGHT = tuple(f"tests/e2e/test_{name}.py" for name in ("night", "readme", "tutorial", "ui"))
LONGEST = (*ONE_NIGHT, "tests/training/test_training.py")
"""Files that begin first: begun last, one keeps a worker for minutes after the other has ended."""


class ByFile(LoadScopeScheduling):
    """What two workers may not share: a file's tests, and the files that look at the one real night."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return "the real night" if file in ONE_NIGHT else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has a command of its own, whatever else `-m` chooses, unless it names it; the longest first."""
    items.sort(key=lambda item: item.nodeid.split("::")[0] not in LONGEST)

    def left_out(item: pytest.Item) -> bool:
        own = next((mark for mark in OWN_COMMANDS if item.get_closest_marker(mark)), None)
        return own is not None and own not in config.option.markexpr

    if out := [item for item in items if left_out(item)]:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            program(name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if packages := packages_that_skipped([str(report.longrepr) for report in skipped]):
        terminalreporter.write_line(
            f"{len(skipped)} skipped; apt-get install {' '.join(packages)} would run more of them"
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", type=Path, help="folder for pictures of the UI, such as docs/images")
    parser.addoption("--night-home", type=Path, help="a home in which a night was run, instead of running one")
    parser.addoption(
        "--real-model", action="store_true", help="train each method and objective on the small model (minutes)"
    )
