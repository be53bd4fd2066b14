"""Precision, recall and grounding by class on public texts, with the real small model: figures, and nothing to tune to.

- GUM: named persons, organisations (Company) and places (Location) are gold (`gum`).
- QMSum: the speakers' names are gold for Person, and partial: only recall means something there. Speakers that are
  roles (`Project Manager`) or letters (`Grad E`) are left out, and so are meetings that have no others.

`exact` compares names as `ec1 score` does. `overlap` also accepts a name that contains the other as whole words, as
`Chief Justice Wagner` does `Wagner`: where a name begins and ends is a convention of the annotators.

The texts stay where they are, in `../shared/data`; where that is absent, this says so and measures nothing.
"""

import argparse
import hashlib
import json
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks._engine import embedded, model_of, serving
from benchmarks.gum import DATA, read
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import Document
from ec1.extraction.extractor import Extractor, WorkItem
from ec1.extraction.folding import normalised
from ec1.extraction.openai import OpenAIClient
from ec1.extraction.outbox import Outbox
from ec1.extraction.scoring import entities_of, score
from ec1.extraction.trust import trust_by_class, trust_of

_ROLE = re.compile(
    r"manager|designer|expert|interface|marketing|unidentified|speaker|member|grad|phd|prof", re.IGNORECASE
)
Entities = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Text:
    name: str
    text: str
    gold: Entities


def qmsum(folder: Path, characters: int) -> Iterator[Text]:
    """The first `characters` of each meeting, as a transcript, with those speakers that have a name."""
    for path in sorted(folder.glob("*.json")):
        turns, gold, length = [], set(), 0
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
            yield Text(path.stem, "\n".join(turns), frozenset(gold))


def _overlapping(found: Entities, gold: Entities) -> Entities:
    """`found`, each in the spelling of the gold entity of its class that it contains or is contained in."""
    renamed = set()
    for name, entity_class in found:
        words = f" {name} "
        match = min(
            (
                other
                for other, other_class in gold
                if other_class == entity_class and (words in f" {other} " or f" {other} " in words)
            ),
            key=lambda other: (other != name, other),
            default=name,
        )
        renamed.add((match, entity_class))
    return frozenset(renamed)


def _report(title: str, texts: list[Text], found: dict[str, Entities]) -> dict[str, object]:
    keys = {text.name: DocumentKey("research", text.name) for text in texts}
    gold = {keys[text.name]: text.gold for text in texts}
    figures: dict[str, object] = {}
    for kind, predicted in (
        ("exact", {keys[name]: each for name, each in found.items()}),
        ("overlap", {keys[text.name]: _overlapping(found[text.name], text.gold) for text in texts}),
    ):
        table = score(predicted, gold)
        print(f"\n{title}, {kind}: {table.documents} documents\n{table}")
        figures[kind] = table.record()
    return figures


def main(characters: int = 6000, only: int = 0) -> dict[str, object]:
    """Print and return the figures; `only` the first so many documents of each set, 0 for all."""
    if not DATA.is_dir():
        print(f"the public texts are not at {DATA}: nothing to measure")
        return {}
    sets = {
        "GUM": [Text(each.name, each.text, each.gold) for each in read(DATA / "gum")],
        "QMSum": list(qmsum(DATA / "qmsum", characters)),
    }
    if only:
        sets = {name: texts[:only] for name, texts in sets.items()}
    deployment, settings = embedded()
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        model = model_of(deployment, scratch)
        extractor = Extractor(deployment.extraction, settings.model, settings.revision, model)
        with serving(deployment, settings, model) as endpoint:
            for title, texts in sets.items():
                stream = "meeting" if title == "QMSum" else "research"
                outbox, work, digests = Outbox(scratch / title), [], {}
                for text in texts:
                    digests[text.name] = hashlib.sha256(text.text.encode()).hexdigest()
                    document = Document(DocumentKey(stream, text.name), text.name, text.text)
                    work.append(WorkItem(stream, digests[text.name], lambda document=document: document))
                client = OpenAIClient(endpoint.base_url, endpoint.model, deployment.extraction)
                started = time.perf_counter()
                report = extractor.extract(work, client, outbox, deadline=None, progress=print)
                results = {each: outbox.get(extractor.fingerprint(stream), sha) for each, sha in digests.items()}
                found = {each: entities_of(result.mentions if result else ()) for each, result in results.items()}
                figures[title] = _report(title, texts, found)
                answered = [result for result in results.values() if result is not None]
                texts_of = {text.name: text.text for text in texts}
                wrong = sum(
                    normalised(texts_of[each][mention.start : mention.end]) != normalised(mention.name)
                    for each, result in results.items()
                    if result is not None
                    for mention in result.mentions
                )
                print(
                    f"\n{title}: {report.chunks} chunks in {time.perf_counter() - started:.0f} s, "
                    f"{report.streams[stream].deferred} documents deferred, {wrong} mentions are not where they say"
                )
                print(
                    f"{'':<12}{'named':>7}{'in the text':>13}{'kept':>6}   "
                    "of the names that the model gave; all but the kept were dropped"
                )
                for label, each in [*trust_by_class(answered).items(), ("all", trust_of(answered))]:
                    print(f"{label:<12}{each.named:>7}{each.grounding_rate:>13.1%}{each.kept:>6}")
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--characters", type=int, default=6000, help="of each QMSum meeting")
    parser.add_argument("--only", type=int, default=0, help="documents of each set; 0: all")
    arguments = parser.parse_args()
    main(arguments.characters, arguments.only)
