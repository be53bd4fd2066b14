"""F1 of classes that are a deployment's own (events, dates), and what they cost the others, without any training.

On GUM, which marks events and times too: the real small model under phase 1's own code, in the modes that need no
adapter. Beside it the same texts under the contract's classes, and the base line (capital letters, six rules, and the
own classes' words). The two classes were written down once, before the first run, with invented examples; no rule and
no weight was fitted to either. `seen` and `unseen` say what the contract's classes were fitted to.
"""

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import gum
from benchmarks._engine import embedded, forget, model_of, serving
from benchmarks._recorded import Recorded
from benchmarks.extraction_quality import Mode, Run, extract, extractor_of
from benchmarks.gum import DATA, Text
from ec1.documents.ledger import DocumentKey
from ec1.extraction.folding import normalised
from ec1.extraction.naming.baseline import names_of
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.scoring import ScoreTable, entities_of, score
from ec1.vocabulary import CONTRACT, OwnClass, Vocabulary

MARKED = gum.CLASSES | {"event": "Event", "time": "Date"}
EVENT = OwnClass(
    name="Event",
    description="something that takes place and has a name: a festival, a conference, a war, a contest",
    examples=(
        "The [Harvest Fair] in [Kilkenny|Location] drew more people than the [2011 Chess Olympiad].",
        "[Ines Duarte|Person] spoke at the [Baltic Cable Conference] about the [Crimean War].",
    ),
    words=("fair", "festival", "conference", "war", "olympics", "cup", "championship", "summit", "congress"),
)
DATE = OwnClass(
    name="Date",
    description="a named day, month or season",
    examples=(
        "On [Wednesday] [Marlow Bank|Company] closed; it opens again in [August 2031].",
        "They met every [Sunday] until [Easter].",
    ),
    keeps=("dates",),
)
CLASSES = ("Person", "Company", "Location", EVENT, DATE)
SEVERAL: dict[str, dict[str, Any]] = {
    "own classes": {"classes": CLASSES},
    "own classes, without words": {
        "classes": tuple(each.model_copy(update={"words": ()}) if each is EVENT else each for each in CLASSES)
    },
    "the contract's classes": {},
}


def table(run: Run, vocabulary: Vocabulary) -> ScoreTable:
    """Strict scores of the five classes that the gold has, with the base line beside them."""
    keys = {text.name: DocumentKey("research", text.name) for text in run.texts}
    gold = {keys[text.name]: text.gold for text in run.texts}
    found = {keys[name]: entities_of(result.mentions) for name, result in run.results.items()}
    base = {keys[text.name]: names_of(text.text, vocabulary) for text in run.texts}
    classes = tuple(dict.fromkeys(MARKED.values()))
    return replace(score(found, gold, classes), baseline=score(base, gold, classes))


def sets(only: int, characters: int) -> dict[str, list[Text]]:
    """GUM with its events and times, in the two parts: the first `only` documents of each, and of each the sentences in
    its first `characters`; 0: all."""
    known = dict(gum.CLASSES)
    gum.CLASSES.update(MARKED)
    try:
        found = {"GUM seen": gum.seen(DATA), "GUM unseen": gum.unseen(DATA)}
    finally:
        gum.CLASSES.clear()
        gum.CLASSES.update(known)
    return {
        title: [_beginning(text, characters) for text in (texts[:only] if only else texts)]
        for title, texts in found.items()
        if texts
    }


def _beginning(text: Text, characters: int) -> Text:
    """The sentences that end in the first `characters` of a text, one at least, with what is named in them."""
    if not characters or len(text.text) <= characters:
        return text
    end = max(text.text.rfind("\n", 0, characters + 1), 0) or text.text.find("\n")
    kept = tuple(each for each in text.mentions if each.end <= end)
    return Text(
        text.name, text.text[:end], kept, frozenset((normalised(each.name), each.entity_class) for each in kept)
    )


def main(
    modes: Sequence[Mode] = ("decide", "answer"),
    only: int = 0,
    characters: int = 0,
    record: Path | None = None,
    engine: bool = True,
) -> dict[str, Any]:
    """Print and return the figures."""
    deployment, settings = embedded()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = record or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        model = model_of(deployment, Path(name))
        with serving(deployment, settings, model) if engine else nullcontext() as endpoint:
            for variant, changes in SEVERAL.items():
                for mode in modes:
                    extractor = extractor_of(mode, model, **changes)
                    for title, texts in sets(only, characters).items():
                        client = None
                        if endpoint is not None:
                            client = OpenAIClient(endpoint.base_url, endpoint.model, deployment.extraction)
                            forget(endpoint)
                        run = extract(texts, extractor, Recorded(folder / f"own.{title}.{mode}", client))
                        found = table(run, extractor.vocabulary if changes else CONTRACT)
                        figures[f"{title}, {mode}, {variant}"] = found.record()
                        print(f"\n{title}, mode {mode}, {variant}: {len(texts)} documents\n{found}", flush=True)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", default="decide,answer")
    parser.add_argument("--only", type=int, default=0, help="documents of each part; 0: all")
    parser.add_argument("--characters", type=int, default=0, help="of each document; 0: all")
    parser.add_argument("--record", type=Path, help="folder that keeps what the model said")
    parser.add_argument("--replay", action="store_true", help="ask no engine: what --record holds is enough")
    arguments = parser.parse_args()
    wanted: tuple[Mode, ...] = ("decide", "answer", "both")
    main(
        [mode for mode in wanted if mode in arguments.modes.split(",")],
        arguments.only,
        arguments.characters,
        arguments.record,
        not arguments.replay,
    )
