"""What faces ask of documents: one as phase 1 will read it, and where it went."""

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ec1.deployment import Deployment
from ec1.documents.ledger import DocumentKey, LedgerEntry
from ec1.documents.parse import Document
from ec1.documents.sources.opened import Opener, OpeningLimits
from ec1.documents.sources.unpack import is_container
from ec1.errors import DeferredError, InputError, RejectedError
from ec1.graph.reader import GraphReader
from ec1.home import Home
from ec1.models import tokenizer_folder
from ec1.night.forgetting.containers import texts_in
from ec1.night.forgetting.tuples import corpus_lines
from ec1.night.forgetting.wanted import Wanted
from ec1.night.steps.extractor import extractor_of
from ec1.streams import WITH_ATTACHMENTS, Stream


@dataclass(frozen=True)
class DocumentPreview:
    """One document. `stream` is None where no stream reads the file; `places` are where its pages or sheets begin;
    `fields` is the part of the text that its own fields make. `chunks` are the characters [start, end) that the model
    is shown at a time, fields and text together; None where its tokenizer is not here yet. `left_out` says what is not
    read."""

    path: str
    stream: str | None
    id: str | None
    title: str
    places: tuple[tuple[int, str], ...]
    fields: str
    text: str
    chunks: tuple[tuple[int, int], ...] | None
    left_out: tuple[str, ...]


def preview(deployment: Deployment, home: Home, path: Path) -> DocumentPreview:
    """A file as it would be read. Raises InputError for a kind that cannot be read, RejectedError with the reason that
    it cannot be a document, DeferredError if it changes meanwhile."""
    if not path.is_file():
        raise InputError(f"{path} is {'not a file' if path.exists() else 'not there'}")
    if path.suffix.lower() not in deployment.documents.suffixes:
        kinds = ", ".join(deployment.documents.suffixes)
        raise InputError(
            f"{path} is of a kind that is not read: those are {kinds}, and what a stream's `as_text` names"
        )
    try:
        if is_container(path, deployment.documents.suffixes):
            raise InputError(f"{path} holds documents and is none itself: take one of them out, and look at that")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    root, path = deployment.documents_root(home).resolve(), path.resolve()
    inside = path.is_relative_to(root)
    stream = _stream_of(path, root, deployment) if inside else None
    key = DocumentKey(stream.name if stream else "", str(path))
    document = deployment.document_reader(home).read(key, hashlib.sha256(data).hexdigest())
    sha1 = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    chunks, held = _read(deployment, home, document, hashlib.sha256(data).hexdigest())
    return DocumentPreview(
        path=str(path.relative_to(root)) if inside else str(path),
        stream=stream.name if stream else None,
        id=stream.document_id(sha1) if stream else None,
        title=document.title,
        places=document.places,
        fields=document.text[: document.fields_end].rstrip(),
        text=document.text[document.fields_end :].lstrip(),
        chunks=chunks,
        left_out=(*held, *(f"{place}: no text" for place in document.empty), *_held_files(deployment, path)),
    )


def _read(
    deployment: Deployment, home: Home, document: Document, sha256: str
) -> tuple[tuple[tuple[int, int], ...] | None, list[str]]:
    """What the model is shown at a time, and the sentences that it is not."""
    model = deployment.inference
    folder = tokenizer_folder(model.model, model.revision, deployment.models, home.models)
    if not (folder / "tokenizer.json").is_file():
        return None, []
    extractor = extractor_of(deployment, home)
    readable, judged = extractor.readable(document.text, sha256)
    held = [f"addressed to a machine: {' '.join(document.text[each.start : each.end].split())}" for each in judged.held]
    return tuple((chunk.start, chunk.end) for chunk in extractor.chunks(readable)), held


