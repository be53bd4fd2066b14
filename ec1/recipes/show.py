"""Prints a resolved recipe, each value with its origin."""

import json
from collections.abc import Mapping
from typing import Any

from ec1.recipes.resolution import (
    ResolvedRecipe,
)


def show(resolved: ResolvedRecipe) -> str:
    """The resolved recipe as YAML, each value with its origin as a comment. Parses back to the same recipe."""
    lines = _show(resolved.recipe.model_dump(mode="json"), resolved.origins, "", "")
    width = min(64, max(len(text) for text, _ in lines))
    body = "\n".join(f"{text:<{width}}  # {origin}" if origin else text for text, origin in lines)
    return f"# {resolved.path}, digest {resolved.digest}\n{body}\n"


def _show(values: Mapping[str, Any], origins: Mapping[str, str], prefix: str, indent: str) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            lines.append((f"{indent}{key}:", ""))
            lines += _show(value, origins, f"{dotted}.", f"{indent}  ")
        else:
            lines.append((f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}", origins.get(dotted, "default")))
    return lines
