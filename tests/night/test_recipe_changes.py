"""Which recipes a revision of version control knew otherwise."""

import subprocess
from pathlib import Path

import pytest

from ec1.deployment import Deployment
from ec1.errors import InputError
from ec1.night.experiments.recipe_changes import ChangedValue, RecipeChange, as_markdown, changed_recipes
from ec1.night.operations.preview import RecipePlan

RECIPE = "extends: base-of-ours\nversion: 1\ntenant: acme\nrole: {role}\n"


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, embedded: Deployment) -> tuple[Path, Deployment]:
    """A project with four recipes on one base, committed, below the top of its repository."""
    project = tmp_path / "project"
    recipes = project / "configs" / "recipes"
    recipes.mkdir(parents=True)
    (recipes / "base-of-ours.yaml").write_text(
        "extends: pointsav/engineering\nabstract: true\noptimisation: {epochs: 1}\n"
    )
    for role in ("kept", "goes", "breaks"):
        (recipes / f"{role}.yaml").write_text(RECIPE.format(role=role))
    (recipes / "own-epochs.yaml").write_text(RECIPE.format(role="own-epochs") + "optimisation: {epochs: 3}\n")
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return project, embedded.model_copy(update={"recipes": (recipes,)})


def found(repository: tuple[Path, Deployment], base: str = "main") -> dict[str, RecipeChange]:
    project, deployment = repository
    return {change.recipe: change for change, _ in changed_recipes(deployment, project, base)}


def test_nothing_changed_says_so(repository: tuple[Path, Deployment]) -> None:
    assert found(repository) == {}
    assert as_markdown("main", []) == "No recipe differs from `main`.\n"


def test_each_kind_of_change(repository: tuple[Path, Deployment]) -> None:
    recipes = repository[0] / "configs" / "recipes"
    (recipes / "goes.yaml").unlink()
    (recipes / "new.yaml").write_text(RECIPE.format(role="new"))
    (recipes / "breaks.yaml").write_text(RECIPE.format(role="breaks") + "optimization: {}\n")
    (recipes / "own-epochs.yaml").write_text(
        RECIPE.format(role="own-epochs") + "optimisation: {epochs: 3}\ndescription: other words\n"
    )
    changes = found(repository)
    assert {name: each.change for name, each in changes.items()} == {
        "goes": "removed",
        "new": "new",
        "breaks": "broken",
        "own-epochs": "changed",
    }
    assert "did you mean 'optimisation'" in (changes["breaks"].problem or "")
    assert changes["own-epochs"].values == [ChangedValue(key="description", before="", after="other words")]


def test_a_changed_base_changes_what_extends_it(repository: tuple[Path, Deployment]) -> None:
    base = repository[0] / "configs" / "recipes" / "base-of-ours.yaml"
    base.write_text(base.read_text().replace("epochs: 1", "epochs: 2"))
    changes = found(repository)
    assert set(changes) == {"kept", "goes", "breaks"}, "the one with epochs of its own is what it was"
    assert changes["kept"].values == [ChangedValue(key="optimisation.epochs", before=1.0, after=2.0)]
    index = (repository[0].parent / ".git" / "index").read_bytes()
    assert set(found(repository)) == set(changes)
    assert (repository[0].parent / ".git" / "index").read_bytes() == index, "looking changes nothing"
    git(repository[0], "commit", "--quiet", "--all", "--message", "second")
    assert found(repository) == {} and set(found(repository, "main~1")) == set(changes)


@pytest.mark.parametrize("base", ["nothing", "--output=x", "-h", ""])
def test_a_revision_that_is_none(repository: tuple[Path, Deployment], base: str) -> None:
    with pytest.raises(InputError, match="no such revision"):
        found(repository, base)


def test_a_project_without_version_control(tmp_path: Path, embedded: Deployment) -> None:
    with pytest.raises(InputError, match="not a git repository"):
        changed_recipes(embedded, tmp_path, "main")


def test_a_comment_is_a_table_whatever_a_recipe_says() -> None:
    text = as_markdown(
        "main",
        [
            RecipeChange(
                recipe="a/b",
                tenant="a",
                role="b",
                change="changed",
                nightly=False,
                values=[ChangedValue(key="description", before=None, after="x | `y`\n<img src=z>")],
                after=RecipePlan(recipe="a/b", train=False, reason="3 of 20", refused="needs 30 | 24 GiB"),
            )
        ],
    )
    assert "**a/b**: changed (no night runs it)" in text
    assert "| `description` |  | `x \\| y &lt;img src=z>` |" in text
    assert "| after | | | | | | refused: needs 30 \\| 24 GiB |" in text
