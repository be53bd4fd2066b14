"""The gateway over real HTTP: which version answers, what is refused, and what passes through untouched."""

import asyncio
import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_engine import FakeEngine
from listening import Serve
from patience import until
from published import BASE, NAME, ROLE, TENANT, publish

from ec1.adapters.registry import AdapterRegistry
from ec1.errors import InputError
from ec1.home import Home
from ec1.serving.server import keys_of

WHO = (TENANT, ROLE)
ASK = [{"role": "user", "content": "Where are the keys?"}]


# One client for all: a new one costs as much as a whole exchange.
HTTP = httpx.Client(trust_env=False, timeout=30)


def ask(url: str, model: object = NAME, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    return HTTP.post(f"{url}/v1/chat/completions", json={"model": model, "messages": ASK, **body}, headers=headers)


def split(registry: AdapterRegistry, **arms: int) -> None:
    registry.start_trial(*WHO, {arm.replace("_", "-"): weight for arm, weight in arms.items()}, "test")


def test_the_version_in_use_answers_and_says_so(serve: Serve) -> None:
    with serve() as served:
        answer = ask(served.url)
        assert answer.status_code == 200
        assert answer.headers["X-EC1-Model"] == answer.json()["model"] == f"{NAME}@v2"
        older = ask(served.url, f"{NAME}@v1")
        assert older.headers["X-EC1-Model"] == older.json()["model"] == f"{NAME}@v1"
        base = ask(served.url, BASE)
        assert base.headers["X-EC1-Model"] == base.json()["model"] == BASE


def test_the_engine_is_only_asked_for_names_with_a_version(serve: Serve, engine: FakeEngine) -> None:
    with serve() as served:
        ask(served.url, user="one", temperature=0.5, logit_bias={"5": 1})
    assert engine.requests == [
        {"model": f"{NAME}@v2", "messages": ASK, "user": "one", "temperature": 0.5, "logit_bias": {"5": 1}}
    ]
    assert set(engine.loaded) == {f"{NAME}@v2"}


def test_a_stream_passes_as_it_comes(serve: Serve, engine: FakeEngine) -> None:
    engine.delay = 0.02
    body = {"model": NAME, "messages": ASK, "stream": True}
    with (
        serve() as served,
        HTTP.stream("POST", f"{served.url}/v1/chat/completions", json=body) as answer,
    ):
        moments, events = [], []
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                moments.append(time.monotonic())
                events.append(json.loads(line.removeprefix("data: ")))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events).startswith("An answer by")
    assert {event["model"] for event in events} == {f"{NAME}@v2"}
    # Not gathered first: the last word comes long after the first.
    assert moments[-1] - moments[0] > 5 * engine.delay


def test_a_promotion_a_rollback_and_a_withdrawal_count_without_a_restart(
    serve: Serve, registry: AdapterRegistry, engine: FakeEngine, tmp_path: Path
) -> None:
    def in_use() -> str:
        return ask(served.url).headers["X-EC1-Model"]

    with serve() as served:
        assert in_use() == f"{NAME}@v2"
        registry.rollback(*WHO, "worse in use")
        until(lambda: in_use() == f"{NAME}@v1")
        registry.promote(*WHO, 2, "not worse after all")
        until(lambda: in_use() == f"{NAME}@v2")
        publish(registry, tmp_path, 3)
        until(lambda: in_use() == f"{NAME}@v3")
        registry.withdraw(*WHO, 3, "leaks a name")
        until(lambda: in_use() == f"{NAME}@v2")
        refused = ask(served.url, f"{NAME}@v3")
        assert refused.status_code == 410
        assert "leaks a name" in refused.json()["error"]["message"]
        # What was withdrawn leaves the engine, too.
        until(lambda: f"{NAME}@v3" not in engine.loaded)


@pytest.mark.parametrize(
    "model",
    [
        "fernhollow/engineering@v0",
        "fernhollow/engineering@v01",
        "fernhollow/engineering@v3",
        "fernhollow/engineering@v99999999999999999999",
        "fernhollow/engineering@V1",
        "fernhollow/engineering ",
        "fernhollow/engineering\n",
        "fernhollow/engineering@v1/../v2",
        "../adapters/fernhollow/engineering/v1",
        "/etc/passwd",
        "fernhollow",
        "fernhollow/nobody",
        "ｆernhollow/engineering",
        "x" * 100_000,
    ],
)
def test_a_name_that_is_none_is_not_found_and_never_reaches_the_engine(
    serve: Serve, engine: FakeEngine, model: str
) -> None:
    with serve() as served:
        answer = ask(served.url, model)
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "not_found_error"
    assert len(answer.text) < 1000
    assert not engine.requests and not engine.loaded


def test_another_base_model_is_refused(serve: Serve, registry: AdapterRegistry, tmp_path: Path) -> None:
    publish(registry, tmp_path, 3, base="acme/another")
    with serve() as served:
        for name in (NAME, f"{NAME}@v3"):
            answer = ask(served.url, name)
            assert answer.status_code == 409
            assert "acme/another" in answer.json()["error"]["message"]
        assert ask(served.url, f"{NAME}@v1").status_code == 200


