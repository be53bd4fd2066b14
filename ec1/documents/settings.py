"""What a deployment sets about its documents."""

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator, model_validator

from ec1.documents.ledger import DocumentKey
from ec1.documents.sources.settings import SourceSettings, UnpackingSettings
from ec1.files import digest_of
from ec1.settings import Name, Settings
from ec1.streams import CONTRACT_STREAMS, MEMBERS, PICTURES, READABLE, Stream

UNKNOWN = "(unknown)"
"""A label that nobody has: it is not a valid name."""


def _folder(value: str) -> str:
    path = PurePosixPath(value)
    if not value or path.is_absolute() or ".." in path.parts or "\0" in value:
        raise ValueError(f"{value!r} is not a folder below documents.root")
    return str(path)


def _suffix(value: str) -> str:
    if value.lower() not in (*READABLE, *PICTURES):
        raise ValueError(f"{value!r} files cannot be read: choose among {', '.join((*READABLE, *PICTURES))}")
    return value.lower()


def _text_suffix(value: str) -> str:
    if not re.fullmatch(r"\.[^\s/.]{1,20}", value):
        raise ValueError(f"{value!r} is not a suffix, such as .log")
    if value.lower() in (*READABLE, *PICTURES):
        raise ValueError(f"{value} files are read by their own rules: name it in `suffixes`")
    return value.lower()


class StreamSettings(Settings):
    """One stream: the readable files of a folder, at any depth, or of a source that is not a folder."""

    folder: Annotated[str, AfterValidator(_folder)] | None = Field(
        None, description="below documents.root; `.` for all of it"
    )
    source: SourceSettings | None = Field(None, description="where its documents are, instead of `folder`")
    suffixes: tuple[Annotated[str, AfterValidator(_suffix)], ...] = Field(
        (),
        description="which files, such as .pdf, in either case; default: all that EC1 can read (docs/documents.md), "
        "without pictures",
    )
    as_text: tuple[Annotated[str, AfterValidator(_text_suffix)], ...] = Field(
        (), description="files of other suffixes that are plain text, such as .log, and are read, too"
    )
    pattern: str = Field(
        "*",
        min_length=1,
        description="which paths below the folder, such as */minutes/* or *-final.docx; `*` stands for any characters, "
        "also across folders",
    )
    id_prefix: Name | None = Field(
        None, description="of its documents' ids in other systems; default: the stream's name"
    )
    owner: str | None = Field(None, description="whose it is, in the Dagster UI: a mail address or `team:name`")
    classes: tuple[str, ...] = Field(
        (), description="entity classes that its documents may name, of extraction.classes; default: all"
    )

    labels: tuple[Name, ...] = Field((), description="access labels of its documents, such as hr (docs/graph.md)")
    share: float = Field(
        1, gt=0, description="of phase 1's time beside the other streams: one of 2 gets twice that of one of 1"
    )

    @model_validator(mode="after")
    def _has_one_place(self) -> "StreamSettings":
        if (self.folder is None) == (self.source is None):
            raise ValueError("a stream has either a `folder` or a `source`")
        for suffix, inside in MEMBERS.items():
            if suffix in self.suffixes and inside not in self.suffixes:
                raise ValueError(f"{suffix} holds {inside} documents: name {inside} among the suffixes, too")
        return self

    @property
    def read(self) -> tuple[str, ...]:
        """The suffixes of its files."""
        return (*(self.suffixes or READABLE), *self.as_text)

    def place(self, name: str) -> str:
        """Its folder: of a source, the one of its copies, which is called as the stream."""
        return name if self.folder is None else self.folder


class ConversionSettings(Settings):
    """Limits of converting one PDF, Word file, mail, … to text, and of opening what holds others. What breaks one is
    rejected with a reason; what takes too long is tried on some more nights."""

    max_seconds: float = Field(
        60,
        gt=0,
        description="wall time; a twentieth of it more for each page of a PDF that is read as a "
        "picture, up to ten times as much",
    )
    max_memory_mb: int = Field(
        2048,
        ge=512,
        description="address space of the converting process, and of the one that opens archives and mails, in MiB",
    )
    max_pages: int = Field(2000, gt=0, description="of a PDF")
    ocr: tuple[Annotated[str, Field(pattern="^[a-z_]{2,20}$")], ...] = Field(
        (),
        description="languages in which Tesseract reads pictures, and pages of PDFs with hardly any text, such as "
        "[eng, deu]; default: they are not read",
    )
    processes: int = Field(
        2, ge=1, le=64, description="how many files are converted at a time; each may take `max_memory_mb`; 1 to 8"
    )

    @property
    def limits(self) -> dict[str, float]:
        """What refuses a file, by setting."""
        return self.model_dump(exclude={"processes", "ocr"})


