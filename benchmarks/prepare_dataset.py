"""Preparing a dataset of many tuples: tuples per second, and the memory that more tuples need.

Each size runs in a separate process, so that its peak memory is measured alone. The tokenizer is the small model's.
"""

import argparse
import datetime as dt
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
WORDS = [
    f"{verb}_{noun}"
    for verb in ("load", "save", "check", "send", "drop", "merge")
    for noun in ("order", "route", "crate", "probe", "invoice", "slot", "door", "scale", "claim", "alarm")
]


def _write(folder: Path, tuples: int) -> None:
    folder.mkdir(parents=True)
    rng = random.Random(1)
    for start in range(0, tuples, 500):
        with (folder / f"{start:08}.jsonl").open("w") as output:
            for number in range(start, min(start + 500, tuples)):
                body = "".join(
                    f"+    {rng.choice(WORDS)}({rng.choice(WORDS)}, {rng.random():.6f})\n" for _ in range(15)
                )
                record = {
                    "tuple_type": "edit",
                    "cluster": "project-bench",
                    "source_commit": f"{number:040x}",
                    "commit_msg": f"fix(m{number}): {rng.choice(WORDS)} before {rng.choice(WORDS)}",
                    "tenant": "bench",
                    "diff": f"diff --git a/m{number}.py b/m{number}.py\n@@ -1 +1,16 @@\n def f{number}(x):\n{body}",
                    "diff_truncated": False,
                }
                output.write(json.dumps(record) + "\n")


def _prepare(tuples: int, model: Path) -> None:
    from transformers import AutoTokenizer

    from ec1.corpus.buckets import bucket
    from ec1.corpus.dataset import DataOptions, build_dataset
    from ec1.corpus.snapshots import take_snapshot
    from ec1.home import Home

    with tempfile.TemporaryDirectory() as name:
        root, home = Path(name) / "corpus", Home(Path(name) / "home")
        _write(root / "engineering" / "bench", tuples)
        tokenizer = AutoTokenizer.from_pretrained(model)
        of = bucket(root, "engineering", "bench")
        snapshot = take_snapshot(of, "sft", as_of=dt.datetime.now(dt.UTC), home=home)
        started = time.perf_counter()
        dataset = build_dataset(snapshot, DataOptions(max_length=1024), tokenizer, home=home, objective="sft")
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = dataset.train_rows + dataset.heldout_rows
    print(json.dumps({"tuples": tuples, "rows": rows, "seconds": round(seconds, 1), "peak_mib": round(peak)}))


def main(sizes: tuple[int, ...] = (1_000, 10_000, 100_000), model: Path | None = None) -> list[dict[str, float]]:
    """Print and return, for each size, seconds and peak memory in MiB."""
    model = model or PROJECT / ".ec1" / "models" / "HuggingFaceTB--SmolLM2-135M-Instruct" / "main"
    figures = []
    for size in sizes:
        command = [sys.executable, __file__, "--size", str(size), "--model", str(model)]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "2"}
        )
        figures.append(json.loads(done.stdout.splitlines()[-1]))
        print(figures[-1], flush=True)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int)
    parser.add_argument("--model", type=Path)
    arguments = parser.parse_args()
    if arguments.size is None:
        main(model=arguments.model)
    else:
        _prepare(arguments.size, arguments.model)
