"""All plots are made here. A plot goes into the UI as Markdown with the picture in it, and beside the artefact as PNG.

Dagster has no metadata type for pictures, and stores what it gets in its event log, so pictures are kept small.
"""

import base64
import datetime as dt
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from ec1.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    figure, axes = _figure(title, xlabel, ylabel)
    for name, (x, y) in series.items():
        axes.plot(x, y, label=name, linewidth=1.6, marker="o" if len(x) < 30 else None, markersize=3)
        if x and isinstance(x[0], dt.date):
            axes.tick_params(axis="x", labelrotation=20)
            # A tick for each day at most: with two nights, matplotlib would name hours.
            axes.set_xticks(x[:: 1 + len(x) // 8])
    if len(series) > 1:
        axes.legend(frameon=False)
    return _finish(figure, title, png)


def bar_plot(title: str, bars: Mapping[str, float], ylabel: str, png: Path) -> dg.MarkdownMetadataValue:
    """One bar for each name -> height, with its value above it; written to `png` too."""
    figure, axes = _figure(title, "", ylabel)
    drawn = axes.bar(list(bars), list(bars.values()), width=0.6)
    axes.bar_label(drawn, fmt="{:g}")
    axes.tick_params(axis="x", labelrotation=20)
    return _finish(figure, title, png)


def interval_plot(
    title: str, points: Mapping[str, tuple[float, float, float]], ylabel: str, png: Path
) -> dg.MarkdownMetadataValue:
    """One point for each name -> (mean, lower, upper), with its interval; written to `png` too."""
    figure, axes = _figure(title, "", ylabel)
    means = [mean for mean, _, _ in points.values()]
    reach = [[mean - lower for mean, lower, _ in points.values()], [upper - mean for mean, _, upper in points.values()]]
    axes.errorbar(list(points), means, yerr=reach, fmt="o", capsize=4)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.margins(x=0.3 if len(points) < 4 else 0.05)
    return _finish(figure, title, png)


def _figure(title: str, xlabel: str, ylabel: str) -> "tuple[Figure, Axes]":
    # The object interface, not pyplot: pyplot keeps global state and asks for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.2), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    return figure, axes


def _finish(figure: "Figure", title: str, png: Path) -> dg.MarkdownMetadataValue:
    from PIL import Image

    drawn, buffer = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", metadata={"Software": ""})
    # A few flat colours: a palette makes a third of it, and Dagster keeps each picture three times.
    Image.open(drawn).convert("RGB").quantize(COLOURS).save(buffer, format="png", optimize=True)
    data = buffer.getvalue()
    write_atomic(png, data)
    if len(data) > MAX_BYTES:
        return dg.MetadataValue.md(f"{title}: the picture is too large for the event log, see `{png}`")
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{base64.b64encode(data).decode()})")
