"""Recipes of Axolotl and LLaMA-Factory as ours: each key is carried, or named with the reason why it is not.

What a key means stands in `import_table.yaml`. Belongs here: reading that table, and what a recipe needs to be whole.
Does not: their data sets (`ec1 corpus import` reads those).
"""

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from ec1.errors import InputError
from ec1.settings import Settings
from ec1.strict_yaml import load_mapping, validate

Test = Literal["share", "count", "folder"]
Type = Literal["int", "float", "str", "bool", "names", "only_one"]
Condition = Test | tuple[Any, ...]


class _Case(Settings):
    """What a value of a key becomes, where the case fits; the table's head explains each word."""

    values: Condition | None = Field(None, alias="if")
    where: dict[str, Condition] = Field({})
    type: Type | None = Field(None, alias="as")
    to: str | None = None
    choices: dict[str, str] | None = None
    without: tuple[str, ...] = ()
    put: dict[str, Any] = Field({})
    only: tuple[Any, ...] = ()
    same: str | None = None
    reason: str | None = None
    error: str | None = None


_Keys = dict[str, tuple[_Case, ...]]


class _Keyed(Settings):
    """A part of the table with keys; a single case may stand there without its list."""

    keys: _Keys
    defaults: dict[str, Any]

    @field_validator("keys", mode="before")
    @classmethod
    def _lists(cls, keys: dict[str, Any]) -> dict[str, Any]:
        return {key: cases if isinstance(cases, list) else [cases] for key, cases in keys.items()}


class _Source(_Keyed):
    name: str
    known_by: str


class _Table(_Keyed):
    sources: tuple[_Source, ...]
    elsewhere: dict[str, tuple[str, ...]]
    refused: dict[str, tuple[str, ...]]
    objectives: dict[str, dict[str, Any]]


@functools.cache
def _table() -> _Table:
    path = Path(__file__).with_name("import_table.yaml")
    return validate(_Table, load_mapping(path), str(path))


@dataclass(frozen=True)
class Imported:
    """A recipe as YAML, and what of the other file it does not hold: key -> why."""

    source: str
    """Axolotl or LLaMA-Factory."""
    text: str
    not_carried: dict[str, str]


def import_recipe(values: Mapping[str, Any], tenant: str, role: str) -> Imported:
    """Turn the values of such a file into a recipe that extends `base`. Raises InputError for a file of neither kind,
    for one whose training has no counterpart here, and for a value of the wrong type."""
    table = _table()
    source = next((each for each in table.sources if isinstance(values.get(each.known_by), str)), None)
    if source is None:
        raise InputError("it names neither base_model (Axolotl) nor model_name_or_path (LLaMA-Factory)")
    keys = {**table.keys, **source.keys}
    for reason, elsewhere in table.elsewhere.items():
        keys |= dict.fromkeys(elsewhere, (_Case(reason=reason),))
    for reason, refused in table.refused.items():
        for key in refused:
            if values.get(key) not in (None, False, "", "false"):
                raise InputError(reason.format(key=key))
    made = _Importing(_flat(values, keys), f"default of {source.name}")
    for key, value in made.given.items():
        made.read(key, value, keys.get(key, (_Case(reason="not known here"),)))
    made.complete({**table.defaults, **source.defaults}, table.objectives)
    return Imported(source.name, _yaml(made.values, tenant, role, source.name), dict(sorted(made.not_carried.items())))


