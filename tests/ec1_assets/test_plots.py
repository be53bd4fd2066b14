"""Pictures of a night: drawn once, and again when what they show has changed."""

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from ec1_assets import plots

BARS = {"Person": 3.0, "Company": 2.0}


def in_the_page(png: Path) -> str:
    return base64.b64encode(png.read_bytes()).decode()


def test_a_picture_that_shows_the_same_is_not_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    png = tmp_path / "bars.png"
    first = plots.bar_plot("Entities", BARS, "mentions", png)
    monkeypatch.setattr(plots, "_drawn", None)
    assert plots.bar_plot("Entities", BARS, "mentions", png) == first
    assert in_the_page(png) in str(first.value)


@pytest.mark.parametrize(
    ("title", "bars", "ylabel"),
    [("Entities", {**BARS, "Person": 4.0}, "mentions"), ("Others", BARS, "mentions"), ("Entities", BARS, "names")],
)
def test_a_picture_of_something_else_is(tmp_path: Path, title: str, bars: dict[str, float], ylabel: str) -> None:
    png = tmp_path / "bars.png"
    before = plots.bar_plot("Entities", BARS, "mentions", png)
    after = plots.bar_plot(title, bars, ylabel, png)
    assert after != before and in_the_page(png) in str(after.value)


def test_a_file_that_is_no_picture_is_replaced(tmp_path: Path) -> None:
    png = tmp_path / "bars.png"
    png.write_bytes(b"torn")
    plots.bar_plot("Entities", BARS, "mentions", png)
    assert png.read_bytes().startswith(b"\x89PNG")


def test_the_same_again_loads_no_library_for_drawing(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from ec1_assets.plots import bar_plot; "
        f"bar_plot('Entities', {BARS!r}, 'mentions', Path({str(tmp_path / 'bars.png')!r})); "
        "print('matplotlib' in sys.modules)"
    )
    said = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout for _ in range(2)]
    assert said == ["True\n", "False\n"]
