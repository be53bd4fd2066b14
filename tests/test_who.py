"""Who gives a command has a name, or a number where the machine knows none."""

import os
from pathlib import Path

import pytest

from ec1.who import who_acts


def test_an_id_without_a_name_acts_under_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run under any id; `getpass.getuser` ends there in a KeyError."""
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert who_acts() == "user 4000000"


def test_nothing_else_asks_for_it(project: Path) -> None:
    sources = [path for room in ("ec1", "jobs", "resources", "studio") for path in (project / room).rglob("*.py")]
    asking = {path.name for path in sources if "getpass" in (text := path.read_text()) or "getpwuid" in text}
    assert len(sources) > 500 and asking == {"who.py"}
