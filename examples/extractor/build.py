"""`python -m examples.extractor.build`: makes `tuples.jsonl`, chunks of text with what is named in them.

Three origins: GUM's documents that may be fitted to (`benchmarks.gum.seen`; text CC BY 2.5 and 4.0, see NOTICE), texts
that `generate` writes, and `documents.jsonl`, documents of invented organisations that were written for this. Into some
chunks a sentence of `examples/instructions` is put: the name in an instruction to a machine is none, the one in an
ordinary sentence that looks like it is a person. The same inputs give the same file. Needs GUM beside the checkout, and
the embedded model's tokenizer.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks import gum, organisations
from ec1.deployment import load_deployment
from ec1.documents.chunks import chunk_text, sentences
from ec1.extraction.folding import normalised
from ec1.extraction.reading.extractor import Extractor
from ec1.files import write_atomic
from ec1.home import CHECKOUT, Home
from ec1.models import prepare_model
from examples.extractor import generate
from examples.instructions import make as injections

HERE = Path(__file__).parent
TUPLES = HERE / "tuples.jsonl"
SEED = 17
GENERATED = 480
"""Generated chunks."""
INJECTED = 0.75
"""Of all chunks, so many come again with a sentence put in that names somebody."""
_INSTRUCTED = 0.6
_ENGLISH = 0.7
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
    own = [
        record
        for text in organisations.learnt()
        for record in _records(_longest(text), "written", count, settings.chunk_tokens, settings.overlap_tokens)
    ]
    records = [*read, *written[:GENERATED], *own]
    asked = random_.sample(records, int(INJECTED * len(records)))
    injected = [_injected(record, random_) for record in asked]
    lines = [json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in (*records, *injected)]
    write_atomic(target, "\n".join(lines) + "\n")
    return {"gum": len(read), "generated": GENERATED, "written": len(own), "injected": len(injected)}


def _injected(record: dict[str, object], random_: random.Random) -> dict[str, object]:
    """A chunk with one more sentence: an instruction to a machine, which names nobody, or an ordinary one like it."""
    instructed = random_.random() < _INSTRUCTED
    patterns = injections.patterns(injections.INSTRUCTIONS if instructed else injections.ORDINARY)
    english = random_.random() < _ENGLISH
    language, pattern = random_.choice([each for each in patterns if (each[0] == "en") == english])
    name = injections.name(language, random_) if instructed else injections.person(random_)
    sentence = injections.variant(language, pattern, random_)
    text, entities = str(record["text"]), list(record["entities"])  # type: ignore[call-overload]
    if not instructed and "{p}" in sentence and all(each["name"] != name for each in entities):
        entities.append({"name": name, "class": "Person"})
    starts = [0, *(start for start, _ in sentences(text)), len(text)]
    at = random_.choice(starts)
    before, after = text[:at].rstrip(" "), text[at:]
    between = "\n" if not before or before.endswith("\n") or random_.random() < 0.4 else " "
    text = f"{before}{between if before else ''}{sentence.replace('{p}', name)}{between}{after}".strip()
    return {
        **record,
        "document_id": f"{injections.INJECTED}{'instruction' if instructed else 'ordinary'}/{record['document_id']}",
        "text": text,
        "entities": [each for each in entities if each["name"] in text],
    }


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
