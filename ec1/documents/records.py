"""Files that are lists of records, each a document of its own: JSON lists, and tables of people as address books and
customer systems export them.

Belongs here: which files those are, and their records. Does not: what a record says (`parse.py`, `fields.py`), and
exports that name their kind (`ec1.documents.sources`). A list of what was said is a conversation, and one document. Any
other table is text: of a row without a person there is little to say.
"""

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ec1.documents import fields
from ec1.documents.passages import is_conversation, passages
from ec1.documents.text import decode
from ec1.errors import RejectedError

# Brackets and commas: a bound on how many Python objects a JSON text can become (some 70 bytes each).
_JSON_VALUES = 4_000_000
# Where the head of a table, and the first records of a list, are looked for.
_HEAD, _BEGINNING, _SOME = 2**16, 2**22, 50
_LIST = re.compile(r"[\s\ufeff]*\[\s*(?=\{)")
_BETWEEN_RECORDS = re.compile(r"\s*,\s*(?=\{)")
_DELIMITERS, _LINES_BEFORE = ",;\t|", 10
# `E-mail 1 - Value`, `Address 2 - City`: columns of which there are several, in Google's address books.
_NUMBERED = re.compile(r"(.+?) \d+ - (.+)")
# A column without a name, and cells beyond the last.
_OTHER = "other"


def load_json(text: str) -> Any:
    """What a JSON text stands for. Raises RejectedError where it is broken, or too much."""
    if text.count(",") + text.count("[") + text.count("{") > _JSON_VALUES:
        raise RejectedError(f"more than {_JSON_VALUES:,} JSON values")
    try:
        return json.loads(text.lstrip("\ufeff"))
    except json.JSONDecodeError as error:
        raise RejectedError(f"not JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except ValueError:
        raise RejectedError("not JSON: a number of too many digits") from None
    except RecursionError:
        raise RejectedError("not JSON that can be read: nested too deeply") from None


def is_list(path: Path) -> bool:
    """Whether a file is a list of records, by its suffix and its first records. Raises OSError."""
    is_json = path.suffix.lower() == ".json"
    with path.open("rb") as file:
        head = file.read(_HEAD)
        try:
            text = decode(head)
            if is_json and _LIST.match(text):
                text = decode(head + file.read(_BEGINNING - _HEAD))
        except RejectedError:
            return False
    return _begins_list(text) if is_json else _table(text) is not None


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of such a file. Raises RejectedError where it cannot be read as what it begins as; OSError."""
    data = path.read_bytes()
    if path.suffix.lower() != ".json":
        # As it was when it was looked at.
        if (table := _table(decode(data[:_HEAD]))) is None:
            raise RejectedError("not a table of people any more")
        yield from _rows(decode(data), *table)
        return
    value = load_json(decode(data))
    if not isinstance(value, list):
        raise RejectedError("not a list of records any more")
    for record in value:
        if isinstance(record, dict):
            yield record
        elif record:
            raise RejectedError("a list of records in which something else stands, too")


def _begins_list(text: str) -> bool:
    found: list[dict[str, Any]] = []
    decoder, beginning = json.JSONDecoder(), _LIST.match(text)
    while beginning and len(found) < _SOME:
        try:
            record, end = decoder.raw_decode(text, beginning.end())
        except (ValueError, RecursionError):
            break
        found.append(record)
        beginning = _BETWEEN_RECORDS.match(text, end)
    return any(map(_has_text, found)) and not is_conversation(found)


def _has_text(record: dict[str, Any]) -> bool:
    said = fields.lines(record) or fields.prose(record, "") or fields.others(record, "")
    return bool(said or next(passages(record), ""))


def _rows(text: str, delimiter: str, first: int, head: Sequence[str]) -> Iterator[dict[str, Any]]:
    rows = csv.reader(io.StringIO(text), delimiter=delimiter)
    try:
        *before, names = itertools.islice(rows, first)
        if said := "\n".join(line for row in before if (line := " ".join(filter(None, row)).strip())):
            yield {"text": said}
        for row in rows:
            if row[:2] == names[:2] and any(row[:2]):
                # The head again, of another part of the table.
                continue
            record: dict[str, list[str]] = {}
            # A line of one cell is a heading.
            keys = itertools.chain(head if len(row) > 1 else (), itertools.repeat(_OTHER))
            for key, cell in zip(keys, row, strict=False):
                if key and cell.strip():
                    record.setdefault(key, []).append(cell.strip())
            if record:
                yield {key: said if len(said) > 1 else said[0] for key, said in record.items()}
    except csv.Error as error:
        raise RejectedError(f"not a table that can be read: {error}") from None


def _table(text: str) -> tuple[str, int, list[str]] | None:
    """The delimiter of a table of people, the number of its first row, and the names of its columns; None of any other
    text."""
    for delimiter in _DELIMITERS:
        rows = csv.reader(io.StringIO(text), delimiter=delimiter)
        try:
            for number, row in enumerate(itertools.islice(rows, _LINES_BEFORE), 1):
                head = [_column(cell) for cell in row]
                if _is_of_people(head):
                    return delimiter, number, head
        except csv.Error:
            continue
    return None


def _column(cell: str) -> str:
    """The name of a column, without the number that tells it from others of its kind; empty for what is not read."""
    numbered = _NUMBERED.fullmatch(name := " ".join(cell.split()))
    if not numbered:
        return name or _OTHER
    # Whether an address is that of the home or of the office.
    if numbered[2] in ("Label", "Type"):
        return ""
    return numbered[1] if numbered[2] in ("Value", "Name") else numbered[2]


def _is_of_people(head: Sequence[str]) -> bool:
    """Whether the columns say who somebody is: by first and last name, or by a name and how to reach them."""
    keys = set(map(fields.plain_key, head))
    reached = keys & (fields.FACTS["email"] | fields.FACTS["phone"])
    return bool((keys & fields.GIVEN and keys & fields.FAMILY) or (keys & fields.NAMES["Person"] and reached))
