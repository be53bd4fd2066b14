"""What two recipes set otherwise, each value with where it comes from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ec1.recipes.resolution import ResolvedRecipe

_NAMES = ("name", "version", "description", "tenant", "role")


@dataclass(frozen=True)
class KeyDifference:
    """One key. A side that does not have it has None; `*_origin` is `file:line`, `default`, or empty."""

    key: str
    left: Any
    right: Any
    left_origin: str
    right_origin: str


def differences(left: ResolvedRecipe, right: ResolvedRecipe) -> list[KeyDifference]:
    """Every value that differs, by key; what only names a recipe comes first."""
    values = [dict(_flat(each.recipe.model_dump(mode="json"), "")) for each in (left, right)]
    keys = sorted({*values[0], *values[1]}, key=lambda key: (key not in _NAMES, key))
    return [
        KeyDifference(
            key, values[0].get(key), values[1].get(key), left.origins.get(key, ""), right.origins.get(key, "")
        )
        for key in keys
        if values[0].get(key) != values[1].get(key)
    ]


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
