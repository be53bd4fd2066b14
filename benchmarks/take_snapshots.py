"""Snapshots of a bucket of many small files: CPU seconds of each, and what it adds on the disk.

The first one, one of the same bucket again, one night's new files later, after one file was deleted, and after one of
many tuples was. What a snapshot adds are its files that no earlier snapshot has (one link), in MB.

    python -m benchmarks.take_snapshots --files 200000
"""

import argparse
import datetime as dt
import json
import os
import random
import tempfile
import time
from pathlib import Path

from ec1.corpus.buckets import bucket
from ec1.corpus.snapshots import Snapshot, take_snapshot
from ec1.home import Home

FOLDERS = 50
LONG_AGO = dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp()
WORDS = ("load", "save", "check", "send", "drop", "merge", "order", "route", "crate", "probe", "invoice", "slot")


def _record(rng: random.Random, number: int) -> dict[str, object]:
    body = "".join(f"+    {rng.choice(WORDS)}({rng.choice(WORDS)}, {rng.random():.6f})\n" for _ in range(20))
    return {
        "tuple_type": "edit",
        "cluster": "project-bench",
        "source_commit": f"{number:040x}",
        "commit_msg": f"fix(m{number}): {rng.choice(WORDS)} before {rng.choice(WORDS)}",
        "tenant": "bench",
        "diff": f"diff --git a/m{number}.py b/m{number}.py\n@@ -1 +1,21 @@\n def f{number}(x):\n{body}",
        "diff_truncated": False,
    }


def _write(root: Path, numbers: range, rng: random.Random, per_file: int = 1) -> list[Path]:
    written = []
    for first in numbers[::per_file]:
        path = root / f"engineering/project-{first % FOLDERS}" / f"{rng.getrandbits(160):040x}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(_record(rng, number)) + "\n" for number in range(first, first + per_file))
        path.write_text("".join(lines))
        os.utime(path, (LONG_AGO, LONG_AGO))
        written.append(path)
    return written


def _added(snapshot: Snapshot) -> float:
    files = [path.stat() for path in snapshot.path.rglob("*") if path.is_file()]
    return sum(stat.st_size for stat in files if stat.st_nlink == 1) / 1e6


def main(files: int = 20_000) -> dict[str, dict[str, float]]:
    """Print and return, for each step, CPU seconds and MB."""
    figures: dict[str, dict[str, float]] = {}
    rng = random.Random(1)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        home, of = Home(Path(name) / "home"), bucket(Path(name) / "corpus", "engineering", "bench")

        def step(what: str) -> None:
            as_of = dt.datetime.now(dt.UTC)
            wall, cpu = time.perf_counter(), time.process_time()
            snapshot = take_snapshot(of, "sft", as_of=as_of, home=home)
            figures[what] = {
                "cpu_s": round(time.process_time() - cpu, 2),
                "wall_s": round(time.perf_counter() - wall, 2),
                "tuples": snapshot.trainable,
                "added_mb": round(_added(snapshot), 1),
                "files": sum(path.is_file() for path in snapshot.path.rglob("*")),
            }
            print(what, json.dumps(figures[what]), flush=True)

        written = _write(of.root, range(files), rng)
        thousand = _write(of.root, range(files, files + 1000), rng, per_file=1000)
        step("first")
        written += _write(of.root, range(files + 1000, files + 1500), rng)
        step("500 files more")
        rng.choice(written).unlink()
        step("one file deleted")
        thousand[0].unlink()
        step("one file of 1,000 tuples deleted")
        for path in rng.sample([path for path in written if path.exists()], 50):
            path.unlink()
        step("50 files deleted")
        step("nothing")
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=20_000)
    main(parser.parse_args().files)
