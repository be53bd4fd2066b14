"""The Parquet files of a dataset: which columns they have, and writing them in pieces."""

import json
from pathlib import Path
from typing import Any

from ec1.corpus.rendering import Encoded
from ec1.corpus.row_kinds import RowKind
from ec1.corpus.split import Side

SIDES: tuple[Side, ...] = ("train", "heldout")
_PIECE = 1024
"""Rows that are held in memory before they are written."""


class DatasetTables:
    """One Parquet file per side, written in pieces."""

    def __init__(self, folder: Path, kind: RowKind) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        message = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
        texts = [(name, pa.string()) for name in ("group", "origin", "row")]
        tokens = zip(kind.tokens, (pa.list_(pa.int32()), pa.list_(pa.int8())), strict=False)
        self._schema = pa.schema(
            [
                *((name, message) for name in kind.columns),
                *((("conversation", pa.string()), *tokens) if kind.tokens else ()),
                *texts,
                ("tokens", pa.int32()),
            ]
        )
        self._waiting: dict[Side, list[dict[str, Any]]] = {side: [] for side in SIDES}
        self._table, self._writers = pa.Table, {}
        for side in SIDES:
            (folder / side).mkdir()
            self._writers[side] = pq.ParquetWriter(folder / side / "rows.parquet", self._schema)

    def __enter__(self) -> "DatasetTables":
        return self

    def __exit__(self, *_: object) -> None:
        for side in SIDES:
            self._flush(side)
            self._writers[side].close()

    def write(self, side: Side, record: dict[str, Any], encoded: Encoded | None) -> None:
        """Add a row; `encoded` is what the model reads of a single answer."""
        record = dict(record)
        if encoded is not None:
            record |= {"input_ids": encoded.input_ids, "completion_mask": encoded.mask}
            record["conversation"] = _conversation(record)
        self._waiting[side].append(record)
        if len(self._waiting[side]) >= _PIECE:
            self._flush(side)

    def _flush(self, side: Side) -> None:
        self._writers[side].write_table(self._table.from_pylist(self._waiting[side], schema=self._schema))
        self._waiting[side] = []


def _conversation(record: dict[str, Any]) -> str | None:
    """What the columns of messages have no room for, as JSON: the messages with calls and reasoning, and the tools."""
    messages = [*record["prompt"], *record["completion"]]
    if not record.get("tools") and all(message.keys() == {"role", "content"} for message in messages):
        return None
    return json.dumps({"messages": messages, "tools": record.get("tools")}, ensure_ascii=False)
