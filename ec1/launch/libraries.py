"""Loading the heavy libraries of a process at once and fast."""

import contextlib
import functools
import gc
import importlib
import importlib.metadata
import sys
from collections.abc import Collection, Iterator

_FOR_ASSISTED_GENERATION = ("sklearn",)
"""Transformers imports scikit-learn for one way of answering, which nothing here uses."""


def load_libraries(*modules: str) -> None:
    """Import the modules with the garbage collector off: while they load it would look through all their objects many
    times, which is a fifth of the CPU time of loading PEFT. Raises ImportError."""
    gc.disable()
    try:
        with _installed_read_once(), hidden(_FOR_ASSISTED_GENERATION):
            for module in modules:
                importlib.import_module(module)
    finally:
        gc.enable()


@contextlib.contextmanager
def hidden(libraries: Collection[str]) -> Iterator[None]:
    """For as long as this lasts, libraries that are not loaded yet are as if they were not installed.

    Transformers, TRL and PEFT import some wherever they find them, and remember what they did not find: for a process
    that is made for one piece of work, around all of it.
    """
    absent = dict.fromkeys(name for name in libraries if name not in sys.modules)
    # None is how Python itself notes that a module cannot be had; `find_spec` honours it.
    sys.modules.update(absent)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


@contextlib.contextmanager
def _installed_read_once() -> Iterator[None]:
    """Transformers, TRL and PEFT each ask which packages are installed, which reads a file for each of some 300."""
    read = importlib.metadata.packages_distributions
    importlib.metadata.packages_distributions = functools.cache(read)
    try:
        yield
    finally:
        importlib.metadata.packages_distributions = read
