"""Regular expressions and JSON Schemas that came with rows, held against what a model wrote: for a bounded time, and
without asking anybody.

Python's `re` and the `pattern` of a schema go back as often as an expression makes them: one row would hold up a night.
"""

import contextlib
import re
import signal
import threading
from collections.abc import Iterator
from typing import Any

from ec1.errors import InputError

SECONDS = 2.0
"""For one answer; an honest expression takes a thousandth of it."""


def found_in(expression: str, text: str) -> bool:
    """Whether a regular expression is found in a text; not, if that takes more than `SECONDS`."""
    with contextlib.suppress(TimeoutError), _for_at_most(SECONDS):
        return re.search(expression, text) is not None
    return False


def is_of_schema(value: Any, schema: Any) -> bool:
    """Whether a value is of a JSON Schema; not, if that takes more than `SECONDS`. Nothing outside the schema is read.

    Raises InputError if the schema is none, or names one that is not in it.
    """
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for
    from jsonschema_specifications import REGISTRY
    from referencing.exceptions import Unresolvable

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        with contextlib.suppress(TimeoutError), _for_at_most(SECONDS):
            kind.check_schema(schema)
            return bool(kind(schema, registry=REGISTRY).is_valid(value))
    except SchemaError as error:
        raise InputError(f"the schema of a check is none: {error.message}") from None
    except Unresolvable as error:
        raise InputError(f"the schema of a check names another one, which is not in it: {error}") from None
    return False


@contextlib.contextmanager
def _for_at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block when the time is up. Only in the main thread, where trainings, evaluations and
    steps hold answers against checks: no other gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, over)
    others, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        # Whoever else waits for an alarm still gets it.
        signal.setitimer(signal.ITIMER_REAL, others)
