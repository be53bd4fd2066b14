"""What faces ask of documents: one as phase 1 will read it."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from ec1.deployment import Deployment
from ec1.documents.ledger import DocumentKey
from ec1.errors import InputError
from ec1.home import Home
from ec1.streams import CONTAINERS, READABLE, Stream


@dataclass(frozen=True)
class DocumentPreview:
    """One document. `stream` is None where no stream reads the file; `places` are where its pages or sheets begin;
    `fields` is the part of `text` that its own fields make."""

    path: str
    stream: str | None
    id: str | None
    title: str
    places: tuple[tuple[int, str], ...]
    fields: str
    text: str


def preview(deployment: Deployment, home: Home, path: Path) -> DocumentPreview:
    """A file as it would be read. Raises InputError for a kind that cannot be read, RejectedError with the reason that
    it cannot be a document, DeferredError if it changes meanwhile."""
    if path.suffix.lower() not in READABLE:
        raise InputError(f"{path} is of a kind that EC1 cannot read; it reads {', '.join(READABLE)}")
    if path.suffix.lower() in CONTAINERS:
        raise InputError(f"{path} holds documents and is none itself: unpack it, and look at one of them")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    root, path = deployment.documents_root(home).resolve(), path.resolve()
    inside = path.is_relative_to(root)
    stream = _stream_of(path, root, deployment) if inside else None
    key = DocumentKey(stream.name if stream else "", str(path))
    document = deployment.document_reader(home).read(key, hashlib.sha256(data).hexdigest())
    sha1 = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    return DocumentPreview(
        path=str(path.relative_to(root)) if inside else str(path),
        stream=stream.name if stream else None,
        id=stream.document_id(sha1) if stream else None,
        title=document.title,
        places=document.places,
        fields=document.text[: document.fields_end].rstrip(),
        text=document.text[document.fields_end :].lstrip(),
    )


def _stream_of(path: Path, root: Path, deployment: Deployment) -> Stream | None:
    for stream in deployment.documents.all_streams.values():
        if (
            not stream.copied
            and path.is_relative_to(root / stream.folder)
            and path.name.lower().endswith(stream.suffixes)
        ):
            return stream
    return None
