"""Strict and any-class F1 per class, with intervals, in each mode, beside the base line and the oracle.

On GUM (`seen`: rules, weights and curves were made with it; `unseen`: nothing was, and only totals are looked at), on
the bundled sample, and recall of speakers on QMSum. Through the very code of phase 1 with the real small model.

`strict` compares names as `ec1 score` does. Also: chunks, spans and documents per second, and the calibration error.

The texts stay where they are, in `../shared/data`; a set that is absent is said to be absent and left out. `--record`
keeps what the model said in a folder, so that a second run needs no engine.
"""

import argparse
import hashlib
import json
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from benchmarks import gum, oracle, organisations, sample
from benchmarks._engine import embedded, forget, model_of, serving
from benchmarks._recorded import Recorded
from benchmarks.gum import DATA, Text
from ec1.adapters.extractor import extractor_adapter
from ec1.deployment import Deployment
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import Document
from ec1.extraction.folding import normalised
from ec1.extraction.naming.baseline import names_of
from ec1.extraction.naming.calibration import JudgedName, calibration_error
from ec1.extraction.reading import loop
from ec1.extraction.reading.extractor import Extractor, WorkItem
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.extraction.results import ExtractionResult, Mention
from ec1.extraction.scoring import ScoreTable, entities_of, score
from ec1.gpu.engine import Endpoint, ServedAdapter

Mode = Literal["answer", "decide", "both"]
MODES: tuple[Mode, ...] = ("answer", "decide", "both")
_ROLE = re.compile(
    r"manager|designer|expert|interface|marketing|unidentified|speaker|member|grad|phd|prof", re.IGNORECASE
)


@dataclass(frozen=True)
class Run:
    """What one extraction of one set of texts came to."""

    texts: Sequence[Text]
    results: dict[str, ExtractionResult]
    report: ExtractionRecord

    @property
    def table(self) -> ScoreTable:
        """Strict scores with the base line beside them."""
        keys = {text.name: DocumentKey("research", text.name) for text in self.texts}
        gold = {keys[text.name]: text.gold for text in self.texts}
        found = {keys[name]: entities_of(result.mentions) for name, result in self.results.items()}
        base = score({keys[text.name]: names_of(text.text) for text in self.texts}, gold)
        return replace(score(found, gold), baseline=base)

    def judged(self) -> list[JudgedName]:
        """Each entity of each document: its confidence, and whether gold has it with this class."""
        gold = {text.name: text.gold for text in self.texts}
        found = []
        for name, result in self.results.items():
            best: dict[tuple[str, str], Mention] = {}
            for mention in result.mentions:
                entity = (normalised(mention.name), str(mention.entity_class))
                if entity not in best or mention.confidence > best[entity].confidence:
                    best[entity] = mention
            found += [JudgedName(mention.confidence, entity in gold[name], name) for entity, mention in best.items()]
        return found


def _same(document: Document) -> Document:
    return document


def extract(
    texts: Sequence[Text],
    extractor: Extractor,
    client: Any,
    stream: str = "research",
) -> Run:
    """Extract texts into an outbox of their own."""
    with tempfile.TemporaryDirectory() as folder:
        outbox, work, digests = Outbox(Path(folder)), list[WorkItem](), dict[str, str]()
        for text in texts:
            digests[text.name] = hashlib.sha256(text.text.encode()).hexdigest()
            document = Document(DocumentKey(stream, text.name), text.name, text.text, fields_end=text.fields_end)
            work.append(WorkItem(stream, digests[text.name], partial(_same, document)))
        report = loop.extract(extractor, work, client, outbox, deadline=None, progress=lambda _: None)
        found = {name: outbox.get(extractor.fingerprint(stream, sha), sha) for name, sha in digests.items()}
    return Run(texts, {name: result for name, result in found.items() if result is not None}, report)


def shipped() -> ServedAdapter:
    """The adapter that the embedded deployment names."""
    deployment, settings = embedded()
    assert deployment.extraction.adapter is not None
    return extractor_adapter(deployment.extraction.adapter, settings.model)


def extractor_of(
    mode: Mode,
    model: Path,
    adapter: ServedAdapter | None = None,
    **changes: Any,
) -> Extractor:
    """The embedded deployment's extractor in a mode, with or without an adapter."""
    deployment, settings = embedded()
    extraction = deployment.extraction.model_copy(update={"mode": mode, **changes})
    return Extractor(extraction, settings.model, settings.revision, model, adapter)


