"""A server of answers, and phase 1 on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_openai import FakeServer, fake_server
from phase_one import PhaseOne

from ec1.home import Home


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as state:
        yield state


@pytest.fixture
def phase(server: FakeServer, home: Home, words: Path) -> PhaseOne:
    return PhaseOne(home, server.url, words)
