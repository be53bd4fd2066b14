"""What clients of OpenAI's API expect, and what becomes of those that send nonsense, leave, or ask too much."""

import asyncio
import json
import logging
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_engine import USAGE, FakeEngine
from listening import Serve, listening
from patience import until
from published import BASE, NAME, ROLE, TENANT
from test_gateway import ASK, ask, split

from ec1.adapters.registry import AdapterRegistry
from ec1.errors import InputError
from ec1.gpu.engine import Endpoint
from ec1.gpu.tool_parsers import tool_parser_of
from ec1.home import Home
from ec1.queries.adapters import version_page
from ec1.serving.canary import is_worse
from ec1.serving.keys import KeyLimits
from ec1.serving.server import keys_of
from ec1.serving_settings import CaptureSettings

HTTP = httpx.Client(trust_env=False, timeout=30)
WHO = (TENANT, ROLE)


def test_openais_client_lists_asks_and_is_refused(serve: Serve, engine: FakeEngine) -> None:
    openai = pytest.importorskip("openai")
    with serve() as served, openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        assert client.models.retrieve(NAME).id == NAME
        assert client.models.retrieve(f"{NAME}@v1").id == f"{NAME}@v1"
        with pytest.raises(openai.NotFoundError, match="is not served"):
            client.models.retrieve("gpt-4o")
        answer = client.responses.create(model=NAME, input="Where are the keys?")
        assert answer.model == f"{NAME}@v2" and answer.output_text.startswith("An answer by")
        with pytest.raises(openai.BadRequestError, match="/v1/embeddings is not served"):
            client.embeddings.create(model=NAME, input="keys")
        with pytest.raises(openai.NotFoundError, match="/v1/files is not served here"):
            client.files.list()
        said = client.chat.completions.create(model=NAME, messages=ASK, stream=True)
        assert "".join(each.choices[0].delta.content or "" for each in said).startswith("An answer by")


