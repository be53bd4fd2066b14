"""Drawings as SVG without a script: curves over each other, and when the parts of a night worked.

Belongs here: geometry. Does not: colours (`static/studio.css`), the words around a drawing (`templates/`).
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 800, 240
COLOURS = 4
"""Classes `c0`, `c1`, … of the style sheet."""


@dataclass(frozen=True)
class Chart:
    """Curves of one kind, with the values of their axes' ends."""

    name: str
    markup: Markup
    first_step: int
    last_step: int
    low: float
    high: float


def chart(name: str, curves: Mapping[str, Points]) -> Chart | None:
    """Curves over each other, by what they are of, in the order of their colours; None without a point."""
    points = [point for curve in curves.values() for point in curve]
    if not points:
        return None
    left, right = min(step for step, _ in points), max(step for step, _ in points)
    low, high = min(value for _, value in points), max(value for _, value in points)
    wide, tall = (right - left) or 1, (high - low) or 1
    lines = []
    for number, curve in enumerate(curves.values()):
        places = " ".join(
            f"{(step - left) / wide * WIDTH:.1f},{HEIGHT - (value - low) / tall * HEIGHT:.1f}" for step, value in curve
        )
        line = Markup('<polyline class="curve c{}" points="{}" vector-effect="non-scaling-stroke"/>')
        lines.append(line.format(number % COLOURS, places))
    said = f"{name} from step {left} to {right}, between {low:.4g} and {high:.4g}"
    markup = Markup(
        '<svg role="img" aria-label="{}" class="chart" viewBox="-4 -4 {} {}" preserveAspectRatio="none">{}</svg>'
    ).format(said, WIDTH + 8, HEIGHT + 8, Markup("").join(lines))
    return Chart(name, markup, int(left), int(right), low, high)


def bar(began: dt.datetime | None, seconds: float, first: dt.datetime, whole: float) -> Markup:
    """When something worked, as a bar in the time of the whole; nothing if it did not."""
    if began is None or whole <= 0:
        return Markup("")
    start = (began - first).total_seconds() / whole * WIDTH
    return Markup(
        '<svg class="bar" viewBox="0 0 {} 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect x="{:.1f}" y="1" width="{:.1f}" height="8"/></svg>'
    ).format(WIDTH, start, max(seconds / whole * WIDTH, 2))
