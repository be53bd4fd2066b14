"""Every file of a home: whether it holds what is to be forgotten, and what is done about it.

Belongs here: the walk and the rule for each part of the home. Does not: doing it (`forget`), how a file is opened
(`containers`) or changed (`scrubbing`).
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ec1.deployment import Deployment
from ec1.documents.convert import Converter, NoConverterError
from ec1.documents.ledger import DocumentKey
from ec1.documents.reader import DocumentReader
from ec1.errors import DeferredError, RejectedError
from ec1.home import Home
from ec1.night.forgetting.containers import LADYBUG, SQLITE, head_of, is_weights, texts_in
from ec1.night.forgetting.scrubbing import parsed
from ec1.night.forgetting.tuples import FoundTuple, corpus_lines, made_of
from ec1.night.forgetting.wanted import Wanted, strings

_LARGEST_RECORD = 64 * 2**20


class Action(StrEnum):
    """What is done about a file that holds it."""

    DELETE = "deleted"
    LINES = "rewritten"
    REDACT = "redacted"
    DATABASE = "cleaned"
    GRAPH = "written anew"
    LEAVE = "left"


@dataclass(frozen=True)
class HeldDocument:
    """A document that holds it. `inside`: its file lies in the home; otherwise it is the user's to delete."""

    path: Path
    name: str
    sha256: str
    text: str
    inside: bool


@dataclass
class Holdings:
    """All that holds it. `snapshots` and `datasets` are folders; `places` are the other files, with what to do."""

    documents: list[HeldDocument] = field(default_factory=list)
    tuples: list[FoundTuple] = field(default_factory=list)
    corpus: list[Path] = field(default_factory=list)
    snapshots: list[Path] = field(default_factory=list)
    datasets: list[Path] = field(default_factory=list)
    places: dict[Path, Action] = field(default_factory=dict)
    sure: Counter[str] = field(default_factory=Counter)
    doubtful: Counter[str] = field(default_factory=Counter)


def everything_held(wanted: Wanted, deployment: Deployment, home: Home, *, live: bool = True) -> Holdings:
    """Look through the documents, the corpus and the whole home. Changes nothing but the cache of conversions. Without
    `live` the live graph is left alone, since somebody may be writing it; its published copy says the same."""
    held = Holdings()
    roots, corpus = _document_roots(deployment, home), deployment.corpus_root(home).resolve()
    # Documents first: what is converted to look at them is kept in the cache, which is looked through as well.
    held.documents += documents_held(wanted, deployment, home, held)
    for path, number, record, line in corpus_lines(corpus):
        text = line.decode("utf-8", "replace")
        if wanted.in_record(record) if record is not None else wanted.in_text(text):
            _count(wanted, text, held)
            held.tuples.append(FoundTuple(path.relative_to(corpus).as_posix(), number, _digest(record)))
            if path not in held.corpus:
                held.corpus.append(path)
    seen: dict[int, bool] = {}
    for path in files_of(home):
        if path == home.graph and not live:
            continue
        real = path.resolve()
        if any(map(real.is_relative_to, roots)) or (
            real.is_relative_to(corpus) and path.name.endswith((".jsonl", ".jsonl.gz"))
        ):
            continue
        inode = path.stat().st_ino
        if inode not in seen:
            seen[inode] = holds(path, wanted)
        if not seen[inode] and not wanted.in_text(path.relative_to(home.root).as_posix()):
            continue
        folder = _folder_of(path, home)
        if folder is None:
            held.places[path] = action_for(path, home)
        elif folder.is_relative_to(home.snapshots):
            held.snapshots += [folder] if folder not in held.snapshots else []
        elif folder not in held.datasets:
            held.datasets.append(folder)
    gone = {path.name for path in held.snapshots}
    # Of a snapshot that goes every dataset: its rejects and samples may quote what a row no longer shows.
    made = [path for path in home.datasets.glob("*") if path.is_dir() and not made_of(path).isdisjoint(gone)]
    held.datasets += [path for path in sorted(made) if path not in held.datasets]
    return held


