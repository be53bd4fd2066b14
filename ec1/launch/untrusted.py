"""JSON objects that somebody else put into a store: markers, orders, results, sessions.

Whoever can write there decides what their bytes are, and no bytes may stop who reads them. Belongs here: what is
refused before anything looks at the fields. Does not: the fields, which each record's model checks.
"""

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from ec1.errors import InputError
from ec1.files import encodes
from ec1.storage.store import NotFound, ObjectInfo, ObjectStore

MAX_DEPTH = 64
"""Lists and objects in one another; ours have about ten. Python's own readers give up near a thousand."""
_LARGEST = 2**63


def read_object(store: ObjectStore, key: str, what: str, max_bytes: int) -> dict[str, Any]:
    """The JSON object stored as `key`. Raises NotFound, and InputError, which names `what`, for anything else."""
    found: ObjectInfo | None = next((item for item in store.list(key) if item.key == key), None)
    if found is None:
        raise NotFound(f"nothing is stored as {key}")
    if found.size > max_bytes:
        raise InputError(f"{what} has {found.size} bytes, and at most {max_bytes} are read")
    return json_object(store.get_bytes(key), what)


def json_object(data: bytes, what: str) -> dict[str, Any]:
    """The JSON object that `data` is: UTF-8, not deeper than MAX_DEPTH, every number finite and below 2**63, no NUL and
    no lone surrogate in a string. So it can be encoded again. Raises InputError, which names `what`, otherwise.
    """
    try:
        value = json.loads(data.decode(), parse_constant=_not_a_number)
    except RecursionError:
        raise InputError(f"{what}: lists or objects stand in one another too deep to be read") from None
    except ValueError as error:
        raise InputError(f"{what} is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise InputError(f"{what} is {_KINDS.get(type(value), 'null')}, not an object")
    for reason in _faults(value):
        raise InputError(f"{what}: {reason}")
    return value


_KINDS = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "a truth value"}


def _not_a_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _faults(value: dict[str, Any]) -> Iterator[str]:
    """What is wrong anywhere in a value. Without recursion: its depth is one of the things to find out."""
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, dict | list):
            if depth > MAX_DEPTH:
                yield f"lists or objects stand in one another deeper than {MAX_DEPTH}"
                return
            inner = [*each, *each.values()] if isinstance(each, dict) else each
            waiting += [(one, depth + 1) for one in inner]
        elif isinstance(each, str):
            if "\0" in each:
                yield f"the text {each[:40]!r} holds a NUL"
            elif not each.isascii() and not encodes(each):
                yield f"the text {each[:40]!r} holds half a character"
        elif isinstance(each, int | float) and not -_LARGEST < each < _LARGEST:
            yield "a number is too large"
