"""The document streams and how their documents are named (docs/contracts.md). `parse.py` handles what a file holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp")
"""Suffixes of pictures, whose text is recognised where a deployment asks for it."""
CAPTIONS = (".vtt", ".srt")
"""Suffixes of what meeting programs write down of what was said, and when."""
_OFFICE = (
    *(".pdf", ".docx", ".docm", ".doc", ".pptx", ".pptm", ".ppt", ".xlsx", ".xlsm", ".xls", ".odt", ".ods", ".odp"),
    *(".rtf", ".epub", ".eml", ".msg", ".mht", ".mhtml"),
)
CONVERTED = (*_OFFICE, *CAPTIONS, *PICTURES)
"""Suffixes of the files that a library turns into text (`ec1.documents.convert`)."""
MEMBERS = MappingProxyType({".mbox": ".eml", ".jsonl": ".json", ".ndjson": ".json", ".vcf": ".json", ".ics": ".json"})
"""Files that hold documents of one kind: mails, the records of an export, one in each line, contacts and events."""
CONTAINERS = (".zip", *MEMBERS)
"""Suffixes of files that hold documents and are none themselves (`ec1.documents.sources`)."""
WITH_ATTACHMENTS = (".eml", ".msg")
"""Suffixes of documents that hold others."""
RECORD = ".json"
"""Suffix of one record."""
LISTS = (RECORD, ".csv", ".tsv")
"""Suffixes of documents that hold others, and are none, where they are lists of records (`ec1.documents.records`)."""
NOTEBOOK = ".ipynb"
"""Suffix of Jupyter notebooks."""
_TEXT = (
    *(".md", ".markdown", ".txt", ".text", ".rst", ".org", ".adoc", ".yaml", ".yml", ".csv", ".tsv", ".html", ".htm"),
    *(".json", NOTEBOOK),
)
READABLE = (*_TEXT, *_OFFICE, *CAPTIONS, *CONTAINERS)
"""Suffixes of all files that are read where a stream names none, in lower case."""


def is_hidden(name: str) -> bool:
    """Whether a name in a folder is no document's: it begins with a dot, or Office wrote it beside an open file."""
    return name.startswith((".", "~$"))


@dataclass(frozen=True)
class Stream:
    """One stream: every file below `folder` (relative to the document root) whose name ends in one of `suffixes`, and
    whose path below the folder is like `pattern` (`*`: any characters, `/` too).

    `owner` is who sees to it. `classes`: the entity classes that its documents may name, or none for all. `copied`: its
    documents come from elsewhere, and `folder` is where their copies are among those of all such streams. `share` is
    the part of phase 1's time that it gets where there is too little, beside the shares of the others.
    """

    name: str
    folder: str
    suffixes: tuple[str, ...]
    id_prefix: str
    owner: str | None = None
    classes: tuple[str, ...] = ()
    copied: bool = False
    share: float = 1
    pattern: str = "*"

    def takes(self, path: str) -> bool:
        """Whether a file is one of its, by its path below the document root."""
        if not path.lower().endswith(self.suffixes):
            return False
        below = path if self.folder == "." else path.removeprefix(f"{self.folder}/")
        return self.pattern == "*" or fnmatchcase(below, self.pattern)

    def document_id(self, sha1_hex: str) -> str:
        """The id that other systems know a document by, such as `mk-1f0c9de2ab34`; of the SHA-1 of the file's bytes."""
        return f"{self.id_prefix}-{sha1_hex[:12]}"


CONTRACT_STREAMS: Mapping[str, Stream] = MappingProxyType(
    {
        stream.name: stream
        for stream in (
            Stream("meeting", "service-minutebook/assets", (".md",), "mk"),
            Stream("research", "service-agents", (".md", ".yaml", ".yml"), "ag"),
            Stream("contact", "service-people/source", (".json",), "sp"),
        )
    }
)
"""What a deployment reads that names no streams of its own."""
