"""Two models in a row (`extraction.cascade`) beside each of them alone, and beside chunks that are sent on by lot.

The embedded deployment has one small model only: the first is that model as it is (mode `decide`, whose confidences
were calibrated on GUM's `seen`), the second the same with the shipped adapter (mode `both`). Texts: the bundled sample,
which neither was fitted to. What a model said of a chunk is recorded once (`--record`), so that all figures are of the
same answers.
"""

import argparse
import random
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from benchmarks import sample
from benchmarks._engine import embedded, forget, model_of, serving
from benchmarks._recorded import Recorded
from benchmarks.extraction_quality import Run, extract, extractor_of, shipped
from benchmarks.gum import Text
from ec1.extraction.reading.cascade import merged, unsure_chunks
from ec1.extraction.reading.extractor import Extractor
from ec1.extraction.reading.narrowed import Narrowed
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.results import ExtractionResult
from ec1.extraction.settings import CascadeSettings, ServerSettings

STREAM = "research"
SHARES = (0.1, 0.2, 0.3, 0.5)
WRONG_NAMES = (0.3, 0.5, 1.0)
_LOTS = 5

Choice = Callable[[ExtractionResult], list[int]]


def cascaded(
    texts: Sequence[Text], first: Extractor, small: Run, second: Extractor, large: Recorded, choose: Choice
) -> tuple[Run, float]:
    """The results with the chosen chunks read by the second model, and the share of chunks that it read."""
    results = dict(small.results)
    chosen = {name: choose(result) for name, result in results.items()}
    keys = {(STREAM, results[name].content_sha256): chunks for name, chunks in chosen.items() if chunks}
    narrowed = Narrowed(second, first, keys)
    theirs = extract([text for text in texts if chosen.get(text.name)], narrowed, large)
    for name, result in theirs.results.items():
        results[name] = merged(results[name], result, chosen[name], "f" * 64)
    sent = sum(map(len, chosen.values()))
    return Run(texts, results, small.report), sent / max(1, small.report.chunks)


def unsure(wrong_names: float, max_share: float) -> Choice:
    """Those of which the first model is unsure, as a night chooses them."""
    server = ServerSettings(kind="server", base_url="http://127.0.0.1:1", model="unused")
    settings = CascadeSettings(inference=server, wrong_names=wrong_names, max_share=max_share)
    return partial(unsure_chunks, settings=settings)


def by_lot(share: float, seed: int) -> Choice:
    """The simplest way to choose: any chunk with this probability."""
    draw = random.Random(seed)

    def choose(result: ExtractionResult) -> list[int]:
        return [chunk for chunk in sorted({each.chunk for each in result.answers}) if draw.random() < share]

    return choose


def main(record: Path, only: int = 0, *, ask: Sequence[str] = ("small", "large")) -> None:
    """Print F1 and the share of chunks that the second model read."""
    deployment, settings = embedded()
    record.mkdir(parents=True, exist_ok=True)
    texts = sample.read()[: only or None]
    with tempfile.TemporaryDirectory() as scratch:
        model = model_of(deployment, Path(scratch))
        extractors = {"small": extractor_of("decide", model), "large": extractor_of("both", model, adapter=shipped())}
        runs: dict[str, Run] = {}
        recorded: dict[str, Recorded] = {}
        for name, extractor in extractors.items():
            adapter = extractor.adapter
            file = record / ("sample.both" if name == "large" else "small sample.decide")
            with serving(deployment, settings, model, adapter) if name in ask else nullcontext() as endpoint:
                client = None
                if endpoint is not None:
                    forget(endpoint)
                    client = OpenAIClient(
                        endpoint.base_url, endpoint.model, deployment.extraction, ends_repetition=adapter is not None
                    )
                runs[name] = extract(texts, extractor, Recorded(file, client))
            recorded[name] = Recorded(file, None)
            _line(f"{name} alone", runs[name], 1.0 if name == "large" else 0.0)
        arguments = (texts, extractors["small"], runs["small"], extractors["large"], recorded["large"])
        for wrong in WRONG_NAMES:
            for share in SHARES:
                _line(f"wrong_names {wrong}, max_share {share}", *cascaded(*arguments, unsure(wrong, share)))
        for share in SHARES:
            for seed in range(_LOTS):
                _line(f"by lot, share {share}, draw {seed}", *cascaded(*arguments, by_lot(share, seed)))


def _line(title: str, run: Run, share: float) -> None:
    table = run.table
    print(
        f"{title:<36}{share:>7.1%} of chunks; strict F1 {table['all'].f1:.3f}, any class {table['any class'].f1:.3f}",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, help="folder that keeps, or holds, what the models said")
    parser.add_argument("--only", type=int, default=0, help="documents; 0: all")
    parser.add_argument("--ask", nargs="*", default=["small", "large"], help="models to start; others are in --record")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        main(arguments.record or Path(folder), arguments.only, ask=arguments.ask)
