"""The table of docs/operations.md that says what each failure says, for the tests that plant them."""

from pathlib import Path

TABLE = Path(__file__).parents[1] / "docs" / "operations.md"


def rows_of_the_table() -> dict[str, list[tuple[str, ...]]]:
    """What must be said, by fault: terminal, report, notice and doctor, each as words."""
    text = TABLE.read_text(encoding="utf-8").partition("\n## What each failure says")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return {row[0]: [tuple(word.strip() for word in cell.split(" … ")) for cell in row[1:5]] for row in rows}


def says(text: str, words: tuple[str, ...]) -> bool:
    """Whether a text says all of that, wherever its lines are broken."""
    flat = " ".join(text.split())
    return words == ("-",) or all(word in flat for word in words)
