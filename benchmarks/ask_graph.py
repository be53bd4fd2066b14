"""How often `ec1 graph ask` is right over the bundled sample: 50 questions with gold, 12 of them without an answer.

`questions.jsonl` has a question a line, written by hand from the documents; each answer is a piece of text of one
document. A sentence that is shown is right if it holds one of these pieces. The 34 questions of the part `tuned` were
looked at when the rules were made; those of `measured` were not. The graph holds the gold's names.

Run: python -m benchmarks.ask_graph [--part tuned --show]
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import sample
from ec1.documents.reader import DocumentReader
from ec1.graph.quotes import Quotes
from ec1.graph.reader import GraphReader
from ec1.queries.answers import Answer, AnswerSource, ask

QUESTIONS = Path(__file__).with_name("questions.jsonl")


@dataclass(frozen=True)
class Question:
    """`pieces`: texts of which one must stand in the sentence that answers, each with its document; none where the
    documents have no answer."""

    text: str
    pieces: tuple[tuple[str, str], ...]

    def is_right(self, source: AnswerSource) -> bool:
        return any(source.path == path and piece in source.sentence for path, piece in self.pieces)


def questions(part: str) -> list[Question]:
    """The questions of a part. Raises ValueError for a piece that its document does not have."""
    texts = {each.name: each.text for each in sample.read()}
    found = []
    for row in map(json.loads, QUESTIONS.read_text().splitlines()):
        pieces = tuple((path, piece) for path, piece in row["answers"])
        for path, piece in pieces:
            if piece not in texts[path]:
                raise ValueError(f"{path} does not say {piece!r}")
        if row["part"] == part:
            found.append(Question(row["question"], pieces))
    return found


def answers_of(asked: Sequence[Question], published: Path) -> list[Answer]:
    """What a published graph of the sample answers."""
    quotes = Quotes(DocumentReader(sample.DOCUMENTS, 10**6))
    with GraphReader(published, buffer_pool_mib=64) as reader:
        return [ask(reader, quotes, each.text) for each in asked]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("measured", "tuned"), default="measured")
    parser.add_argument("--show", action="store_true", help="each question with its first sentence")
    arguments = parser.parse_args()
    asked = questions(arguments.part)
    with tempfile.TemporaryDirectory() as folder:
        published = sample.publish(Path(folder))
        answers_of(asked[:1], published)
        began = time.process_time()
        answers = answers_of(asked, published)
        took = (time.process_time() - began) / len(asked)
    if arguments.show:
        for question, answer in zip(asked, answers, strict=True):
            _show(question, answer)
    found = figures(asked, answers)
    print(
        f"{found.answerable} with an answer: first sentence right {found.first}, one of those shown {found.shown}, "
        f"taken to have none {found.silent}\n{found.others} without: taken to have none {found.refused}\n"
        f"{1000 * took:.0f} CPU ms a question"
    )


@dataclass(frozen=True)
class Figures:
    """Of the questions with an answer: how many there are, at how many the first sentence is right, at how many one of
    those shown, and how many were taken to have none; then of those without: how many there are, and were refused."""

    answerable: int
    first: int
    shown: int
    silent: int
    others: int
    refused: int


def figures(asked: Sequence[Question], answers: Sequence[Answer]) -> Figures:
    pairs = list(zip(asked, answers, strict=True))
    answerable = [(question, answer) for question, answer in pairs if question.pieces]
    return Figures(
        answerable=len(answerable),
        first=sum(any(map(question.is_right, answer.sources[:1])) for question, answer in answerable),
        shown=sum(any(map(question.is_right, answer.sources)) for question, answer in answerable),
        silent=sum(not answer.sources for _, answer in answerable),
        others=len(pairs) - len(answerable),
        refused=sum(not answer.sources for question, answer in pairs if not question.pieces),
    )


def _show(question: Question, answer: Answer) -> None:
    right = [source.number for source in answer.sources if question.is_right(source)]
    is_well = right[:1] == [1] if question.pieces else not answer.sources
    print(f"{'ok' if is_well else right or 'wrong'!s:>6} {question.text}")
    for source in answer.sources[:1]:
        words = " ".join(source.sentence.split())[:150]
        print(f"       {source.share:.2f} {source.path.rpartition('/')[2]}: {words}")


if __name__ == "__main__":
    main()
