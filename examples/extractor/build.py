"""`python -m examples.extractor.build`: makes `tuples.jsonl`, chunks of text with what is named in them.

Two origins: GUM's documents that may be fitted to (`benchmarks.gum.seen`; text CC BY 2.5 and 4.0, see NOTICE) and
texts that `generate` writes. The same inputs give the same file. Needs GUM beside the checkout, and the embedded
model's tokenizer.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks import gum
from ec1.deployment import load_deployment
from ec1.documents.chunks import chunk_text
from ec1.extraction.extractor import Extractor
from ec1.extraction.folding import normalised
from ec1.files import write_atomic
from ec1.home import CHECKOUT, Home
from ec1.models import prepare_model
from examples.extractor import generate

HERE = Path(__file__).parent
TUPLES = HERE / "tuples.jsonl"
SEED = 17
GENERATED = 480
"""Generated chunks."""
EMPTY_SHARE = 0.12
"""Of GUM's chunks in which nothing is named, so many are kept: half of all have nothing to teach but silence."""
# Most are as long as the embedded deployment's chunks; shorter ones are what is left at the end of a text.
_LENGTHS = (90, 90, 90, 60, 40)


def build(target: Path = TUPLES) -> dict[str, int]:
    """Write the file; returns how many chunks are of each origin."""
    deployment = load_deployment("embedded", CHECKOUT)
    model = deployment.inference
    folder = prepare_model(model.model, model.revision, deployment.models, Home(CHECKOUT / ".ec1").models)
    count = Extractor(deployment.extraction, model.model, model.revision, folder).counter()
    settings = deployment.extraction
    read = [
        record
        for text in gum.seen()
        for record in _records(_longest(text), "gum", count, settings.chunk_tokens, settings.overlap_tokens)
    ]
    random_ = random.Random(SEED)
    read = [record for record in read if record["entities"] or random_.random() < EMPTY_SHARE]
    written: list[dict[str, object]] = []
    for text in generate.texts(2 * GENERATED, SEED, _taken()):
        tokens = random_.choice(_LENGTHS)
        written += _records(text, "generated", count, tokens, min(settings.overlap_tokens, tokens // 4))
    random_.shuffle(written)
    records = [*read, *written[:GENERATED]]
    lines = [json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in records]
    write_atomic(target, "\n".join(lines) + "\n")
    return {"gum": len(read), "generated": len(records) - len(read)}


def _records(text: gum.Text, origin: str, count: object, tokens: int, overlap: int) -> Iterator[dict[str, object]]:
    """The tuples of a text: what stands wholly inside each chunk."""
    for chunk in chunk_text(text.text, count, max_tokens=tokens, overlap_tokens=overlap):  # type: ignore[arg-type]
        inside = {
            " ".join(text.text[each.start : each.end].split()): each.entity_class
            for each in text.mentions
            if chunk.start <= each.start and each.end <= chunk.end
        }
        yield {
            "tuple_type": "extraction",
            "document_id": f"{origin}/{text.name}",
            "text": chunk.text,
            "entities": [{"name": name, "class": entity_class} for name, entity_class in inside.items()],
        }


def _longest(text: gum.Text) -> gum.Text:
    """Without names inside names, which grounding leaves out, too; a list of two names is two names."""

    def holds(outer: gum.Named, inner: gum.Named) -> bool:
        return outer != inner and outer.start <= inner.start and inner.end <= outer.end

    lists = {
        each
        for each in text.mentions
        if (" or " in each.name or " and " in each.name) and sum(holds(each, other) for other in text.mentions) > 1
    }
    kept = [each for each in text.mentions if each not in lists]
    return replace(text, mentions=tuple(each for each in kept if not any(holds(other, each) for other in kept)))


def _taken() -> frozenset[str]:
    """The words of the bundled sample's gold names: no generated name has one, so that the sample stays unseen."""
    words: set[str] = set()
    for line in (CHECKOUT / "examples" / "gold" / "entities.jsonl").read_text(encoding="utf-8").splitlines():
        for entity in json.loads(line)["entities"]:
            words |= {entity["name"].lower(), *(word for word in normalised(entity["name"]).split() if len(word) > 2)}
    return frozenset(words)


if __name__ == "__main__":
    print(build())
