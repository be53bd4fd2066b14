"""The document streams and how their documents are named (docs/contracts.md). `parse.py` handles what a file holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Stream:
    """One stream: every file below `folder` (relative to the document root) whose name ends in one of `suffixes`."""

    name: str
    folder: str
    suffixes: tuple[str, ...]
    id_prefix: str


STREAMS: Mapping[str, Stream] = MappingProxyType(
    {
        stream.name: stream
        for stream in (
            Stream("meeting", "service-minutebook/assets", (".md",), "mk"),
            Stream("research", "service-agents", (".md", ".yaml", ".yml"), "ag"),
            Stream("contact", "service-people/source", (".json",), "sp"),
        )
    }
)


def document_id(stream_name: str, sha1_hex: str) -> str:
    """The id that other systems know a document by, such as `mk-1f0c9de2ab34`; `sha1_hex` is of the file's bytes."""
    return f"{STREAMS[stream_name].id_prefix}-{sha1_hex[:12]}"