def test_a_version_that_changes_nothing_is_not_served_in_its_name(serve: Serve, engine: FakeEngine) -> None:
    engine.without_effect.add(f"{NAME}@v2")
    with serve() as served:
        for _ in range(2):
            answer = ask(served.url)
            assert answer.status_code == 502
            assert "changes no answer" in answer.json()["error"]["message"]
    assert not engine.requests and not engine.loaded


def test_a_version_that_is_damaged_in_the_store_is_not_served(
    serve: Serve, registry: AdapterRegistry, engine: FakeEngine
) -> None:
    (registry.fetch(*WHO, 2) / "adapter_config.json").write_text("{}")
    with serve() as served:
        assert ask(served.url).status_code == 502
        assert ask(served.url, f"{NAME}@v1").status_code == 200


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b"\xff", 400),
        (b'{"messages": []}', 400),
        (b'{"model": 7}', 400),
        (b"[" * 10**5, 400),
    ],
)
def test_a_request_that_is_none(serve: Serve, content: bytes, status: int) -> None:
    with serve() as served:
        answer = HTTP.post(f"{served.url}/v1/chat/completions", content=content)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_a_request_that_is_too_large(serve: Serve) -> None:
    with serve(max_request_mib=0.001) as served:
        assert ask(served.url, padding="x" * 2000).status_code == 413


def test_administration_of_the_engine_is_not_reachable(serve: Serve) -> None:
    with serve() as served:
        for path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/reset_prefix_cache", "/tokenize"):
            assert HTTP.post(served.url + path, json={}).status_code == 404


def test_models_lists_what_can_be_asked_for(serve: Serve, registry: AdapterRegistry) -> None:
    registry.withdraw(*WHO, 1, "old")
    with serve() as served:
        models = HTTP.get(f"{served.url}/v1/models").json()["data"]
    assert [model["id"] for model in models] == [BASE, NAME, f"{NAME}@v2"]


def test_keys(serve: Serve, home: Home) -> None:
    keys = keys_of(home)
    everyone, other = keys.add("ci", ()), keys.add("shop", ("another-tenant",))
    assert everyone not in keys.path.read_text()
    assert keys.path.stat().st_mode & 0o077 == 0
    with serve() as served:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {everyone}"}):
            assert ask(served.url, headers=headers).status_code == 401
            assert HTTP.get(f"{served.url}/v1/models", headers=headers).status_code == 401
            assert HTTP.get(f"{served.url}/metrics", headers=headers).status_code == 401
        good = {"Authorization": f"Bearer {everyone}"}
        assert ask(served.url, headers=good).status_code == 200
        assert ask(served.url, headers={"Authorization": f"Bearer {other}"}).status_code == 403
        assert ask(served.url, BASE, headers={"Authorization": f"Bearer {other}"}).status_code == 200
        keys.remove("ci")
        assert ask(served.url, headers=good).status_code == 401
        # An emptied file does not open a server that needs keys.
        keys.path.unlink()
        assert ask(served.url, headers={}).status_code == 401


def test_an_address_that_others_reach_needs_keys(serve: Serve, home: Home) -> None:
    with pytest.raises(InputError, match="make an API key first"), serve(host="0.0.0.0"):
        pass
    keys_of(home).add("ci", ())
    with serve(host="0.0.0.0") as served:
        assert ask(served.url).status_code == 401


def test_a_trial_keeps_its_users_and_its_weights(serve: Serve, registry: AdapterRegistry) -> None:
    split(registry, v1=1, in_use=3)
    with serve() as served:
        seen = {user: ask(served.url, user=user).headers["X-EC1-Model"] for user in map(str, range(60))}
        counts = Counter(seen.values())
        assert set(counts) == {f"{NAME}@v1", f"{NAME}@v2"}
        assert counts[f"{NAME}@v2"] > counts[f"{NAME}@v1"]
        for user, name in seen.items():
            assert ask(served.url, safety_identifier=user).headers["X-EC1-Model"] == name
        # A withdrawn arm's users get the version in use.
        registry.withdraw(*WHO, 1, "bad")
        until(lambda: {ask(served.url, user=user).headers["X-EC1-Model"] for user in seen} == {f"{NAME}@v2"})


def test_a_trial_of_what_cannot_answer_is_refused(registry: AdapterRegistry) -> None:
    registry.withdraw(*WHO, 1, "bad")
    with pytest.raises(InputError, match="withdrawn"):
        split(registry, v1=1, v2=1)
    with pytest.raises(InputError, match="no fernhollow/engineering@v7"):
        split(registry, v7=1)
    with pytest.raises(InputError, match="not an arm"):
        split(registry, newest=1)


def test_without_an_engine_clients_are_told_why_and_when(serve: Serve, engine: FakeEngine) -> None:
    with serve() as served:
        engine.delay = 0.3
        thread = threading.Thread(target=lambda: answers.append(ask(served.url).status_code))
        answers: list[int] = []
        thread.start()
        until(lambda: served.backend.in_flight == 1)
        served.backend.close("the card is used by a night", retry_after=7)
        refused = ask(served.url)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "7")
        assert "used by a night" in refused.json()["error"]["message"]
        ready = HTTP.get(f"{served.url}/readyz")
        assert (ready.status_code, ready.json()["ready"]) == (503, False)
        assert HTTP.get(f"{served.url}/healthz").status_code == 200
        # What ran goes on.
        thread.join()
        assert answers == [200]
        until(lambda: served.backend.in_flight == 0)


