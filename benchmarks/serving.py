"""`ec1 serve` in front of the sample's real engine: what the gateway costs, and requests while versions change.

Time to first token is measured by turns, once through the gateway (`tenant/role`) and once from the engine directly
(`tenant/role@vN`), each time with a prompt that the engine has not seen. Then many clients ask at once while the
version in use is rolled back and promoted again; each answer must say who gave it, in the header and the body alike,
and its log-probabilities must be that version's. Adapters are random: nothing here depends on what they say.
"""

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks._engine import embedded, model_of
from ec1.adapters.manifest import AdapterBase, AdapterManifest, DatasetRef, RecipeRef, SnapshotRef
from ec1.adapters.registry import AdapterRegistry
from ec1.gpu.engine import VllmEngine
from ec1.gpu.lease import GpuLease
from ec1.home import Home
from ec1.serving.resolver import ResolverSettings
from ec1.storage.directory import DirectoryStore

TENANT, ROLE = "bench", "role"
NAME = f"{TENANT}/{ROLE}"
DEPLOYMENT = """
tenant: bench
recipes: []
inference: {{kind: server, base_url: "{url}", model: {model}, max_model_len: 2048}}
extraction: {{chunk_tokens: 64, overlap_tokens: 8, max_answer_tokens: 128}}
"""
WORDS = ("orchard", "mill", "archive", "harbour", "ledger", "keys", "cabinet", "ground", "floor", "minutes", "route")


def publish(registry: AdapterRegistry, folder: Path, seed: int, base: str, model: Path) -> None:
    """Publish a random rank-8 adapter of the first layer's query projection."""
    from safetensors.numpy import save_file

    size = json.loads((model / "config.json").read_text())["hidden_size"]
    generator = np.random.default_rng(seed)
    key = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {
        f"{key}.lora_A.weight": generator.normal(size=(8, size)).astype(np.float32),
        f"{key}.lora_B.weight": generator.normal(size=(size, 8), scale=0.3).astype(np.float32),
    }
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": base}))
    registry.publish(
        folder,
        AdapterManifest(
            tenant=TENANT,
            role=ROLE,
            night="2026-06-01",
            base_model=AdapterBase(id=base, revision="main"),
            method="lora",
            objective="sft",
            recipe=RecipeRef(name=NAME, version=1, digest="a" * 64),
            dataset=DatasetRef(digest="b" * 64, train_rows=1, heldout_rows=1),
            snapshot=SnapshotRef(bucket=f"{ROLE}-{TENANT}", digest="c" * 64, tuples=2),
            override="a benchmark's",
        ),
    )