def documents_held(wanted: Wanted, deployment: Deployment, home: Home, held: Holdings) -> Iterator[HeldDocument]:
    """The documents, in a stream or not, whose name, bytes or text hold it: below the deployment's root, copied from a
    source, taken out of an archive or a mail."""
    converter = Converter(deployment.documents.conversion, home.cache / "converted")
    suffixes = deployment.documents.suffixes
    for root in _document_roots(deployment, home):
        reader = DocumentReader(root, deployment.documents.max_bytes, converter)
        inside = root.is_relative_to(home.root.resolve())
        for path in sorted(root.rglob("*")) if root.is_dir() else []:
            if not path.is_file() or path.is_symlink():
                continue
            name, sha256 = path.relative_to(root).as_posix(), _sha256(path)
            text, head = _document_text(reader, name, sha256) if name.lower().endswith(suffixes) else ("", "")
            texts = [name, head, text, *(_source_names(path, deployment) if wanted.source else ())]
            if any(map(wanted.in_text, texts)) or holds(path, wanted):
                _count(wanted, f"{name}\n{text}", held)
                yield HeldDocument(path, name, sha256, text, inside)


def _document_roots(deployment: Deployment, home: Home) -> tuple[Path, ...]:
    return deployment.documents_root(home).resolve(), home.sources.resolve(), home.unpacked.resolve()


def _document_text(reader: DocumentReader, name: str, sha256: str) -> tuple[str, str]:
    """A document's text, and what it says about itself; nothing of a file that cannot be read. Raises
    NoConverterError: a person in a file that others can open would stay unnoticed."""
    try:
        document = reader.read(DocumentKey("", name), sha256)
    except NoConverterError:
        raise
    except (RejectedError, DeferredError):
        return "", ""
    return document.text, "\n".join((document.title, *strings(document.metadata)))


def _source_names(path: Path, deployment: Deployment) -> Iterator[str]:
    """What `--source document:…` may call a document: its ids in the streams."""
    sha1 = hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()
    for stream in deployment.documents.all_streams.values():
        yield stream.document_id(sha1)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _digest(record: object) -> str:
    from ec1.files import digest_of

    return digest_of(record) if record is not None else ""


def _count(wanted: Wanted, text: str, held: Holdings) -> None:
    sure, doubtful = wanted.spellings(text)
    held.sure += sure
    held.doubtful += doubtful


def files_of(home: Home) -> Iterator[Path]:
    """Every file of a home but base models, which are not made of what was read here, and the records of removals."""
    for path in sorted(home.root.rglob("*")):
        if path.is_file() and not path.is_symlink():
            top = home.root / path.relative_to(home.root).parts[0]
            if top not in (home.models, home.removals):
                yield path


def holds(path: Path, wanted: Wanted) -> bool:
    """Whether a file holds it, opened whatever it is. One that vanishes meanwhile holds nothing."""
    try:
        if any(map(wanted.in_text, texts_in(path))):
            return True
        if path.suffix in (".json", ".jsonl") and path.stat().st_size <= _LARGEST_RECORD:
            data = path.read_bytes()
            lines = data.splitlines() if path.suffix == ".jsonl" else [data]
            return any(wanted.in_record(parsed(line)) for line in lines)
    except FileNotFoundError:
        pass
    return False


def _folder_of(path: Path, home: Home) -> Path | None:
    """The snapshot or dataset that a file is part of: they are named by their content and go as a whole."""
    for parent, depth in ((home.snapshots, 2), (home.datasets, 1)):
        if path.is_relative_to(parent):
            parts = path.relative_to(parent).parts
            return parent.joinpath(*parts[:depth]) if len(parts) > depth else None
    return None


def action_for(path: Path, home: Home) -> Action:
    """What is done about a file that holds it: what can be made again goes, of the rest what holds it."""
    top = path.relative_to(home.root).parts[0]
    head = head_of(path)
    if path in (home.graph, home.published_graph):
        return Action.GRAPH
    if is_weights(path):
        return Action.LEAVE if path.is_relative_to(home.adapters) else Action.DELETE
    if top in ("outbox", "cache", "graph", "snapshots", "datasets", "work") or head.startswith(LADYBUG):
        return Action.DELETE
    if head.startswith(SQLITE):
        return Action.DATABASE
    return Action.REDACT
