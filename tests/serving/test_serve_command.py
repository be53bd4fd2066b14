"""`ec1 serve` as a person starts it, with a real vLLM: the plugin resolves names, promotions count, nothing is left."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_engine import FakeEngine
from listening import listening
from published import BASE, NAME, ROLE, TENANT, publish
from typer.testing import CliRunner

from ec1.adapters.registry import AdapterRegistry
from ec1.cli import app
from ec1.gpu.lease import marked_processes
from ec1.home import Home
from ec1.storage.directory import DirectoryStore

DEPLOYMENT = f"""
tenant: {TENANT}
recipes: []
models: {{{BASE}: {{source: directory, path: MODEL}}}}
inference:
  {{kind: vllm, model: {BASE}, max_model_len: 512, max_num_seqs: 4, kv_cache_gib: 1, enforce_eager: true,
   tool_parser: hermes}}
extraction: {{chunk_tokens: 64, overlap_tokens: 8, max_answer_tokens: 128}}
gpu: {{device: cpu, min_free_gib: 1, name: CPU, memory_gib: 8}}
serving: {{refresh_seconds: 0.1, drain_seconds: 5}}
"""


ROOM = {
    "type": "object",
    "properties": {"room": {"enum": ["kitchen", "hall"]}},
    "required": ["room"],
    "additionalProperties": False,
}


def asks_as_openais_client_does(url: str) -> None:
    """Streaming with log-probabilities, an answer that a schema fixes, and a call of a tool, all of a version."""
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        question = [{"role": "user", "content": "Where are the keys?"}]
        whole = {"model": f"{NAME}@v1", "messages": question, "max_tokens": 24, "temperature": 0}
        create: Any = client.chat.completions.create
        once = create(**whole, logprobs=True)
        pieces = [each.choices[0] for each in create(**whole, logprobs=True, stream=True)]
        assert "".join(each.delta.content or "" for each in pieces) == once.choices[0].message.content
        tokens = [token.token for each in pieces if each.logprobs for token in each.logprobs.content]
        assert tokens == [token.token for token in once.choices[0].logprobs.content]
        form = {"type": "json_schema", "json_schema": {"name": "room", "schema": ROOM, "strict": True}}
        fixed = create(**whole, response_format=form)
        assert json.loads(fixed.choices[0].message.content)["room"] in ("kitchen", "hall")
        tool = {"type": "function", "function": {"name": "look_into", "parameters": ROOM, "strict": True}}
        chosen = {"type": "function", "function": {"name": "look_into"}}
        called = create(**{**whole, "max_tokens": 80}, tools=[tool], tool_choice=chosen)
        (call,) = called.choices[0].message.tool_calls or pytest.fail(called.to_json())
        assert call.function.name == "look_into"
        assert json.loads(call.function.arguments)["room"] in ("kitchen", "hall")
        assert called.model == f"{NAME}@v1"


@pytest.mark.system
def test_a_real_engine_serves_the_version_in_use(small_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    (tmp_path / "configs" / "deployments").mkdir(parents=True)
    (tmp_path / "configs" / "deployments" / "tiny.yaml").write_text(DEPLOYMENT.replace("MODEL", str(small_model)))
    home = Home(tmp_path / "home")
    registry = AdapterRegistry(DirectoryStore(home.root), home.adapters)
    for seed in (1, 2):
        publish(registry, tmp_path, seed, size=576, outputs=576)
    publish(registry, tmp_path, 3, role="other", base="acme/another", size=576, outputs=576)
    environment = {key: os.environ[key] for key in ("PATH", "HOME", "OMP_NUM_THREADS") if key in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "ec1.cli", "serve", "--port", "0"],
        env={**environment, "EC1_PROJECT": str(tmp_path), "EC1_HOME": str(home.root), "EC1_DEPLOYMENT": "tiny"},
        stderr=(tmp_path / "stderr").open("w"),
    )

    def said() -> str:
        return (tmp_path / "stderr").read_text()

    try:
        deadline = time.monotonic() + 300
        while "\nserving\n" not in said():
            assert process.poll() is None and time.monotonic() < deadline, said()
            time.sleep(0.2)
        match = re.search(r"listening on (http://127\.0\.0\.1:\d+)/v1", said())
        assert match is not None
        with httpx.Client(base_url=match[1], trust_env=False, timeout=300) as http:

            def ask(model: str) -> httpx.Response:
                ask = [{"role": "user", "content": "Where are the keys?"}]
                options = {"max_tokens": 4, "temperature": 0, "logprobs": True}
                return http.post("/v1/chat/completions", json={"model": model, "messages": ask, **options})

            def scores(answer: httpx.Response) -> list[float]:
                return [token["logprob"] for token in answer.json()["choices"][0]["logprobs"]["content"]]

            second = ask(NAME)
            assert second.status_code == 200, second.text
            assert second.headers["X-EC1-Model"] == second.json()["model"] == f"{NAME}@v2"
            registry.rollback(TENANT, ROLE, "back")
            while (first := ask(NAME)).headers["X-EC1-Model"] == f"{NAME}@v2":
                assert time.monotonic() < deadline
            assert first.json()["model"] == f"{NAME}@v1"
            # Really other weights, and the same ones when they are asked for by name.
            base = ask(BASE)
            answers = [scores(each) for each in (base, first, second)]
            assert len({json.dumps(each) for each in answers}) == 3
            assert scores(ask(f"{NAME}@v2")) == pytest.approx(answers[2], abs=1e-3)
            assert ask(f"{TENANT}/other").status_code == 409
            asks_as_openais_client_does(match[1])
            registry.withdraw(TENANT, ROLE, 2, "leaks a name")
            while ask(f"{NAME}@v2").status_code != 410:
                assert time.monotonic() < deadline
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
    assert status == 0, said()
    assert marked_processes(home.gpu_lock.resolve()) == []


def test_an_engine_of_somebody_else_and_an_orderly_end(engine: FakeEngine, home: Home, tmp_path: Path) -> None:
    (tmp_path / "configs" / "deployments").mkdir(parents=True)
    (tmp_path / "key").write_text("engine's own\n")
    engine.served_as = "base:1b"
    with listening(engine.app) as address:
        server = f"{{kind: server, base_url: '{address}', model: {BASE}, served_as: 'base:1b', key_file: key}}"
        text = f"tenant: {TENANT}\nrecipes: []\ninference: {server}\n"
        (tmp_path / "configs" / "deployments" / "far.yaml").write_text(text)
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ec1.cli", "--project", str(tmp_path), "--home", str(home.root)),
                *("--deployment", "far", "serve", "--port", "0"),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            match = re.search(r"listening on (http://127\.0\.0\.1:\d+)/v1", process.stderr.readline())
            assert match is not None
            body = {"model": NAME, "messages": [{"role": "user", "content": "Where are the keys?"}]}
            answer = httpx.post(f"{match[1]}/v1/chat/completions", json=body, trust_env=False, timeout=30)
            assert answer.json()["model"] == f"{NAME}@v2"
            answer = httpx.post(f"{match[1]}/v1/chat/completions", json={**body, "model": BASE}, trust_env=False)
            assert answer.status_code == 200 and engine.requests[-1]["model"] == "base:1b"
        finally:
            process.terminate()
        assert process.wait(30) == 0, process.stderr.read()


def test_help_and_errors(tmp_path: Path) -> None:
    help = CliRunner().invoke(app, ["serve", "--help"])
    assert help.exit_code == 0 and "tenant/role" in help.output and "--port" in help.output
    home = ["--home", str(tmp_path / "home")]
    run = CliRunner().invoke(app, [*home, "serve", "split", "fernhollow/engineering@v1", "v1=1"])
    assert "is not a role" in str(run.exception)
    run = CliRunner().invoke(app, [*home, "serve", "split", NAME, "v1=many"])
    assert "v1 has no weight" in str(run.exception)
    run = CliRunner().invoke(app, [*home, "serve", "--host", "0.0.0.0"])
    assert "make an API key first" in str(run.exception)


def test_a_configuration_for_litellm(registry: AdapterRegistry, home: Home) -> None:
    made = CliRunner().invoke(app, ["--home", str(home.root), "serve", "litellm-config", "--url", "http://127.0.0.1:9"])
    models = {each["model_name"]: each["litellm_params"] for each in json.loads(made.output)["model_list"]}
    assert set(models) == {BASE, NAME}
    to = {"api_base": "http://127.0.0.1:9/v1", "api_key": "os.environ/EC1_API_KEY"}
    assert models[NAME] == {"model": f"openai/{NAME}", **to}


def test_keys_by_command(tmp_path: Path) -> None:
    home = ["--home", str(tmp_path / "home")]
    made = CliRunner().invoke(app, [*home, "serve", "key", "add", "ci", "--tenant", "fernhollow"])
    assert made.exit_code == 0 and made.output.startswith("ec1-")
    assert CliRunner().invoke(app, [*home, "serve", "key", "list"]).output.startswith("ci  fernhollow; no limits")
    again = CliRunner().invoke(app, [*home, "serve", "key", "add", "ci"])
    assert "already" in str(again.exception)
    assert CliRunner().invoke(app, [*home, "serve", "key", "remove", "ci"]).exit_code == 0
    assert CliRunner().invoke(app, [*home, "serve", "key", "list"]).output == ""