@contextmanager
def gateway(folder: Path, home: Home, url: str, model: str) -> Iterator[str]:
    """`ec1 serve` in a process of its own, in front of a running engine; yields its address."""
    (folder / "configs" / "deployments").mkdir(parents=True)
    (folder / "configs" / "deployments" / "bench.yaml").write_text(DEPLOYMENT.format(url=url, model=model))
    environment = {"EC1_PROJECT": str(folder), "EC1_HOME": str(home.root), "EC1_DEPLOYMENT": "bench"}
    log = folder / "gateway.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "ec1.cli", "serve", "--port", "0"], env={**os.environ, **environment}, stderr=stream
        )
    try:
        while (match := re.search(r"listening on (http://[0-9.:]+)/v1", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield match[1]
    finally:
        process.terminate()
        process.wait()


def first_token(client: httpx.Client, model: str, prompt: str) -> float:
    """Milliseconds from the request to the first bytes of a streamed answer."""
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 2, "stream": True}
    begin = time.perf_counter()
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        pieces = answer.iter_raw()
        next(pieces)
        took = time.perf_counter() - begin
        for _ in pieces:
            pass
    return took * 1000


def overhead(direct: str, through: str, rounds: int, words: int) -> dict[str, float]:
    """Medians by turns, and the median of the differences with its 95 % interval (bootstrap), in milliseconds."""
    order = random.Random(5)
    times: dict[str, list[float]] = {"direct": [], "gateway": []}
    with (
        httpx.Client(base_url=direct, timeout=120, trust_env=False) as near,
        httpx.Client(base_url=through, timeout=120, trust_env=False) as far,
    ):
        for turn in range(-5, rounds):
            for kind in order.sample(["direct", "gateway"], 2):
                prompt = " ".join(order.choices(WORDS, k=words))
                took = first_token(near, f"{NAME}@v2", prompt) if kind == "direct" else first_token(far, NAME, prompt)
                if turn >= 0:
                    times[kind].append(took)
    differences = [far - near for near, far in zip(times["direct"], times["gateway"], strict=True)]
    resampled = sorted(statistics.median(order.choices(differences, k=rounds)) for _ in range(2000))
    near_median = statistics.median(times["direct"])
    return {
        "rounds": float(rounds),
        "prompt_words": float(words),
        "direct_ms": near_median,
        "gateway_ms": statistics.median(times["gateway"]),
        "difference_ms": statistics.median(differences),
        "difference_low_ms": resampled[50],
        "difference_high_ms": resampled[1949],
        "overhead_share": statistics.median(differences) / near_median,
    }


async def changes(url: str, registry: AdapterRegistry, clients: int, turns: int, seconds: float) -> dict[str, Any]:
    """Ask from `clients` at once while the version in use changes `turns` times there and back."""
    body = {
        "messages": [{"role": "user", "content": "Where are the keys of the archive?"}],
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": True,
    }
    failed: list[str] = []
    told: Counter[str] = Counter()
    done = asyncio.Event()
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=300, trust_env=False, limits=limits) as http:

        async def ask(model: str) -> tuple[httpx.Response, float]:
            answer = await http.post("/v1/chat/completions", json={**body, "model": model})
            if answer.status_code != 200:
                return answer, float("nan")
            return answer, answer.json()["choices"][0]["logprobs"]["content"][0]["logprob"]

        known = {name: (await ask(name))[1] for name in (f"{NAME}@v1", f"{NAME}@v2")}
        apart = abs(known[f"{NAME}@v1"] - known[f"{NAME}@v2"])
        assert apart > 0.05, "the two adapters cannot be told apart"

        async def client() -> None:
            while not done.is_set():
                answer, score = await ask(NAME)
                name = answer.headers.get("X-EC1-Model", "")
                good = answer.status_code == 200 and answer.json()["model"] == name
                # Batches differ in the last digits, versions in the first.
                if not good or abs(score - known[name]) > apart / 3:
                    failed.append(f"{answer.status_code} {name} {score:.3f}, alone {known}: {answer.text[:200]}")
                told[name] += 1

        running = [asyncio.create_task(client()) for _ in range(clients)]
        for _ in range(turns):
            await asyncio.to_thread(registry.rollback, TENANT, ROLE, "there")
            await asyncio.sleep(seconds)
            await asyncio.to_thread(registry.promote, TENANT, ROLE, 2, "and back")
            await asyncio.sleep(seconds)
        done.set()
        await asyncio.gather(*running)
    for line in failed[:5]:
        print(line, file=sys.stderr)
    return {"clients": clients, "turns": turns, "answers": dict(told), "failed": len(failed)}


def main(rounds: int = 100, words: int = 120, clients: int = 100, turns: int = 20) -> dict[str, Any]:
    """Print and return the figures."""
    deployment, settings = embedded()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        home = Home(scratch / "home")
        model = model_of(deployment, scratch)
        registry = AdapterRegistry(DirectoryStore(home.root), home.adapters)
        for seed in (1, 2):
            publish(registry, scratch / f"candidate-{seed}", seed, settings.model, model)
        resolver = ResolverSettings(home=home.root, base_model=settings.model)
        lease = GpuLease(scratch / "lock", device=deployment.gpu.device, min_free_gib=deployment.gpu.min_free_gib)
        engine = VllmEngine(settings, model, settings.model, deployment.gpu.device)
        with (
            lease.hold("serving", night="", holder="benchmark", wait_seconds=0) as grant,
            engine.serve(
                grant,
                log=scratch / "engine.log",
                progress=lambda state: print(state, file=sys.stderr, flush=True),
                environment={**os.environ, **resolver.environment()},
                lora=True,
            ) as endpoint,
            gateway(scratch / "project", home, endpoint.base_url, settings.model) as url,
        ):
            figures: dict[str, Any] = overhead(endpoint.base_url, url, rounds, words)
            figures["while_versions_change"] = asyncio.run(changes(url, registry, clients, turns, 1.0))
    rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in figures.items()}
    print(json.dumps(rounded, indent=2))
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--words", type=int, default=120)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--turns", type=int, default=20)
    arguments = parser.parse_args()
    main(arguments.rounds, arguments.words, arguments.clients, arguments.turns)