def _flat(values: Mapping[str, Any], keys: _Keys) -> dict[str, Any]:
    """What is set; a mapping whose keys the table knows as `outer.inner` is taken apart."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and any(known.startswith(f"{key}.") for known in keys):
            flat |= {f"{key}.{inner}": each for inner, each in value.items()}
        else:
            flat[key] = value
    return {key: value for key, value in flat.items() if value is not None}


@dataclass
class _Importing:
    given: dict[str, Any]
    default: str
    """The origin of what the file leaves out."""
    values: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """Our setting (dotted) -> its value and where it comes from."""
    not_carried: dict[str, str] = field(default_factory=dict)

    def read(self, key: str, value: Any, cases: tuple[_Case, ...]) -> None:
        """Apply the first case that fits."""
        for case in cases:
            try:
                converted = value if case.type is None else _TYPES[case.type](value)
            except (TypeError, ValueError):
                raise InputError(f"{key}: {value} is not of type {case.type}") from None
            others = all(_fits(self.given.get(other), condition) for other, condition in case.where.items())
            dropped = not case.without or (isinstance(converted, list) and set(case.without) & set(converted))
            if others and dropped and (case.values is None or _fits(converted, case.values)):
                return self._apply(case, key, value, converted)
        self.not_carried[key] = f"{value} has no counterpart"

    def _apply(self, case: _Case, key: str, value: Any, converted: Any) -> None:
        texts = {**self.given, "value": value}
        if case.error is not None:
            raise InputError(f"{key}: {case.error.format_map(texts)}")
        if case.reason is not None and value not in case.only:
            self.not_carried[key] = case.reason.format_map(texts)
        for target, fixed in case.put.items():
            self.values[target] = (fixed, key)
        if case.to is None:
            return
        if case.without:
            converted = [each for each in converted if each not in case.without]
        if case.choices is None or str(value) in case.choices:
            self.values[case.to] = (converted if case.choices is None else case.choices[str(value)], key)
        else:
            ours = ", ".join(sorted(set(case.choices.values())))
            self.not_carried[key] = f"{value} has no counterpart: {case.to} can be one of {ours}"

    def complete(self, defaults: Mapping[str, Any], by_objective: Mapping[str, Mapping[str, Any]]) -> None:
        """The other's defaults for what it leaves out, and the sections that a method or objective needs."""
        values = self.values
        values |= {key: (value, self.default) for key, value in defaults.items() if key not in values}
        objective, (method, chosen) = values["objective"][0], values["method"]
        if (beta := values.pop("OBJECTIVE.beta", None)) is not None:
            values["dpo.beta" if objective == "sft" else f"{objective}.beta"] = beta
        for target, value in by_objective[objective].items():
            values.setdefault(target, (value, self.default))
        for other in by_objective:
            if other != objective:
                self._drop(f"{other}.", f"has no effect with objective {objective}")
        if "optimisation.warmup_steps" in values:
            # Steps win over a share in both.
            values["optimisation.warmup_share"] = (None, values["optimisation.warmup_steps"][1])
        if "optimisation.max_steps" in values:
            # There it takes the place of the epochs; here the first of the two ends the training.
            values["optimisation.epochs"] = (100, values["optimisation.max_steps"][1])
        if values.get("kind", ("",))[0] != "pretraining":
            self._drop("lora.modules_to_save", "vLLM cannot serve layers that were trained whole")
        if method == "full":
            self._drop("lora.", "has no effect where all weights are trained")
            values["lora"] = (None, chosen)
        else:
            values.setdefault("lora.alpha", (2 * values["lora.r"][0], self.default))
        if method != "qlora":
            values["quantization"] = (None, chosen)

    def _drop(self, prefix: str, reason: str) -> None:
        for target in [each for each in self.values if each.startswith(prefix)]:
            origin = self.values.pop(target)[1]
            if origin != self.default:
                self.not_carried[origin] = reason


_TESTS: dict[Test, Callable[[Any], bool]] = {
    "share": lambda value: isinstance(value, int | float) and 0 < value < 1,
    "count": lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1,
    "folder": lambda value: str(value).startswith((".", "/", "~")),
}
_TYPES: dict[Type, Callable[[Any], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "names": lambda value: [name.strip() for name in value.split(",")] if isinstance(value, str) else list(value),
    "only_one": lambda value: value[0] if isinstance(value, list) and len(value) == 1 else value,
}


def _fits(value: Any, condition: Condition) -> bool:
    return _TESTS[condition](value) if isinstance(condition, str) else value in condition


def _yaml(values: Mapping[str, tuple[Any, str]], tenant: str, role: str, source: str) -> str:
    """The recipe, each value with the key that it comes from."""
    lines = [f"# From a file of {source}.", "extends: base", "version: 1", f"tenant: {tenant}", f"role: {role}"]
    sections: dict[str, list[str]] = {}
    for target, (value, origin) in values.items():
        section, _, key = target.rpartition(".")
        line = f"{key}: {json.dumps(value, ensure_ascii=False)}  # {origin}"
        if section:
            sections.setdefault(section, []).append(f"  {line}")
        else:
            lines.append(line)
    for section in sorted(sections):
        lines += ["", f"{section}:", *sections[section]]
    return "\n".join(lines) + "\n"
