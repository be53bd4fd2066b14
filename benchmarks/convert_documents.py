"""Mixed documents listed and converted, against the library alone: kreuzberg in as many processes, on the same bytes.

Both are counted in CPU seconds of all processes, and by the clock, in turns. `ec1` is what `ec1 plan` and a night do:
list a folder, take the attachments out of mails, read each file, check its hash, convert it within limits in processes
of their own, and keep the text. A second round, of a home that has all texts, converts nothing. The library converts
what is attached to a mail with the mail.

Run: python -m benchmarks.convert_documents [--files 10000] [--turns 3]
"""

import argparse
import datetime as dt
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import kreuzberg

from ec1.documents.ahead import in_order
from ec1.documents.convert import Converter
from ec1.documents.ledger import Fingerprints
from ec1.documents.media_types import MEDIA_TYPES
from ec1.documents.parse import Document
from ec1.documents.reader import DocumentReader
from ec1.documents.scan import scan_documents
from ec1.documents.settings import DocumentSettings
from ec1.documents.sources.copied import Roots
from ec1.home import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "tests" / "documents"))
AS_OF = dt.datetime(2026, 6, 2, tzinfo=dt.UTC)
TYPES = {**MEDIA_TYPES, ".html": "text/html", ".md": "text/markdown", ".txt": "text/plain"}
PDF, FOLDER, UNPACKED = MEDIA_TYPES[".pdf"], 200, "unpacked"


def make(root: Path, count: int) -> None:
    """So many files of seven kinds in turn, of one to three pages each: texts of the sample, each with its number."""
    import written

    texts = [path.read_text() for path in sorted((CHECKOUT / "examples" / "documents").rglob("*.md"))]
    kinds = (".pdf", ".docx", ".eml", ".html", ".txt", ".md", ".xlsx")
    stamp = AS_OF.timestamp() - 3600
    for number in range(count):
        suffix, text = kinds[number % len(kinds)], f"Paper {number}.\n\n{texts[number % len(texts)]}"
        path = root / f"{number // FOLDER:03}" / f"{number:05}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if suffix == ".xlsx":
            rows: list[tuple[object, ...]] = [(line, number) for line in text.splitlines() if line]
            path.write_bytes(written.workbook(Notes=rows))
        elif suffix == ".eml":
            path.write_bytes(written.mail(f"Paper {number}", text, attached=written.as_kind(".pdf", text)))
        else:
            path.write_bytes(written.as_kind(suffix, text))
        os.utime(path, (stamp, stamp))


def alone(paths: list[Path]) -> int:
    """The library's own conversion of some files, in this process; returns the characters of text."""
    plain = kreuzberg.ExtractionConfig(use_cache=False, pages=kreuzberg.PageConfig(extract_pages=True))
    marked = kreuzberg.ExtractionConfig(use_cache=False, output_format="markdown")
    characters = 0
    for path in paths:
        kind = TYPES[path.suffix]
        found = kreuzberg.extract_bytes_sync(path.read_bytes(), kind, config=plain if kind == PDF else marked)
        characters += len(found.content)
    return characters


def library(root: Path, processes: int) -> int:
    """`alone` in so many processes."""
    paths = sorted(path for path in root.rglob("*") if path.is_file() and path.suffix in TYPES)
    parts = [paths[start::processes] for start in range(processes)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return sum(pool.map(alone, parts, chunksize=1))


def ec1(root: Path, cache: Path, processes: int) -> int:
    """Listing and reading as `ec1 plan` does; returns the characters of text."""
    settings = DocumentSettings.model_validate(
        {"streams": {"all": {"folder": "."}}, "conversion": {"processes": processes}}
    )
    listing = scan_documents(
        root,
        {},
        Fingerprints({"all": "f"}),
        night="2026-06-01",
        as_of=AS_OF,
        retract_vanished=True,
        settings=settings,
        cache=cache,
        unpacked=cache / UNPACKED,
    )
    converter = Converter(settings.conversion, cache / "converted")
    reader = DocumentReader(Roots(root, cache / UNPACKED), settings.max_bytes, converter)

    def loader(number: int) -> Callable[[], Document]:
        version = listing.changed[number]
        return lambda: reader.read(version.key, version.content_sha256)

    loads = (loader(number) for number in range(len(listing.changed)))
    characters = sum(len(load().text) for load in in_order(loads, reader.at_a_time))
    converter.close()
    return characters


def apart(work: Callable[..., int], *arguments: object) -> tuple[float, float]:
    """Seconds by the clock and CPU seconds of some work and all its processes, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_counted, args=(queue, work, arguments))
    process.start()
    seconds, cpu, characters = queue.get()
    process.join()
    assert characters > 0
    return seconds, cpu


Counted: TypeAlias = "multiprocessing.Queue[tuple[float, float, int]]"


def _counted(queue: Counted, work: Callable[..., int], arguments: tuple[object, ...]) -> None:
    began, before = time.monotonic(), _cpu()
    characters = work(*arguments)
    queue.put((time.monotonic() - began, _cpu() - before, characters))


def _cpu() -> float:
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ec1-convert-") as name:
        root = Path(name, "share")
        make(root, arguments.files)
        print(f"{arguments.files:,} files, {arguments.processes} processes", flush=True)
        for turn in range(arguments.turns):
            # Nothing is removed in between: ext4 takes longer to create files where many were just deleted.
            cache = Path(name, f"cache-{turn}")
            ours = apart(ec1, root, cache, arguments.processes)
            own = apart(library, root, arguments.processes)
            again = apart(ec1, root, cache, arguments.processes)
            print(
                f"library {own[0]:6.1f} s, {own[1]:6.1f} CPU s; ec1 {ours[0]:6.1f} s, {ours[1]:6.1f} CPU s: "
                f"{own[0] / ours[0]:.0%} of its speed by the clock, {own[1] / ours[1]:.0%} by CPU; "
                f"again {again[0]:5.1f} s, {again[1]:5.1f} CPU s",
                flush=True,
            )


if __name__ == "__main__":
    main()
