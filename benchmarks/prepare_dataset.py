"""Preparing a dataset of many tuples: tuples per second, and the memory that more tuples need.

Each size runs in a separate process, and its snapshot was taken by another, as in a night, so that its peak memory is
measured alone; what counts is more than a dataset of 1,000 tuples left. Without a model the tokenizer counts words and
nothing is scrubbed: a tuple takes half a millisecond instead of ten, and memory is the same. The base line, one
streaming pass, reads at most 100,000 tuples.

    python -m benchmarks.prepare_dataset --sizes 100000 300000 1000000 --lines 1
    python -m benchmarks.prepare_dataset --sizes 1000 10000 --model MODEL
"""

import argparse
import datetime as dt
import gc
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WARM_UP, STREAMED = 1_000, 100_000
PROJECT = Path(__file__).resolve().parent.parent
WORDS = [
    f"{verb}_{noun}"
    for verb in ("load", "save", "check", "send", "drop", "merge")
    for noun in ("order", "route", "crate", "probe", "invoice", "slot", "door", "scale", "claim", "alarm")
]


def _write(folder: Path, tuples: int, lines: int) -> None:
    folder.mkdir(parents=True)
    rng = random.Random(1)
    for start in range(0, tuples, 500):
        with (folder / f"{start:08}.jsonl").open("w") as output:
            for number in range(start, min(start + 500, tuples)):
                body = "".join(
                    f"+    {rng.choice(WORDS)}({rng.choice(WORDS)}, {rng.random():.6f})\n" for _ in range(lines)
                )
                record = {
                    "tuple_type": "edit",
                    "cluster": "project-bench",
                    "source_commit": f"{number:040x}",
                    "commit_msg": f"fix(m{number}): {rng.choice(WORDS)} before {rng.choice(WORDS)}",
                    "tenant": "bench",
                    "diff": f"diff --git a/m{number}.py b/m{number}.py\n@@ -1 +1,{lines + 1} @@\n"
                    f" def f{number}(x):\n{body}",
                    "diff_truncated": False,
                }
                output.write(json.dumps(record) + "\n")


def _tokenizer(model: Path | None) -> Any:
    """The model's, or one that counts words: then texts cost little, and what is measured is what is kept of them."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if model is not None:
        return AutoTokenizer.from_pretrained(model)
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    words = Tokenizer(WordLevel({word: number for number, word in enumerate(["?", *WORDS])}, unk_token="?"))
    words.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words)
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}> {{ m.content }} </> {% endfor %}"
    tokenizer.chat_template += "{% if add_generation_prompt %}<assistant> {% endif %}"
    return tokenizer


def _memory() -> tuple[int, int]:
    """Resident memory of this process now, and its highest since the last `_forget_peak`, in MiB."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    now, peak = (int(fields[name].split()[0]) // 1024 for name in ("VmRSS", "VmHWM"))
    return now, peak


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def _snapshot(folder: Path, tuples: int, lines: int) -> Any:
    """Of a made corpus; taken before, it is only loaded."""
    from ec1.corpus.buckets import bucket
    from ec1.corpus.snapshots import load_snapshot, take_snapshot
    from ec1.home import Home

    root, home = folder / "corpus", Home(folder / "home")
    of = bucket(root, "engineering", "bench")
    if not root.exists():
        _write(root / "engineering" / "bench", tuples, lines)
        return take_snapshot(of, "sft", as_of=dt.datetime.now(dt.UTC), home=home)
    (taken,) = (home.snapshots / of.name).iterdir()
    return load_snapshot(home, of.name, taken.name)


