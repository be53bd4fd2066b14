"""A run in a pod: Dagster's launcher for Kubernetes says which, in the form of its own command."""

import signal
from collections.abc import Iterator

import dagster as dg
import pytest

from ec1.home import Home
from jobs import signals
from jobs.instance import prepare_instance
from jobs.pod import main, run_of
from jobs.worker import repository
from resources.dagster_private import ExecuteRunArgs

RUN = "b1946ac9-2492-4d23-8f3c-1c0c0c0c0c0c"


def arguments(instance: dg.DagsterInstance) -> list[str]:
    origin = repository().get_reconstructable_job("nightly_job").get_python_origin()
    return list(ExecuteRunArgs(origin, RUN, instance.get_ref()).get_command_args())


def test_what_the_launcher_gives_a_pod_names_the_run(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with prepare_instance(home) as instance:
        given = arguments(instance)
        assert run_of(given) == RUN
        monkeypatch.setenv("EC1_HOME", str(home.root))
        with pytest.raises(SystemExit, match=f"run {RUN} is not in"):
            main(given)


@pytest.fixture
def own_signals() -> Iterator[None]:
    """What a process listens to is its own: put back what this test changes."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.set_wakeup_fd(-1)
    signals._pipe.clear()
    signals._asked.clear()


@pytest.mark.usefixtures("own_signals")
def test_a_pod_that_kubernetes_ends_knows_by_what_it_was_stopped(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with prepare_instance(home) as instance:
        given = arguments(instance)
        monkeypatch.setenv("EC1_HOME", str(home.root))
        with pytest.raises(SystemExit, match="is not in"):
            main(given)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert signals.stopped_by() == "SIGTERM", "such a night is interrupted and did not fail"


def test_other_arguments_are_refused() -> None:
    with pytest.raises(SystemExit, match="not 'dagster api grpc'"):
        run_of(["dagster", "api", "grpc"])