@pytest.mark.parametrize(
    "content",
    [
        b'{"model": "MODEL", "messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        b'{"model": "MODEL", "messages": [{"role": "user", "content": "x"}], "temperature": -Infinity}',
        b'{"model": "MODEL", "messages": [{"role": "user", "content": "x"}], "temperature": 1e999}',
        b'{"model": "MODEL", "messages": [{"role": "user", "content": "\\ud83d"}]}',
        b'{"model": "\\ud83d", "messages": []}',
    ],
)
def test_what_cannot_be_sent_on_is_a_400(
    serve: Serve, engine: FakeEngine, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with serve() as served:
        url = f"{served.url}/v1/chat/completions"
        answer = HTTP.post(url, content=content.replace(b"MODEL", NAME.encode()))
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"
        assert "UTF-8" in answer.json()["error"]["message"]
    assert not engine.requests and "Traceback" not in caplog.text


def test_clients_that_leave_at_any_moment_leave_no_trace(
    serve: Serve, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.delay = 0.02
    with serve() as served, caplog.at_level(logging.INFO):
        ask(served.url)
        host, port = served.url.removeprefix("http://").split(":")
        body = json.dumps({"model": NAME, "messages": ASK, "stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        whole = head + body
        for cut in (10, len(head), len(head) + 5, len(whole) - 1, len(whole)):
            for wait in (0, 0.03, 0.1):
                with socket.create_connection((host, int(port))) as connection:
                    connection.sendall(whole[:cut])
                    time.sleep(wait)
        until(lambda: served.backend.in_flight == 0)
        assert ask(served.url).status_code == 200
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_an_engine_that_dies_in_an_answer_cuts_it_without_a_traceback(
    serve: Serve, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/v1/chat/completions":
            await engine.app(scope, receive, send)
            return
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})

    with serve() as served, listening(broken, log_level="critical") as address:
        served.backend.open(Endpoint(address, BASE, api_key="engine's own"))
        with pytest.raises(httpx.RemoteProtocolError):
            ask(served.url, stream=True)
    assert "Traceback" not in caplog.text
    assert "went away in an answer" in caplog.text


@pytest.mark.slow
def test_no_answer_is_lost_to_a_connection_that_the_engine_closes(serve: Serve, engine: FakeEngine) -> None:
    """360 bursts of two, with pauses about as long as the engine keeps an idle connection."""
    idle = 0.01
    engine.settings = {"timeout_keep_alive": idle}
    told: Counter[int] = Counter()

    async def bursts(url: str) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as http:

            async def one() -> None:
                answer = await http.post(f"{url}/v1/chat/completions", json={"model": NAME, "messages": ASK})
                told[answer.status_code] += 1

            for burst in range(360):
                await asyncio.gather(*(one() for _ in range(2)))
                await asyncio.sleep(idle * (0.8 + burst % 40 / 100))

    with serve() as served:
        asyncio.run(bursts(served.url))
    assert told == {200: 720}


def test_ready_means_that_the_engine_answers(serve: Serve) -> None:
    with serve() as served:
        assert HTTP.get(f"{served.url}/readyz").status_code == 200
        served.backend.open(Endpoint("http://127.0.0.1:9", BASE))
        until(lambda: HTTP.get(f"{served.url}/readyz").status_code == 503)
        assert HTTP.get(f"{served.url}/readyz").json() == {"ready": False, "state": "the engine does not answer"}
        assert HTTP.get(f"{served.url}/healthz").status_code == 200
        served.backend.open(served.endpoint)
        until(lambda: HTTP.get(f"{served.url}/readyz").status_code == 200)


def test_limits_of_a_key(serve: Serve, home: Home, engine: FakeEngine) -> None:
    keys = keys_of(home)
    hasty = {"Authorization": f"Bearer {keys.add('hasty', (), KeyLimits(requests_per_minute=2))}"}
    thrifty = {"Authorization": f"Bearer {keys.add('thrifty', (), KeyLimits(tokens_per_day=3 * 25))}"}
    alone = {"Authorization": f"Bearer {keys.add('alone', (), KeyLimits(at_once=1))}"}
    with serve() as served:
        assert [ask(served.url, headers=hasty).status_code for _ in range(3)] == [200, 200, 429]
        refused = ask(served.url, headers=hasty)
        assert refused.json()["error"]["type"] == "rate_limit_error" and 0 < int(refused.headers["Retry-After"]) <= 61

        assert ask(served.url, headers=thrifty).json()["usage"] == USAGE
        # Whoever does not ask for the usage of a stream does not get it, and it counts.
        streamed = ask(served.url, headers=thrifty, stream=True)
        assert "usage" not in streamed.text and streamed.text.endswith("data: [DONE]\n\n")
        assert engine.requests[-1]["stream_options"] == {"include_usage": True}
        asked = ask(served.url, headers=thrifty, stream=True, stream_options={"include_usage": True})
        assert '"total_tokens": 25' in asked.text
        # An answer is counted when its last byte was sent.
        until(lambda: ask(served.url, headers=thrifty).status_code == 429)
        assert "75 tokens of today" in ask(served.url, headers=thrifty).json()["error"]["message"]

        engine.delay = 0.5
        body = {"model": NAME, "messages": ASK}

        async def both() -> list[int]:
            async with httpx.AsyncClient(trust_env=False, headers=alone) as http:
                asked = (http.post(f"{served.url}/v1/chat/completions", json=body) for _ in range(2))
                return sorted(answer.status_code for answer in await asyncio.gather(*asked))

        assert asyncio.run(both()) == [200, 429]
        assert ask(served.url, headers=alone).status_code == 200
    # It outlives the server.
    with serve() as served:
        assert ask(served.url, headers=thrifty).status_code == 429


def test_the_log_of_requests_says_who_and_how_and_nothing_of_what(serve: Serve, home: Home) -> None:
    headers = {"Authorization": f"Bearer {keys_of(home).add('ci', ())}"}
    with serve() as served:
        ask(served.url, headers=headers, user="eleanor")
        ask(served.url, "fernhollow/nobody", headers=headers)
        ask(served.url, headers={})
    (path,) = home.served.glob("requests-*.jsonl")
    assert path.stat().st_mode & 0o077 == 0
    good, unknown, keyless = map(json.loads, path.read_text().splitlines())
    assert (good["key"], good["asked"], good["answered_by"], good["status"]) == ("ci", NAME, f"{NAME}@v2", 200)
    assert good["tokens"] == 25 and good["ms"] >= good["first_byte_ms"] > 0
    assert (unknown["status"], unknown["answered_by"]) == (404, None)
    assert (keyless["status"], keyless["key"]) == (401, None)
    assert "keys" not in path.read_text() and "eleanor" not in path.read_text()


@pytest.mark.parametrize("trouble", ["failing", "refusing"])
def test_a_trials_arm_that_gets_worse_is_taken_out_and_told(
    serve: Serve, registry: AdapterRegistry, engine: FakeEngine, trouble: str
) -> None:
    split(registry, v1=1, in_use=1)
    setattr(engine, trouble, f"{NAME}@v1")
    with serve() as served:
        until(lambda: ask(served.url).status_code and bool(served.told), 60)
        until(lambda: {ask(served.url).headers.get("X-EC1-Model") for _ in range(5)} == {f"{NAME}@v2"})
        text = HTTP.get(f"{served.url}/metrics").text
    assert f'ec1_trial_rollbacks_total{{adapter="{NAME}@v1"}} 1.0' in text
    ((role, title, why),) = served.told
    what = "errors" if trouble == "failing" else "refusals"
    assert role == NAME and f"{NAME}@v1 is taken out" in title and f"{what} in" in why
    (trial,) = version_page(registry, (*WHO, 1)).trials
    bad = trial.result["v1"].errors if trouble == "failing" else trial.result["v1"].refusals
    assert trial.ended and bad >= 10 and trial.result["in-use"].errors == 0
    assert registry.history(*WHO)[-1].who == "ec1 serve"


def test_a_trials_arm_that_people_like_less_is_taken_out(
    serve: Serve, registry: AdapterRegistry, engine: FakeEngine
) -> None:
    split(registry, v1=1, in_use=1)
    with serve(capture=CaptureSettings(consent=True)) as served:
        for number in range(400):
            answer = ask(served.url, user=f"user {number}")
            verdict = "down" if answer.headers["X-EC1-Model"].endswith("v1") else "up"
            HTTP.post(f"{served.url}/v1/feedback", json={"response_id": answer.json()["id"], "verdict": verdict})
            if served.told:
                break
        until(lambda: ask(served.url).status_code == 200 and bool(served.told))
    assert "people are not content" in served.told[0][2]
    (trial,) = version_page(registry, (*WHO, 1)).trials
    result = trial.result["v1"]
    assert result.good == 0 and result.bad >= 20 and result.high is not None and result.high < 0.2


def test_worse_is_beyond_doubt() -> None:
    assert not is_worse(19, 19, 0, 1000), "too few to tell"
    assert not is_worse(5, 100, 3, 100)
    assert is_worse(30, 100, 2, 100)
    assert not is_worse(2, 100, 30, 100), "better is not worse"
    assert not is_worse(0, 100, 0, 100) and not is_worse(100, 100, 100, 100)


def test_a_models_own_template_says_how_it_calls_tools(tmp_path: Path) -> None:
    assert tool_parser_of(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{% if tools %}[TOOL_CALLS]"}))
    assert tool_parser_of(tmp_path) == "mistral"
    for template, parser in (
        ("<tool_call>\n{{ call | tojson }}", "hermes"),
        ("<tool_call>\n<function={{ name }}>", "qwen3_coder"),
        ("<function_calls>", "olmo3"),
        ("<|im_start|>", None),
    ):
        (tmp_path / "chat_template.jinja").write_text(template)
        assert tool_parser_of(tmp_path) == parser


def test_a_weight_of_nothing_is_refused_in_words(registry: AdapterRegistry) -> None:
    with pytest.raises(InputError, match="split: Input should be greater than or equal to 1"):
        split(registry, v1=0)
