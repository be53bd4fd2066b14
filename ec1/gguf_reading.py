"""Reading a GGUF file once while transformers converts it.

Belongs here: what of that reading is done again and again for nothing. Does not: the conversion (`models.py`).

transformers reads the whole file anew for the configuration, the weights and the tokenizer, and makes the table of
names anew for each module of the model: three quarters of the CPU time of converting a small one (24 s became 6 s).
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def read_once() -> Iterator[None]:
    """While the block runs, each GGUF file is read once, and each table of names made once. Not for several threads."""
    import gguf
    import numpy as np

    class Reader(gguf.GGUFReader):  # type: ignore[misc, unused-ignore]
        @property
        def data(self) -> Any:
            return self._data

        @data.setter
        def data(self, mapped: Any) -> None:
            # As a plain array: of a map, each of the hundreds of thousands of fields would be a map with its books.
            self._data = mapped.view(np.ndarray)

    kept = gguf.GGUFReader, gguf.get_tensor_name_map
    gguf.GGUFReader = functools.cache(Reader)  # type: ignore[misc, assignment, unused-ignore]
    gguf.get_tensor_name_map = functools.cache(gguf.get_tensor_name_map)
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = kept  # type: ignore[misc, unused-ignore]
