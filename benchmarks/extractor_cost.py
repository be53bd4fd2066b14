"""What reading costs on a card: a 7B with a trained adapter against a 32B in 4 bits that is shown examples.

Token counts are measured: the bundled sample's documents in chunks, the words of each prompt, and the answer that each
chunk ought to get, by the sample's own tokenizer. The documents per hour are computed from them, by the arithmetic and
the memory traffic of the data sheets, times the share of it that our engine reached on an H200 (docs/performance.md).
No such model was run, so nothing is said of their F1; what training changes at 135M: `benchmarks.trained_extractor`.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import sample
from benchmarks._engine import embedded, model_of
from benchmarks.gpu.models import write_config
from ec1.adapters.extractor import extractor_adapter
from ec1.extraction import schema
from ec1.extraction.naming import trained
from ec1.extraction.reading.extractor import Extractor
from ec1.training.cards import CardSheet, card_named
from ec1.training.physics import multiplied_parameters
from ec1.training.shape import ModelShape

CARDS = ("L4", "H100")
AT_ONCE = 64
"""Most requests that are answered together."""
MEMORY_SHARE = 0.9
BITS_OF_4 = 4.25
"""Of a weight in 4 bits, with its share of a scale and a zero for each group of 128."""
MEASURED = {"requests_per_second": 53.7, "shared": 400, "own": 220, "answer": 64}
"""A 7B on an H200: prompt tokens that all requests share, a request's own, and those of its answer."""


@dataclass(frozen=True)
class Model:
    """What of a model decides its speed."""

    shape: ModelShape
    bits: float
    """Of a projection's weight."""

    @property
    def bytes(self) -> float:
        return self.shape.projection_parameters * self.bits / 8 + self.shape.other_parameters * 2.0

    @property
    def bytes_of_a_token(self) -> float:
        """In the cache: keys and values of all layers, in 16 bits."""
        return 2.0 * 2 * self.shape.keys * self.shape.layers


@dataclass(frozen=True)
class Asked:
    """Tokens of a request: what all share, which is computed once, its own, and its answer's."""

    shared: float
    own: float
    answer: float


def requests_per_second(model: Model, asked: Asked, card: CardSheet) -> tuple[float, int]:
    """At most, if the card gave what its sheet states; and how many are answered together."""
    room = MEMORY_SHARE * card.memory_gb * 1e9 - model.bytes - asked.shared * model.bytes_of_a_token
    at_once = max(0, min(AT_ONCE, int(room / ((asked.own + asked.answer) * model.bytes_of_a_token))))
    if not at_once:
        return 0.0, 0
    operations = 2.0 * multiplied_parameters(model.shape)
    speed, bandwidth = card.bf16_tflops * 1e12, card.bandwidth_gb_per_second * 1e9
    context = asked.shared + asked.own + asked.answer / 2
    moved = model.bytes + at_once * context * model.bytes_of_a_token
    step = max(moved / bandwidth, at_once * operations / speed)
    return 1.0 / (asked.own * operations / speed + asked.answer * step / at_once), at_once


def _asked(extractor: Extractor, thoughts: int) -> tuple[Asked, int]:
    """The mean request about a chunk of the sample, and how many chunks its documents have."""
    count = extractor.counter()
    shared = sum(count([each["content"] for each in extractor.messages("", "meeting")]))
    own: list[int] = []
    answers: list[int] = []
    spelt = {row["path"]: row["entities"] for row in map(json.loads, sample.GOLD.read_text().splitlines())}
    for text in sample.read():
        gold = {each["name"]: each["class"] for each in spelt[text.name]}
        for chunk in extractor.chunks(text.text):
            named = {name: kind for name, kind in gold.items() if name in chunk.text}
            if extractor.adapter is not None:
                answer = trained.answer_of(chunk.text, named)
            else:
                answer = schema.encode([schema.Named(name, kind) for name, kind in named.items()])
            asked, answered = count([chunk.text, answer])
            own.append(asked)
            answers.append(answered + thoughts)
    return Asked(shared, sum(own) / len(own), sum(answers) / len(answers)), len(own)


def main(cards: Sequence[str] = CARDS) -> None:
    """Print a Markdown row for each way of reading."""
    deployment, settings = embedded()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small, large = (ModelShape.read(write_config(each, folder / each, 8192)) for each in ("7b", "32b"))
        model = model_of(deployment, folder)
        adapter = extractor_adapter(trained.SHIPPED, settings.model)
        long = deployment.extraction.model_copy(update={"chunk_tokens": 900, "overlap_tokens": 90})
        documents = len(sample.read())
        own, of_it = Asked(MEASURED["shared"], MEASURED["own"], MEASURED["answer"]), card_named("H200")
        reached = MEASURED["requests_per_second"] / requests_per_second(Model(small, 16), own, of_it)[0]
        print(f"the H200 reached {reached:.2f} of what its sheet allows\n")
        print("| | requests a document | own tokens, answer's | " + " | ".join(cards) + " |")
        print("|---|---|---|" + "---|" * len(cards))
        for what, shape, bits, extraction, served, thoughts in (
            ("7B, trained, chunks of 90 tokens", small, 16, deployment.extraction, adapter, 0),
            ("7B, trained, chunks of 900", small, 16, long, adapter, 0),
            ("32B in 4 bits, examples, chunks of 900", large, BITS_OF_4, long, None, 0),
            ("the same, with 1,024 tokens of thought", large, BITS_OF_4, long, None, 1024),
        ):
            extractor = Extractor(extraction, settings.model, settings.revision, model, served)
            asked, chunks = _asked(extractor, thoughts)
            found = [requests_per_second(Model(shape, bits), asked, card_named(each)) for each in cards]
            hours = [f"{3600 * reached * speed * documents / chunks:,.0f} ({at_once})" for speed, at_once in found]
            print(
                f"| {what} | {chunks / documents:.1f} | {asked.own:.0f}, {asked.answer:.0f} | "
                + " | ".join(hours)
                + " |"
            )


if __name__ == "__main__":
    main()
