"""How long an operator waits for the UI's first page, in a real browser (Chromium by Playwright).

Started is `ec1 ui`, on a project with so many recipes and a year of nights. Three pages are opened: what `/` leads to,
the groups of assets (the address that a night prints at its end), and the runs, each in a browser that has never been
here and then once more. A page counts as there when it shows what an operator looks for.

Run: python -m benchmarks.first_page [--recipes 50] [--home .ec1]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from benchmarks.quick_night import project
from ec1.home import CHECKOUT

PORT = 3987
# The page, and the words that it must show: of the runs there are none yet on a new home.
PAGES = {"/": re.compile("nightly_job|No runs or scheduled ticks"), "/asset-groups": "datagraph", "/runs": "Queued"}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def wait_for_server(process: "subprocess.Popen[bytes]") -> None:
    """Return when the UI answers. Raises RuntimeError if it ended before."""
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/server_info", timeout=5).close()
            return
        except OSError:
            if process.poll() is not None:
                raise RuntimeError("the UI ended before it answered: is there another one on this home?") from None
            time.sleep(0.1)


def pages() -> dict[str, tuple[float, float]]:
    """For each page the seconds of the first visit and of the second."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    figures = {}
    with sync_playwright() as playwright:
        for path, words in PAGES.items():
            # A browser each, so that nothing of the page before is in its cache.
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            page = browser.new_page(viewport={"width": 1700, "height": 1200})
            visits = []
            for _ in range(2):
                began = time.perf_counter()
                page.goto(f"http://127.0.0.1:{PORT}{path}")
                page.get_by_text(words).first.wait_for(timeout=120_000)
                visits.append(time.perf_counter() - began)
            browser.close()
            figures[path] = (visits[0], visits[1])
    return figures


def main(recipes: int, home: Path | None) -> None:
    """Print the seconds until the UI answers and of each page."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "EC1_HOME": str(home.resolve())} if home else project(Path(folder), recipes)
        began = time.perf_counter()
        command = [sys.executable, "-m", "ec1.cli", "ui", "--port", str(PORT)]
        with (
            Path(folder, "ui.log").open("wb") as output,
            subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdout=output, stderr=output) as ui,
        ):
            try:
                wait_for_server(ui)
                print(f"ec1 ui answers after {time.perf_counter() - began:.1f} s", flush=True)
                for path, (first, second) in pages().items():
                    print(f"{path:14} first visit {first:.2f} s, second {second:.2f} s", flush=True)
            finally:
                ui.terminate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", type=int, default=50)
    parser.add_argument("--home", type=Path, help="a home with nights, instead of a new one with so many recipes")
    arguments = parser.parse_args()
    main(arguments.recipes, arguments.home)
