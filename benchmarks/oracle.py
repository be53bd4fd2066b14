"""What a perfect model would score: the gold names of each chunk go through our own grounding and filters. No model.

Prints strict and any-class F1 on GUM (documents that rules were written on, and others) and on the sample.
"""

import argparse
import unicodedata
from collections.abc import Iterable, Sequence

from benchmarks import gum, sample
from ec1.documents.chunks import Chunk, chunk_text
from ec1.documents.ledger import DocumentKey
from ec1.extraction.folding import Folded
from ec1.extraction.naming import grounding
from ec1.extraction.schema import Named
from ec1.extraction.scoring import ScoreTable, entities_of, score

Answered = tuple[gum.Text, list[tuple[Chunk, list[Named]]]]


def perfect(text: gum.Text) -> list[tuple[Chunk, list[Named]]]:
    """The chunks of a document with the perfect answer for each."""
    names = spelled(text)
    chunks = chunk_text(text.text, _words, max_tokens=70, overlap_tokens=10)
    return [(chunk, [each for each in names if _stands(each.name, chunk.text)]) for chunk in chunks]


def spelled(text: gum.Text) -> list[Named]:
    """The gold entities in a spelling of the text."""
    if text.mentions:
        return list(dict.fromkeys(Named(each.name, each.entity_class) for each in text.mentions))
    folded = Folded.of(text.text)
    found = []
    for name, entity_class in sorted(text.gold):
        at = folded.text.find(name)
        if at >= 0:
            start, end = folded.origin[at], folded.origin[at + len(name) - 1] + 1
            while end < len(text.text) and unicodedata.category(text.text[end])[0] == "M":
                end += 1
            found.append(Named(text.text[start:end], entity_class))
    return found


def grounded(answered: Iterable[Answered]) -> ScoreTable:
    """The score of answers after grounding."""
    predicted, gold = {}, {}
    for text, chunks in answered:
        mentions = [mention for chunk, named in chunks for mention in grounding.ground(named, chunk, text.text)[0]]
        key = DocumentKey("research", text.name)
        predicted[key] = entities_of(grounding.settle(mentions, 0.5)[0])
        gold[key] = text.gold
    return score(predicted, gold)


def _stands(name: str, text: str) -> bool:
    return bool(grounding.places_of(name, text))


def _words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def main() -> dict[str, ScoreTable]:
    """Print and return the tables of the sets that are there."""
    tables = {}
    for title, texts in (("GUM, seen", gum.seen()), ("GUM, unseen", gum.unseen()), ("sample", sample.read())):
        if not texts:
            continue
        tables[title] = grounded([(text, perfect(text)) for text in texts])
        print(f"\nOracle on {title}: {len(texts)} documents\n{tables[title]}")
    return tables


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
