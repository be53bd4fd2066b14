"""Finds and resolves recipes: `extends`, and the origin of each value.

Belongs here: which files a recipe rests on, and errors as a person wants to read them. Does not: the types
(`schema.py`).
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml.nodes import MappingNode, Node

from ec1.errors import InputError
from ec1.home import CHECKOUT
from ec1.recipes.schema import (
    RECIPE_NAME,
    Recipe,
)
from ec1.strict_yaml import load_mapping, parse_mapping

SHIPPED = CHECKOUT / "configs" / "recipes"
"""The recipes that come with EC1. A recipe elsewhere for the same tenant and role takes the place of one of these."""

# They describe one file, so a recipe that extends it does not inherit them.
_OWN_KEYS = ("name", "version", "description", "abstract", "extends")
_FILE_KEYS = ("extends", "abstract")
OVERRIDE = "--set"
"""The origin of a value that was set from outside."""


@dataclass(frozen=True)
class ResolvedRecipe:
    """A recipe with where each of its values comes from.

    `origins` maps a dotted key to `file:line`, or to `default` where no file sets it.
    """

    recipe: Recipe
    origins: dict[str, str]
    digest: str
    path: Path
    chain: tuple[Path, ...] = ()
    """The files it rests on, its own first, the most basic last."""


@dataclass(frozen=True)
class BrokenRecipe:
    """A recipe that cannot be used. `name` is its place below its folder, `problem` what `lint` says of it."""

    name: str
    path: Path
    problem: str


@dataclass(frozen=True)
class LintFinding:
    """One thing that `lint` has to say. A warning does not stop a night, an error does."""

    level: Literal["error", "warning"]
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.level}: {self.message}"


@dataclass(frozen=True)
class RecipeFile:
    path: Path
    values: dict[str, Any]
    lines: dict[str, int]

    @cached_property
    def shown(self) -> str:
        return shown(self.path)

    def origin(self, key: str) -> str:
        """File and line of a dotted key."""
        return f"{self.shown}:{self.lines[key]}"


def load_recipe(path: Path, search: Sequence[Path], overrides: Mapping[str, Any] | None = None) -> ResolvedRecipe:
    """Resolve one recipe file; bases named by `extends` are looked up in the folders of `search`, in their order.

    `overrides` (as `parse_overrides` gives them) are merged last. Raises InputError, one line: missing base, cycle,
    unknown key, wrong type, or sections that do not fit together.
    """
    resolved, findings = resolve(path, search, {}, overrides=overrides)
    if resolved is None:
        raise InputError("; ".join(f"{finding.where}: {finding.message}" for finding in findings))
    return resolved


def parse_overrides(settings: Sequence[str]) -> dict[str, Any]:
    """`optimisation.learning_rate=2e-4`, … as values to merge over a recipe; a value is read as YAML 1.2.

    A later setting wins over an earlier one. Raises InputError for a setting that is not `key=value`.
    """
    found: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            raise InputError(f"--set {setting!r}: write it as key=value, such as optimisation.learning_rate=2e-4")
        if parts[0] in _FILE_KEYS:
            raise InputError(f"--set {setting!r}: {parts[0]} describes a file, it cannot be set from outside")
        values = found
        for part in parts[:-1]:
            if not isinstance(values.get(part), dict):
                values[part] = {}
            values = values[part]
        values[parts[-1]] = parse_mapping(f"value: {text}", f"--set {setting!r}")["value"]
    return found


def find_recipe(recipe: str, search: Sequence[Path], overrides: Mapping[str, Any] | None = None) -> ResolvedRecipe:
    """Resolve a recipe that a person named: a file, or a name such as pointsav/engineering, with `overrides` merged
    last. Raises InputError."""
    named = [folder / f"{recipe}.yaml" for folder in search]
    path = next((path for path in [Path(recipe), *named] if path.is_file()), None)
    if path is None:
        raise InputError(f"there is no recipe {recipe!r}: give a file, or a name below {', '.join(map(str, search))}")
    return load_recipe(path, search, overrides)


def survey(folders: Sequence[Path], search: Sequence[Path]) -> tuple[list[ResolvedRecipe], list[BrokenRecipe]]:
    """Every concrete recipe below `folders`, ordered by tenant and role, and those that cannot be used, by path.

    Raises nothing for what is wrong with one recipe: it breaks itself only. Of two recipes for one tenant and role
    the first stands, unless it is a shipped one and the other is not.
    """
    cache: dict[Path, RecipeFile] = {}
    found: dict[tuple[str, str, str], ResolvedRecipe] = {}
    broken: list[BrokenRecipe] = []
    seen: set[Path] = set()
    for folder in folders:
        try:
            paths = [path for path in recipe_files([folder]) if path.resolve() not in seen]
        except InputError as error:
            broken.append(BrokenRecipe(folder.stem, folder, str(error)))
            continue
        seen.update(path.resolve() for path in paths)
        for path in paths:
            name = _name_of(path, [*folders, *search])
            try:
                if read_file(path, cache).values.get("abstract") is True:
                    continue
                resolved, findings = resolve(path, search, cache)
            except InputError as error:
                broken.append(BrokenRecipe(name, path, str(error)))
                continue
            if resolved is None:
                problem = "; ".join(f"{finding.where}: {finding.message}" for finding in findings)
                broken.append(BrokenRecipe(name, path, problem))
                continue
            recipe = resolved.recipe
            # An experiment publishes nothing, so it stands beside the role's own recipe.
            key = (recipe.tenant, recipe.role, recipe.name if recipe.kind == "experiment" else "")
            if key in found and shadows(found[key].path, path):
                continue
            if key in found and not shadows(path, found[key].path):
                both = f"{path} and {found[key].path} are both recipes for {'/'.join(key[:2])}: keep one of them"
                broken.append(BrokenRecipe(name, path, both))
                continue
            found[key] = resolved
    return [found[key] for key in sorted(found)], broken


def shadows(one: Path, other: Path) -> bool:
    """Whether a recipe takes the place of another for the same tenant and role: `other` is shipped, `one` is not."""
    return other.resolve().is_relative_to(SHIPPED) and not one.resolve().is_relative_to(SHIPPED)


def recipe_files(folders: Sequence[Path]) -> list[Path]:
    """Each file once, however many of the folders hold it."""
    files: list[Path] = []
    for folder in folders:
        if folder.is_file():
            files.append(folder)
        elif folder.is_dir():
            files.extend(sorted(folder.rglob("*.yaml")))
        else:
            raise InputError(f"{folder} is neither a recipe nor a folder of recipes")
    once: dict[Path, Path] = {}
    for file in files:
        once.setdefault(file.resolve(), file)
    return list(once.values())


def read_file(path: Path, cache: dict[Path, RecipeFile]) -> RecipeFile:
    path = path.resolve()
    if path not in cache:
        lines: dict[str, int] = {}
        values = load_mapping(path, lambda tree: lines.update(_lines(tree, "", path)))
        cache[path] = RecipeFile(path, values, lines)
    return cache[path]


def _lines(node: Node | None, prefix: str, path: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if key.value == "<<":
                where = f"{shown(path)}:{key.start_mark.line + 1}"
                raise InputError(f"{where}: merge keys (<<) are not read: put what is shared into a base and extend it")
            dotted = f"{prefix}{key.value}"
            found[dotted] = key.start_mark.line + 1
            found |= _lines(value, f"{dotted}.", path)
    return found


def _chain(path: Path, search: Sequence[Path], cache: dict[Path, RecipeFile]) -> list[RecipeFile]:
    """The file and its bases, the most basic last. Raises InputError for a missing base and for a cycle."""
    chain = [read_file(path, cache)]
    while (base := chain[-1].values.get("extends")) is not None:
        where = f"{shown(chain[-1].path)}:{chain[-1].lines['extends']}"
        if not isinstance(base, str) or not RECIPE_NAME.fullmatch(base):
            raise InputError(f"{where}: extends: {base!r} is not a recipe name such as pointsav/engineering")
        places = [file for folder in search if (file := _inside(folder, base)) is not None]
        # A recipe may extend the one whose place it takes: the next one of the same name.
        found = next((file for file in places if file != chain[-1].path), places[0] if places else None)
        if found is None:
            folders = ", ".join(shown(folder) for folder in search) or "(no folder)"
            raise InputError(f"{where}: extends: there is no recipe {base!r} in {folders}")
        chain.append(read_file(found, cache))
        if chain[-1].path in [file.path for file in chain[:-1]]:
            circle = " -> ".join(shown(file.path) for file in chain)
            raise InputError(f"{where}: extends: recipes extend each other in a circle: {circle}")
    return chain


def _inside(folder: Path, name: str) -> Path | None:
    """The file of a recipe name below `folder`, unless a symbolic link leads out of it."""
    path = (folder / f"{name}.yaml").resolve()
    return path if path.is_file() and path.is_relative_to(folder.resolve()) else None


def shown(path: Path) -> str:
    """A path as people refer to it: relative to where they stand, if it lies below."""
    path, here = path.resolve(), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def resolve(
    path: Path,
    search: Sequence[Path],
    cache: dict[Path, RecipeFile],
    *,
    placeholders: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> tuple[ResolvedRecipe | None, list[LintFinding]]:
    chain = _chain(path, search, cache)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for file in reversed(chain):
        own = {key: value for key, value in file.values.items() if file is chain[0] or key not in _OWN_KEYS}
        _merge(values, own, origins, file.origin, "")
    _merge(values, overrides or {}, origins, lambda key: OVERRIDE, "")
    values.pop("extends", None)
    abstract = values.pop("abstract", False)
    if abstract not in (True, False):
        return None, [LintFinding("error", shown(path), f"abstract: use true or false, not {abstract!r}")]
    if placeholders:
        # An abstract recipe is checked with these in place of what only a concrete one has.
        values = {"version": 1, "tenant": "any", "role": "any", **values}
    elif abstract:
        return None, [LintFinding("error", shown(path), "this recipe is abstract: extend it, do not train it")]
    values.setdefault("name", _name_of(path, search))
    try:
        recipe = Recipe.model_validate(values)
    except ValidationError as error:
        return None, [_explained(item, origins, shown(path)) for item in error.errors(include_url=False)]
    keys = _dotted(recipe.model_dump(mode="json"), "")
    known = {key: origins.get(key, "default") for key in keys}
    files = tuple(file.path for file in chain)
    return ResolvedRecipe(recipe, known, recipe.digest(), path, files), []


def _name_of(path: Path, search: Sequence[Path]) -> str:
    path = path.resolve()
    for folder in search:
        if path.is_relative_to(folder.resolve()):
            return path.relative_to(folder.resolve()).with_suffix("").as_posix()
    return path.stem


def _merge(
    into: dict[str, Any], values: Mapping[str, Any], origins: dict[str, str], origin: Callable[[str], str], prefix: str
) -> None:
    """Mappings are merged key by key; everything else, lists too, is replaced."""
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        merges = isinstance(value, dict) and isinstance(into.get(key), dict)
        if not merges:
            for stale in [known for known in origins if known.startswith(f"{dotted}.")]:
                del origins[stale]
            into[key] = {} if isinstance(value, dict) else value
        # Of a section, the file that touched it last: what is wrong with it as a whole was completed there.
        origins[dotted] = origin(dotted)
        if isinstance(value, dict):
            _merge(into[key], value, origins, origin, f"{dotted}.")


def _dotted(values: Mapping[str, Any], prefix: str) -> list[str]:
    keys: list[str] = []
    for key, value in values.items():
        keys += _dotted(value, f"{prefix}{key}.") if isinstance(value, dict) and value else [f"{prefix}{key}"]
    return keys


def _explained(item: ErrorDetails, origins: Mapping[str, str], path: str) -> LintFinding:
    """One problem as a person wants to read it: where the value was set, what is wrong, what was perhaps meant."""
    parts = [str(part) for part in item["loc"]]
    dotted = ".".join(parts)
    where = next((origins[key] for n in range(len(parts), 0, -1) if (key := ".".join(parts[:n])) in origins), path)
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(parts[-1], _fields_at(parts[:-1]), n=1)
        message = f"unknown key; did you mean {near[0]!r}?" if near else "unknown key"
    elif item["type"] == "missing":
        where, message = path, "is required, in this file or in one that it extends"
    elif item["type"] != "value_error":
        message = f"{message[0].lower()}{message[1:]}, not {item['input']!r}"
    return LintFinding("error", where, f"{dotted}: {message}" if dotted else message)


def _fields_at(parts: Sequence[str]) -> list[str]:
    """The keys that a section of a recipe knows."""
    model: type[BaseModel] = Recipe
    for part in parts:
        field = model.model_fields.get(part)
        annotation: Any = None if field is None else field.annotation
        options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
        found = [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]
        if not found:
            return []
        model = found[0]
    return [*model.model_fields, *(("extends", "abstract") if model is Recipe else ())]
