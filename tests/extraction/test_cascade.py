"""Two models: the second reads only the chunks that the first is unsure about, after it, and nothing is asked twice."""

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_openai import FakeServer, fake_server

from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import Document
from ec1.errors import DeferredError, InputError
from ec1.extraction.naming.confidence import FEATURES, Curve
from ec1.extraction.reading.cascade import merged, unsure_chunks
from ec1.extraction.reading.client import Circuit
from ec1.extraction.reading.extractor import Extractor, WorkItem
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.extraction.results import ChunkAnswer, Dropped, ExtractionResult, Mention
from ec1.extraction.settings import CascadeSettings, ExtractionSettings, ServerSettings
from ec1.night.steps.extraction import extract_night

CASCADE = CascadeSettings(
    inference=ServerSettings(kind="server", base_url="http://127.0.0.1:1", model="some/large"), max_share=1.0
)
SETTINGS = ExtractionSettings(
    chunk_tokens=40,
    overlap_tokens=0,
    max_answer_tokens=100,
    max_in_flight=4,
    request_timeout_seconds=5,
    max_attempts=2,
    mode="decide",
    cascade=CASCADE,
)
# The small server's log-odds of 4.95 for a name become a confidence of 0.73: two names are half a name wrong.
CURVE = Curve({}, tuple(0.2 if name == "over none" else 0.0 for name in FEATURES), ())
SURE = (
    "We saw Alma Reyes there, as it was agreed upon by all of us in the week before, and then it rained for the rest "
    "of that week, so that nobody else came to see how the work went on."
)
UNSURE = "[[first]] There was Boris Tanaka, who met Chidi Obi in the hall that is cold."


class Nights:
    """Two servers, and who is being served; `large_is_down`: nobody answers there."""

    def __init__(self, small: FakeServer, large: FakeServer, folder: Path, words: Path) -> None:
        self.small, self.large = small, large
        self.outbox = Outbox(folder)
        self.words = words
        self.serving: list[str] = []
        self.served: list[str] = []
        self.large_is_down = False
        self.settings = SETTINGS

    def extractor(self) -> Extractor:
        extractor = Extractor(self.settings, "some/small", "main", self.words)
        extractor.fitted = CURVE
        second = self.settings.model_copy(update={"cascade": None, "mode": "answer"})
        extractor.second = Extractor(second, "some/large", "main", self.words)
        return extractor

    @contextmanager
    def serve(self, server: FakeServer, name: str) -> Iterator[OpenAIClient]:
        assert not self.serving, "one model at a time"
        if name == "large" and self.large_is_down:
            raise DeferredError("the large model cannot be had")
        self.serving.append(name)
        self.served.append(name)
        circuit = Circuit(cool_down_seconds=0.01, rounds=2)
        yield OpenAIClient(server.url, name, self.settings, backoff_seconds=0.01, circuit=circuit)
        self.serving.remove(name)

    def night(self, *texts: str) -> ExtractionRecord:
        return extract_night(
            [_item(text) for text in texts],
            self.extractor(),
            self.outbox,
            lambda: self.serve(self.small, "small"),
            deadline_of=lambda: time.monotonic() + 60,
            progress=lambda _: None,
            serve_second=lambda: self.serve(self.large, "large"),
        )

    def result(self, text: str) -> ExtractionResult | None:
        sha = _item(text).content_sha256
        return self.outbox.get(self.extractor().fingerprint("meeting", sha), sha)


def _item(text: str) -> WorkItem:
    return WorkItem("meeting", hashlib.sha256(text.encode()).hexdigest(), partial(_document, text))


def _document(text: str) -> Document:
    return Document(DocumentKey("meeting", "a.md"), "a", text)


@pytest.fixture
def nights(tmp_path: Path, words: Path) -> Iterator[Nights]:
    with fake_server() as small, fake_server() as large:
        yield Nights(small, large, tmp_path / "outbox", words)


def test_the_second_model_reads_what_the_first_is_unsure_of_and_nothing_is_asked_twice(nights: Nights) -> None:
    text = f"{SURE}\n\n{UNSURE}"
    report = nights.night(text)
    result = nights.result(text)
    assert result is not None and result.status == "complete"
    # Of the second chunk the large model's word counts, which names one person only.
    assert {each.name for each in result.mentions} == {"Alma Reyes", "Boris Tanaka"}
    assert nights.served == ["small", "large"] and report.sent_on == 1
    assert [len(server.requests) for server in (nights.small, nights.large)] == [2, 1] and report.llm_calls == 3
    assert "Alma Reyes" not in str(nights.large.requests)
    # Each answer says of which chunk it is; both models' own results stay in the outbox.
    assert [answer.chunk for answer in result.answers] == [0, 1]
    assert len(list(nights.outbox.root.glob("*/*/*.json"))) == 3
    again = nights.night(text)
    assert again.streams["meeting"].reused == 1 and again.llm_calls == 0 and nights.served == ["small", "large"]


def test_where_the_first_is_sure_the_second_is_not_started(nights: Nights) -> None:
    report = nights.night(SURE)
    assert nights.served == ["small"] and report.sent_on == 0 and not nights.large.requests
    result = nights.result(SURE)
    assert result is not None and {each.name for each in result.mentions} == {"Alma Reyes"} and result.calibrated