class DocumentSettings(Settings):
    root: Path | None = Field(
        None, description="folder of the document streams (docs/contracts.md); default `<home>/documents`"
    )
    streams: dict[Name, StreamSettings] = Field(
        {},
        description="what is read, by stream: any number of folders below the root; default: the three of "
        "docs/contracts.md (meeting, research, contact)",
    )
    labels: dict[Annotated[str, AfterValidator(_folder)], tuple[Name, ...]] = Field(
        {},
        description="access labels by folder below the root, beside those of its stream; of a source, the folder "
        "begins with the stream's name",
    )
    conversion: ConversionSettings = ConversionSettings()
    unpacking: UnpackingSettings = UnpackingSettings()
    max_vanished_share: float = Field(
        0.3,
        gt=0,
        le=1,
        description="stop if a larger share of the known documents vanished: a lost mount; typically 0.1–0.5",
    )
    max_bytes: int = Field(50 * 2**20, gt=0, description="a larger file is rejected with a reason")
    max_chunks: int = Field(
        5000,
        gt=0,
        description="a document of more chunks is rejected with a reason: it would take the night from others",
    )
    verify_every_days: int = Field(
        30, ge=0, description="read every file again, also those that look unchanged; 0: never"
    )

    @model_validator(mode="after")
    def _pictures_can_be_read(self) -> "DocumentSettings":
        for name, stream in self.streams.items():
            if not self.conversion.ocr and (pictures := [each for each in stream.suffixes if each in PICTURES]):
                raise ValueError(
                    f"stream {name} takes {pictures[0]}: documents.conversion.ocr names no language for it"
                )
        return self

    @field_validator("streams")
    @classmethod
    def _apart(cls, value: dict[str, StreamSettings]) -> dict[str, StreamSettings]:
        """One file belongs to one stream, and one id to one document."""
        prefixes = [each.id_prefix or name for name, each in value.items()]
        if twice := sorted({each for each in prefixes if prefixes.count(each) > 1}):
            raise ValueError(f"two streams have the id prefix {twice[0]!r}")
        folders = {name: PurePosixPath(each.place(name)) for name, each in value.items()}
        for name, folder in folders.items():
            for other, around in folders.items():
                if name != other and folder.is_relative_to(around):
                    raise ValueError(f"the folder of {name!r} lies in that of {other!r}: a file would be read twice")
        return value

    @cached_property
    def all_streams(self) -> Mapping[str, Stream]:
        """The streams by name."""
        if not self.streams:
            return CONTRACT_STREAMS
        return {
            name: Stream(
                name,
                each.place(name),
                each.read,
                each.id_prefix or name,
                owner=each.owner,
                classes=each.classes,
                copied=each.source is not None,
                share=each.share,
                pattern=each.pattern,
            )
            for name, each in self.streams.items()
        }

    @cached_property
    def limits(self) -> str:
        """A digest of what refuses a document that was listed: another one may let it in."""
        return digest_of({"conversion": self.conversion.limits, "max_chunks": self.max_chunks})

    @cached_property
    def suffixes(self) -> tuple[str, ...]:
        """Of all files that can be read here: those that need not be named, and those that a stream names."""
        named = (suffix for stream in self.all_streams.values() for suffix in stream.suffixes)
        return tuple(dict.fromkeys((*READABLE, *named)))

    @cached_property
    def labelled(self) -> Mapping[str, frozenset[str]]:
        """The access labels of folders below the root, those of streams among them; empty where nothing has any."""
        found: dict[str, frozenset[str]] = {}
        streams = [(each.place(name), each.labels) for name, each in self.streams.items()]
        for folder, labels in (*self.labels.items(), *streams):
            if labels:
                found[folder] = found.get(folder, frozenset()) | frozenset(labels)
        return found

    def labels_of(self, key: DocumentKey) -> frozenset[str]:
        """The access labels of a document: who reads it has all of them. One of a stream that the deployment no longer
        has is nobody's where there are labels: who may read it is not known."""
        if self.labelled and key.stream not in self.all_streams:
            return frozenset({UNKNOWN})
        path = PurePosixPath(key.path)
        return frozenset().union(*(labels for folder, labels in self.labelled.items() if path.is_relative_to(folder)))
