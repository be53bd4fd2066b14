"""Servers that somebody else keeps running: their keys, their certificates, their names for the model."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fake_openai import FakeServer, Handler, fake_server
from test_several_servers import SETTINGS, Bench, documents
from tls import certificates_in, tls_before

from ec1.errors import InputError, ServiceError
from ec1.extraction.reading.client import Completion, ServerFaultError
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.reading.several import server_client
from ec1.extraction.settings import ServerSettings

KEY = "sk-what-they-ask-for"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    return path


def test_each_of_them_is_sent_the_key_of_the_file(tmp_path: Path, words: Path, key_file: Path) -> None:
    with fake_server() as one, fake_server() as other:
        one.key = other.key = KEY
        one.delay = other.delay = 0.02
        bench, work = Bench(tmp_path / "outbox", words), documents(20)
        bench.run(work, one.url, other.url, key_file=key_file)
    assert bench.finished(work) == 20 and one.calls and other.calls


def test_without_the_key_the_extraction_says_that_it_is_refused(tmp_path: Path, words: Path) -> None:
    with fake_server() as one:
        one.key = KEY
        report = Bench(tmp_path, words).run(documents(2), one.url)
    assert "refuses us: status 401: wrong key" in str(report.stopped)


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two\nlines", b"\xff\xfe"])
def test_a_file_that_holds_no_key_is_named_and_its_content_is_not(key_file: Path, content: bytes | None) -> None:
    key_file.unlink() if content is None else key_file.write_bytes(content)
    server = ServerSettings(kind="server", base_url="http://127.0.0.1:9", model="m", key_file=key_file)
    with pytest.raises(InputError, match=str(key_file)) as raised:
        server_client(server, SETTINGS)
    assert "two" not in str(raised.value).replace(str(key_file), "")


def test_one_with_a_certificate_of_the_organisations_own(
    tmp_path: Path, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificates_in(tmp_path)
    with fake_server() as one, tls_before(one.url, made) as address:
        stranger = asyncio.run(OpenAIClient(address, "m", SETTINGS).why_not_served())
        assert stranger is not None and "certificate verify failed" in stranger
        monkeypatch.setenv("SSL_CERT_FILE", str(made.authority))
        assert asyncio.run(OpenAIClient(address, "m", SETTINGS).why_not_served()) is None
        bench, work = Bench(tmp_path / "outbox", words), documents(4)
        bench.run(work, address)
    assert bench.finished(work) == 4


def test_the_model_has_their_name_in_requests_and_ours_in_what_is_kept(tmp_path: Path, words: Path) -> None:
    with fake_server() as one:
        bench, work = Bench(tmp_path, words), documents(4)
        bench.run(work, one.url, served_as="m:1b")
        assert {each["model"] for each in one.requests} == {"m:1b"}
        bench.run(work, one.url)  # Nothing is read again.
    assert bench.finished(work) == 4 and one.calls == 4


class AsOthersDo(Handler):
    """Names tokens by their words, and does not constrain them."""

    def _decide(self, body: dict[str, Any]) -> None:
        top = {" person": -0.1, " the": -2.0}
        choices = [{"index": 0, "text": " person", "logprobs": {"top_logprobs": [top]}}]
        self._send(200, json.dumps({"model": "m", "choices": choices}).encode())


class AsLlamaCppDoes(Handler):
    """Gives them in the form of chat completions."""

    def _decide(self, body: dict[str, Any]) -> None:
        logprobs = {"content": [{"id": 1, "token": " person", "logprob": -0.1, "top_logprobs": []}]}
        choices = [{"index": 0, "text": " person", "logprobs": logprobs}]
        self._send(200, json.dumps({"model": "m", "choices": choices}).encode())


@pytest.mark.parametrize("kind", [AsOthersDo, AsLlamaCppDoes])
def test_log_probabilities_of_free_words_decide_nothing(kind: type[Handler]) -> None:
    def asked(one: FakeServer) -> Completion:
        async def ask() -> Completion:
            server = ServerSettings(kind="server", base_url=one.url, model="m")
            async with server_client(server, SETTINGS).decider() as it:
                question = [{"role": "user", "content": "Text: Alma Reyes\nAlma Reyes ="}]
                return await it.complete(question, {"labels": {1: " person", 2: " none"}}, stream="s", deadline=None)

        return asyncio.run(ask())

    with fake_server(kind) as one, pytest.raises(ServerFaultError, match=r"set extraction\.mode to answer"):
        asked(one)


def test_a_refusal_is_no_answer_of_the_list(tmp_path: Path) -> None:
    with fake_server() as one:
        one.key = KEY
        refused = asyncio.run(OpenAIClient(one.url, "m", SETTINGS).why_not_served())
        assert refused == "it does not list its models (status 401)"
        assert asyncio.run(OpenAIClient(one.url, "m", SETTINGS, api_key=KEY).why_not_served()) is None
        with pytest.raises(ServiceError, match="401"):
            asyncio.run(_complete(OpenAIClient(one.url, "m", SETTINGS)))


async def _complete(client: OpenAIClient) -> Completion:
    async with client:
        return await client.complete([{"role": "user", "content": "x"}], {}, stream="s", deadline=None)
