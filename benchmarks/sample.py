"""The bundled sample's documents with their gold, as texts like those of `gum`, and as a graph. No benchmark itself."""

import json
import re
from pathlib import Path

from benchmarks.gum import Text
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import parse_document
from ec1.extraction.results import ChunkAnswer, ExtractionResult, Mention
from ec1.extraction.scoring import read_gold
from ec1.files import sha256_file
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.resolution.overrides import NO_OVERRIDES
from ec1.home import CHECKOUT

DOCUMENTS = CHECKOUT / "examples" / "documents"
GOLD = CHECKOUT / "examples" / "gold" / "entities.jsonl"


def read() -> list[Text]:
    """All documents of the sample that the gold file knows."""
    texts = []
    for key, gold in sorted(read_gold(GOLD).items(), key=lambda each: each[0].path):
        document = parse_document(key, (DOCUMENTS / key.path).read_bytes())
        texts.append(Text(key.path, document.text, (), gold, document.fields_end))
    return texts


def publish(folder: Path, copies: int = 0) -> Path:
    """A graph of the sample, as an extractor that misses nothing would give it, published in `folder`. The documents
    about Lantern come a night later than the others. `copies`: the sample so many times, each below a folder that is
    called by its number."""
    results: list[tuple[DocumentKey, str, ExtractionResult]] = []
    for row in map(json.loads, GOLD.read_text().splitlines()):
        key = DocumentKey(row["stream"], row["path"])
        names = [(each["name"], each["class"]) for each in row["entities"]]
        found = _said(key, names)
        for place in [f"{copy}/{key.path}" for copy in range(copies)] or [key.path]:
            results.append((DocumentKey(key.stream, place), f"mk-{len(results)}", found))
    late = [each for each in results if "lantern" in each[0].path]
    with LadybugStore.open(folder / "live", buffer_pool_mib=64 if not copies else 2048, wait_seconds=0) as store:
        store.apply_many([each for each in results if each not in late], "2026-06-04")
        store.apply_many(late, "2026-06-05")
        store.resolve(NO_OVERRIDES)
        return store.publish(folder / "published")


def _said(key: DocumentKey, names: list[tuple[str, str]]) -> ExtractionResult:
    """The gold's names wherever they stand, the longest at a place."""
    text = parse_document(key, (DOCUMENTS / key.path).read_bytes()).text
    taken: list[tuple[int, int]] = []
    mentions = []
    for name, entity_class in sorted(names, key=lambda each: (-len(each[0]), each)):
        for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE):
            start, end = match.span()
            if not any(start < other_end and other_start < end for other_start, other_end in taken):
                taken.append((start, end))
                mentions.append(
                    Mention(name=match[0], entity_class=entity_class, confidence=0.9, chunk=0, start=start, end=end)
                )
    return ExtractionResult(
        content_sha256=sha256_file(DOCUMENTS / key.path), stream=key.stream, fingerprint="f" * 64, status="complete",
        mentions=tuple(mentions),
        answers=(ChunkAnswer(chunk=0, start=0, end=len(text), finish_reason="stop", model="gold"),),
    )  # fmt: skip