def test_without_the_second_model_documents_wait_and_the_first_is_not_asked_again(nights: Nights) -> None:
    nights.large_is_down = True
    report = nights.night(SURE, UNSURE)
    assert (report.streams["meeting"].complete, report.streams["meeting"].postponed) == (1, 1)
    assert report.stopped == "the large model cannot be had" and nights.result(UNSURE) is None
    nights.large_is_down = False
    asked = len(nights.small.requests)
    report = nights.night(SURE, UNSURE)
    assert report.streams["meeting"].complete == 1 and len(nights.small.requests) == asked
    assert nights.served == ["small", "large"]


def test_an_answer_of_the_second_that_does_not_count_defers_the_document_with_what_the_first_said(
    nights: Nights,
) -> None:
    text = UNSURE.replace("[[first]]", "[[prose]]")
    nights.night(text)
    result = nights.result(text)
    assert result is not None and result.status == "deferred"
    assert result.reason is not None and result.reason.startswith("the second model: chunk 0")
    assert {each.name for each in result.mentions} == {"Boris Tanaka", "Chidi Obi"}
    nights.large.times["prose"] = 0
    nights.night(text)
    result = nights.result(text)
    assert result is not None and result.status == "complete" and len(nights.small.requests) == 1


def test_models_settings_and_budget_are_in_the_fingerprint(nights: Nights) -> None:
    prints = {nights.extractor().fingerprint("meeting"), nights.extractor().alone().fingerprint("meeting")}
    for change in ({"wrong_names": 0.6}, {"max_share": 0.5}):
        nights.settings = SETTINGS.model_copy(update={"cascade": CASCADE.model_copy(update=change)})
        prints.add(nights.extractor().fingerprint("meeting"))
    assert len(prints) == 4


def test_a_first_model_of_which_nobody_knows_how_sure_it_is_is_refused(nights: Nights) -> None:
    nights.settings = SETTINGS.model_copy(update={"mode": "answer"})
    extractor = nights.extractor()
    extractor.fitted = None
    with pytest.raises(InputError, match=r"extraction\.cascade needs to know how sure some/small is"):
        extract_night(
            [_item(SURE)],
            extractor,
            nights.outbox,
            lambda: nights.serve(nights.small, "small"),
            deadline_of=time.monotonic,
            progress=lambda _: None,
            serve_second=lambda: nights.serve(nights.large, "large"),
        )


def _result(confidences: list[list[float]], sha: str = "0" * 64, **fields: Any) -> ExtractionResult:
    """A complete result with a chunk for each list; names of 0.2 or less were dropped."""
    mentions, dropped, answers = [], [], []
    for chunk, sure in enumerate(confidences):
        answers.append(
            ChunkAnswer(chunk=chunk, start=100 * chunk, end=100 * chunk + 99, finish_reason="stop", model="small")
        )
        for place, each in enumerate(sure):
            name = f"Name {chunk} {place}"
            at = {"name": name, "entity_class": "Person", "chunk": chunk, "confidence": each}
            if each > 0.2:
                mentions.append(Mention(**at, start=100 * chunk + 10 * place, end=100 * chunk + 10 * place + 8))
            else:
                dropped.append(Dropped(**at, reason="low confidence"))
    return ExtractionResult(
        content_sha256=sha,
        stream="meeting",
        fingerprint="f" * 64,
        status="complete",
        calibrated=True,
        mentions=tuple(mentions),
        dropped=tuple(dropped),
        answers=tuple(answers),
        **fields,
    )


def test_a_chunk_is_unsure_by_the_names_that_are_expected_to_be_wrong() -> None:
    result = _result([[0.9, 0.9], [0.6, 0.7], [], [0.2, 0.2, 0.1], [0.3, 0.3]])
    assert unsure_chunks(result, CASCADE) == [1, 3, 4]
    assert unsure_chunks(result, CASCADE.model_copy(update={"wrong_names": 1.0})) == [4]
    # Two fifths of five chunks: the two of which it is least sure.
    assert unsure_chunks(result, CASCADE.model_copy(update={"max_share": 0.4})) == [1, 4]


def test_the_budget_is_kept_on_the_average_over_documents_of_few_chunks() -> None:
    tenth = CASCADE.model_copy(update={"max_share": 0.1})
    shas = [hashlib.sha256(f"document {number}".encode()).hexdigest() for number in range(4000)]
    sent = sum(len(unsure_chunks(_result([[0.3, 0.3]] * 3, sha), tenth)) for sha in shas)
    assert 1100 <= sent <= 1300


def test_the_seconds_word_counts_in_its_chunks_and_for_classes_everywhere() -> None:
    first = _result([[0.9], [0.5], [0.9]])
    shared = first.mentions[0].model_copy(update={"chunk": 2, "start": 250, "end": 258})
    first = first.model_copy(update={"mentions": (*first.mentions, shared)})
    theirs = [
        first.mentions[1].model_copy(update={"name": "Other", "confidence": 0.65}),
        first.mentions[0].model_copy(update={"chunk": 1, "start": 150, "end": 158, "entity_class": "Company"}),
        # The second's place in the overlap of two chunks.
        first.mentions[2].model_copy(update={"chunk": 1, "name": "Name 2"}),
    ]
    second = _result([[], [0.9]])
    second = second.model_copy(update={"mentions": tuple(theirs), "calibrated": False})
    result = merged(first, second, [1], "e" * 64)
    assert result.fingerprint == "e" * 64 and not result.calibrated
    assert [(each.name, each.entity_class, each.start) for each in result.mentions] == [
        ("Name 0 0", "Company", 0),
        ("Other", "Person", 100),
        ("Name 0 0", "Company", 150),
        ("Name 2", "Person", 200),
        ("Name 0 0", "Company", 250),
    ]
