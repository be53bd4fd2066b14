"""Libraries are loaded beforehand only where a step has a process of its own, on a CPU, and trains here."""

import multiprocessing
from pathlib import Path
from types import SimpleNamespace

import pytest

import resources.gpu
from ec1.deployment import Deployment
from ec1.home import Home
from resources.environment import DeploymentChoice
from resources.gpu import GpuResource
from resources.project import ProjectResource


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int]]:
    """The servers that are asked for."""
    found: list[tuple[Path, int]] = []
    monkeypatch.setattr(resources.gpu, "start_server", lambda path, owner, env, log: found.append((path, owner)))
    return found


def test_who_loads_libraries_beforehand(
    started: list[tuple[Path, int]], project: Path, embedded: Deployment, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ProjectResource.of(DeploymentChoice("embedded", home.root, project))
    gpu = GpuResource(project=chosen)
    gpu.warm_up()
    assert not started, "nobody would end the server"
    run = SimpleNamespace(pid=4711)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: run)
    gpu.warm_up()
    assert started == [(home.warm, 4711)]
    card = embedded.model_copy(update={"gpu": embedded.gpu.model_copy(update={"device": "cuda"})})
    monkeypatch.setattr(ProjectResource, "deployment", lambda self: card)
    gpu.warm_up()
    assert len(started) == 1, "a process that has looked for a card cannot be forked"
