"""Whatever bytes a server sends, an extraction continues: each unit is complete or deferred, and its result is kept."""

import hashlib
import json
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_server import RawServer, http_answer, raw_server

from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import Document
from ec1.errors import DeferredError, PermanentError
from ec1.extraction.reading import loop
from ec1.extraction.reading.answer_log import AnswerLog
from ec1.extraction.reading.client import Circuit, Completion, HttpChatClient
from ec1.extraction.reading.doorman import DoormanClient
from ec1.extraction.reading.extractor import Extractor, WorkItem
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.extraction.results import ExtractionResult
from ec1.extraction.settings import DoormanSettings, ExtractionSettings
from ec1.graph.service_content import ServiceContentClient, ServiceEntity
from ec1.graph.settings import ServiceContentSettings

SETTINGS = ExtractionSettings(
    chunk_tokens=40,
    overlap_tokens=0,
    max_answer_tokens=100,
    max_in_flight=2,
    request_timeout_seconds=10,
    max_attempts=2,
)
TEXT = "Clara Sommer came."
DOCUMENT = Document(DocumentKey("meeting", "a.md"), "a", TEXT)
FOUND = '{"entities":[{"name":"Clara Sommer","class":"Person"}]}'
FUZZ = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@pytest.fixture(params=["openai", "doorman"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server() -> Iterator[RawServer]:
    with raw_server() as state:
        yield state


def good(kind: str, content: str = FOUND) -> dict[str, Any]:
    if kind == "doorman":
        return {"tier_used": "yoyo", "model": "m", "content": content, "reasoning_content": None}
    return {
        "model": "m",
        "choices": [{"message": {"content": content}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }


def extract(kind: str, server: RawServer, words: Path) -> tuple[ExtractionRecord, ExtractionResult]:
    """One document against the server, and its result as it was kept."""
    circuit = Circuit(cool_down_seconds=0.001, rounds=2)
    client: HttpChatClient
    if kind == "doorman":
        gateway = DoormanSettings(kind="doorman", base_url=server.url, model="m", server_deadline_seconds=1)
        client = DoormanClient(gateway, "a", SETTINGS, backoff_seconds=0.001, circuit=circuit, patience_seconds=0.01)
    else:
        client = OpenAIClient(server.url, "m", SETTINGS, backoff_seconds=0.001, circuit=circuit, patience_seconds=0.01)
    extractor = Extractor(SETTINGS, "m", "main", words)
    work = WorkItem("meeting", hashlib.sha256(TEXT.encode()).hexdigest(), lambda: DOCUMENT)
    with tempfile.TemporaryDirectory() as folder:
        outbox = Outbox(Path(folder))
        report = loop.extract(extractor, [work], client, outbox, deadline=None, progress=lambda _: None)
        result = outbox.get(extractor.fingerprint("meeting"), work.content_sha256)
    report.model_dump_json().encode()
    counts = report.streams["meeting"]
    assert counts.complete + counts.deferred + counts.postponed == 1
    if counts.postponed:
        assert result is None and report.stopped
        result = ExtractionResult(content_sha256="", stream="meeting", fingerprint="", status="deferred")
    assert result is not None
    return report, result


def test_an_ordinary_answer_counts(kind: str, server: RawServer, words: Path) -> None:
    server.answer = http_answer(json.dumps(good(kind)).encode())
    assert [each.name for each in extract(kind, server, words)[1].mentions] == ["Clara Sommer"]
    assert b"accept-encoding: identity" in server.headers.lower()


def spoilt(kind: str, **changes: Any) -> bytes:
    return json.dumps({**good(kind), **changes}).encode()


HALF = '{"entities":[{"name":"Clara\\ud83d","class":"Person"},{"name":"Clara Sommer","class":"Person"}]}'


def test_half_a_character_costs_a_name_and_no_document(kind: str, server: RawServer, words: Path) -> None:
    server.answer = http_answer(json.dumps(good(kind, HALF)).encode())
    _, result = extract(kind, server, words)
    assert result.status == "complete"
    assert [each.name for each in result.mentions] == ["Clara Sommer"]
    assert [each.name for each in result.dropped] == ["Clara\ufffd"]
    # Half a character in the envelope, not in the answer inside it.
    server.answer = http_answer(json.dumps(good(kind, FOUND.replace("Clara S", "Clara\ud83d S"))).encode())
    assert extract(kind, server, words)[1].mentions == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda kind: http_answer(json.dumps(good(kind)).replace('"m"', f'"{"x" * 3_000_000}"').encode()),
        lambda kind: http_answer(json.dumps(good(kind)).replace('"m"', '"m\\ud83d"').encode()),
        lambda kind: http_answer(json.dumps(good(kind)).replace('"m"', "7").encode()),
        lambda kind: http_answer(b'{"usage": {"prompt_tokens": 1e999, "completion_tokens": 3}, ' + spoilt(kind)[1:]),
        lambda kind: http_answer(spoilt(kind, usage={"prompt_tokens": "3"})),
        lambda kind: http_answer(spoilt(kind, usage={"prompt_tokens": -(10**30)})),
        lambda kind: http_answer(b"{}", "429 Too Many Requests", Retry_After="\xb2"),
        lambda kind: http_answer(b"{}", "503 Unavailable", Retry_After="Wed, 99 Foo 9999999 99:99:99 GMT"),
        lambda kind: http_answer(b"{}", "500 Oh", Retry_After="9" * 400),
        lambda kind: http_answer(b'{"error": "\\ud83d"}', "400 Bad"),
        lambda kind: http_answer(b"[" * 100_000),
        lambda kind: http_answer(b"1" * 100_000),
    ],
)
def test_what_is_odd_defers_the_document(
    kind: str, server: RawServer, words: Path, make: Callable[[str], bytes]
) -> None:
    server.answer = make(kind).replace("\xb2".encode(), b"\xb2")
    _, result = extract(kind, server, words)
    assert result.status in ("deferred", "complete")
    assert all(len(each.model) <= 200 for each in result.answers)


def test_a_compressed_answer_is_not_unpacked(kind: str, server: RawServer, words: Path) -> None:
    """A few bytes of it expand to gigabytes and cost minutes of CPU; no request asked for it."""
    bomb = zlib.compress(b" " * 300_000_000, 9)
    server.answer = http_answer(bomb, Content_Encoding="deflate")
    begin = time.process_time()
    _, result = extract(kind, server, words)
    assert time.process_time() - begin < 2
    assert "encoded as 'deflate'" in (result.reason or "") and not result.blamed


def test_an_answer_log_that_cannot_be_read_is_set_aside(server: RawServer, words: Path, tmp_path: Path) -> None:
    """An answer that spoilt one night must not spoil the next ones."""
    server.answer = http_answer(json.dumps(good("openai")).encode())
    extractor, outbox = Extractor(SETTINGS, "m", "main", words), Outbox(tmp_path)
    work = WorkItem("meeting", "0" * 64, lambda: DOCUMENT)
    log = outbox.answers(extractor.fingerprint("meeting"), work.content_sha256)
    log.append((0, len(TEXT)), Completion(content=None, finish_reason="stop", model="m"))  # type: ignore[arg-type]
    nights = []
    for _ in range(2):
        client = OpenAIClient(server.url, "m", SETTINGS, circuit=Circuit(cool_down_seconds=0.01))
        report = loop.extract(extractor, [work], client, outbox, deadline=None, progress=lambda _: None)
        counts = report.streams["meeting"]
        nights.append((counts.deferred, counts.complete))
    assert nights == [(1, 0), (0, 1)]
    assert len(list(tmp_path.rglob("*.bad"))) == 1


def test_a_document_that_breaks_its_parser_defers_itself_only(server: RawServer, words: Path, tmp_path: Path) -> None:
    server.answer = http_answer(json.dumps(good("openai")).encode())

    def breaks() -> Document:
        raise RecursionError("maximum recursion depth exceeded")

    extractor, outbox = Extractor(SETTINGS, "m", "main", words), Outbox(tmp_path)
    work = [WorkItem("meeting", "0" * 64, breaks), WorkItem("meeting", "1" * 64, lambda: DOCUMENT)]
    report = loop.extract(
        extractor, work, OpenAIClient(server.url, "m", SETTINGS), outbox, deadline=None, progress=lambda _: None
    )
    assert (report.streams["meeting"].deferred, report.streams["meeting"].complete) == (1, 1)
    assert "RecursionError" in report.problems[0]["reason"]


def test_an_engine_of_our_own_that_died_is_noticed_at_once(words: Path, tmp_path: Path) -> None:
    settings_ = SETTINGS.model_copy(update={"max_attempts": 50, "request_timeout_seconds": 60})
    client = OpenAIClient(
        "http://127.0.0.1:9", "m", settings_, backoff_seconds=10, died=lambda: "vLLM ended with status -9"
    )
    work = [WorkItem("meeting", f"{number:064}", lambda: DOCUMENT) for number in range(9)]
    begin = time.monotonic()
    extractor = Extractor(settings_, "m", "main", words)
    report = loop.extract(extractor, work, client, Outbox(tmp_path), deadline=None, progress=lambda _: None)
    assert time.monotonic() - begin < 10, "not one pause between attempts"
    assert report.stopped == "vLLM ended with status -9" and report.streams["meeting"].postponed == 9


# --- fuzzing

_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(st.characters(), max_size=20)
    | st.sampled_from(["\ud83d", FOUND, HALF, "<think>", "</think>", "stop", "yoyo", "x" * 300]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "message",
                    "content",
                    "usage",
                    "model",
                    "tier_used",
                    "finish_reason",
                    "prompt_tokens",
                    "error",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@FUZZ
@given(value=_json, where=st.sampled_from(["all", "model", "content", "choices", "usage", "tier_used"]))
def test_any_json_leaves_the_extraction_whole(
    kind: str, server: RawServer, words: Path, value: Any, where: str
) -> None:
    answer = value if where == "all" else {**good(kind), where: value}
    server.answer = http_answer(json.dumps(answer).encode())
    extract(kind, server, words)


@FUZZ
@given(content=st.text(st.characters(), max_size=60) | _json.map(json.dumps))
def test_any_content_leaves_the_extraction_whole(kind: str, server: RawServer, words: Path, content: str) -> None:
    server.answer = http_answer(json.dumps(good(kind, content)).encode())
    extract(kind, server, words)


@FUZZ
@given(data=st.data())
def test_any_bytes_leave_the_extraction_whole(kind: str, server: RawServer, words: Path, data: st.DataObject) -> None:
    """A good answer in which some bytes are others, head and body alike."""
    whole = bytearray(http_answer(json.dumps(good(kind)).encode(), Retry_After="1", Date="x"))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    server.answer = bytes(whole)
    extract(kind, server, words)


@FUZZ
@given(body=_json.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=80))
def test_any_answer_of_service_content_is_a_deferral_or_a_refusal(server: RawServer, body: bytes) -> None:
    server.answer = http_answer(body)
    values = ServiceContentSettings(base_url=server.url, max_attempts=1, request_timeout_seconds=10)
    with ServiceContentClient(values, "acme", backoff_seconds=0.001) as client:
        calls: list[Callable[[], object]] = [
            lambda: client.mutate([ServiceEntity("Ann Lee", "Person", 0.8, "mk-a")]),
            client.count,
            lambda: [each.entity_name.encode() + each.key.encode() for each in client.find("Ann Lee")],
        ]
        for call in calls:
            try:
                call()
            except (DeferredError, PermanentError) as error:
                str(error).encode()


def test_a_log_line_of_another_shape_is_no_answer(tmp_path: Path) -> None:
    log = AnswerLog(tmp_path / "x")
    (tmp_path / "x").write_text('{"start": 0, "end": 1, "answer": {"no": 1}}\n[]\n{"start": [], "end": 1}\n7\n')
    assert log.read() == {}
