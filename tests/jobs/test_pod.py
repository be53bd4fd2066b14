"""A run in a pod: Dagster's launcher for Kubernetes says which, in the form of its own command."""

import dagster as dg
import pytest
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.instance.ref import InstanceRef
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._grpc.types import ExecuteRunArgs

from ec1.home import Home
from jobs.instance import prepare_instance
from jobs.pod import main, run_of

RUN = "b1946ac9-2492-4d23-8f3c-1c0c0c0c0c0c"


def arguments(instance: dg.DagsterInstance) -> list[str]:
    pointer = ModuleCodePointer("ec1_assets.definitions", "defs")
    origin = JobPythonOrigin("nightly_job", RepositoryPythonOrigin("python", pointer))
    ref = instance.get_ref()
    assert isinstance(ref, InstanceRef)
    return list(ExecuteRunArgs(origin, RUN, ref).get_command_args())


def test_what_the_launcher_gives_a_pod_names_the_run(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with prepare_instance(home) as instance:
        given = arguments(instance)
        assert run_of(given) == RUN
        monkeypatch.setenv("EC1_HOME", str(home.root))
        with pytest.raises(SystemExit, match=f"run {RUN} is not in"):
            main(given)


def test_other_arguments_are_refused() -> None:
    with pytest.raises(SystemExit, match="not 'dagster api grpc'"):
        run_of(["dagster", "api", "grpc"])
