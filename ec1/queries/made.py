"""What faces ask of rows that a model proposed and the sandbox checked: which wait until somebody admits them, and the
recipes that they are made by.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ec1.corpus.generated import (
    REPORT,
    ROWS,
    GenerationStep,
    functions_of,
    held_rows,
    sample_of,
    steps_in,
)
from ec1.corpus.generation_recipe import KeptRecipe, kept_recipes, read_recipe
from ec1.errors import InputError
from ec1.files import read_json
from ec1.queries.desk import Desk

__all__ = ["Generation", "KeptRecipe", "MadeSample", "generations", "recipe", "recipes", "sample_made"]


@dataclass(frozen=True)
class Generation:
    """One generation. `report` counts what became of the proposals; `sample` is always the same few of its `rows`.
    `admitted`: they stand in the bucket."""

    role: str
    digest: str
    model: str
    report: Mapping[str, Any]
    rows: int
    sample: tuple[Mapping[str, Any], ...]
    admitted: bool


def generations(desk: Desk, sample: int = 10) -> list[Generation]:
    """All generations of a home, the newest first. Raises InputError for a damaged report."""
    folders = sorted(desk.home.generated.glob(f"*/*/{ROWS}"), key=lambda path: path.stat().st_mtime, reverse=True)
    return [_read(desk, path.parent.parent.name, path.parent.name, sample) for path in folders]


def _read(desk: Desk, role: str, digest: str, sample: int) -> Generation:
    folder = desk.home.generated / role
    rows = held_rows(folder, digest)
    try:
        report = read_json(folder / digest / REPORT)
    except FileNotFoundError:
        raise InputError(f"{folder / digest} has no {REPORT}: generate these rows again") from None
    there = desk.deployment.corpus_root(desk.home) / role / f"generated-{digest}.jsonl"
    model = str(rows[0]["metadata"]["model"]) if rows else ""
    return Generation(role, digest, model, report, len(rows), tuple(sample_of(rows, sample)), there.is_file())


STARTER = """\
kind: generation
role: sums                     # whose bucket the rows are for
requests: 5                    # about each function, for five calls each
instruction: You write calls of a Python function, with literal arguments only, each different from the others.
example: |                     # one function with its calls is shown to the model first
  def area(width, height):
      return width * height
example_calls: ["area(3, 4)", "area(0.5, 10)", "area(7, height=2)"]
functions: |
  def doubled(x):
      return 2 * x
"""
"""What an empty page begins with."""


@dataclass(frozen=True)
class MadeSample:
    """A sample of a recipe, step by step. `prompts`: by function what the model was shown, as messages."""

    report: Mapping[str, Any]
    steps: tuple[GenerationStep, ...]
    prompts: Mapping[str, tuple[Mapping[str, str], ...]]
    model: str
    by: str
    at: str


def recipes(desk: Desk) -> list[KeptRecipe]:
    """All recipes of generation in a home. Raises InputError for a damaged one."""
    return list(kept_recipes(desk.home.generated))


def recipe(desk: Desk, role: str, name: str) -> KeptRecipe:
    """Raises InputError if there is none of that name."""
    return read_recipe(desk.home.generated, role, name)


def sample_made(kept: KeptRecipe) -> MadeSample | None:
    """The sample of just this recipe; None if none was made since it was changed."""
    if not kept.is_sampled or kept.sample is None:
        return None
    folder = kept.folder / "rows" / str(kept.sample["rows"])
    prompts = {
        each.name: tuple(kept.recipe.prompting.messages(each))
        for each in functions_of(kept.recipe.functions, kept.name)
    }
    steps, said = tuple(steps_in(folder)), kept.sample
    return MadeSample(read_json(folder / REPORT), steps, prompts, str(said["model"]), str(said["by"]), str(said["at"]))