def _held_files(deployment: Deployment, path: Path) -> Iterator[str]:
    """The files in a document that holds some."""
    if path.suffix.lower() not in WITH_ATTACHMENTS:
        return
    documents = deployment.documents
    limits = OpeningLimits(documents.conversion.max_seconds, documents.conversion.max_memory_mb)
    most = documents.unpacking
    with Opener(limits) as opener, contextlib.suppress(RejectedError, DeferredError):
        for item in opener.container(
            path, 0, max_files=most.max_files, max_bytes=most.max_mb * 2**20, most=documents.max_bytes
        ):
            is_read = item.name.lower().endswith(documents.suffixes)
            yield f"{item.name}: {'a document of its own' if is_read else 'of a kind that EC1 cannot read'}"


@dataclass(frozen=True)
class DocumentTrace:
    """Where one document went: its ledger row, results in the outbox, what the graph has of it, its exports that
    name it, files of tuples that do, and names of it that service-content was sent."""

    path: str
    stream: str
    id: str | None
    content_sha256: str
    status: str
    reason: str | None
    """Why it was rejected or put off."""
    night: str
    results: tuple[str, ...]
    entities: tuple[str, ...]
    exports: tuple[str, ...]
    tuples: tuple[str, ...]
    sent: int


def trace(deployment: Deployment, home: Home, name: str) -> list[DocumentTrace]:
    """The documents of this path, id or content (the beginning of its SHA-256) and where they went, by the published
    graph. Raises InputError if the ledger knows none."""
    if not home.published_graph.is_file():
        raise InputError(f"no graph was published in {home.root}: the first night does it")
    with GraphReader(home.published_graph, buffer_pool_mib=deployment.graph.buffer_pool_mib) as reader:
        found = [
            (entry, tuple(reader.names_in(entry.key)))
            for entry in reader.ledger().values()
            if name in (entry.key.path, entry.document_id) or (len(name) >= 6 and entry.content_sha256.startswith(name))
        ]
    if not found:
        raise InputError(
            f"no document is called {name!r}: give its path below the document root, its id or its SHA-256"
        )
    return [_traced(deployment, home, entry, entities) for entry, entities in found]


def _traced(deployment: Deployment, home: Home, entry: LedgerEntry, entities: tuple[str, ...]) -> DocumentTrace:
    corpus = deployment.corpus_root(home)
    results = home.outbox.glob(f"*/{entry.content_sha256[:2]}/{entry.content_sha256}.*")
    # A result has the identity of its document; a file's name may be anybody's.
    about = Wanted(source=f"document:{entry.document_id or entry.content_sha256}")
    tuples = {path.relative_to(corpus).as_posix() for path, _, _, line in corpus_lines(corpus)
              if about.in_text(line.decode("utf-8", "replace"))}  # fmt: skip
    exports = {path.parent.name for path in home.graph_exports.glob("*/documents.parquet")
               if any(entry.content_sha256 in text for text in texts_in(path))}  # fmt: skip
    return DocumentTrace(
        path=entry.key.path,
        stream=entry.key.stream,
        id=entry.document_id or None,
        content_sha256=entry.content_sha256,
        status=str(entry.status),
        reason=entry.reason,
        night=entry.night,
        results=tuple(sorted(path.relative_to(home.root).as_posix() for path in results)),
        entities=entities,
        exports=tuple(sorted(exports)),
        tuples=tuple(sorted(tuples)),
        sent=_sent_of(home, entry),
    )


def _sent_of(home: Home, entry: LedgerEntry) -> int:
    count = 0
    for path in sorted((home.root / "service-content").glob("*.sqlite")):
        query = "SELECT count(*) FROM sent WHERE source_doc = ?"
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, timeout=5)) as database:
            count += database.execute(query, (entry.document_id,)).fetchone()[0]
    return count


def _stream_of(path: Path, root: Path, deployment: Deployment) -> Stream | None:
    for stream in deployment.documents.all_streams.values():
        if (
            not stream.copied
            and path.is_relative_to(root / stream.folder)
            and path.name.lower().endswith(stream.suffixes)
        ):
            return stream
    return None
