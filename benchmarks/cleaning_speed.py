"""How fast texts are cleaned of secrets and personal data: kB per CPU second, by what the text is of.

Code is Python's own library, prose EC1's documentation; the others are drawn. A night cleans each row of a corpus, and
each that is new of every snapshot, so what is slow here is what a night waits for.
"""

import contextlib
import random
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ec1.corpus.cleaning import scrub
from ec1.errors import RejectedError

_ROWS = 2_000


def main() -> dict[str, float]:
    """Print and return kB per CPU second by kind of text."""
    # So that the libraries are loaded.
    scrub("Write to {}@acme.example, +{} 1234567.".format("jane", "49 171"))
    speeds = {}
    for kind, text in _texts():
        started = time.process_time()
        # A second look that finds something is part of the time.
        with contextlib.suppress(RejectedError):
            scrub(text)
        speeds[kind] = len(text) / (time.process_time() - started) / 1e3
        print(f"{kind:<20}{speeds[kind]:>8,.0f} kB per CPU second")
    return speeds


def _texts() -> Iterator[tuple[str, str]]:
    rng = random.Random(1)
    library = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[::8]
    yield "code", "".join(path.read_text(encoding="utf-8", errors="replace") for path in library)
    pages = sorted((Path(__file__).parent.parent / "docs").rglob("*.md"))
    yield "prose", "".join(path.read_text(encoding="utf-8") for path in pages)
    yield "decimals", _rows(lambda: " ".join(f"{rng.uniform(0, 100):.2f}" for _ in range(8)))
    yield "whole numbers", _rows(lambda: " ".join(str(rng.randrange(10_000)) for _ in range(10)))
    yield "times", _rows(lambda: f"2026-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02} 12:30:00 {rng.random()}")
    yield (
        "a server's log",
        _rows(lambda: f"[{rng.randrange(10**9)}] 10.0.0.{rng.randrange(255)} GET /x/{rng.randrange(10**6)} 200"),
    )


def _rows(make: Callable[[], str]) -> str:
    return "\n".join(make() for _ in range(_ROWS))


if __name__ == "__main__":
    main()
