"""How often `ec1 graph ask` is right over the bundled sample: 50 questions with gold, 12 of them without an answer.

`questions.jsonl` has a question a line, written by hand from the documents; each answer is a piece of text of one
document. A sentence that is shown is right if it holds one of these pieces. The 34 questions of the part `tuned` were
looked at when the rules were made; those of `measured` were not. The graph holds the gold's names. The base line is
BM25 over the sentences alone, which takes no question to have no answer.

With `--engine` the embedded deployment's model is asked which of the sentences that are shown answers, or none, its
answer held to a schema of their numbers; right is the sentence that it chose.

With `--copies` the sample stands there so many times, and what is measured is time: of the first question after a
publication, which makes the index, and of the others.

Run: python -m benchmarks.ask_graph [--part tuned --show] [--engine] [--copies 400]
"""

import argparse
import asyncio
import contextlib
import json
import re
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import sample
from benchmarks._engine import embedded, model_of, serving
from ec1.documents.chunks import sentences
from ec1.documents.reader import DocumentReader
from ec1.extraction.reading.openai import OpenAIClient
from ec1.graph.quotes import Quotes
from ec1.graph.reader import GraphReader
from ec1.graph.sentence_index import sentence_index_path
from ec1.queries.answers import Answer, AnswerSource, ask

_CHOOSE = (
    "Sentences of documents:\n{sentences}\n\nQuestion: {question}\n"
    'Which sentence answers the question? Reply with JSON: {{"sentence": its number}}.'
)
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
    parser.add_argument("--copies", type=int, default=0)
    parser.add_argument("--engine", action="store_true")
    arguments = parser.parse_args()
    asked = questions(arguments.part)
    if arguments.copies:
        _print_times(asked, arguments.copies)
        return
    with tempfile.TemporaryDirectory() as folder:
        published = sample.publish(Path(folder))
        answers_of(asked[:1], published)
        began = time.process_time()
        answers = answers_of(asked, published)
        took = (time.process_time() - began) / len(asked)
    if arguments.show:
        for question, answer in zip(asked, answers, strict=True):
            _show(question, answer)
    _print(figures(asked, answers))
    print("\nBM25 over sentences:")
    _print(figures(asked, _plain(asked)))
    print(f"{1000 * took:.0f} CPU ms a question")
    if arguments.engine:
        print("\nas the model chooses:")
        _print(figures(asked, asyncio.run(_chosen(asked, answers))))


def _print(found: "Figures") -> None:
    print(
        f"{found.answerable} with an answer: first sentence right {found.first}, one of those shown {found.shown}, "
        f"taken to have none {found.silent}\n{found.others} without: taken to have none {found.refused}"
    )


def _plain(asked: Sequence[Question]) -> list[Answer]:
    with contextlib.closing(sqlite3.connect(":memory:")) as index:
        index.execute("CREATE VIRTUAL TABLE said USING fts5(text, path UNINDEXED, tokenize='porter')")
        for each in sample.read():
            rows = [(each.text[start:end].strip(), each.name) for start, end in sentences(each.text)]
            index.executemany("INSERT INTO said VALUES (?, ?)", rows)
        answers = []
        for question in asked:
            words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question.text))
            found = index.execute("SELECT text, path FROM said WHERE said MATCH ? ORDER BY rank LIMIT 3", (words,))
            sources = [
                AnswerSource(number, text, "", path, "", None, "", 0, 0, 0.0)
                for number, (text, path) in enumerate(found, 1)
            ]
            answers.append(Answer(tuple(sources), "", 0))
    return answers


async def _chosen(asked: Sequence[Question], answers: Sequence[Answer]) -> list[Answer]:
    """The answers with only that sentence which the model chose; none where it chose none."""
    deployment, settings = embedded()
    chosen = []
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(deployment, settings, model_of(deployment, Path(folder))) as endpoint,
    ):
        async with OpenAIClient(endpoint.base_url, endpoint.model, deployment.extraction) as client:
            for question, answer in zip(asked, answers, strict=True):
                numbers = [0, *(source.number for source in answer.sources)]
                schema = {
                    "type": "object",
                    "properties": {"sentence": {"type": "integer", "enum": numbers}},
                    "required": ["sentence"],
                    "additionalProperties": False,
                }
                lines = [f"{source.number}: {' '.join(source.sentence.split())[:400]}" for source in answer.sources]
                said = "\n".join(["0: none of these sentences answers the question", *lines])
                messages = [{"role": "user", "content": _CHOOSE.format(sentences=said, question=question.text)}]
                completion = await client.complete(messages, schema, stream="question", deadline=None)
                number = json.loads(completion.content)["sentence"]
                picked = tuple(source for source in answer.sources if source.number == number)
                chosen.append(replace(answer, sources=picked))
    return chosen


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


def _print_times(asked: Sequence[Question], copies: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        documents = Path(folder) / "documents"
        documents.mkdir()
        for copy in range(copies):
            (documents / str(copy)).symlink_to(sample.DOCUMENTS)
        published = sample.publish(Path(folder), copies)
        quotes = Quotes(DocumentReader(documents, 10**6))
        with GraphReader(published, buffer_pool_mib=512) as reader:
            began = time.process_time()
            ask(reader, quotes, asked[0].text)
            first = time.process_time() - began
            took = []
            for each in asked:
                began = time.process_time()
                ask(reader, quotes, each.text)
                took.append(1000 * (time.process_time() - began))
        size = sentence_index_path(published).stat().st_size / 2**20
        count = len(sample.read()) * copies
    print(
        f"{count:,} documents: {first:.1f} CPU s for the first question, index of {size:.0f} MiB, then "
        f"{statistics.median(took):.0f} CPU ms a question, {max(took):.0f} the slowest"
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
