"""Doorman's own wire: what only the gateway has. What it shares with other servers is in `test_extractor.py`."""

import asyncio
import hashlib
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from fake_doorman import FakeDoorman, fake_doorman
from fake_service_content import fake_service_content

from ec1.deployment import Deployment
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import Document
from ec1.errors import DeferredError, InputError
from ec1.extraction.prompt import messages
from ec1.extraction.reading.client import Circuit, Completion
from ec1.extraction.reading.doorman import DoormanClient, too_long_an_answer, wait_until_ready, why_not_ready
from ec1.extraction.reading.extractor import Extractor, WorkItem
from ec1.extraction.reading.loop import extract
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.schema import ENTITY_SCHEMA
from ec1.extraction.settings import DoormanSettings, ExtractionSettings
from ec1.night.steps.extraction import extract_night

SETTINGS = ExtractionSettings(chunk_tokens=40, overlap_tokens=0, max_in_flight=2, request_timeout_seconds=10)


@pytest.fixture
def server() -> Iterator[FakeDoorman]:
    with fake_doorman() as state:
        yield state


def gateway(server: FakeDoorman, **settings: object) -> DoormanSettings:
    return DoormanSettings.model_validate(
        {"kind": "doorman", "base_url": server.url, "model": "m", "server_deadline_seconds": 1, **settings}
    )


def client(server: FakeDoorman, **settings: object) -> DoormanClient:
    circuit = Circuit(cool_down_seconds=0.01, rounds=3)
    return DoormanClient(
        gateway(server, **settings), "acme-extraction", SETTINGS, backoff_seconds=0.01, circuit=circuit
    )


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


def test_the_request_is_exactly_the_agreed_one(server: FakeDoorman) -> None:
    ask(client(server), "Alma Reyes")
    [headers], [body] = server.headers, server.requests
    assert headers["X-Foundry-Module-ID"] == "acme-extraction"
    assert headers["X-Foundry-Complexity"] == "high"
    assert headers["X-Foundry-Yoyo-Label"] == "graph"
    assert uuid.UUID(headers["X-Foundry-Request-ID"])
    assert body.keys() == {"messages", "max_tokens", "temperature", "grammar"}
    assert body["grammar"] == {"type": "json-schema", "value": ENTITY_SCHEMA}
    assert body["max_tokens"] == SETTINGS.max_answer_tokens


@pytest.mark.parametrize("where", ["", "[[choices]]", "[[thought]]", "[[reasoned]]"])
def test_the_answer_is_found_where_it_stands(
    server: FakeDoorman, extractor: Extractor, tmp_path: Path, where: str
) -> None:
    outbox, work = Outbox(tmp_path), items(f"{where} Alma Reyes came.")
    extract(extractor, work, client(server), outbox, deadline=None, progress=lambda _: None)
    result = outbox.get(extractor.fingerprint("meeting"), work[0].content_sha256)
    assert result is not None and result.status == "complete"
    assert [mention.name for mention in result.mentions] == ["Alma Reyes"]
    assert (result.answers[0].tier, result.answers[0].model) == ("yoyo", "fake")


def test_a_smaller_tiers_answer_is_deferred_where_the_stream_asks_for_high(
    server: FakeDoorman, extractor: Extractor, tmp_path: Path
) -> None:
    outbox, work = Outbox(tmp_path), items("[[local]] Alma Reyes came.")
    server.times["local"] = 1
    report = extract(extractor, work, client(server), outbox, deadline=None, progress=lambda _: None)
    result = outbox.get(extractor.fingerprint("meeting"), work[0].content_sha256)
    assert result is not None and result.status == "deferred"
    assert "tier 'local' answered where the meeting stream asks for high" in (result.reason or "")
    assert [answer.tier for answer in result.answers] == ["local"] and not result.blamed
    assert report.streams["meeting"].deferred == 1
    # The large model is back on the next night.
    extract(extractor, work, client(server), outbox, deadline=None, progress=lambda _: None)
    result = outbox.get(extractor.fingerprint("meeting"), work[0].content_sha256)
    assert result is not None and result.status == "complete"


def test_a_smaller_tier_will_do_where_the_stream_asks_for_less(server: FakeDoorman) -> None:
    answer = ask(client(server, complexity={"contact": "low"}), "[[local]] Alma Reyes", "contact")
    assert (answer.problem, answer.tier) == (None, "local")
    assert server.headers[0]["X-Foundry-Complexity"] == "low"


def test_a_large_model_that_is_gone_ends_the_extraction_and_blames_few_documents(
    server: FakeDoorman, extractor: Extractor, tmp_path: Path
) -> None:
    work = items(*(f"[[local]] Alma Reyes {i}" for i in range(60)))
    report = extract(extractor, work, client(server), Outbox(tmp_path), deadline=None, progress=lambda _: None)
    counts = report.streams["meeting"]
    assert counts.complete == 0 and counts.deferred <= 12 and counts.deferred + counts.postponed == 60
    assert report.stopped is not None and "tier 'local'" in report.stopped


