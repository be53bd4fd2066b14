"""Propose, then decide: spans from structure, classes from log-probabilities, over real HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_openai import FakeServer, fake_server
from test_extractor import NAMES, SETTINGS, Bench, item, long_text

from ec1.documents.chunks import Chunk
from ec1.errors import DeferredError, InputError
from ec1.extraction.naming import decision
from ec1.extraction.naming.candidates import propose
from ec1.extraction.naming.known import KnownNames
from ec1.extraction.reading.doorman import DoormanClient
from ec1.extraction.reading.extractor import Extractor
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.settings import DoormanSettings, ExtractionSettings

DECIDE = SETTINGS.model_copy(update={"mode": "decide"})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as state:
        yield state


@pytest.fixture(params=["decide", "both"])
def settings(request: pytest.FixtureRequest) -> ExtractionSettings:
    return SETTINGS.model_copy(update={"mode": request.param, "request_timeout_seconds": 20})


@pytest.fixture
def bench(server: FakeServer, tmp_path: Path, words: Path, settings: ExtractionSettings) -> Bench:
    return Bench(server, Outbox(tmp_path / "outbox"), words, settings)


def proposed(text: str, *known: str) -> set[str]:
    return {text[each.start : each.end] for each in propose(text, KnownNames(known).in_text(text))}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Then the Bank of Lisbon wrote.", {"Bank of Lisbon", "Bank", "Lisbon"}),
        ("We met Joseph Conrad's Secret Agent.", {"Joseph Conrad", "Secret Agent"}),
        ("Made in the US by WHO staff.", {"US", "WHO"}),
        ("We paid 3M and 9 Mile Trial.", {"3M", "9 Mile Trial"}),
        ("from: maria@acme.com\ncompany: acme\n", {"acme"}),
        ("tom: What is it that you say?\nTom: I do not know it.\nTom: Neither do I.", {"Tom"}),
        ("他在北京大学工作，住在上海市。", {"上海市"}),
        ("トヨタ・モーターの話です。", {"トヨタ・モーター"}),
    ],
)
def test_spans_come_from_the_texts_structure(text: str, expected: set[str]) -> None:
    assert expected <= proposed(text)


def test_common_words_open_no_name() -> None:
    assert proposed("However, the work went on. It was late. We said so.") == set()


def test_what_the_graph_knows_is_proposed_as_whole_words() -> None:
    text = "Ask the desk of Glass harbor, not glassharbors."
    assert "Glass harbor" in proposed(text, "Glass Harbor", "desk")
    assert "desk" not in proposed(text, "Glass Harbor", "desk")


def test_each_span_is_decided_and_located(server: FakeServer, bench: Bench) -> None:
    work = item(long_text())
    report = bench.run(work)
    result = bench.result(work)
    assert result is not None
    assert result.status == "complete"
    assert not result.calibrated
    assert {each.name for each in result.mentions} == set(NAMES)
    assert {each.entity_class for each in result.mentions} == {"Person"}
    assert report.decisions >= len(NAMES)
    assert report.llm_calls == server.calls


def test_all_questions_about_a_chunk_go_in_one_request_and_begin_alike(server: FakeServer, bench: Bench) -> None:
    bench.run(item("We met Alma Reyes, Boris Tanaka and the Bank of Peru there."))
    asked = [request["prompt"] for request in server.requests if "prompt" in request]
    assert len(asked) == 1
    assert len(asked[0]) >= 3
    beginnings = {prompt.rpartition("\n")[0] for prompt in asked[0]}
    assert len(beginnings) == 1


@pytest.mark.parametrize("mark", ["500", "hang", "die", "odd", "flood", "few"])
def test_a_chunk_without_decisions_is_never_done(
    server: FakeServer, tmp_path: Path, words: Path, settings: ExtractionSettings, mark: str
) -> None:
    # What hangs is waited for; a busy machine may need seconds to answer what does not.
    waits = {"request_timeout_seconds": 3, "max_attempts": 1} if mark == "hang" else {}
    bench = Bench(server, Outbox(tmp_path / "outbox"), words, settings.model_copy(update=waits))
    work, other = item(long_text(mark)), item(long_text(paragraphs=3))
    bench.run(work, other)
    result, done = bench.result(work), bench.result(other)
    assert result is not None
    assert result.status == "deferred"
    assert done is not None
    assert done.status == "complete"


def test_what_was_decided_before_an_interruption_is_not_asked_again(
    server: FakeServer, tmp_path: Path, words: Path, settings: ExtractionSettings
) -> None:
    bench = Bench(server, Outbox(tmp_path), words, settings.model_copy(update={"max_attempts": 1}))
    server.times["500"] = 1
    work = item(long_text("500"))
    bench.run(work)
    first = server.calls
    bench.run(work)
    result = bench.result(work)
    assert result is not None
    assert result.status == "complete"
    assert {each.name for each in result.mentions} == set(NAMES)
    # The one chunk that had no answer: one request, or two where the model is asked to name first.
    assert server.calls - first <= 2


def test_a_text_without_candidates_asks_nothing(server: FakeServer, tmp_path: Path, words: Path) -> None:
    bench = Bench(server, Outbox(tmp_path), words, DECIDE)
    work = item("and so it went on, as it does.")
    bench.run(work)
    result = bench.result(work)
    assert result is not None
    assert result.status == "complete"
    assert server.calls == 0


def test_a_server_without_log_probabilities_is_said_to_be_one(words: Path) -> None:
    gateway = DoormanSettings(kind="doorman", model="m")
    with pytest.raises(InputError, match=r"extraction\.mode"):
        DoormanClient(gateway, "acme", DECIDE).decider()


def test_the_mode_is_in_the_fingerprint(words: Path) -> None:
    prints = {
        Extractor(SETTINGS.model_copy(update={"mode": mode}), "m", "main", words).fingerprint("meeting")
        for mode in ("answer", "decide", "both")
    }
    assert len(prints) == 3


@pytest.mark.parametrize(
    "content", ["", "[]", "[[1]]", '[["a"]]', "[[NaN, 0, 0, 0, 0, 0]]", "[[0, 0, 0, 0, 0, 0], []]"]
)
def test_decisions_that_are_none_do_not_count(content: str) -> None:
    with pytest.raises(DeferredError):
        decision.scores_in(content, 1)


def test_decisions_survive_the_way_there_and_back() -> None:
    spans = decision.spans_of(Chunk(0, 0, 28, "We met Ann Lee and Bo Beck."), propose("We met Ann Lee and Bo Beck."))
    rows = [[-0.1, -2.0, -3.0, -4.0, -5.0, -6.0] for _ in spans]
    answer, decided = decision.decode(decision.encode("{}", spans, rows))
    assert answer == "{}"
    assert [(each.start, each.end) for each in decided] == [(span.start, span.end) for span in spans]
    assert {each.best for each in decided} == {"Person"}
