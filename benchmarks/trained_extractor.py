"""The model with the shipped adapter in each mode, and as it is, over the same texts, through phase 1's own code.

Texts: the documents of GUM and of invented organisations that nothing was fitted to (`unseen`), and the bundled sample,
which no training saw. Beside each stands the base line of capital letters (`ec1.extraction.naming.baseline`). One
engine serves all modes of the adapter, so that their seconds compare.
"""

import argparse
import hashlib
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import gum, organisations, sample
from benchmarks._engine import embedded, forget, model_of, serving
from ec1.adapters.extractor import extractor_adapter
from ec1.deployment import Deployment
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import Document
from ec1.extraction.naming import baseline
from ec1.extraction.naming.trained import SHIPPED
from ec1.extraction.reading.extractor import Extractor, WorkItem
from ec1.extraction.reading.loop import extract
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.scoring import ScoreTable, entities_of, score
from ec1.gpu.engine import Endpoint, ServedAdapter

STREAM = "research"
SETS = ("gum", "organisations", "seen", "sample")
MODES = ("answer", "decide", "both")


def measure(
    texts: Sequence[gum.Text], extractor: Extractor, client: OpenAIClient, scratch: Path
) -> tuple[ScoreTable, float]:
    """The score of one extractor over these texts, and the seconds that it took."""
    keys = {text.name: DocumentKey(STREAM, text.name) for text in texts}
    digests = {text.name: hashlib.sha256(text.text.encode()).hexdigest() for text in texts}
    work = [
        WorkItem(STREAM, digests[text.name], partial(Document, keys[text.name], text.name, text.text)) for text in texts
    ]
    outbox = Outbox(scratch)
    report = extract(extractor, work, client, outbox, deadline=None, progress=lambda _: None)
    found = {}
    for text in texts:
        result = outbox.get(extractor.fingerprint(STREAM), digests[text.name])
        found[keys[text.name]] = entities_of(result.mentions if result else ())
    gold = {keys[text.name]: text.gold for text in texts}
    plain = score({keys[text.name]: baseline.names_of(text.text) for text in texts}, gold)
    print(
        f"{report.chunks} chunks, {report.llm_calls} requests, {report.prompt_tokens} + {report.completion_tokens} "
        f"tokens in {report.seconds:.0f} s; dropped {dict(report.dropped)}"
    )
    return replace(score(found, gold), baseline=plain), report.seconds


def _modes(
    deployment: Deployment, folder: Path, endpoint: Endpoint, adapter: ServedAdapter | None, modes: Sequence[str]
) -> dict[str, tuple[Extractor, OpenAIClient]]:
    """An extractor for each mode, with or without the adapter, and a client for it."""
    model = deployment.inference
    made = {}
    for mode in modes:
        settings = deployment.extraction.model_copy(update={"mode": mode})
        extractor = Extractor(settings, model.model, model.revision, folder, adapter)
        client = OpenAIClient(endpoint.base_url, endpoint.model, settings, ends_repetition=adapter is not None)
        made[mode] = (extractor, client)
    return made


def main(adapter: Path | None, sets: Sequence[str], modes: Sequence[str], base: bool) -> dict[str, dict[str, float]]:
    """Print and return strict and any-class F1 in each mode on each set."""
    deployment, settings = embedded()
    chosen = adapter or deployment.extraction.adapter or SHIPPED
    all_sets = {
        "gum": gum.unseen,
        "organisations": organisations.unseen,
        "seen": lambda: gum.seen()[::4],
        "sample": sample.read,
    }
    texts = {kind: found for kind in sets if (found := all_sets[kind]())}
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        model = model_of(deployment, scratch)
        wrapped = extractor_adapter(chosen, settings.model)
        for served in (None, wrapped) if base else (wrapped,):
            began = time.monotonic()
            with serving(deployment, settings, model, served) as endpoint:
                print(f"ready after {time.monotonic() - began:.0f} s")
                for mode, (extractor, client) in _modes(deployment, model, endpoint, served, modes).items():
                    title = f"{'base' if served is None else 'adapter'}, mode {mode}"
                    for kind, found in texts.items():
                        forget(endpoint)
                        table, seconds = measure(found, extractor, client, scratch / title / kind)
                        print(f"\n{title}, on {kind}: {table.documents} documents\n{table}\n", flush=True)
                        figures[f"{title}, {kind}"] = {
                            "strict": round(table["all"].f1, 3),
                            "any class": round(table["any class"].f1, 3),
                            "seconds": round(seconds, 1),
                        }
    print(figures)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adapter", type=Path, help="default: the embedded deployment's, else the shipped one")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["gum", "organisations", "sample"])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--base", action="store_true", help="measure the model without the adapter, too")
    arguments = parser.parse_args()
    main(arguments.adapter, arguments.sets, arguments.modes, arguments.base)
