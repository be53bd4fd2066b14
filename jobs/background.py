"""Work that goes on in a thread while a block runs, and ends with it."""

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def in_background(name: str, work: Callable[[threading.Event], None]) -> Iterator[None]:
    """While the block runs, `work` runs in a thread called `name`. Its event is set when the block ends, then it is
    waited for."""
    done = threading.Event()
    thread = threading.Thread(target=work, args=(done,), daemon=True, name=name)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
