"""What the documentation points to exists, and what is generated is current."""

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from ec1.recipes.resolution import load_recipe
from ec1.settings import Settings

PROJECT = Path(__file__).resolve().parents[1]
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md"), PROJECT / "examples" / "README.md"])
FOLDERS = (
    "ec1",
    "ec1_assets",
    "resources",
    "jobs",
    "schedules",
    "tests",
    "benchmarks",
    "examples/extractor",
    "examples/instructions",
    "docs",
)
LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)")
FILE = re.compile(r"`((?:ec1|ec1_assets|resources|jobs|schedules|configs|tests|benchmarks|docs|examples)/[\w./-]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    missing += [name for name in FILE.findall(text) if not (PROJECT / name).exists()]
    assert missing == []


def test_no_line_of_prose_is_longer_than_160_characters() -> None:
    long = []
    for page in PAGES:
        prose = re.sub(r"^( *)```.*?^\1```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL).splitlines()
        name = page.relative_to(PROJECT).as_posix()
        long += [f"{name}: {line}" for line in prose if len(line) > 160 and not line.lstrip().startswith(("|", "!["))]
    assert long == []


def test_the_changelog_begins_with_the_version_and_is_short() -> None:
    text = (PROJECT / "CHANGELOG.md").read_text()
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    releases = re.findall(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", text, flags=re.MULTILINE)
    assert releases[0][0] == version
    assert releases == sorted(releases, reverse=True)
    assert len(text.splitlines()) <= 150


def test_a_newcomer_has_read_the_first_pages_in_a_quarter_of_an_hour() -> None:
    """At 230 words a minute. Detail of one room belongs into its own page, or into its modules."""
    first = ("CONTRIBUTING.md", "docs/architecture.md", "docs/glossary.md")
    assert sum(len((PROJECT / page).read_text().split()) for page in first) <= 3_500


def test_code_refers_to_pages_that_exist() -> None:
    missing = {
        f"{path.relative_to(PROJECT)}: {name}"
        for folder in FOLDERS
        for path in (PROJECT / folder).rglob("*.py")
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text())
        # That one is an example of a path in a text.
        if name != "docs/plan.md" and not (PROJECT / name).exists()
    }
    assert missing == set()


def test_code_names_modules_that_exist() -> None:
    """A docstring that names a file in backticks would mislead after a move."""
    files = [path for folder in FOLDERS for path in (PROJECT / folder).rglob("*.py")]
    known = {path.name for path in files}
    missing = {
        f"{path.relative_to(PROJECT)}: {name}"
        for path in files
        for name in re.findall(r"`((?:\w+/)*\w+\.py)`", path.read_text())
        if not ((PROJECT / name).exists() if "/" in name else name in known)
    }
    assert missing == set()


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_settings", PROJECT / "docs" / "generate_settings.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_settings_page_is_current(generator: ModuleType) -> None:
    assert (PROJECT / "docs" / "settings.md").read_text() == generator.render(), "run `make docs`"


def test_every_setting_needs_a_description(generator: ModuleType) -> None:
    class Silent(Settings):
        width: int = 3

    with pytest.raises(ValueError, match=r"Silent\.width needs a description="):
        list(generator._section(Silent, "silent"))


def test_the_extractors_recipe_is_valid(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "recipes.md").read_text()
    recipe = tmp_path / "extractor.yaml"
    recipe.write_text(page.split("```yaml\n# extractor.yaml\n")[1].split("```")[0])
    assert load_recipe(recipe, []).recipe.kind == "extraction"
