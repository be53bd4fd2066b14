"""Loading documents ahead of who asks for them, so that several are converted at the same time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Loaded = TypeVar("Loaded")


def in_order(loads: Iterable[Callable[[], Loaded]], threads: int) -> Iterator[Callable[[], Loaded]]:
    """For each of `loads`, in their order, a function that returns what it returned or raises what it raised.

    Up to `threads` of them run at a time, and no more than twice as many wait for who asks.
    """
    waiting: deque[Future[Loaded]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="load") as pool:
        try:
            for load in loads:
                waiting.append(pool.submit(load))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result
            while waiting:
                yield waiting.popleft().result
        finally:
            for each in waiting:
                each.cancel()
