"""How long pages of many rows take in Studio, and the memory that it needs: `ec1 studio` on a million rows.

Asked for are the first byte after the start, pages without and with the index, filters, searches and orders, each once
cold and then the median of five; then the same page by five people at once.

Run: python -m benchmarks.studio_pages [--rows 1000000]
"""

import argparse
import datetime as dt
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from ec1.corpus.dataset_tables import SIDES, DatasetTables
from ec1.corpus.row_kinds import ROW_KINDS
from ec1.files import digest_of
from ec1.home import CHECKOUT, Home
from ec1.seals import write_sealed

PORT = 3989
PATHS = (
    "", "?text=w1234", "?text=question", "?text=w1*", "?order=tokens&down=1", "?side=heldout&order=length",
    "?text=question&order=tokens", "?reason=duplicate", "/counts",
)  # fmt: skip


def write_dataset(home: Home, rows: int) -> str:
    """A dataset of so many rows of some 400 characters; returns its digest."""
    digest = digest_of(["studio", rows])
    folder = home.datasets / digest
    folder.mkdir(parents=True)
    heldout = rows // 20
    with DatasetTables(folder, ROW_KINDS["sft"]) as tables:
        for number in range(rows):
            words = " ".join(f"w{(number * 7919 + place * 104729) % 50_000}" for place in range(50))
            record = {
                "prompt": [{"role": "user", "content": f"Question {number}, {words[:150]}?"}],
                "completion": [{"role": "assistant", "content": f"Answer {number}: {words[150:]}"}],
                "group": f"session_id:{number // 4}",
                "origin": f"notes/{number // 5000:04}.jsonl:{number % 5000 + 1}",
                "row": digest_of(number),
                "tokens": 60 + number * 31 % 400,
            }
            tables.write(SIDES[number < heldout], record, None)
    (folder / "rejects.jsonl").write_text(
        "".join(json.dumps({"row": digest_of(-n), "origin": f"notes/x.jsonl:{n}", "reason": "duplicate"}) + "\n"
                for n in range(1, 1001))
    )  # fmt: skip
    counts = {f"{side}_rows": count for side, count in zip(SIDES, (rows - heldout, heldout), strict=True)}
    rest = {"over_length": 0, "percentiles": {}, "heldout_tokens": 0, "options": {}, "tokens": 0, "scrubbed": {}}
    write_sealed(folder, {"objective": "sft", "snapshot": "none", "rejected": {"duplicate": 1000}, **counts, **rest})
    return digest


def ask(path: str) -> tuple[float, int]:
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=120) as answer:
        answer.read()
        return time.perf_counter() - began, answer.status


def main(rows: int) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        home.create()
        began = time.perf_counter()
        data = f"/data/dataset/{write_dataset(home, rows)}"
        print(f"{rows:,} rows written in {time.perf_counter() - began:.0f} s", flush=True)
        began = time.perf_counter()
        command = [sys.executable, "-m", "ec1.cli", "studio", "--port", str(PORT)]
        with subprocess.Popen(command, cwd=CHECKOUT, env={**os.environ, "EC1_HOME": str(home.root)}) as started:
            try:
                while True:
                    try:
                        ask("/keys")
                        break
                    except OSError:
                        time.sleep(0.02)
                print(f"first byte after {time.perf_counter() - began:.2f} s", flush=True)
                (studio,) = psutil.Process(started.pid).children()
                print(f"first page without an index {ask(data)[0]:.2f} s", flush=True)
                print(f"page at 900,000 without one {ask(f'{data}?after={rows * 9 // 10}')[0]:.2f} s", flush=True)
                began = time.perf_counter()
                while ask(f"{data}?text=w1")[1] == 202:
                    time.sleep(0.5)
                print(
                    f"index built in {time.perf_counter() - began:.0f} s, {_megabytes(studio):.0f} MB then", flush=True
                )
                quoted = urllib.parse.quote('"w7919 w12648"')
                for path in (*PATHS, f"?after={rows * 9 // 10}", f"?text={quoted}"):
                    first, *others = [ask(data + path)[0] for _ in range(6)]
                    print(f"{path or 'first page':32} {first:.2f} s, then {statistics.median(others):.2f}", flush=True)
                with ThreadPoolExecutor(5) as people:
                    times = list(people.map(lambda n: ask(f"{data}?after={n * 5000}")[0], range(25)))
                print(f"five people at once: median {statistics.median(times):.2f} s, worst {max(times):.2f} s")
                print(f"{_megabytes(studio):.0f} MB at the end ({dt.datetime.now():%H:%M})", flush=True)
            finally:
                started.terminate()


def _megabytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 1e6


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    main(parser.parse_args().rows)