def test_an_engine_that_is_gone_is_a_503_and_another_one_takes_over(serve: Serve, engine: FakeEngine) -> None:
    with serve() as served:
        assert ask(served.url).status_code == 200
        served.backend.open(type(served.endpoint)("http://127.0.0.1:9", BASE))
        assert ask(served.url).status_code == 503
        served.backend.open(served.endpoint)
        assert ask(served.url).status_code == 200


def test_who_leaves_is_not_answered_any_further(serve: Serve, engine: FakeEngine) -> None:
    engine.delay = 30.0
    with serve() as served:
        with pytest.raises(httpx.ReadTimeout):
            HTTP.post(f"{served.url}/v1/chat/completions", json={"model": NAME, "messages": ASK}, timeout=0.3)
        until(lambda: served.backend.in_flight == 0, 20)


def test_the_registry_away_for_a_while_is_not_noticed(
    serve: Serve, registry: AdapterRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ec1.errors import ServiceError

    def away(*_: object) -> None:
        raise ServiceError("the store does not answer")

    with serve() as served:
        assert ask(served.url).status_code == 200
        monkeypatch.setattr(registry.store, "get_bytes", away)
        time.sleep(0.1)
        assert ask(served.url).headers["X-EC1-Model"] == f"{NAME}@v2"
        assert ask(served.url, f"{NAME}@v1").status_code == 503


def test_metrics_are_per_version(serve: Serve) -> None:
    with serve() as served:
        ask(served.url)
        ask(served.url, f"{NAME}@v1")
        ask(served.url, "fernhollow/nobody")
        text = HTTP.get(f"{served.url}/metrics").text
    assert f'ec1_requests_total{{adapter="{NAME}@v2",status="200"}} 1.0' in text
    assert f'ec1_requests_total{{adapter="{NAME}@v1",status="200"}} 1.0' in text
    assert 'ec1_requests_total{adapter="",status="404"} 1.0' in text
    assert f'ec1_time_to_first_token_seconds_count{{adapter="{NAME}@v2"}} 1.0' in text
    assert "ec1_ready 1.0" in text
    assert "ec1_night_records_readable 1.0" in text


@pytest.mark.soak
def test_no_request_fails_while_versions_change(serve: Serve, registry: AdapterRegistry, engine: FakeEngine) -> None:
    """100 in flight while a version is promoted and rolled back 20 times."""
    engine.delay = 0.01
    done = threading.Event()
    told: Counter[str] = Counter()
    wrong: list[str] = []

    async def client(http: httpx.AsyncClient, number: int) -> None:
        while not done.is_set():
            body = {"model": NAME, "messages": ASK, "stream": number % 2 == 0}
            async with http.stream("POST", f"{served.url}/v1/chat/completions", json=body) as answer:
                data = (await answer.aread()).decode()
            name = answer.headers.get("X-EC1-Model", "")
            if answer.status_code != 200 or f'"{name}"' not in data or (body["stream"] and "[DONE]" not in data):
                wrong.append(f"{answer.status_code} {name} {data[:200]}")
            told[name] += 1

    async def clients() -> None:
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(trust_env=False, timeout=30, limits=limits) as http:
            await asyncio.gather(*(client(http, number) for number in range(100)))

    with serve(refresh_seconds=0.05) as served:
        thread = threading.Thread(target=lambda: asyncio.run(clients()))
        thread.start()
        for _ in range(20):
            registry.rollback(*WHO, "there")
            time.sleep(0.3)
            registry.promote(*WHO, 2, "and back")
            time.sleep(0.3)
        done.set()
        thread.join()
    assert not wrong, wrong[:5]
    assert min(told[f"{NAME}@v1"], told[f"{NAME}@v2"]) > 0


@pytest.mark.soak
def test_a_trials_shares_are_its_weights(serve: Serve, registry: AdapterRegistry) -> None:
    """2,000 users at 90 to 10: within 2 points, and every user keeps the arm."""
    split(registry, v1=10, in_use=90)

    async def round_of(url: str) -> dict[str, str]:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            turn = asyncio.Semaphore(20)

            async def one(user: str) -> str:
                async with turn:
                    body = {"model": NAME, "messages": ASK, "user": user}
                    answer = await http.post(f"{url}/v1/chat/completions", json=body)
                    assert answer.headers["X-EC1-Model"] == answer.json()["model"]
                    return answer.headers["X-EC1-Model"]

            users = [f"user-{number}" for number in range(2000)]
            return dict(zip(users, await asyncio.gather(*map(one, users)), strict=True))

    with serve() as served:
        first = asyncio.run(round_of(served.url))
        assert asyncio.run(round_of(served.url)) == first
    share = Counter(first.values())[f"{NAME}@v1"] / 2000
    assert abs(share - 0.1) <= 0.02
