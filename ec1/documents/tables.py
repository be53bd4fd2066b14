"""Tables in a text that have the parts of people's names in columns of their own: written together, as in other texts.

Belongs here: the rows of such a table. Does not: files that are tables (`records.py`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ec1.documents import fields

# Of tables in Markdown and HTML, and of those in old Word files.
_BETWEEN_CELLS = {"|": re.compile(r"(?<!\\)\|"), "\t": re.compile("\t")}
_FIRST_NAME = re.compile("|".join(key.replace("_", r"[\s_-]?") for key in sorted(fields.GIVEN)), re.IGNORECASE)


def with_whole_names(text: str) -> str:
    """The text; in a table with a column of first names and one of last names, the first has both: `Ann Lee`."""
    # Few texts have tables, and to look for a set of words takes as long as to read the rest of a file.
    has_table = any(between in text for between in _BETWEEN_CELLS) and _FIRST_NAME.search(text)
    return "\n".join(_lines(text)) if has_table else text


def _lines(text: str) -> Iterator[str]:
    table = None
    for line in text.split("\n"):
        row = table.row(line) if table else None
        # Between the rows of an old Word file there are blank lines.
        if row is None and line and (table := _table(line)):
            row = table.row(line)
        yield line if row is None else row


@dataclass(frozen=True)
class _Table:
    """How the cells of a row are set apart, how many there are, and which have the parts of a name."""

    between: str
    cells: int
    given: int
    family: int

    def row(self, line: str) -> str | None:
        """A line with the parts of the name in one cell; None where it is no row of the table."""
        cells = _BETWEEN_CELLS[self.between].split(line)
        if len(cells) != self.cells:
            return None
        given, family = cells[self.given].strip(), cells[self.family].strip()
        # The line below a head in Markdown has dashes, and no names.
        name = f"{given} {family}".strip() if family.strip("-:") else given
        first, second = sorted((self.given, self.family))
        space = " " * cells[first].startswith(" ")
        cells[first] = f"{space}{name}{' ' * cells[first].endswith(' ')}"
        del cells[second]
        return self.between.join(cells).rstrip(" ")


def _table(line: str) -> _Table | None:
    """The table whose head a line is, if its columns have the parts of names."""
    for between, pattern in _BETWEEN_CELLS.items() if _FIRST_NAME.search(line) else ():
        keys = [fields.plain_key(cell) for cell in pattern.split(line)]
        given = next((place for place, key in enumerate(keys) if key in fields.GIVEN), None)
        family = next((place for place, key in enumerate(keys) if key in fields.FAMILY), None)
        if given is not None and family is not None:
            return _Table(between, len(keys), given, family)
    return None
