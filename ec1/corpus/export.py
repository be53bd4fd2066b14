"""Write the trainable tuples of a snapshot as a file that Hugging Face `datasets` reads.

Belongs here: the file. Does not: what is trainable (tuples) and what is scrubbed (cleaning).
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.corpus.cleaning import scrub_example
from ec1.corpus.row_kinds import ROW_KINDS
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
    parquet, columns = path.suffix == ".parquet", ROW_KINDS[objective].columns
    rejected: Counter[str] = Counter()
    count = 0
    with atomic_file(path) as temporary, _Writer(temporary, columns if parquet else ()) as writer:
        for row in snapshot.rows():
            try:
                item = parse_record(row.record, snapshot.ignored)
                example, _ = scrub_example(example_of(item, objective))
            except RejectedError as error:
                rejected[str(error)] += 1
                continue
            writer.write({**example, "group": group_of(item), "origin": row.origin})
            count += 1
    return Export(count, dict(sorted(rejected.items())))


def _schema(columns: Sequence[str]) -> Any:
    """The same whatever the first rows are. Calls and tools, whose objects all differ, are JSON."""
    import pyarrow as pa

    texts = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name")
    message = pa.struct([*((name, pa.string()) for name in texts), ("train", pa.bool_())])
    names = ("tools", "group", "origin")
    return pa.schema([*((name, pa.list_(message)) for name in columns), *((name, pa.string()) for name in names)])


def _flat(key: str, value: Any) -> Any:
    if key == "tools":
        return json.dumps(value, ensure_ascii=False)
    if not isinstance(value, list):
        return value
    return [
        {**message, "tool_calls": json.dumps(message["tool_calls"], ensure_ascii=False)}
        if "tool_calls" in message
        else message
        for message in value
    ]


class _Writer:
    """Rows in pieces, so that memory does not grow with the corpus."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        """`columns` are those of messages in a Parquet file; without any it is JSON Lines."""
        self._path, self._columns = path, columns
        self._waiting: list[dict[str, Any]] = []
        self._file: Any = None

    def __enter__(self) -> "_Writer":
        if not self._columns:
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
        if self._columns:
            import pyarrow as pa
            import pyarrow.parquet as pq

            if self._file is None:
                self._file = pq.ParquetWriter(self._path, _schema(self._columns))
            rows = [{key: _flat(key, value) for key, value in row.items()} for row in self._waiting]
            self._file.write_table(pa.Table.from_pylist(rows, schema=self._file.schema))
        else:
            self._file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in self._waiting)
        self._waiting = []
