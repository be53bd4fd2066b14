"""mutmut as the first process of a namespace, where the orphans of its tests become its children: `mutants.py` starts
it."""

from typing import Any

from mutmut.__main__ import cli
from mutmut.workers.isolation import ForkRunner

_wait_for_result = ForkRunner.wait_for_result


def _wait_for_own_result(self: ForkRunner, timeout: float | None = None) -> Any:
    while True:
        try:
            return _wait_for_result(self, timeout)
        except KeyError:
            # It was an orphan that ended: nobody's worker.
            continue


if __name__ == "__main__":
    ForkRunner.wait_for_result = _wait_for_own_result
    cli()