def sets(only: int = 0) -> dict[str, list[Text]]:
    """The sets that are there, each with its first `only` documents; 0: all."""
    found = {
        "sample": sample.read(),
        "organisations": organisations.unseen(),
        "GUM seen": gum.seen(),
        "GUM unseen": gum.unseen(),
    }
    return {title: texts[:only] if only else texts for title, texts in found.items() if texts}


def qmsum(folder: Path, characters: int) -> Iterator[Text]:
    """The first `characters` of each meeting, as a transcript, with those speakers that have a name."""
    for path in sorted(folder.glob("*.json")):
        turns, gold, length = list[str](), set[tuple[str, str]](), 0
        for turn in json.loads(path.read_text(encoding="utf-8"))["meeting_transcripts"]:
            speaker = turn["speaker"].strip()
            line = f"{speaker}: {turn['content'].strip()}"
            length += len(line)
            if length > characters and turns:
                break
            turns.append(line)
            if " " in speaker and not _ROLE.search(speaker):
                gold.add((normalised(speaker), "Person"))
        if gold:
            yield Text(path.stem, "\n".join(turns), (), frozenset(gold))


def recorded_name(mode: Mode, trained: bool) -> str:
    """The end of the name of the file that keeps what the model said."""
    return f"{mode}.trained" if trained else mode


def _client(endpoint: Endpoint, deployment: Deployment, trained: bool) -> OpenAIClient:
    return OpenAIClient(endpoint.base_url, endpoint.model, deployment.extraction, ends_repetition=trained)


def main(
    modes: Sequence[Mode] = MODES,
    only: int = 0,
    characters: int = 6000,
    record: Path | None = None,
    engine: bool = True,
    trained: bool = False,
) -> dict[str, Any]:
    """Print and return the figures."""
    deployment, settings = embedded()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        folder = record or scratch
        folder.mkdir(parents=True, exist_ok=True)
        model = model_of(deployment, scratch)
        texts = sets(only)
        for title, each in texts.items():
            table = oracle.grounded((text, oracle.perfect(text)) for text in each)
            print(f"\n{title}, perfect answers and no model\n{table}", flush=True)
            figures[f"{title}, oracle"] = table.record()
        meetings = list(qmsum(DATA / "qmsum", characters))[: only or None]
        adapter = shipped() if trained else None
        with serving(deployment, settings, model, adapter) if engine else nullcontext() as endpoint:
            for mode in modes:
                extractor = extractor_of(mode, model, adapter=adapter)
                said = recorded_name(mode, trained)
                for title, each in texts.items():
                    client = _client(endpoint, deployment, trained) if endpoint else None
                    if endpoint:
                        forget(endpoint)
                    begin = time.perf_counter()
                    run = extract(each, extractor, Recorded(folder / f"{title}.{said}", client))
                    seconds = time.perf_counter() - begin
                    figures[f"{title}, {mode}"] = run.table.record()
                    print(f"\n{title}, mode {mode}: {len(each)} documents\n{run.table}")
                    calibrated = any(result.calibrated for result in run.results.values())
                    print(
                        f"{seconds:.0f} s, {len(each) / seconds:.2f} documents/s, {run.report.chunks / seconds:.1f} "
                        f"chunks/s, {run.report.decisions / seconds:.0f} spans/s; calibration error "
                        f"{calibration_error(run.judged()):.3f} ({'calibrated' if calibrated else 'not calibrated'})",
                        flush=True,
                    )
                if meetings and endpoint:
                    client = _client(endpoint, deployment, trained)
                    run = extract(meetings, extractor, Recorded(folder / f"qmsum.{said}", client), "meeting")
                    print(f"\nQMSum, mode {mode}: recall of speakers {run.table['Person'].recall:.2f}", flush=True)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--characters", type=int, default=6000, help="of each QMSum meeting")
    parser.add_argument("--only", type=int, default=0, help="documents of each set; 0: all")
    parser.add_argument("--record", type=Path, help="folder that keeps what the model said")
    parser.add_argument("--trained", action="store_true", help="with the shipped adapter")
    parser.add_argument("--replay", action="store_true", help="ask no engine: what --record holds is enough")
    arguments = parser.parse_args()
    main(
        [mode for mode in MODES if mode in arguments.modes.split(",")],
        arguments.only,
        arguments.characters,
        arguments.record,
        not arguments.replay,
        arguments.trained,
    )
