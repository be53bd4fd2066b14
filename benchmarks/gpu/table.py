"""What the steps found, as one JSON value and one Markdown page."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.steps import STEPS


def collected(out: Path) -> dict[str, Any]:
    """The rows of all steps that ran, by step; what a step did not get to is said by `<step>.cut`."""
    found: dict[str, Any] = {}
    for name in STEPS:
        if (path := out / f"{name}.jsonl").is_file():
            found[name] = [json.loads(line) for line in path.read_text().splitlines()]
        if (path := out / f"{name}.cut").is_file():
            found.setdefault(name, []).append({"left_out": path.read_text().strip()})
    return found


def as_markdown(found: dict[str, Any]) -> str:
    """Trainings beside the plan, then everything else row by row."""
    card = found.get("card", [{}])
    peak = next((row["tflops"] for row in card if "tflops" in row), None)
    lines = [f"# {card[0].get('card', 'A card that was not asked')}", ""]
    lines += [f"- {key}: {_told(value)}" for row in card for key, value in row.items() if key not in ("card", "what")]
    trainings = [row for rows in found.values() for row in rows if "length" in row]
    if trainings:
        lines += [
            "",
            "`of peak`: operations, with those that checkpointing repeats, against the products measured above.",
            "`of plan`: against what the plan says before anything was measured.",
            "",
            "| method | tokens | batch | checkpointing | Liger | filled | tokens/s | of plan | of peak | GiB "
            "| of plan |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
            *(_training(row, peak) for row in trainings),
        ]
    for name, rows in found.items():
        others = [row for row in rows if "length" not in row]
        if name != "card" and others:
            lines += ["", f"## {name}", "", *(f"- {_told(row)}" for row in others)]
    return "\n".join(lines) + "\n"


def _training(row: dict[str, Any], peak: float | None) -> str:
    cells: Sequence[Any] = (row["method"], row["length"], row["batch"], _yes(row["checkpointing"]), _yes(row["liger"]))
    if "left_out" in row:
        return f"| {' | '.join(map(str, cells))} | {row['filled']:g} | {row['left_out']} | | | | |"
    speed, memory = row["tokens_per_second"], row["peak_gib"]
    planned = row.get("planned_tokens_per_second")
    figures = (
        f"{row['filled']:g}",
        f"{speed:.0f}",
        f"{row['computed_tokens_per_second'] / planned:.2f}" if planned else "",
        f"{row['tflops'] / peak:.0%}" if peak else "",
        f"{memory:.1f}",
        f"{memory / row['planned_gib']:.2f}",
    )
    return f"| {' | '.join(map(str, (*cells, *figures)))} |"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_told(each)}" for key, each in value.items())
    return f"{value:.3g}" if isinstance(value, float) else str(value)
