"""Studio in a real browser."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from debian import program
from studio_desk import DEPLOYMENT, FLAGS

from ec1.home import Home
from ec1.queries.desk import Desk, open_desk


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    chromium = program("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(20_000)
    yield page
    page.close()


@pytest.fixture(scope="session")
def faults() -> Callable[[Any], list[str]]:
    """What axe finds wrong with the page that is open, at 1,280 pixels in light and at 400 in dark; and whether it is
    wider than its window."""
    from axe_playwright_python.sync_playwright import Axe

    def look(page: Any) -> list[str]:
        found = []
        for width, scheme in ((1280, "light"), (400, "dark")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            violations = Axe().run(page).response["violations"]
            found += [f"{each['id']} ({width}, {scheme}): {each['nodes'][0]['html'][:120]}" for each in violations]
            if page.evaluate("document.documentElement.scrollWidth") > width:
                found.append(f"{page.url} is wider than {width} pixels")
        page.set_viewport_size({"width": 1280, "height": 900})
        page.emulate_media(color_scheme="light")
        return found

    return look


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A project with an empty home."""
    (tmp_path / "configs/deployments").mkdir(parents=True)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "configs/deployments/desk.yaml").write_text(DEPLOYMENT)
    (tmp_path / "configs/overrides.yaml").write_text("")
    home = Home(tmp_path / "home")
    home.create()
    return open_desk("desk", home.root, tmp_path)
