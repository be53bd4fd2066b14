"""Documents are loaded ahead, in their order, and a failure is raised where its document is asked for."""

import threading
from collections.abc import Callable

import pytest
import written

from ec1.documents.ahead import in_order
from ec1.documents.convert import Converter
from ec1.documents.settings import ConversionSettings


def test_what_is_loaded_ahead_comes_in_order_and_raises_in_its_place() -> None:
    def load(number: int) -> Callable[[], int]:
        return lambda: 12 // (3 - number)

    found: list[int | str] = []
    for asked in in_order((load(number) for number in range(6)), 2):
        try:
            found.append(asked())
        except ZeroDivisionError:
            found.append("raised")
    assert found == [4, 6, 12, "raised", -12, -6]


def test_no_more_is_loaded_ahead_than_a_few() -> None:
    begun: list[int] = []

    def load(number: int) -> Callable[[], None]:
        return lambda: begun.append(number)

    asked = in_order((load(number) for number in range(1000)), 2)
    next(asked)()
    assert len(begun) <= 6
    asked.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("processes", [1, 2])
def test_so_many_files_are_converted_at_a_time(processes: int) -> None:
    converter = Converter(ConversionSettings(processes=processes))
    most, now, lock = [0], [0], threading.Lock()
    for worker in converter._workers:

        def ask(data: bytes, suffix: str, plain: Callable[..., tuple[bytes, bool]] = worker.ask) -> tuple[bytes, bool]:
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            try:
                return plain(data, suffix)
            finally:
                with lock:
                    now[0] -= 1

        worker.ask = ask  # type: ignore[method-assign]
    data = written.pdf(*["Ann Lee wrote."] * 30)
    loads = (lambda number=number: converter.convert(data, ".pdf", f"{number:064}") for number in range(8))
    texts = {load().parts for load in in_order(loads, processes)}
    assert len(texts) == 1 and most[0] == processes
    assert sum(worker.process is not None for worker in converter._workers) == processes
    converter.close()
