"""Several processes share a step's rows, or it is said why not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ec1.errors import InputError
from ec1.recipes.sharing import shared


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 16))
def test_all_together_take_the_rows_of_one_and_no_process_more_at_once(
    batch: int, accumulation: int, processes: int
) -> None:
    if batch * accumulation % processes:
        with pytest.raises(InputError, match="cannot be shared"):
            shared(batch, accumulation, processes)
        return
    mine, batches = shared(batch, accumulation, processes)
    assert mine * batches * processes == batch * accumulation and 1 <= mine <= batch


@pytest.mark.parametrize(
    ("of_one", "processes", "of_each"),
    [((8, 4), 1, (8, 4)), ((8, 4), 2, (8, 2)), ((8, 1), 2, (4, 1)), ((2, 16), 4, (2, 4)), ((6, 1), 3, (2, 1))],
)
def test_batches_stay_as_large_as_they_can(of_one: tuple[int, int], processes: int, of_each: tuple[int, int]) -> None:
    assert shared(*of_one, processes) == of_each
