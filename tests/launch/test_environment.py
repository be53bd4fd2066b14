"""The environment of processes that train or score."""

import os

import pytest

from ec1.launch import environment
from ec1.launch.environment import process_environment


def test_a_container_with_fewer_cores_than_its_machine_gets_a_thread_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = len(os.sched_getaffinity(0))
    monkeypatch.setattr(environment, "usable_cores", lambda: cores)
    assert "OMP_NUM_THREADS" not in process_environment("cpu", {}), "torch's own choice stands"
    monkeypatch.setattr(environment, "usable_cores", lambda: cores - 1)
    assert process_environment("cpu", {})["OMP_NUM_THREADS"] == str(cores - 1)
    assert process_environment("cpu", {"OMP_NUM_THREADS": "7"})["OMP_NUM_THREADS"] == "7", "so does the operator's"
    assert "OMP_NUM_THREADS" not in process_environment("cuda", {})
