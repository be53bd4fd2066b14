"""The Dagster UI as a person sees it, in a real browser, on the instance of a real night."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commandline import RealNight, wait_for_ui
from debian import program
from loopback_server import free_port

pytestmark = [pytest.mark.system, pytest.mark.browser]
# A closed network makes the browser retry its own services for ever; switch them off.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def chromium() -> str:
    return program("chromium")


@pytest.fixture(scope="module")
def address(real_night: RealNight, project: Path) -> Iterator[str]:
    """The webserver, started as `make ui` starts it but without the daemon."""
    port = free_port()
    log = real_night.home.logs / "webserver.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "dagster_webserver", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)],
            cwd=project,
            env={**real_night.ec1.environment, "DAGSTER_HOME": str(real_night.home.dagster)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for_ui(process, port, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def page(chromium: str) -> Iterator["object"]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1700, "height": 1200})
        page.set_default_timeout(60_000)
        yield page
        browser.close()


@pytest.fixture
def shots(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder: Path = request.config.getoption("--screenshots") or tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_the_asset_graph_shows_both_phases(page, address: str, shots: Path) -> None:
    page.goto(f"{address}/asset-groups")
    page.get_by_text("datagraph", exact=True).last.wait_for()
    # Groups come folded; this unfolds them all.
    page.keyboard.press("Alt+KeyE")
    for name in ("source_documents", "graph_mutations", "gpu_handover", "adapter_candidate"):
        page.get_by_text(name, exact=True).first.wait_for()
    page.wait_for_timeout(5000)
    page.screenshot(path=str(shots / "asset-graph.png"))


def test_a_materialisation_shows_its_figures_and_plot(page, address: str, real_night: RealNight, shots: Path) -> None:
    page.goto(f"{address}/assets/graph_mutations?view=partitions&partition={real_night.night}")
    page.get_by_text("documents_applied").first.wait_for()
    page.get_by_text("Show Markdown").first.click()
    picture = page.locator('img[src^="data:image/png"]').first
    picture.wait_for()
    assert picture.evaluate("image => image.naturalWidth") > 300
    page.wait_for_timeout(1000)
    page.screenshot(path=str(shots / "graph-mutations.png"))


def test_an_adapter_shows_its_version_and_verdict(page, address: str, real_night: RealNight, shots: Path) -> None:
    page.goto(f"{address}/assets/fernhollow/engineering/evaluation?view=partitions&partition={real_night.night}")
    page.get_by_text("verdict").first.wait_for()
    page.get_by_text("eval_loss_base").first.wait_for()
    page.wait_for_timeout(1000)
    page.screenshot(path=str(shots / "evaluation.png"))
