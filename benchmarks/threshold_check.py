"""Threshold check on a large bucket: a night with a few new tuples against counting all of them.

Both are done by our own code on the same corpus: first with nothing remembered, then after the new tuples came. A plain
loop that only parses every line and applies the rule is timed as well, as the least that counting can cost.
"""

import argparse
import datetime as dt
import json
import os
import tempfile
import time
from pathlib import Path

from ec1.corpus.buckets import bucket
from ec1.corpus.snapshots import take_snapshot
from ec1.corpus.threshold import decide
from ec1.corpus.tuples import load_record, parse_record, trainable
from ec1.home import Home


def _write(folder: Path, first: int, count: int, per_file: int, at: dt.datetime) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(first, first + count, per_file):
        lines = [
            {
                "tuple_type": "edit",
                "cluster": "project-bench",
                "source_commit": f"{number:040x}",
                "commit_msg": f"fix(m{number}): check handler {number}",
                "tenant": "bench",
                "diff": f"diff --git a/m{number}.py b/m{number}.py\n@@ -1 +1,2 @@\n def f{number}(x):\n+    assert x\n"
                * 3,
                "diff_truncated": False,
            }
            for number in range(start, min(start + per_file, first + count))
        ]
        path = folder / f"{start:08}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.utime(path, (at.timestamp(), at.timestamp()))


def main(tuples: int = 1_000_000, new: int = 1_000, per_file: int = 200) -> dict[str, float]:
    """Print and return seconds and ratios."""
    with tempfile.TemporaryDirectory() as name:
        root, home = Path(name) / "corpus", Home(Path(name) / "home")
        monday, tuesday = dt.datetime(2026, 6, 1, tzinfo=dt.UTC), dt.datetime(2026, 6, 2, tzinfo=dt.UTC)
        _write(root / "engineering" / "bench", 0, tuples, per_file, monday - dt.timedelta(hours=1))
        of = bucket(root, "engineering", "bench")

        started = time.perf_counter()
        counted = 0
        for path, _ in of.files():
            with (root / path).open("rb") as stream:
                counted += sum(trainable(parse_record(load_record(line)), "sft") is None for line in stream)
        plain = time.perf_counter() - started

        started = time.perf_counter()
        first = take_snapshot(of, "sft", as_of=monday, home=home)
        full = time.perf_counter() - started
        assert first.trainable == counted == tuples

        _write(root / "engineering" / "bench", tuples, new, per_file, tuesday - dt.timedelta(hours=1))
        started = time.perf_counter()
        second = take_snapshot(of, "sft", as_of=tuesday, home=home)
        decision = decide(second, threshold=new, trained=first)
        incremental = time.perf_counter() - started
        assert decision.train and decision.new == new

        started = time.perf_counter()
        again = take_snapshot(of, "sft", as_of=tuesday, home=home)
        assert not decide(again, threshold=50, trained=second).train
        idle = time.perf_counter() - started
    figures = {
        "tuples": float(tuples),
        "count_all_seconds": plain,
        "first_snapshot_seconds": full,
        "night_with_new_seconds": incremental,
        "night_without_new_seconds": idle,
        "ratio_to_counting_all": plain / incremental,
    }
    print(json.dumps({key: round(value, 3) for key, value in figures.items()}, indent=2))
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuples", type=int, default=1_000_000)
    parser.add_argument("--new", type=int, default=1_000)
    parser.add_argument("--per-file", type=int, default=200)
    arguments = parser.parse_args()
    main(arguments.tuples, arguments.new, arguments.per_file)
