"""Writes `docs/settings.md` from the types of deployments and recipes: `python docs/generate_settings.py [--check]`.

The descriptions are those of the types' fields, so they cannot differ from what is checked when a file is loaded.
"""

import json
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from ec1.deployment import Deployment
from ec1.recipes.schema import Recipe
from ec1.settings import Settings

PAGE = Path(__file__).with_name("settings.md")
HEAD = """# Settings

Generated from the types by `make docs`; do not edit. A setting without a default must be set. Unknown keys are refused.
"""
DEPLOYMENT = """
## Deployments

`configs/deployments/<name>.yaml`, chosen by `EC1_DEPLOYMENT`. Relative paths are below the project's root.
"""
RECIPES = """
## Recipes

`configs/recipes/**/*.yaml`, and the folders that a deployment's `recipes` names. Two more keys belong to the file:
`extends` (a recipe whose values this one changes) and `abstract: true` (only other recipes use it). See
[recipes.md](recipes.md).
"""
WORDS = {str: "text", int: "integer", float: "number", bool: "`true` or `false`", Path: "path"}


def render() -> str:
    """The whole page. Raises ValueError for a setting without a description."""
    return "".join([HEAD, DEPLOYMENT, *_section(Deployment, ""), RECIPES, *_section(Recipe, "")])


def _section(model: type[Settings], prefix: str, about: str = "") -> Iterator[str]:
    """The table of a type, then the tables of the sections in it. `prefix` is the section's own path, `about` what the
    field that holds it says."""
    if prefix:
        yield f"\n### `{prefix}`\n"
        # Pydantic's own docstring stands where a type has none.
        if text := about or " ".join((model.__dict__.get("__doc__") or "").split()):
            sentence = f"{text[0].upper()}{text[1:].rstrip('.')}."
            yield f"\n{textwrap.fill(sentence, 150, break_long_words=False, break_on_hyphens=False)}\n"
    rows: list[str] = []
    sections: list[tuple[type[Settings], str, str]] = []
    for name, field in model.model_fields.items():
        path = f"{prefix}.{name}" if prefix else name
        inner = list(_models(field.annotation))
        if inner and not _is_mapping(field):
            sections += [(each, path, field.description or "") for each in inner]
            continue
        if not field.description:
            raise ValueError(f"{model.__module__}.{model.__name__}.{name} needs a description=")
        rows.append(f"| `{name}` | {_type(field)} | {_default(field)} | {_cell(field.description)} |\n")
        sections += [(each, f"{path}.<key>", "") for each in inner]
    if rows:
        yield "\n| setting | type | default | meaning |\n|---|---|---|---|\n"
        yield from rows
    for section in sections:
        yield from _section(*section)


def _models(annotation: Any) -> Iterator[type[Settings]]:
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)


def _is_mapping(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is dict


def _type(field: FieldInfo) -> str:
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    limits = [
        f"{sign} {getattr(each, name)}"
        for name, sign in signs.items()
        for each in field.metadata
        if hasattr(each, name)
    ]
    return ", ".join([_named(field.annotation), *limits])


def _named(annotation: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _named(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(_named(each) for each in arguments if each is not NoneType)
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in arguments)
    if origin is tuple:
        return f"list of {_named(arguments[0])}"
    if origin is dict:
        return f"mapping to {_named(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{each.value}`" for each in annotation)
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return "a section"
    return WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True)
    if value is None or value == "":
        return ""
    return f"`{_cell(json.dumps(value, default=str))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    text = render()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text)
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    sys.stderr.write(f"{PAGE.name} is stale: run `make docs`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
