"""Streams for a folder that nobody described yet: which of its folders hold what can be read.

Belongs here: looking at names and choosing streams. Does not: writing a deployment (`ec1.night.operations`).
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ec1.documents.settings import StreamSettings
from ec1.documents.unread import Unread, unread_files
from ec1.errors import InputError
from ec1.streams import CONTRACT_STREAMS, Stream

_MOST_STREAMS = 12


@dataclass(frozen=True)
class Proposal:
    """Streams by name, each with the files that it would read by suffix; `unread` is what none of them reads.

    `streams` is empty where the folder is laid out as docs/contracts.md says: no settings are needed.
    """

    streams: dict[str, StreamSettings]
    counts: dict[str, Counter[str]]
    unread: Unread


def propose_streams(root: Path) -> Proposal:
    """One stream for each folder in `root` that holds readable files; one for all of it where files lie in the root
    itself, or where the folders are more than a dozen. Raises InputError if `root` is not a folder or holds nothing
    that can be read."""
    if not root.is_dir():
        raise InputError(f"{root} is not a folder")
    if any((root / stream.folder).is_dir() for stream in CONTRACT_STREAMS.values()):
        return _proposal(root, {}, CONTRACT_STREAMS)
    found = unread_files(root, ())
    if not found.readable:
        raise InputError(f"nothing in {root} can be read: {found or 'it is empty'}")
    tops = {folder.partition("/")[0] for folder in found.folders}
    if "." in tops or len(tops) > _MOST_STREAMS:
        tops = {"."}
    names = {top: _name(top) for top in sorted(tops)}
    if len(set(names.values())) < len(names):
        names = {".": _name(".")}
    streams = {name: StreamSettings(folder=top) for top, name in names.items()}
    every = {name: Stream(name, each.place(name), each.read, name) for name, each in streams.items()}
    return _proposal(root, streams, every)


def _proposal(root: Path, streams: dict[str, StreamSettings], every: Mapping[str, Stream]) -> Proposal:
    counts = {name: unread_files(root / each.folder, ()).of(each.suffixes) for name, each in every.items()}
    return Proposal(streams, counts, unread_files(root, every.values()))


def _name(folder: str) -> str:
    """A stream's name from its folder's: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", folder.lower()).strip("-")[:40] or "documents"
