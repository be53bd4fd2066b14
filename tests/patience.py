"""Waiting for what happens in its own time, on a busy machine too."""

import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], Any], seconds: float = 300) -> None:
    """Wait until the condition holds; fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)