def _prepare(folder: Path, tuples: int, model: Path | None, lines: int, streaming: bool) -> None:
    """Print the figures of one size. Without a model nothing is scrubbed."""
    from ec1.corpus.dataset import build_dataset
    from ec1.corpus.options import DataOptions
    from ec1.home import Home

    tokenizer, options = _tokenizer(model), DataOptions(max_length=1024, scrub=model is not None)
    # A small one first: libraries that are loaded once are not part of what a tuple costs.
    small = _snapshot(folder / "small", WARM_UP, lines)
    build_dataset(small, options, tokenizer, home=Home(folder / "small" / "home"), objective="sft")
    snapshot = _snapshot(folder, tuples, lines)
    gc.collect()
    _forget_peak()
    (before, _), started, cpu = _memory(), time.perf_counter(), time.process_time()
    dataset = build_dataset(snapshot, options, tokenizer, home=Home(folder / "home"), objective="sft")
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    (_, peak) = _memory()
    figures = {
        "tuples": tuples,
        "rows": dataset.train_rows + dataset.heldout_rows,
        "seconds": round(seconds, 1),
        "cpu_s": round(cpu_seconds, 1),
        "before_mib": before,
        "more_mib": peak - before,
    }
    if streaming:
        rows = min(tuples, STREAMED)
        cpu = time.process_time()
        _stream(snapshot, rows, options, tokenizer, folder / "streamed.parquet")
        figures["cpu_of_streaming"] = round(cpu_seconds / tuples / ((time.process_time() - cpu) / rows), 2)
    print(json.dumps(figures))


def _stream(snapshot: Any, count: int, options: Any, tokenizer: Any, path: Path) -> None:
    """The base line: one pass over the first rows that reads, scrubs, signs, tokenises and writes, and never looks
    back."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ec1.corpus.cleaning import scrub_example
    from ec1.corpus.duplicates import signature
    from ec1.corpus.rendering import encode, rendered
    from ec1.corpus.tuples import example_of, parse_record, texts_of

    message = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    columns = {"prompt": message, "completion": message, "input_ids": pa.list_(pa.int32()), "signature": pa.binary()}
    rows = itertools.islice(snapshot.rows(), count)
    with pq.ParquetWriter(path, pa.schema(columns)) as writer:
        while batch := [row for row, _ in zip(rows, range(256), strict=False)]:
            examples = [example_of(parse_record(row.record), "sft") for row in batch]
            if options.scrub:
                examples = [scrub_example(example)[0] for example in examples]
            signatures = [signature("\n".join(texts_of(example))).tobytes() for example in examples]
            tokens = encode(tokenizer, [rendered(tokenizer, example, "all") for example in examples])
            written = [
                {**example, "input_ids": item.input_ids, "signature": signed}
                for example, item, signed in zip(examples, tokens, signatures, strict=True)
            ]
            writer.write_table(pa.Table.from_pylist(written, schema=pa.schema(columns)))


def main(
    sizes: Sequence[int] = (1_000, 10_000, 100_000), model: Path | None = None, lines: int = 15, streaming: bool = True
) -> list[dict[str, float]]:
    """Print and return, for each size, seconds, memory in MiB before the dataset is built and how much more at its
    peak, and CPU seconds per tuple as a multiple of the base line's."""
    figures = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "benchmarks.prepare_dataset", "--folder", folder]
            command += ["--size", str(size), "--lines", str(lines)]
            command += [] if model is None else ["--model", str(model)]
            command += [] if streaming else ["--no-streaming"]
            environment = {**os.environ, "OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false"}
            for step in ("snapshot", "dataset"):
                done = subprocess.run(
                    [*command, "--step", step],
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                    cwd=PROJECT,
                )
        figures.append(json.loads(done.stdout.splitlines()[-1]))
        print(figures[-1], flush=True)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=(1_000, 10_000, 100_000))
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--step", choices=("snapshot", "dataset"), help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help="folder of a model: its tokenizer is used, and texts are scrubbed")
    parser.add_argument("--lines", type=int, default=15, help="that each tuple adds")
    parser.add_argument("--no-streaming", dest="streaming", action="store_false", help="without the base line")
    arguments = parser.parse_args()
    if arguments.size is None:
        main(arguments.sizes, arguments.model, arguments.lines, arguments.streaming)
    elif arguments.step == "snapshot":
        _snapshot(arguments.folder, arguments.size, arguments.lines)
    else:
        _prepare(arguments.folder, arguments.size, arguments.model, arguments.lines, arguments.streaming)
