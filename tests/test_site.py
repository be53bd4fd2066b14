"""The pages build without a dead link, load nothing from another host, and are listed for assistants."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from ruamel.yaml import YAML

PROJECT = Path(__file__).resolve().parents[1]


def build(project: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Build the site of a project, as `make docs` does (not with `--quiet`: that passes over what `strict` counts)."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)],
        cwd=project,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pages."""
    folder = tmp_path_factory.mktemp("site")
    done = build(PROJECT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loaded(HTMLParser):
    """What a page has a browser load: scripts, styles, fonts, pictures and frames, not what a reader may click."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {"link": "href", "script": "src", "img": "src", "iframe": "src"}
        self.addresses += [value for name, value in attrs if name == names.get(tag) and value]


def test_pages_load_nothing_from_another_host(site: Path) -> None:
    foreign = []
    for page in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text())
        assert loaded.addresses, page
        foreign += [f"{page.name}: {address}" for address in loaded.addresses if urlsplit(address).netloc]
    for style in site.rglob("*.css"):
        foreign += re.findall(r"url\(\s*['\"]?(?:https?:)?//[^)]*|@import[^;]*", style.read_text())
    assert foreign == []


def test_no_page_has_a_diagram_that_the_theme_fetches_a_script_for(site: Path) -> None:
    assert [page.name for page in site.rglob("*.html") if 'class="mermaid"' in page.read_text()] == []


def test_the_pages_of_the_interfaces_hold_signatures_and_docstrings(site: Path) -> None:
    page = (site / "api.html").read_text()
    for name in (
        "ec1.queries.nights.report_of",
        "ec1.sandbox.box.run",
        "ec1.extensions.or_extension",
        "ec1.recipes.objectives.OBJECTIVES",
        "ec1.training.objectives.TRAINERS",
        "ec1.storage.store.ObjectStore.put_folder",
        "ec1.launch.launcher.Launcher.run",
        "ec1.machines.cloud.Cloud.create",
    ):
        assert f'id="{name}"' in page, name


def pages_of(nav: list[Any]) -> list[str]:
    """The pages of a section of the nav, in order."""
    found: list[str] = []
    for entry in nav:
        inner = next(iter(entry.values())) if isinstance(entry, dict) else entry
        found += pages_of(inner) if isinstance(inner, list) else [inner]
    return found


def test_llms_txt_lists_the_pages_section_by_section(site: Path) -> None:
    """Of decisions, the page that lists them."""
    nav = YAML(typ="safe").load(PROJECT / "mkdocs.yml")["nav"]
    wanted = {name: pages_of(pages) for section in nav for name, pages in section.items()}
    wanted["Change"] = [page for page in wanted["Change"] if page.count("/") == 0 or page.endswith("README.md")]
    text = (site / "llms.txt").read_text()
    sections = {each.split("\n", 1)[0]: each for each in text.split("\n## ")[1:]}
    item = re.compile(r"^- \[[^]]+\]\(([^)]+)\): \S.*$", re.MULTILINE)
    assert {name: item.findall(lines) for name, lines in sections.items()} == wanted
    assert re.match(r"# EC1\n\n> \S", text)
    assert [page for pages in wanted.values() for page in pages if not (site / page).is_file()] == []
    links = re.findall(r"\]\(([^)]+)\)", (PROJECT / "docs" / "llms.txt").read_text())
    assert [link for link in links if not (PROJECT / "docs" / link).is_file()] == []


def test_a_dead_link_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    config = (PROJECT / "mkdocs.yml").read_text()
    # The same strictness, for one page.
    config = re.sub(r"^nav:.*", "nav: [index.md]\n", config, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "mkdocs.yml").write_text(config.replace("hooks: [docs/site_hooks.py]\n", ""))
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n[gone](gone.md)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "gone.md" in done.stdout + done.stderr
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n[home](index.md#home)\n")
    assert build(tmp_path, tmp_path / "site").returncode == 0
