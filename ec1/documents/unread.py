"""Files below the document root that no stream reads: what a newcomer's folder holds beside the streams.

Belongs here: looking at names. Does not: what a stream's files hold (`scan.py`, `parse.py`).
"""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from ec1.streams import READABLE, Stream, is_hidden

_MOST_ENTRIES = 50_000


@dataclass(frozen=True)
class Unread:
    """Files that no stream reads. `readable` ones could be, if a stream named their folder (and suffix); `others` are
    of kinds that EC1 cannot read. Both count by suffix, "" for a name without one; `folders` are those of the readable.
    `complete` is False where so much lies there that the rest was not looked at."""

    readable: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    folders: Counter[str] = field(default_factory=Counter)
    complete: bool = True

    def of(self, suffixes: tuple[str, ...]) -> Counter[str]:
        """How many of the readable files have one of these suffixes."""
        return Counter({suffix: number for suffix, number in self.readable.items() if suffix in suffixes})

    def __str__(self) -> str:
        """`24 files that no stream reads: 12 .pdf, 8 .docx in inbox, 4 .mp3 of kinds that EC1 cannot read`; or ""."""
        parts = []
        if self.readable:
            places = ", ".join(name for name, _ in _most(self.folders, 3))
            more = f" and {len(self.folders) - 3} more folders" if len(self.folders) > 3 else ""
            parts.append(f"{by_suffix(self.readable)} in {places}{more}")
        if self.others:
            parts.append(f"{by_suffix(self.others)} of kinds that EC1 cannot read")
        if not parts:
            return ""
        number = self.readable.total() + self.others.total()
        least = "" if self.complete else "at least "
        noun = "file" if number == 1 else "files"
        return f"{least}{number:,} {noun} that no stream reads: {', '.join(parts)}"

    @property
    def advice(self) -> str:
        """The same with what to do, if something can be done."""
        text = str(self)
        return f"{text}; name their folders in documents.streams" if self.readable else text


def unread_files(root: Path, streams: Iterable[Stream]) -> Unread:
    """Look at the names below `root`, without following links; hidden ones are skipped."""
    found, seen = Unread(), 0
    chosen = [(root / stream.folder, stream) for stream in streams if not stream.copied]
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if not is_hidden(name)]
        here = Path(folder)
        around = [stream for top, stream in chosen if here.is_relative_to(top)]
        seen += len(files) + len(names)
        for name in files:
            path = (here / name).relative_to(root).as_posix()
            if is_hidden(name) or any(stream.takes(path) for stream in around):
                continue
            suffix = PurePath(name).suffix.lower()
            if suffix in READABLE:
                found.readable[suffix] += 1
                found.folders[str(here.relative_to(root))] += 1
            else:
                found.others[suffix] += 1
        if seen > _MOST_ENTRIES:
            return Unread(found.readable, found.others, found.folders, complete=False)
    return found


def by_suffix(counts: Counter[str]) -> str:
    """`12 .pdf, 8 .docx, 3 others`, the most frequent first."""
    most = _most(counts, 5)
    rest = counts.total() - sum(number for _, number in most)
    shown = [f"{number:,} {suffix or 'without a suffix'}" for suffix, number in most]
    return ", ".join([*shown, f"{rest:,} others"] if rest else shown)


def _most(counts: Counter[str], number: int) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:number]
