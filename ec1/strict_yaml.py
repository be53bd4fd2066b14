"""YAML as its readers expect it: version 1.2 (`2e-4` is a number, `no` a word), no duplicate keys, only safe types."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import CollectionNode, Node

from ec1.errors import InputError

Model = TypeVar("Model", bound=BaseModel)


def load_mapping(path: Path, look: Callable[[Node | None], None] = lambda _: None) -> dict[str, Any]:
    """Read a YAML file whose top level is a mapping. Raises InputError with file and line.

    `look` is shown the tree as it stands in the file, which knows the lines: parsing twice would take twice as long.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    return _parse(text, str(path), look)


def parse_mapping(text: str, where: str) -> dict[str, Any]:
    """Parse YAML text whose top level is a mapping; `where` names it in errors. Raises InputError."""
    return _parse(text, where, lambda _: None)


def _parse(text: str, where: str, look: Callable[[Node | None], None]) -> dict[str, Any]:
    try:
        node = YAML(typ="safe", pure=True).compose(text)
        _refuse_circles(node, where)
        # Before it becomes a value: that changes the tree.
        look(node)
        value = None if node is None else YAML(typ="safe", pure=True).constructor.construct_document(node)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"{where}:{mark.line + 1}" if mark else where
        raise InputError(f"{line}: {error.problem or error.context}") from None
    except (YAMLError, ValueError) as error:
        # ValueError: a date or a tagged number that is none, such as 2026-02-30.
        raise InputError(f"{where}: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise InputError(f"{where}: lists or mappings stand in one another too deep to be read") from None
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{where}: expected 'key: value' lines at the top level")
    return value


def _refuse_circles(node: Node | None, where: str) -> None:
    """Refuse an anchor that holds itself (`a: &a [*a]`): whoever walks the value would never come to its end."""
    done: set[int] = set()
    above: set[int] = set()

    def walk(each: Node) -> None:
        if id(each) in above:
            raise InputError(f"{where}:{each.start_mark.line + 1}: the anchor &{each.anchor} holds itself")
        if id(each) in done or not isinstance(each, CollectionNode):
            return
        above.add(id(each))
        for inner in each.value:
            for part in inner if isinstance(inner, tuple) else (inner,):
                walk(part)
        above.remove(id(each))
        done.add(id(each))

    if node is not None:
        walk(node)


def validate(model: type[Model], value: dict[str, Any], where: str) -> Model:
    """Build `model` from `value`. Raises InputError, one line, with every problem as `path.to.key: what`."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InputError(f"{where}: {_explain(error)}") from None


def _explain(error: ValidationError) -> str:
    problems = []
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"]) or "(top level)"
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = "unknown key"
        elif item["type"] not in ("missing", "value_error"):
            message = f"{message[0].lower()}{message[1:]}, not {item['input']!r}"
        problems.append(f"{key}: {message}")
    return "; ".join(problems)
