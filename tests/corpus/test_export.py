"""A corpus as one file that `datasets` reads, whatever its rows carry."""

import json
from pathlib import Path

import pyarrow.parquet as pq
from corpus_builder import NIGHT, write_lines

from ec1.corpus.buckets import bucket
from ec1.corpus.export import export
from ec1.corpus.snapshots import take_snapshot
from ec1.home import Home

TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"type": "function", "function": {"name": "look_up", "arguments": {}}}


def test_a_row_with_tools_after_a_thousand_without_is_whole(tmp_path: Path, home: Home) -> None:
    """The schema was that of the first thousand rows: the next ones lost what those had not."""
    plain = [{"prompt": f"Question {number}?", "completion": f"Answer {number}."} for number in range(1000)]
    with_tools = {
        "messages": [
            {"role": "user", "content": "Where is it?"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "content": "in the shed"},
            {"role": "assistant", "content": "In the shed.", "reasoning_content": "It said so."},
        ],
        "tools": TOOLS,
    }
    # Snapshots read a folder's files in the order of their names.
    write_lines(tmp_path / "research/a.jsonl", plain)
    write_lines(tmp_path / "research/b.jsonl", [with_tools])
    snapshot = take_snapshot(bucket(tmp_path, "research", "acme"), "sft", as_of=NIGHT, home=home)
    written = export(snapshot, "sft", tmp_path / "all.parquet")
    assert (written.rows, written.rejected) == (1001, {})
    rows = pq.read_table(tmp_path / "all.parquet").to_pylist()
    (last,) = (row for row in rows if row["tools"] is not None)
    assert json.loads(last["tools"]) == TOOLS and len(rows) == 1001
    messages = [*last["prompt"], *last["completion"]]
    (called,) = (message for message in messages if message["tool_calls"] is not None)
    assert json.loads(called["tool_calls"])[0]["function"]["name"] == "look_up"
    assert messages[-1]["reasoning_content"] == "It said so."
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
