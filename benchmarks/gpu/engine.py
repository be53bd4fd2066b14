"""Our engine on a model of random weights: start, requests a second, grammar, adapters, hot swap and sleep.

The engine is the one of a night (`ec1.gpu.engine`) under the lease; only the weights are not read from a disk. What it
writes means nothing, and has the length that is asked for.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import httpx

from benchmarks.gpu.models import write_adapter, write_config, write_tokenizer
from ec1.extraction.schema import ENTITY_SCHEMA
from ec1.gpu.cards import read_card
from ec1.gpu.engine import Endpoint, ServedAdapter, VllmEngine
from ec1.gpu.lease import GpuLease
from ec1.gpu.settings import VllmSettings

MODEL, FIRST, SECOND = "base", "role-v1", "role-v2"
RANK = 16
PREFIX, OWN, ANSWER = 400, 200, 64
"""Tokens of a request that all share, of its own, and of its answer."""
SWAP_SECONDS = 60.0


def served(
    device: Literal["cuda", "cpu"],
    folder: Path,
    environment: dict[str, str],
    *,
    shape: str,
    requests: int,
    at_once: int,
) -> Iterator[dict[str, Any]]:
    """One row for each thing that is measured, as soon as it is known.

    Raises ServiceError if the engine does not start.
    """
    model = write_config(shape, folder / "model", 2048)
    write_tokenizer(model)
    digest = "0" * 64
    adapters = [
        ServedAdapter(name, write_adapter(model, folder / name, RANK, seed), digest, RANK)
        for seed, name in enumerate((FIRST, SECOND))
    ]
    # Without compilation, and with graphs of decoding alone, the engine is up in a minute.
    quick = ("--compilation-config", '{"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}', "--enable-sleep-mode")
    settings = VllmSettings(
        kind="vllm",
        model=MODEL,
        max_model_len=2048,
        max_num_seqs=at_once,
        gpu_memory_utilization=0.8,
        enforce_eager=device == "cpu",
        max_lora_rank=RANK,
        extra_args=("--load-format", "dummy", *(quick if device == "cuda" else ())),
    )
    engine = VllmEngine(settings, model, MODEL, device)
    lease = GpuLease(folder / "gpu.lock", device=device, min_free_gib=0.1)
    began = time.monotonic()
    with (
        lease.hold("inference", night="2026-01-01", holder="box", wait_seconds=0) as grant,
        engine.serve(
            grant,
            log=folder / "engine.log",
            progress=lambda line: None,
            environment={**environment, "VLLM_SERVER_DEV_MODE": "1"},
            lora=True,
        ) as endpoint,
    ):
        yield {"what": "the engine starts", "seconds": round(time.monotonic() - began, 1)}
        yield from _asked(endpoint, adapters, requests, at_once)
        yield from asyncio.run(_swapped(endpoint, adapters, at_once))
        if device == "cuda":
            yield from _slept(endpoint)
    yield {"what": "after the lease", "free_gib": round(read_card(device).free_gib, 2)}


def _body(model: str, number: int, **more: Any) -> dict[str, Any]:
    own = f"{number:06d} " + "the committee met on the quay, " * 50
    messages = [{"role": "system", "content": ("Rules of the house. " * 50)[:PREFIX]}]
    messages.append({"role": "user", "content": own[:OWN]})
    return {"model": model, "messages": messages, "max_tokens": ANSWER, "temperature": 0, **more}


def _asked(
    endpoint: Endpoint, adapters: Sequence[ServedAdapter], requests: int, at_once: int
) -> Iterator[dict[str, Any]]:
    """Requests a second: plain, under the grammar of entities, and by two adapters in turns."""
    free: dict[str, Any] = {"ignore_eos": True}
    schema = {"type": "json_schema", "json_schema": {"name": "entities", "schema": ENTITY_SCHEMA}}
    for each in adapters:
        _load(endpoint, each)
    kinds = {
        "first requests, not counted": [_body(MODEL, number, **free) for number in range(at_once)],
        "plain": [_body(MODEL, number, **free) for number in range(requests)],
        "grammar": [_body(MODEL, number, response_format=schema, ignore_eos=True) for number in range(requests)],
        "two adapters": [_body(adapters[number % 2].name, number, **free) for number in range(requests)],
        "one by one": [_body(MODEL, number, **free) for number in range(max(2, requests // 32))],
    }
    for what, bodies in kinds.items():
        httpx.post(f"{endpoint.base_url}/reset_prefix_cache", timeout=60, trust_env=False)
        began = time.monotonic()
        found = asyncio.run(_answers(endpoint, bodies, 1 if what == "one by one" else at_once))
        took = time.monotonic() - began
        good = [each for each in found if "usage" in each]
        row = {"requests": len(bodies), "failed": len(found) - len(good), "requests_per_second": len(good) / took}
        for side in ("prompt", "completion"):
            row[f"{side}_tokens_per_second"] = sum(each["usage"][f"{side}_tokens"] for each in good) / took
        yield {"what": what, **{key: round(value, 1) for key, value in row.items()}}
    for each in adapters:
        httpx.post(f"{endpoint.base_url}/v1/unload_lora_adapter", json={"lora_name": each.name}, trust_env=False)


async def _answers(endpoint: Endpoint, bodies: Sequence[dict[str, Any]], at_once: int) -> list[dict[str, Any]]:
    gate = asyncio.Semaphore(at_once)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=300, trust_env=False, limits=limits) as http:

        async def ask(body: dict[str, Any]) -> dict[str, Any]:
            async with gate:
                response = await http.post(f"{endpoint.base_url}/v1/chat/completions", json=body)
                return dict(response.json())

        return list(await asyncio.gather(*(ask(body) for body in bodies)))


def _load(endpoint: Endpoint, adapter: ServedAdapter) -> None:
    body = {"lora_name": adapter.name, "lora_path": str(adapter.folder)}
    httpx.post(
        f"{endpoint.base_url}/v1/load_lora_adapter", json=body, timeout=SWAP_SECONDS, trust_env=False
    ).raise_for_status()


async def _swapped(endpoint: Endpoint, adapters: Sequence[ServedAdapter], at_once: int) -> list[dict[str, Any]]:
    """A version takes another one's place while requests are in flight: seconds until it answers, and failures."""
    first, second = adapters
    rows = []
    await asyncio.to_thread(_load, endpoint, first)
    bodies = [_body(first.name, number, ignore_eos=True) for number in range(4 * at_once)]
    flight = asyncio.create_task(_answers(endpoint, bodies, at_once))
    await asyncio.sleep(0.5)
    began = time.monotonic()
    await asyncio.to_thread(_load, endpoint, second)
    loaded = time.monotonic()
    (answer,) = await _answers(endpoint, [_body(second.name, 0, max_tokens=1)], 1)
    answered = time.monotonic()
    inside = not flight.done()
    found = await flight
    failed = sum("usage" not in each for each in found) + ("usage" not in answer)
    rows.append(
        {
            "what": "a version is loaded while requests are in flight",
            "load_ms": round((loaded - began) * 1000),
            "first_token_ms": round((answered - loaded) * 1000),
            "requests": len(found) + 1,
            "failed": failed,
            "in_flight_throughout": inside,
        }
    )
    return rows


