"""A machine with eight cards."""

import importlib.util
import sys
from pathlib import Path

import pytest
from eight_cards import FAKE, EightCards


@pytest.fixture
def eight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EightCards:
    cards = EightCards(tmp_path / "cards.json")
    description = importlib.util.spec_from_file_location("pynvml", FAKE / "pynvml.py")
    assert description is not None and description.loader is not None
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setenv("FAKE_NVML", str(cards.file))
    return cards
