"""Counts in sentences: `1 document`, `2 documents`."""


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun; `plural` where that is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
