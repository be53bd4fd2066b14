"""Recipes of generation (`kind: generation`): what is asked of which model about which functions, and who accepted it.

A recipe is one YAML file. A person looks at a sample of what it makes and accepts it; from then on nights make the
rest. A recipe that is changed afterwards is not accepted any more. Belongs here: the files of a recipe. Does not:
asking and executing (`generated.py`).
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from ec1.corpus.generated import CALLS, DEFAULT_PROMPTING, Prompting, functions_of
from ec1.errors import DamagedError, InputError
from ec1.files import checked_name, digest_of, read_json, write_atomic, write_json
from ec1.settings import Name, Settings
from ec1.strict_yaml import parse_mapping

RECIPE, ACCEPTED, SAMPLE, MADE = "recipe.yaml", "accepted.json", "sample.json", "made.json"
SAMPLED = 10
"""Calls of a sample."""


class GenerationRecipe(Settings):
    """How rows are made: a model proposes calls of functions, the sandbox executes them."""

    kind: Literal["generation"] = "generation"
    role: Name = Field(description="whose bucket the rows are for")
    functions: str = Field(max_length=200_000, description="a Python module; each function at its top is asked about")
    requests: int = Field(5, ge=1, le=100, description=f"about each function, for {CALLS} calls each")
    instruction: str = Field(DEFAULT_PROMPTING.instruction, min_length=1, max_length=4_000, description="system prompt")
    example: str = Field(DEFAULT_PROMPTING.example, max_length=4_000, description="a function that calls are shown for")
    example_calls: tuple[str, ...] = Field(DEFAULT_PROMPTING.example_calls, max_length=CALLS)

    @property
    def prompting(self) -> Prompting:
        return Prompting(self.instruction, self.example, self.example_calls)

    def digest(self) -> str:
        return digest_of(self.model_dump(mode="json"))


def parse_generation(text: str, where: str) -> GenerationRecipe:
    """A recipe from YAML. Raises InputError, one line: not YAML, an unknown key, no function in it."""
    try:
        recipe = GenerationRecipe.model_validate(parse_mapping(text, where))
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    functions_of(recipe.functions, where)
    return recipe


@dataclass(frozen=True)
class KeptRecipe:
    """A recipe in its folder, with what became of it: a `sample` that was made (by the digest of the recipe that made
    it), who `accepted` which digest, and what nights `made`."""

    name: str
    folder: Path
    text: str
    recipe: GenerationRecipe
    sample: dict[str, Any] | None
    accepted: dict[str, Any] | None
    made: dict[str, Any] | None

    @property
    def is_accepted(self) -> bool:
        """Whether a person accepted a sample of just this recipe."""
        return self.accepted is not None and self.accepted.get("recipe") == self.recipe.digest()

    @property
    def is_sampled(self) -> bool:
        """Whether the sample that is kept was made by just this recipe."""
        return self.sample is not None and self.sample.get("recipe") == self.recipe.digest()

    @property
    def is_made(self) -> bool:
        """Whether nights have nothing left to make of it."""
        return self.made is not None and self.made.get("recipe") == self.recipe.digest() and not self.made["unanswered"]


def save_recipe(root: Path, name: str, text: str) -> KeptRecipe:
    """Keep a recipe below `root`, the folder of all generations; it takes the place of one of its name. Raises
    InputError."""
    recipe = parse_generation(text, f"recipe {name!r}")
    folder = root / recipe.role / "recipes" / checked_name(name, "recipe name")
    write_atomic(folder / RECIPE, text)
    return read_recipe(root, recipe.role, name)


def read_recipe(root: Path, role: str, name: str) -> KeptRecipe:
    """Raises InputError if there is none of that name."""
    folder = root / checked_name(role, "role") / "recipes" / checked_name(name, "recipe name")
    path = folder / RECIPE
    if not path.is_file():
        raise InputError(f"no recipe of generation is called {role}/{name}")
    text = path.read_text(encoding="utf-8")
    recipe = parse_generation(text, str(path))
    return KeptRecipe(name, folder, text, recipe, *(_state(folder / each) for each in (SAMPLE, ACCEPTED, MADE)))


def kept_recipes(root: Path) -> Iterator[KeptRecipe]:
    """All recipes below the folder of all generations, by role and name. Raises InputError for a damaged one."""
    for path in sorted(root.glob(f"*/recipes/*/{RECIPE}")):
        yield read_recipe(root, path.parents[2].name, path.parent.name)


def waiting_recipes(root: Path) -> list[KeptRecipe]:
    """Those that a person accepted and that nights have not made whole."""
    return [each for each in kept_recipes(root) if each.is_accepted and not each.is_made]


def note_sample(kept: KeptRecipe, digest: str, model: str, by: str) -> None:
    """Write down which rows are the sample of a recipe, who had them made, and by which model."""
    write_json(kept.folder / SAMPLE, {"recipe": kept.recipe.digest(), "rows": digest, "model": model, **_now(by)})


def accept(kept: KeptRecipe, by: str) -> None:
    """Accept the sample: from now on nights make the rest. Raises InputError if there is no sample of just this
    recipe."""
    if not kept.is_sampled:
        raise InputError(f"nobody has seen what {kept.name} makes as it stands: make a sample first")
    write_json(kept.folder / ACCEPTED, {"recipe": kept.recipe.digest(), **_now(by)})


def withdraw(kept: KeptRecipe) -> None:
    """No night makes more of it; rows that are in the bucket stay."""
    (kept.folder / ACCEPTED).unlink(missing_ok=True)


def note_made(kept: KeptRecipe, night: str, rows: int, unanswered: int) -> None:
    """Write down what a night made of it; with an answer outstanding the next night goes on."""
    before = kept.made["rows"] if kept.made and kept.made["recipe"] == kept.recipe.digest() else 0
    figures = {"rows": before + rows, "unanswered": unanswered, "night": night}
    write_json(kept.folder / MADE, {"recipe": kept.recipe.digest(), **figures})


def _state(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    found = read_json(path)
    if not isinstance(found, dict):
        raise DamagedError(f"{path} is damaged: delete it; what it says is then to be done again")
    return found


def _now(by: str) -> dict[str, str]:
    return {"by": by, "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds")}
