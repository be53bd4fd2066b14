"""Doorman's own wire: what only the gateway has. What it shares with other servers is in `test_extractor.py`."""

import asyncio
import hashlib
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from fake_doorman import fake_doorman
from fake_openai import FakeServer

from ec1.deployment import DoormanSettings, ExtractionSettings
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import Document
from ec1.errors import DeferredError, InputError
from ec1.extraction.client import Circuit, Completion
from ec1.extraction.doorman import DoormanClient, wait_until_ready, why_not_ready
from ec1.extraction.extractor import Extractor, WorkItem
from ec1.extraction.outbox import Outbox
from ec1.extraction.prompt import messages
from ec1.extraction.schema import ENTITY_SCHEMA
from ec1.night.extraction import extract_night

SETTINGS = ExtractionSettings(chunk_tokens=40, overlap_tokens=0, max_in_flight=2, request_timeout_seconds=1)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_doorman() as state:
        yield state


def gateway(server: FakeServer, **settings: object) -> DoormanSettings:
    return DoormanSettings.model_validate(
        {"kind": "doorman", "base_url": server.url, "model": "m", "server_deadline_seconds": 1, **settings}
    )


def client(server: FakeServer, **settings: object) -> DoormanClient:
    circuit = Circuit(cool_down_seconds=0.01, rounds=3)
    return DoormanClient(gateway(server, **settings), "acme", SETTINGS, backoff_seconds=0.01, circuit=circuit)


def ask(asked: DoormanClient, text: str, stream: str = "meeting") -> Completion:
    async def once() -> Completion:
        async with asked:
            return await asked.complete(messages(text, stream), ENTITY_SCHEMA, stream=stream, deadline=None)

    return asyncio.run(once())


def items(*texts: str) -> list[WorkItem]:
    def item(text: str) -> WorkItem:
        document = Document(DocumentKey("meeting", "a.md"), "a", text)
        return WorkItem("meeting", hashlib.sha256(text.encode()).hexdigest(), lambda: document)

    return [item(text) for text in texts]


@pytest.fixture
def extractor(words: Path) -> Extractor:
    return Extractor(SETTINGS, "some/model", "main", words)


def test_the_request_is_exactly_the_agreed_one(server: FakeServer) -> None:
    ask(client(server), "Alma Reyes")
    [headers], [body] = server.headers, server.requests
    assert headers["X-Foundry-Module-ID"] == "acme"
    assert headers["X-Foundry-Complexity"] == "high"
    assert headers["X-Foundry-Yoyo-Label"] == "graph"
    assert uuid.UUID(headers["X-Foundry-Request-ID"])
    assert body.keys() == {"messages", "max_tokens", "temperature", "grammar"}
    assert body["grammar"] == {"type": "json-schema", "value": ENTITY_SCHEMA}
    assert body["max_tokens"] == SETTINGS.max_answer_tokens


@pytest.mark.parametrize("where", ["", "[[choices]]", "[[thought]]", "[[reasoned]]"])
def test_the_answer_is_found_where_it_stands(
    server: FakeServer, extractor: Extractor, tmp_path: Path, where: str
) -> None:
    outbox, work = Outbox(tmp_path), items(f"{where} Alma Reyes came.")
    extractor.extract(work, client(server), outbox, deadline=None, progress=lambda _: None)
    result = outbox.get(extractor.fingerprint("meeting"), work[0].content_sha256)
    assert result is not None and result.status == "complete"
    assert [mention.name for mention in result.mentions] == ["Alma Reyes"]
    assert (result.answers[0].tier, result.answers[0].model) == ("yoyo", "fake")


def test_a_smaller_tiers_answer_is_deferred_where_the_stream_asks_for_high(
    server: FakeServer, extractor: Extractor, tmp_path: Path
) -> None:
    outbox, work = Outbox(tmp_path), items("[[local]] Alma Reyes came.")
    server.times["local"] = 1
    report = extractor.extract(work, client(server), outbox, deadline=None, progress=lambda _: None)
    result = outbox.get(extractor.fingerprint("meeting"), work[0].content_sha256)
    assert result is not None and result.status == "deferred" and result.mentions == ()
    assert "tier 'local' answered where the meeting stream asks for high" in (result.reason or "")
    assert [answer.tier for answer in result.answers] == ["local"] and not result.blamed
    assert report.streams["meeting"].deferred == 1
    # The large model is back on the next night.
    extractor.extract(work, client(server), outbox, deadline=None, progress=lambda _: None)
    result = outbox.get(extractor.fingerprint("meeting"), work[0].content_sha256)
    assert result is not None and result.status == "complete"


