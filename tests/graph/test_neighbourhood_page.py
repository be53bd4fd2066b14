"""The page that shows a neighbourhood, in a real browser: a hundred names in two rings that can be read."""

from itertools import combinations
from pathlib import Path

import networkx as nx
import pytest
from debian import program

from ec1.graph.neighbours import write_html

playwright = pytest.importorskip("playwright.sync_api")


def hundred() -> "nx.MultiGraph[str]":
    graph: nx.MultiGraph[str] = nx.MultiGraph()
    graph.add_node("centre", name="Leila Haddad", entity_class="Person")
    for inner in range(20):
        graph.add_node(f"{inner}", name=f"Company number {inner}", entity_class="Company")
        graph.add_edge(
            "centre", f"{inner}", how="works_at" if inner == 0 else "mentioned together", documents=inner + 1
        )
        for outer in range(4):
            graph.add_node(f"{inner} {outer}", name=f"Somebody Called {inner} {outer}", entity_class="Person")
            graph.add_edge(f"{inner}", f"{inner} {outer}", how="mentioned together", documents=1)
    graph.add_edge("0", "5", how="mentioned together", documents=1)
    return graph


def test_a_hundred_names_can_be_read_and_found(tmp_path: Path) -> None:
    page_file = tmp_path / "page.html"
    write_html(hundred(), page_file)
    with playwright.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=program("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(page_file.as_uri())
        boxes = page.evaluate(
            "[...document.querySelectorAll('[data-at] circle')].map(each => {"
            "const box = each.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]})"
        )
        assert len(boxes) == 101
        # No two names share a place, and all of them are on the screen.
        assert min(abs(a - c) + abs(b - d) for (a, b), (c, d) in combinations(boxes, 2)) > 8
        assert all(0 <= x <= 1400 and 0 <= y <= 1000 for x, y in boxes)
        assert page.text_content("text.how") == "works_at"
        assert not page.locator("path.far").is_visible()
        page.check("[type=checkbox]")
        assert page.locator("path.far").is_visible()
        page.fill("[type=search]", "called 7 2")
        assert page.inner_text("output") == "1 found"
        assert page.locator("[data-at].on").count() == 2, "itself and what it hangs on"
        page.fill("[type=search]", "nobody")
        assert page.inner_text("output") == "0 found" and page.locator("[data-at].on").count() == 0
        assert errors == []
        browser.close()
