"""All plots are made here. A plot goes into the UI as Markdown with the picture in it, and beside the artefact as PNG.

Dagster has no metadata type for pictures, and stores what it gets in its event log, so pictures are kept small.
"""

import base64
import datetime as dt
import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from ec1.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_BYTES = 100_000
COLOURS = 32


def line_plot(
    title: str,
    series: Mapping[str, tuple[Sequence[Any], Sequence[float]]],
    xlabel: str,
    ylabel: str,
    png: Path,
) -> dg.MarkdownMetadataValue:
    """One line for each name -> (x, y), x being numbers or dates; written to `png` too."""

    def draw(axes: "Axes") -> None:
        for name, (x, y) in series.items():
            axes.plot(x, y, label=name, linewidth=1.6, marker="o" if len(x) < 30 else None, markersize=3)
            if x and isinstance(x[0], dt.date):
                axes.tick_params(axis="x", labelrotation=20)
                # A tick for each day at most: with two nights, matplotlib would name hours.
                axes.set_xticks(x[:: 1 + len(x) // 8])
        if len(series) > 1:
            axes.legend(frameon=False)

    return _picture(title, xlabel, ylabel, series, draw, png)


def bar_plot(title: str, bars: Mapping[str, float], ylabel: str, png: Path) -> dg.MarkdownMetadataValue:
    """One bar for each name -> height, with its value above it; written to `png` too."""

    def draw(axes: "Axes") -> None:
        drawn = axes.bar(list(bars), list(bars.values()), width=0.6)
        axes.bar_label(drawn, fmt="{:g}")
        axes.tick_params(axis="x", labelrotation=20)

    return _picture(title, "", ylabel, bars, draw, png)


def interval_plot(
    title: str, points: Mapping[str, tuple[float, float, float]], ylabel: str, png: Path
) -> dg.MarkdownMetadataValue:
    """One point for each name -> (mean, lower, upper), with its interval; written to `png` too."""

    def draw(axes: "Axes") -> None:
        means = [mean for mean, _, _ in points.values()]
        down = [mean - lower for mean, lower, _ in points.values()]
        up = [upper - mean for mean, _, upper in points.values()]
        axes.errorbar(list(points), means, yerr=[down, up], fmt="o", capsize=4)
        axes.axhline(0, color="grey", linewidth=0.8)
        axes.margins(x=0.3 if len(points) < 4 else 0.05)

    return _picture(title, "", ylabel, points, draw, png)


def _picture(
    title: str, xlabel: str, ylabel: str, shown: object, draw: Callable[["Axes"], None], png: Path
) -> dg.MarkdownMetadataValue:
    """The picture of `shown`: as `png` holds it, or drawn. A night's second run shows the same, and loading matplotlib
    takes longer than such a step."""
    digest = hashlib.sha256(repr((draw.__qualname__, title, xlabel, ylabel, shown)).encode()).hexdigest().encode()
    data = png.read_bytes() if png.exists() else b""
    if digest not in data:
        data = _drawn(title, xlabel, ylabel, draw, digest)
        write_atomic(png, data)
    if len(data) > MAX_BYTES:
        return dg.MetadataValue.md(f"{title}: the picture is too large for the event log, see `{png}`")
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{base64.b64encode(data).decode()})")


def _drawn(title: str, xlabel: str, ylabel: str, draw: Callable[["Axes"], None], digest: bytes) -> bytes:
    """A PNG that names the digest of what it shows."""
    # The object interface, not pyplot: pyplot keeps global state and asks for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    figure = Figure(figsize=(6.4, 3.2), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    draw(axes)
    rendered, buffer, note = io.BytesIO(), io.BytesIO(), PngInfo()
    figure.savefig(rendered, format="png", metadata={"Software": ""})
    note.add_text("shows", digest)
    # A few flat colours: a palette makes a third of it, and Dagster keeps each picture three times.
    Image.open(rendered).convert("RGB").quantize(COLOURS).save(buffer, format="png", optimize=True, pnginfo=note)
    return buffer.getvalue()
