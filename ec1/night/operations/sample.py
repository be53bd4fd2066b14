"""Puts the bundled sample into a home: its documents and tuples, with the times at which they were written.

Belongs here: copying, and the times. Does not: what the sample holds (`examples/`) and what a night makes of it. Nights
read as of the end of their own window, so a file's time decides on which night it is seen.
"""

import datetime as dt
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ec1.errors import InputError
from ec1.files import atomic_file, inside, read_json, staged_directory
from ec1.home import Home

_DOCUMENTS = "documents"
_CORPUS = "training-corpus"


@dataclass(frozen=True)
class Installed:
    """What one call copied: documents (files) and tuples (lines of the corpus)."""

    documents: int
    tuples: int


def install_sample(sample: Path, home: Home, until: dt.date | None = None) -> Installed | None:
    """Copy a sample's documents and training corpus into an empty home; return None if the home is not empty.

    Without `until`, everything is copied, and a home that has documents, or a corpus, is not changed.
    With `until` (a UTC date, inclusive) only what was written by then is copied, and a home that has documents
    already gets the files that it lacks: so days can be added one by one. Files that exist are never written to.
    Raises InputError if the sample's timeline and its files disagree.
    """
    written = _timeline(sample)
    if until is not None:
        written = {path: at for path, at in written.items() if at.astimezone(dt.UTC).date() <= until}
    documents, corpus = _below(_DOCUMENTS, written), _below(_CORPUS, written)
    if home.documents.exists():
        if until is None:
            return None
        return Installed(
            len(_add(sample / _DOCUMENTS, home.documents, documents)),
            _lines(home.corpus, _add(sample / _CORPUS, home.corpus, corpus)),
        )
    # Documents appear last: a crash in between leaves a whole corpus without them, which is finished here next time.
    if home.corpus.exists():
        if not _own_files(home.corpus) <= _below(_CORPUS, _timeline(sample)).keys():
            return None
        _add(sample / _CORPUS, home.corpus, corpus)
    else:
        _install(sample / _CORPUS, home.corpus, corpus)
    _install(sample / _DOCUMENTS, home.documents, documents)
    return Installed(len(documents), _lines(home.corpus, corpus))


def _timeline(sample: Path) -> dict[str, dt.datetime]:
    """When each file was written, by its path relative to the sample. Raises InputError."""
    where = sample / "timeline.json"
    if not where.is_file():
        raise InputError(f"{sample} is not a sample: it has no timeline.json")
    value = read_json(where)
    if not isinstance(value, dict):
        raise InputError(f'{where}: expected {{"path": "time"}}')
    times = {}
    for path, at in value.items():
        try:
            times[path] = dt.datetime.fromisoformat(at)
        except (TypeError, ValueError):
            raise InputError(f"{where}: {path}: {at!r} is not a time such as 2026-06-01T09:30:00Z") from None
        if times[path].tzinfo is None:
            raise InputError(f"{where}: {path}: {at!r} names no time zone; write 2026-06-01T09:30:00Z")
    there = {f"{top}/{file}" for top in (_DOCUMENTS, _CORPUS) for file in _own_files(sample / top)}
    if there != times.keys():
        odd = sorted(there ^ times.keys())[0]
        problem = "has no time in" if odd in there else "does not exist, but has a time in"
        raise InputError(f"{odd} {problem} {where}")
    return times


def _own_files(root: Path) -> set[str]:
    """Paths relative to `root` of all files below it, without those that are hidden (temporary names)."""
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def _below(top: str, written: Mapping[str, dt.datetime]) -> dict[str, dt.datetime]:
    prefix = f"{top}/"
    return {path.removeprefix(prefix): at for path, at in written.items() if path.startswith(prefix)}


def _install(source: Path, target: Path, files: Mapping[str, dt.datetime]) -> None:
    """Make the folder `target` with these files, in one step."""
    with staged_directory(target) as staging:
        for path, at in files.items():
            (staging / path).parent.mkdir(parents=True, exist_ok=True)
            _copy(source / path, staging / path, at)


def _add(source: Path, target: Path, files: Mapping[str, dt.datetime]) -> list[str]:
    """Add the files that `target` lacks, each in one step; return their paths."""
    added = []
    for path, at in files.items():
        file = inside(target, path)
        if not file.exists():
            with atomic_file(file) as temporary:
                _copy(source / path, temporary, at)
            added.append(path)
    return added


def _copy(source: Path, target: Path, at: dt.datetime) -> None:
    shutil.copyfile(source, target)
    seconds = int(at.timestamp())
    os.utime(target, ns=(seconds * 10**9, seconds * 10**9))


def _lines(root: Path, files: Mapping[str, dt.datetime] | list[str]) -> int:
    return sum((root / path).read_bytes().count(b"\n") for path in files)
