"""One model behind several addresses: nothing is lost when one of them dies, and each does its share."""

import asyncio
import contextlib
import hashlib
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_openai import FakeServer, Handler, fake_server
from loopback_server import free_port

from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import Document
from ec1.extraction.reading.client import Circuit, Completion
from ec1.extraction.reading.extractor import Extractor, WorkItem
from ec1.extraction.reading.loop import extract
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.extraction.reading.several import Servers, SeveralClients, server_client
from ec1.extraction.settings import ExtractionSettings, ServerSettings

SETTINGS = ExtractionSettings(
    chunk_tokens=40, overlap_tokens=0, max_answer_tokens=100, max_in_flight=8, request_timeout_seconds=5, max_attempts=3
)
SERVER = """
import sys, threading
sys.path[:0] = [{tests!r}]
from fake_openai import FakeServer, fake_server
state = FakeServer()
state.delay = 0.05
with fake_server(state=state, port={port}):
    print(state.url, flush=True)
    threading.Event().wait()
"""
PATIENCE_SECONDS = 30.0


def documents(count: int) -> list[WorkItem]:
    def work(number: int) -> WorkItem:
        text = f"Alma Reyes came to the meeting number {number} and said that the work on the hall goes on."
        document = Document(DocumentKey("meeting", f"{number}.md"), "a", text)
        return WorkItem("meeting", hashlib.sha256(text.encode()).hexdigest(), lambda: document)

    return [work(number) for number in range(count)]


class Bench:
    def __init__(self, outbox: Path, model: Path, settings: ExtractionSettings = SETTINGS) -> None:
        self.settings, self.outbox = settings, Outbox(outbox)
        self.extractor = Extractor(settings, "some/model", "main", model)

    def run(
        self, work: list[WorkItem], *addresses: str, patience_seconds: float = PATIENCE_SECONDS, **server: Any
    ) -> ExtractionRecord:
        first, *replicas = addresses
        served = ServerSettings(kind="server", base_url=first, replicas=tuple(replicas), model="m", **server)
        return extract(
            self.extractor,
            work,
            server_client(served, self.settings, patience_seconds=patience_seconds),
            self.outbox,
            deadline=None,
            progress=lambda seen: None,
        )

    def finished(self, work: list[WorkItem]) -> int:
        fingerprint = self.extractor.fingerprint("meeting")
        found = [self.outbox.get(fingerprint, each.content_sha256) for each in work]
        return sum(each is not None and each.status == "complete" for each in found)


def test_both_do_their_share(tmp_path: Path, words: Path) -> None:
    with fake_server() as one, fake_server() as other:
        one.delay = other.delay = 0.05
        bench, work = Bench(tmp_path, words), documents(60)
        report = bench.run(work, one.url, other.url)
    assert bench.finished(work) == 60 and report.llm_calls == one.calls + other.calls == 60
    assert min(one.calls, other.calls) >= 20
    assert max(one.max_in_flight, other.max_in_flight) <= SETTINGS.max_in_flight // 2 + 1


def test_a_slow_one_gets_less(tmp_path: Path, words: Path) -> None:
    with fake_server() as fast, fake_server() as slow:
        fast.delay, slow.delay = 0.02, 0.4
        bench, work = Bench(tmp_path, words), documents(60)
        bench.run(work, slow.url, fast.url)
    assert bench.finished(work) == 60 and fast.calls > 2 * slow.calls > 0


def test_nothing_is_lost_when_one_is_killed(tmp_path: Path, words: Path, project: Path) -> None:
    command = [sys.executable, "-c", SERVER.format(tests=str(project / "tests"), port=0)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=project) as process,
        fake_server() as stays,
    ):
        stays.delay = 0.05
        assert process.stdout is not None
        address = process.stdout.readline().strip()

        def kill_in_the_middle() -> None:
            while stays.calls < 20:
                time.sleep(0.005)
            process.kill()

        threading.Thread(target=kill_in_the_middle, daemon=True).start()
        bench, work = Bench(tmp_path, words), documents(120)
        report = bench.run(work, address, stays.url)
        assert process.wait(10) != 0, "it was killed before the end"
    assert bench.finished(work) == 120
    assert 60 <= stays.calls < 120, "the other one served some before it died"
    assert report.streams["meeting"].deferred == 0


def test_one_that_comes_later_is_asked_too(tmp_path: Path, words: Path) -> None:
    with fake_server() as first, fake_server() as later:
        first.delay = later.delay = 0.05

        def client_of(address: str, circuit: Circuit) -> OpenAIClient:
            return OpenAIClient(address, "m", SETTINGS, circuit=circuit)

        def addresses() -> list[str]:
            return [first.url, *([later.url] if first.calls > 10 else [])]

        client = SeveralClients(Servers(addresses, client_of, SETTINGS.max_attempts), PATIENCE_SECONDS)
        bench, work = Bench(tmp_path, words), documents(400)
        extract(bench.extractor, work, client, bench.outbox, deadline=None, progress=lambda seen: None)
    assert bench.finished(work) == 400 and first.calls + later.calls == 400
    assert later.calls > 50


def test_one_that_knows_no_such_model_is_left_out(tmp_path: Path, words: Path) -> None:
    """As a server that was set up otherwise: it answers 404 to all."""
    with fake_server(Elsewhere) as wrong, fake_server() as right:
        bench, work = Bench(tmp_path, words), documents(10)
        bench.run(work, wrong.url, right.url)
    assert bench.finished(work) == 10 and wrong.calls <= SETTINGS.max_in_flight


