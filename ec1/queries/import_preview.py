"""What an import would make of some rows, before anything is imported: nothing is written but to a folder that goes.

Belongs here: running an import beside the home. Does not: formats and reasons (`ec1.corpus.importing`).
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ec1.corpus.importing import Import, import_rows
from ec1.corpus.tuples import parse_record
from ec1.errors import InputError
from ec1.queries.rows import Row, row_of


@dataclass(frozen=True)
class ImportPreview:
    """What the import says of all rows, and the first of them as they would stand in the bucket."""

    report: Import
    rows: tuple[Row, ...]


def preview_import(text: str, kind: str, limit: int) -> ImportPreview:
    """Read rows as `ec1 corpus import` would: `kind` is how their file would end, such as `jsonl` or `csv`. Raises
    InputError if no row can be learnt from, with the reasons."""
    if kind not in ("jsonl", "json", "csv"):
        raise InputError(f"{kind!r} is no kind of rows that can be pasted: jsonl, json or csv")
    with tempfile.TemporaryDirectory(prefix="ec1-preview-") as folder:
        source = Path(folder) / f"rows.{kind}"
        source.write_text(text, encoding="utf-8")
        report = import_rows(source, Path(folder) / "bucket")
        lines = report.path.read_text(encoding="utf-8").splitlines()[:limit]
    rows = []
    for number, line in enumerate(lines):
        record = json.loads(line)
        rows.append(row_of(number, "trainable", parse_record(record).digest, f"row {number + 1}", record))
    return ImportPreview(report, tuple(rows))
