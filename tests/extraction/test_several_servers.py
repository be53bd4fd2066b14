"""One model behind several addresses: nothing is lost when one of them dies, and each does its share."""

import hashlib
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from fake_openai import FakeServer, Handler, fake_server

from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import Document
from ec1.extraction.reading.extractor import Extractor, WorkItem
from ec1.extraction.reading.loop import extract
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.extraction.reading.several import server_client
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
with fake_server(state=state):
    print(state.url, flush=True)
    threading.Event().wait()
"""


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

    def run(self, work: list[WorkItem], *addresses: str) -> ExtractionRecord:
        first, *replicas = addresses
        server = ServerSettings(kind="server", base_url=first, replicas=tuple(replicas), model="m")
        return extract(
            self.extractor,
            work,
            server_client(server, self.settings),
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
    command = [sys.executable, "-c", SERVER.format(tests=str(project / "tests"))]
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


def test_one_that_knows_no_such_model_is_left_out(tmp_path: Path, words: Path) -> None:
    """As a server that was set up otherwise: it answers 404 to all."""
    with fake_server(Elsewhere) as wrong, fake_server() as right:
        bench, work = Bench(tmp_path, words), documents(10)
        bench.run(work, wrong.url, right.url)
    assert bench.finished(work) == 10 and 0 < wrong.calls <= SETTINGS.max_in_flight


def test_where_none_answers_the_extraction_ends(tmp_path: Path, words: Path) -> None:
    with fake_server() as one, fake_server() as other:
        gone = one.url, other.url
    report = Bench(tmp_path, words).run(documents(4), *gone)
    assert report.streams["meeting"].postponed == 4, "no document is at fault"
    assert report.stopped is not None and "no server answers" in report.stopped


def test_an_answer_that_does_not_count_is_asked_of_the_other(tmp_path: Path, words: Path) -> None:
    """Not the document's fault: one server answers with something that is not a completion."""
    with fake_server(state=Odd()) as odd, fake_server() as right:
        bench, work = Bench(tmp_path, words), documents(10)
        bench.run(work, odd.url, right.url)
        assert odd.calls > 0
    assert bench.finished(work) == 10


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