def test_a_smaller_tier_will_do_where_the_stream_asks_for_less(server: FakeServer) -> None:
    answer = ask(client(server, complexity={"contact": "low"}), "[[local]] Alma Reyes", "contact")
    assert (answer.problem, answer.tier) == (None, "local")
    assert server.headers[0]["X-Foundry-Complexity"] == "low"


def test_a_large_model_that_is_gone_ends_the_extraction_and_blames_few_documents(
    server: FakeServer, extractor: Extractor, tmp_path: Path
) -> None:
    work = items(*(f"[[local]] Alma Reyes {i}" for i in range(60)))
    report = extractor.extract(work, client(server), Outbox(tmp_path), deadline=None, progress=lambda _: None)
    counts = report.streams["meeting"]
    assert counts.complete == 0 and counts.deferred <= 12 and counts.deferred + counts.postponed == 60
    assert report.stopped is not None and "tier 'local'" in report.stopped


@pytest.mark.parametrize("module_id", ["Acme", "a/b", "", "a" * 65, "acme\r\nX: y"])
def test_a_module_id_that_the_gateway_would_refuse_is_never_sent(server: FakeServer, module_id: str) -> None:
    with pytest.raises(InputError, match="module id"):
        DoormanClient(gateway(server), module_id, SETTINGS)


def test_what_the_gateway_says_about_a_refusal_is_kept(server: FakeServer) -> None:
    with pytest.raises(DeferredError, match="status 400: a 400 on purpose"):
        ask(client(server), "[[400]]")
    assert server.calls == 1


def test_a_request_that_the_gateway_gave_up_is_not_asked_again_at_once(server: FakeServer) -> None:
    server.delay = 0.5
    with pytest.raises(DeferredError, match="the gateway gave up after"):
        ask(client(server, server_deadline_seconds=0.5), "[[503]]")
    assert server.calls == 1


@contextmanager
def http() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False) as found:
        yield found


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        ({"health_up": True, "circuit": "closed"}, None),
        ({"health_up": False, "circuit": "closed"}, "not up"),
        ({"health_up": "yes", "circuit": "closed"}, "not up"),
        ({"health_up": True, "circuit": "open"}, "circuit of tier_b.graph is open"),
        ({"configured": True}, "says nothing about tier_b.graph"),
        (None, "says nothing about tier_b.graph"),
    ],
)
def test_ready_is_what_counts_for_extraction(server: FakeServer, says: object, problem: str | None) -> None:
    server.ready = says  # type: ignore[attr-defined]
    with http() as found:
        answer = why_not_ready(server.url, found)
    assert answer is None if problem is None else problem in (answer or "")


def test_a_machine_that_boots_is_waited_for(server: FakeServer) -> None:
    booting = {"health_up": False, "circuit": "closed"}
    server.ready = [booting, booting, {"health_up": True, "circuit": "closed"}]  # type: ignore[attr-defined]
    said: list[str] = []
    wait_until_ready(gateway(server, poll_seconds=0.01), said.append)
    assert server.ready == [] and "not up" in said[0]  # type: ignore[attr-defined]


def test_a_machine_that_does_not_come_postpones_the_night(extractor: Extractor, tmp_path: Path) -> None:
    absent = FakeServer()
    absent.url = "http://127.0.0.1:9"
    settings = gateway(absent, poll_seconds=0.05, ready_timeout_seconds=0.2)

    @contextmanager
    def serve() -> Iterator[DoormanClient]:
        wait_until_ready(settings, lambda _: None)
        yield DoormanClient(settings, "acme", SETTINGS)

    outbox, work = Outbox(tmp_path), items("Alma Reyes", "Boris Tanaka")
    begin = time.monotonic()
    report = extract_night(work, extractor, outbox, serve, deadline_of=time.monotonic, progress=lambda _: None)
    assert time.monotonic() - begin < 5
    assert report.streams["meeting"].postponed == 2 and report.llm_calls == 0
    assert report.stopped is not None and "was not ready within inference.ready_timeout_seconds" in report.stopped
    assert list(tmp_path.rglob("*.json")) == []
    json.dumps(report.record())