def _slept(endpoint: Endpoint) -> Iterator[dict[str, Any]]:
    """GiB that sleep gives back, seconds both ways, and whether the model answers as before (level 1)."""
    body = _body(MODEL, 1, ignore_eos=True)
    (before,) = asyncio.run(_answers(endpoint, [body], 1))
    awake = read_card("cuda").free_gib
    began = time.monotonic()
    httpx.post(f"{endpoint.base_url}/sleep?level=1", timeout=120, trust_env=False).raise_for_status()
    asleep = time.monotonic()
    freed = read_card("cuda").free_gib - awake
    httpx.post(f"{endpoint.base_url}/wake_up", timeout=120, trust_env=False).raise_for_status()
    woken = time.monotonic()
    (after,) = asyncio.run(_answers(endpoint, [body], 1))
    same = [each["choices"][0]["message"]["content"] for each in (before, after)]
    yield {
        "what": "sleep, level 1",
        "freed_gib": round(freed, 1),
        "to_sleep_seconds": round(asleep - began, 2),
        "to_wake_seconds": round(woken - asleep, 2),
        "same_answer": same[0] == same[1],
    }


def left_out(error: Exception, folder: Path) -> dict[str, Any]:
    """Why the engine was not measured, with what its log says of errors, the first ones first."""
    log = folder / "engine.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return {"left_out": str(error)[:300], "log": [line[-300:] for line in lines if "ERROR" in line][:80] or lines[-20:]}
