"""Loading the heavy libraries of a process at once and fast."""

import gc
import importlib


def load_libraries(*modules: str) -> None:
    """Import the modules with the garbage collector off: while they load it would look through all their objects many
    times, which is a fifth of the CPU time of loading PEFT. Raises ImportError."""
    gc.disable()
    try:
        for module in modules:
            importlib.import_module(module)
    finally:
        gc.enable()
