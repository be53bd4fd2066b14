"""What the documentation points to exists."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)")
FILE = re.compile(r"`((?:ec1|ec1_assets|resources|jobs|schedules|configs|tests|benchmarks|docs|examples)/[\w./-]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    missing += [name for name in FILE.findall(text) if not (PROJECT / name).exists()]
    assert missing == []


def test_code_refers_to_pages_that_exist() -> None:
    folders = ("ec1", "ec1_assets", "resources", "jobs", "schedules", "tests", "benchmarks")
    missing = {
        f"{path.relative_to(PROJECT)}: {name}"
        for folder in folders
        for path in (PROJECT / folder).rglob("*.py")
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text())
        # That one is an example of a path in a text.
        if name != "docs/plan.md" and not (PROJECT / name).exists()
    }
    assert missing == set()
