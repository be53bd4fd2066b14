"""Write the trainable tuples of a snapshot as a file that Hugging Face `datasets` reads.

Belongs here: the file. Does not: what is trainable (tuples) and what is scrubbed (cleaning).
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.corpus.cleaning import scrub_example
from ec1.corpus.snapshots import Snapshot
from ec1.corpus.tuples import Objective, example_of, group_of, parse_record
from ec1.errors import InputError, RejectedError
from ec1.files import atomic_file

_BATCH = 1000


@dataclass(frozen=True)
class Export:
    """What was written, and what was left out by reason."""

    rows: int
    rejected: dict[str, int]


def export(snapshot: Snapshot, objective: Objective, path: Path) -> Export:
    """Write `prompt` and the answers in TRL's conversational form, with `group` and `origin`, as .jsonl or .parquet.

    Secrets and personal data are replaced, as in every dataset: a file that leaves the corpus is not an exception.
    Raises InputError for another kind of file.
    """
    if path.suffix not in (".jsonl", ".parquet"):
        raise InputError(f"{path}: name a file that ends in .jsonl or .parquet")
    rejected: Counter[str] = Counter()
    count = 0
    with atomic_file(path) as temporary, _Writer(temporary, parquet=path.suffix == ".parquet") as writer:
        for row in snapshot.rows():
            try:
                item = parse_record(row.record)
                example, _ = scrub_example(example_of(item, objective))
            except RejectedError as error:
                rejected[str(error)] += 1
                continue
            writer.write({**example, "group": group_of(item), "origin": row.origin})
            count += 1
    return Export(count, dict(sorted(rejected.items())))


class _Writer:
    """Rows in pieces, so that memory does not grow with the corpus."""

    def __init__(self, path: Path, *, parquet: bool) -> None:
        self._path, self._parquet = path, parquet
        self._waiting: list[dict[str, Any]] = []
        self._file: Any = None

    def __enter__(self) -> "_Writer":
        if not self._parquet:
            self._file = self._path.open("w", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        if self._file is not None:
            self._file.close()

    def write(self, row: dict[str, Any]) -> None:
        self._waiting.append(row)
        if len(self._waiting) == _BATCH:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._parquet:
            import pyarrow as pa
            import pyarrow.parquet as pq

            table = pa.Table.from_pylist(self._waiting)
            if self._file is None:
                self._file = pq.ParquetWriter(self._path, table.schema)
            self._file.write_table(table)
        else:
            self._file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in self._waiting)
        self._waiting = []
