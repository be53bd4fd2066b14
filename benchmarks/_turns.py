"""Works measured by turns, so that what else the machine does falls on all of them."""

import statistics
from collections.abc import Callable, Mapping


def medians_by_turns(works: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of what each work says that it took; a first round warms up and does not count."""
    taken: dict[str, list[float]] = {each: [] for each in works}
    for number in range(rounds + 1):
        for each, work in works.items():
            seconds = work()
            if number:
                taken[each].append(seconds)
    return {each: statistics.median(seconds) for each, seconds in taken.items()}