def test_where_none_answers_the_extraction_ends(tmp_path: Path, words: Path) -> None:
    with fake_server() as one, fake_server() as other:
        gone = one.url, other.url
    report = Bench(tmp_path, words).run(documents(4), *gone, patience_seconds=1)
    assert report.streams["meeting"].postponed == 4, "no document is at fault"
    assert report.stopped is not None and "no server answers" in report.stopped


def test_an_answer_that_does_not_count_is_asked_of_the_other(tmp_path: Path, words: Path) -> None:
    """Not the document's fault: one server answers with something that is not a completion."""
    with fake_server(state=Odd()) as odd, fake_server() as right:
        bench, work = Bench(tmp_path, words), documents(10)
        bench.run(work, odd.url, right.url)
        assert odd.calls > 0
    assert bench.finished(work) == 10


class Restarted:
    """A server in a process of its own, on a port that it keeps."""

    def __init__(self, project: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.starts = 0
        self._command = [sys.executable, "-c", SERVER.format(tests=str(project / "tests"), port=self.port)]
        self._project = project
        self.start()

    def start(self) -> None:
        self.starts += 1
        self._process = subprocess.Popen(self._command, cwd=self._project, stdout=subprocess.DEVNULL)
        while True:
            assert self._process.poll() is None
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/v1/models", trust_env=False).is_success:
                    return
            time.sleep(0.05)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.mark.system
def test_two_that_are_restarted_one_after_the_other_lose_nothing(tmp_path: Path, words: Path, project: Path) -> None:
    one, other = Restarted(project), Restarted(project)
    ended = threading.Event()

    def restart_in_turn() -> None:
        """As an operator does it: the next one when the first serves again, which the client has not seen yet."""
        while not ended.wait(1):
            for each in (one, other):
                each.kill()
                each.start()

    operator = threading.Thread(target=restart_in_turn)
    bench, work = Bench(tmp_path, words), documents(2000)
    try:
        operator.start()
        report = bench.run(work, one.url, other.url)
    finally:
        ended.set()
        operator.join()
        one.kill()
        other.kill()
    assert min(one.starts, other.starts) >= 3, "both were restarted while it went on"
    assert bench.finished(work) == 2000
    assert report.stopped is None and report.streams["meeting"].deferred == 0
    print(f"2000 of 2000 answered over {one.starts + other.starts - 2} restarts")


def test_one_that_serves_another_model_is_left_out_until_it_serves_ours(tmp_path: Path, words: Path) -> None:
    with fake_server() as one, fake_server() as other:
        other.models, one.delay = ["another/model"], 0.05

        def set_it_right() -> None:
            while one.calls < 20:
                time.sleep(0.005)
            assert other.calls == 0
            other.models.append("m")

        threading.Thread(target=set_it_right, daemon=True).start()
        bench, work = Bench(tmp_path, words), documents(600)
        bench.run(work, one.url, other.url)
    assert bench.finished(work) == 600 and other.calls > 0


def test_an_answer_of_another_model_is_refused_and_asked_again(tmp_path: Path, words: Path) -> None:
    """Something in between sends every eighth request elsewhere."""
    with fake_server() as one, fake_server() as other:
        one.stray_every = 8
        bench, work = Bench(tmp_path, words), documents(80)
        report = bench.run(work, one.url, other.url)
    assert bench.finished(work) == 80 and one.answers >= 8
    assert report.llm_calls == one.calls + other.calls > 80
    fingerprint = bench.extractor.fingerprint("meeting")
    found = [bench.outbox.get(fingerprint, each.content_sha256) for each in work]
    assert {answer.model for each in found if each for answer in each.answers} == {"m"}


def test_a_server_that_only_has_another_model_is_told_from_one_under_another_name(tmp_path: Path, words: Path) -> None:
    with fake_server() as one:
        one.stray_every = 1
        bench, work = Bench(tmp_path, words), documents(4)
        report = bench.run(work, one.url)
        assert bench.finished(work) == 0
        said = str(report.problems)
        assert "'another/model' answered, not m" in said and "inference.answers_as" in said
        bench.run(work, one.url, answers_as=("another/model",))
    assert bench.finished(work) == 4


class Elsewhere(Handler):
    """Answers 404 to all."""

    def refusal(self, body: dict[str, Any]) -> str | None:
        return "no such model"

    def _send(self, status: int, data: bytes) -> None:
        super()._send(404, data)


class Odd(FakeServer):
    """Every text counts as marked: none gets a completion."""

    def acts(self, mark: str, text: str) -> bool:
        return mark == "odd"


def test_log_probabilities_of_another_model_do_not_count_either(words: Path) -> None:
    with fake_server() as one:
        one.stray_every = 1
        server = ServerSettings(kind="server", base_url=one.url, model="m")

        async def ask() -> Completion:
            async with server_client(server, SETTINGS).decider() as decider:
                question = [{"role": "user", "content": "Text: Alma Reyes\nAlma Reyes ="}]
                return await decider.complete(question, {"labels": {1: "Person", 2: "none"}}, stream="s", deadline=None)

        answer = asyncio.run(ask())
    assert answer.problem is not None and "'another/model' answered, not m" in answer.problem
