"""The body of a process that is started as `python -m MODULE SPEC.json`.

Belongs here: its arguments, its messages and its exit status. Does not: what it does with the specification.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ec1.errors import EC1Error, InputError
from ec1.files import read_json
from ec1.settings import Settings
from ec1.strict_yaml import validate

log = logging.getLogger(__name__)


Spec = TypeVar("Spec", bound=Settings)


def run_by_spec(module: str, kind: type[Spec], arguments: Sequence[str], work: Callable[[Spec], object]) -> int:
    """Read the specification and do the work. Exit status: 0 done, 1 failed, 2 usage or specification."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    if len(arguments) != 1:
        log.error("usage: python -m %s SPEC.json", module)
        return 2
    try:
        path = Path(arguments[0])
        if not path.is_file():
            raise InputError(f"{path} does not exist")
        work(validate(kind, read_json(path), str(path)))
    except EC1Error as error:
        log.error("%s", error)
        return 2 if isinstance(error, InputError) else 1
    return 0
