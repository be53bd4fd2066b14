"""A failed run says why in one line, with what to do, wherever in it the failure was."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ec1.errors import InputError, PermanentError
from ec1.home import Home
from ec1.night.report.failure import find_failure, one_line
from ec1.refused import advice_for
from jobs.failure import failure_of, record_failure
from resources.dagster_private import EngineEventData, SerializableErrorInfo

NIGHT = {"dagster/partition": "2026-06-05"}


def full_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/full/outbox/x.json")


def wrapped() -> None:
    try:
        full_disk()
    except OSError as error:
        raise RuntimeError("the outbox could not be written") from error


def on_purpose() -> None:
    try:
        raise KeyError("revision")
    except KeyError:
        raise InputError("models.x.path: /nowhere holds no config.json: name a folder that does") from None


def in_the_clean_up() -> None:
    try:
        raise PermanentError("the trainer ended with status 137: give it more memory")
    except PermanentError:
        raise ValueError("closed already")  # noqa: B904  as clean-ups do


def a_mistake() -> None:
    raise ZeroDivisionError("division by zero")


CASES = {
    "full_disk": (full_disk, "No space left on device", "free some space"),
    "wrapped": (wrapped, "No space left on device", "free some space"),
    "on_purpose": (on_purpose, "models.x.path: /nowhere holds no config.json", "name a folder that does"),
    "in_the_clean_up": (in_the_clean_up, "the trainer ended with status 137", "give it more memory"),
    "a_mistake": (a_mistake, "ZeroDivisionError: division by zero", ""),
}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.mark.parametrize("name", CASES)
def test_the_cause_of_a_step(name: str, instance: dg.DagsterInstance, home: Home) -> None:
    body, cause, advice = CASES[name]

    @dg.op
    def extract_entities() -> None:
        body()

    @dg.job
    def night() -> None:
        extract_entities()

    result = night.execute_in_process(instance=instance, raise_on_error=False, tags=NIGHT)
    path = record_failure(instance, home, result.run_id)
    assert path is not None and path.parent == home.night("2026-06-05")
    found = find_failure(home, "2026-06-05", result.run_id)
    assert found is not None
    assert found.cause.startswith(f"extract_entities: {cause}") or cause in found.cause
    assert advice in found.cause and "\n" not in found.cause
    assert list(found.steps) == ["extract_entities"] and found.again == "ec1 night --date 2026-06-05"
    log = (home.logs / "night-2026-06-05.log").read_text()
    assert log.splitlines()[-1].endswith(found.cause)


def test_the_cause_of_a_run_that_failed_outside_its_steps(instance: dg.DagsterInstance, home: Home) -> None:
    @dg.op
    def nothing() -> None:
        """Is never reached."""

    @dg.job
    def night() -> None:
        nothing()

    run = instance.create_run_for_job(night, tags=NIGHT, status=dg.DagsterRunStatus.STARTED)
    data = EngineEventData.engine_error(
        SerializableErrorInfo("OSError: [Errno 28] No space left on device\n", [], "OSError")
    )
    instance.report_engine_event("Could not load job definition.", run, data)
    instance.report_run_failed(run)
    ended = instance.get_run_by_id(run.run_id)
    assert ended is not None
    found = failure_of(instance, ended)
    assert found.steps == {}
    assert "No space left on device" in found.cause and "free some space" in found.cause


def test_a_step_that_was_killed_says_so(instance: dg.DagsterInstance, home: Home) -> None:
    @dg.op
    def nothing() -> None:
        """Is never reached."""

    @dg.job
    def night() -> None:
        nothing()

    run = instance.create_run_for_job(night, tags=NIGHT, status=dg.DagsterRunStatus.STARTED)
    crash = "dagster._core.executor.child_process_executor.ChildProcessCrashException"
    data = EngineEventData.engine_error(SerializableErrorInfo(f"{crash}\n", [], "ChildProcessCrashException"))
    instance.report_engine_event("Multiprocess executor: child process unexpectedly exited", run, data)
    instance.report_run_failed(run)
    ended = instance.get_run_by_id(run.run_id)
    assert ended is not None
    found = failure_of(instance, ended)
    assert "its process was killed" in found.cause and "memory" in found.cause


def test_a_run_that_is_no_failed_night_has_no_record(instance: dg.DagsterInstance, home: Home) -> None:
    @dg.op
    def nothing() -> None:
        """Succeeds."""

    @dg.job
    def night() -> None:
        nothing()

    result = night.execute_in_process(instance=instance, tags=NIGHT)
    assert record_failure(instance, home, result.run_id) is None


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EROFS, "mount it writable"),
        (errno.EACCES, "give the home to the user"),
        (errno.ENAMETOOLONG, "shorter path"),
    ],
)
def test_what_the_machine_refuses_comes_with_advice(code: int, advice: str) -> None:
    error = OSError(code, os.strerror(code), "/home/ec1")
    assert advice in advice_for(error) and "/home/ec1" in advice_for(error)
    assert advice in one_line("OSError", f"OSError: {error}\n")


def test_a_cause_is_one_line_however_long_it_was() -> None:
    told = one_line("ValueError", "ValueError: " + "a line\n" * 5000)
    assert "\n" not in told and len(told) < 700


def test_a_path_that_is_too_long_is_told_by_the_command_line(tmp_path: Path, project: Path) -> None:
    home = tmp_path / ("h" * 300)
    done = subprocess.run(
        [sys.executable, "-m", "ec1.cli", "night", "--date", "2026-06-05"],
        cwd=project,
        env={**os.environ, "EC1_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "shorter path" in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr, done.stderr