def test_a_breaker_that_opens_twice_costs_no_document(
    server: FakeDoorman, extractor: Extractor, tmp_path: Path
) -> None:
    # The second time its first probe fails, too.
    server.outages, server.cool_down = [range(10, 15), range(30, 36)], 0.5
    work = items(*(f"Alma Reyes {i}" for i in range(48)))
    asked = client(server, poll_seconds=0.05)
    deadline = time.monotonic() + 60
    report = extract(extractor, work, asked, Outbox(tmp_path), deadline=deadline, progress=lambda _: None)
    assert server.opened_times == 3
    assert report.streams["meeting"].complete == 48 and report.stopped is None
    assert server.calls < 48 + 3 * 10, "while it is open nothing is asked"


def test_a_document_that_only_the_smaller_tier_answers_stops_no_other(
    server: FakeDoorman, extractor: Extractor, tmp_path: Path
) -> None:
    work = items(*(f"{'[[local]] ' if i % 6 == 0 else ''}Alma Reyes {i}" for i in range(48)))
    deadline = time.monotonic() + 60
    report = extract(extractor, work, client(server), Outbox(tmp_path), deadline=deadline, progress=lambda _: None)
    assert (report.streams["meeting"].complete, report.streams["meeting"].deferred) == (40, 8)


@pytest.mark.parametrize("module_id", ["Acme", "a/b", "", "a" * 65, "acme\r\nX: y"])
def test_a_module_id_that_the_gateway_would_refuse_is_never_sent(server: FakeDoorman, module_id: str) -> None:
    with pytest.raises(InputError, match="module id"):
        DoormanClient(gateway(server), module_id, SETTINGS)


def test_what_the_gateway_says_about_a_refusal_is_kept(server: FakeDoorman) -> None:
    with pytest.raises(DeferredError, match="status 400: a 400 on purpose"):
        ask(client(server), "[[400]]")
    assert server.calls == 1


def test_a_request_that_the_gateway_gave_up_is_not_asked_again_at_once(server: FakeDoorman) -> None:
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
        ({"health_up": True, "circuit": "open", "opened_for_secs": 200}, "opened 200 s ago and lets nothing through"),
        # From then on the next request closes it, and nothing else does.
        ({"health_up": True, "circuit": "open", "opened_for_secs": 300}, None),
        ({"health_up": True, "circuit": "half_open"}, None),
        ({"health_up": True, "circuit": "ajar"}, "circuit of tier_b.graph is 'ajar'"),
        ({"configured": True}, "says nothing about tier_b.graph"),
        (None, "says nothing about tier_b.graph"),
    ],
)
def test_ready_is_what_counts_for_extraction(server: FakeDoorman, says: object, problem: str | None) -> None:
    server.ready = says
    with http() as found:
        answer = why_not_ready(server.url, found)
    assert answer is None if problem is None else problem in (answer or "")


def test_a_machine_that_boots_is_waited_for(server: FakeDoorman) -> None:
    booting = {"health_up": False, "circuit": "closed"}
    server.ready = [booting, booting, {"health_up": True, "circuit": "closed"}]
    said: list[str] = []
    wait_until_ready(gateway(server, poll_seconds=0.01), said.append)
    assert server.ready == [] and "not up" in said[0]


def test_a_machine_that_does_not_come_postpones_the_night(extractor: Extractor, tmp_path: Path) -> None:
    absent = FakeDoorman()
    absent.url = "http://127.0.0.1:9"
    settings = gateway(absent, poll_seconds=0.05, ready_timeout_seconds=0.2)

    @contextmanager
    def serve() -> Iterator[DoormanClient]:
        wait_until_ready(settings, lambda _: None)
        yield DoormanClient(settings, "acme", SETTINGS)

    outbox, work = Outbox(tmp_path), items("Alma Reyes", "Boris Tanaka")
    begin = time.monotonic()
    report = extract_night(work, extractor, outbox, serve, deadline_of=time.monotonic, progress=lambda _: None)
    assert time.monotonic() - begin < 60, "a night is not spent on waiting"
    assert report.streams["meeting"].postponed == 2 and report.llm_calls == 0
    assert report.stopped is not None and "was not ready within inference.ready_timeout_seconds" in report.stopped
    assert list(tmp_path.rglob("*.json")) == []
    report.model_dump_json()


BUSY = ExtractionSettings(chunk_tokens=40, overlap_tokens=0, max_in_flight=16, request_timeout_seconds=5)
"""Our own default of 16 requests in flight, against Doorman's of two slots."""


def minutes(number: int) -> str:
    """A document of about eight chunks."""
    line = "Alma Reyes came to the meeting in the morning and said that the work on the hall goes on as it was agreed."
    return "\n\n".join(f"{line} It was item {item} of meeting {number}." for item in range(8))


