"""An objective is one entry: nothing else in the product asks which one it is."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from ec1.recipes.objectives import OBJECTIVES, SECTIONS, ObjectiveName
from ec1.recipes.schema import Recipe
from ec1.training.objectives import TRAINERS

ROOMS = ("ec1", "ec1_assets", "resources", "jobs", "schedules")
# There the names are those of other programs' configuration files.
OTHERS_WORDS = {"ec1/recipes/importing.py"}


def named(node: ast.AST) -> set[str]:
    """The objectives that stand as literals in an expression."""
    return {
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value in OBJECTIVES
    }


def asked(tree: ast.AST) -> Iterator[int]:
    """Lines that compare something with the name of an objective."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(map(named, (node.left, *node.comparators))):
            yield node.lineno
        if isinstance(node, ast.match_case) and named(node.pattern):
            yield node.pattern.lineno


def test_nothing_compares_an_objective_with_a_name(project: Path) -> None:
    places = [
        f"{path.relative_to(project)}:{line}"
        for room in ROOMS
        for path in (project / room).rglob("*.py")
        if str(path.relative_to(project)) not in OTHERS_WORDS
        for line in asked(ast.parse(path.read_text()))
    ]
    assert not places, "say it in the objective's entry (ec1/recipes/objectives.py) or in its kind of rows"


@pytest.mark.parametrize("text", ['x == "sft"', 'x not in ("orpo", "simpo")', 'match x:\n case "dpo": pass'])
def test_a_comparison_is_found(text: str) -> None:
    assert list(asked(ast.parse(text)))


def test_every_objective_is_whole() -> None:
    assert set(get_args(ObjectiveName)) == set(OBJECTIVES) == set(TRAINERS)
    assert set(SECTIONS) <= set(Recipe.model_fields), "a section is a field of the recipe"
    for name, each in OBJECTIVES.items():
        assert bool(each.section) == bool(each.values), name
