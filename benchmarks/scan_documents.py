"""Scanning documents that did not change, against the cheapest listing there is.

`python -m benchmarks.scan_documents` prints the ratio of a scan to a bare `os.scandir` + `stat` walk over the same
100,000 files, measured in turns in one process, and the peak memory of a scan at 10,000 and at 100,000 files, each in a
process of its own. The ledger is built before and not counted, since it belongs to the caller.
"""

import argparse
import datetime as dt
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

from ec1.documents.ledger import DocumentKey, Fingerprints, LedgerEntry, Status
from ec1.documents.listing import Listing
from ec1.documents.scan import scan_documents
from ec1.documents.settings import DocumentSettings
from ec1.streams import CONTRACT_STREAMS

AS_OF = dt.datetime(2026, 6, 2, tzinfo=dt.UTC)
FINGERPRINTS = Fingerprints(dict.fromkeys(CONTRACT_STREAMS, "fingerprint"))
PER_FOLDER = 200
TURNS = 5


def make_tree(root: Path, count: int) -> None:
    """Write `count` small files, `PER_FOLDER` to a folder, over the three streams."""
    streams = list(CONTRACT_STREAMS.values())
    stamp = int(AS_OF.timestamp() - 3600) * 10**9
    for number in range(0, count, PER_FOLDER):
        stream = streams[number // PER_FOLDER % len(streams)]
        folder = root / stream.folder / f"team-{number // 7 % 50:02d}" / f"topic-{number:06d}"
        folder.mkdir(parents=True)
        for index in range(PER_FOLDER):
            path = f"{folder}/note-{index:05d}{stream.suffixes[0]}"
            descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
            os.write(descriptor, f'{{"corpus": "note {number} {index}"}}'.encode())
            os.close(descriptor)
            os.utime(path, ns=(stamp, stamp))


def walk(root: Path) -> int:
    """The bare walk: list every folder, stat every file, keep nothing."""
    count, pending = 0, [os.fspath(root)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    entry.stat()
                    count += 1
    return count


def scan(root: Path, cache: Path, ledger: dict[DocumentKey, LedgerEntry]) -> Listing:
    return scan_documents(
        root,
        ledger,
        FINGERPRINTS,
        night="2026-06-01",
        as_of=AS_OF,
        retract_vanished=True,
        settings=DocumentSettings(),
        cache=cache,
    )


def applied(listing: Listing) -> dict[DocumentKey, LedgerEntry]:
    """The ledger after a night that applied everything."""
    return {
        version.key: LedgerEntry(
            version.key, version.document_id, version.content_sha256, "fingerprint", Status.APPLIED, listing.night
        )
        for version in listing.changed
    }


def measure_memory(count: int) -> None:
    """In a separate process: print the peak of an unchanged scan of `count` files, as JSON, in bytes."""
    with tempfile.TemporaryDirectory(prefix="ec1-scan-") as folder:
        root, cache = Path(folder, "documents"), Path(folder, "cache")
        make_tree(root, count)
        ledger = applied(scan(root, cache, {}))
        tracemalloc.start()
        listing = scan(root, cache, ledger)
        peak = tracemalloc.get_traced_memory()[1]
    assert listing.hashed == 0 and sum(listing.unchanged.values()) == count
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak": peak, "resident": resident}))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        measure_memory(arguments.memory_of)
        return
    count = arguments.files
    with tempfile.TemporaryDirectory(prefix="ec1-scan-") as folder:
        root, cache = Path(folder, "documents"), Path(folder, "cache")
        make_tree(root, count)
        began = time.perf_counter()
        ledger = applied(scan(root, cache, {}))
        first = time.perf_counter() - began
        walks, scans = [], []
        for _ in range(TURNS):
            began = time.perf_counter()
            assert walk(root) == count
            walks.append(time.perf_counter() - began)
            began = time.perf_counter()
            listing = scan(root, cache, ledger)
            scans.append(time.perf_counter() - began)
            assert listing.hashed == 0 and not listing.changed and not listing.vanished
    ratios = [scan_time / walk_time for scan_time, walk_time in zip(scans, walks, strict=True)]
    print(f"scan of {count:,} documents (median of {TURNS} turns)")
    print(f"  first scan, all files read   {first:8.2f} s")
    print(f"  os.scandir + stat            {statistics.median(walks):8.3f} s")
    print(f"  unchanged scan               {statistics.median(scans):8.3f} s")
    print(f"  ratio                        {statistics.median(ratios):8.2f}   (target: at most 2)", flush=True)
    for size in (count // 10, count):
        command = [sys.executable, "-m", "benchmarks.scan_documents", "--memory-of", str(size)]
        figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            f"  peak at {size:7,} files        {figures['peak'] / 2**20:8.1f} MiB"
            f"   (the process with the ledger: {figures['resident'] / 2**20:.0f} MiB)",
            flush=True,
        )


if __name__ == "__main__":
    main()