def test_every_document_is_read_in_one_night_with_the_gateways_own_defaults(
    server: FakeDoorman, words: Path, tmp_path: Path
) -> None:
    server.delay = 0.01
    extractor, outbox, work = Extractor(BUSY, "m", "main", words), Outbox(tmp_path), items(*map(minutes, range(24)))
    asked = DoormanClient(gateway(server), "acme-extraction", BUSY)
    begin = time.monotonic()
    report = extract(extractor, work, asked, outbox, deadline=begin + 60, progress=lambda _: None)
    counts = report.streams["meeting"]
    assert (counts.complete, counts.deferred, counts.postponed) == (24, 0, 0)
    assert server.busy == 0 and server.refused > 0
    # What was refused is the price of finding out whether there is more room: a small part.
    assert server.refused < report.chunks / 4
    # A gateway that is given more slots is given more to do; it answers so slowly that a busy client can keep it full.
    server.slots, server.max_in_flight, server.delay = 8, 0, 0.25
    more = Extractor(BUSY.model_copy(update={"min_confidence": 0.01}), "m", "main", words)
    extract(more, work[:8], DoormanClient(gateway(server), "a-b", BUSY), outbox, deadline=None, progress=lambda _: None)
    assert server.max_in_flight >= 6


def test_a_full_gateway_is_waited_for_until_the_deadline_and_blames_nobody(
    server: FakeDoorman, extractor: Extractor, tmp_path: Path
) -> None:
    server.slots = 0
    outbox, work = Outbox(tmp_path), items("Alma Reyes came.", "Boris Tanaka came.")
    begin = time.monotonic()
    report = extract(extractor, work, client(server), outbox, deadline=begin + 1, progress=lambda _: None)
    assert time.monotonic() - begin < 60, "a night is not spent on waiting"
    assert report.streams["meeting"].postponed == 2 and list(tmp_path.rglob("*.json")) == []


def test_an_unavailable_tier_is_waited_for_until_the_deadline(
    server: FakeDoorman, extractor: Extractor, tmp_path: Path
) -> None:
    """Longer than the rounds after which a server that only fails is given up."""
    server.times["503"] = 12
    outbox, work = Outbox(tmp_path), items(*(f"[[503]] Alma Reyes {i}" for i in range(4)))
    deadline = time.monotonic() + 120
    report = extract(extractor, work, client(server), outbox, deadline=deadline, progress=lambda _: None)
    assert report.streams["meeting"].complete == 4 and report.stopped is None


def test_the_small_tier_that_steps_in_after_the_gateways_deadline_does_not_count(
    server: FakeDoorman, extractor: Extractor, tmp_path: Path
) -> None:
    server.deadline, server.delay = 0.1, 0.2
    outbox, work = Outbox(tmp_path), items("Alma Reyes came.")
    extract(extractor, work, client(server), outbox, deadline=None, progress=lambda _: None)
    result = outbox.get(extractor.fingerprint("meeting"), work[0].content_sha256)
    assert result is not None and result.status == "deferred" and not result.blamed
    assert "tier 'local'" in (result.reason or "")


def test_last_nights_entities_do_not_steer_tonights_answers(server: FakeDoorman) -> None:
    with fake_service_content() as content:
        server.content = content
        known = {"entity_name": "Chidi Obi Hall", "classification": "Location", "confidence": 0.9, "source_doc": "mk-1"}
        content.take("acme", [{**known, "module_id": "acme"}])
        # Under the module id that entities are stored by, the gateway feeds them to the model as the truth.
        fed = DoormanClient(gateway(server), "acme", SETTINGS)
        assert "Chidi Obi" in ask(fed, "Alma Reyes met Chidi today.").content and server.contexts
        server.contexts.clear()
        assert "Chidi Obi" not in ask(client(server), "Alma Reyes met Chidi today.").content
        assert server.contexts == []


def test_extraction_and_entities_must_have_module_ids_of_their_own() -> None:
    values = {"name": "d", "tenant": "acme", "recipes": [], "inference": {"kind": "doorman", "model": "m"}}
    deployment = Deployment.model_validate(values)
    assert (deployment.extraction_module_id, deployment.content_module_id) == ("acme-extraction", "acme")
    assert DoormanSettings(kind="doorman", model="m").server_deadline_seconds == 170
    with pytest.raises(ValueError, match="as ground truth; name another one"):
        Deployment.model_validate(values | {"inference": {"kind": "doorman", "model": "m", "module_id": "acme"}})


def test_an_answer_that_the_gateway_would_not_wait_for_is_found_before_the_night() -> None:
    settings = ExtractionSettings(max_answer_tokens=4096, reasoning_tokens=3000)
    slow = DoormanSettings(kind="doorman", model="m", answer_tokens_per_second=12)
    assert "4096 tokens at 12 tokens/s take 341 s" in (too_long_an_answer(slow, settings) or "")
    assert too_long_an_answer(slow, ExtractionSettings()) is None
