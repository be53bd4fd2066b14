"""Requests a second of phase 1 from one engine and from two at once (`inference.replicas`).

Each engine is the sample's own, on a CPU core of its own, as each would have a card of its own: on one core more
requests at once gain nothing, so what two give beyond one is what `ec1/extraction/reading/several.py` gets out of the
second. The three ways take turns, with the engines' caches of prompts emptied before each; the ratio is the median of
the turns'. On a machine that does other work it says little.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks._engine import embedded, forget, model_of, serving
from ec1.deployment import Deployment
from ec1.extraction.prompt import messages
from ec1.extraction.reading.client import ChatClient
from ec1.extraction.reading.several import server_client
from ec1.extraction.schema import ENTITY_SCHEMA
from ec1.extraction.settings import ExtractionSettings, ServerSettings
from ec1.gpu.engine import Endpoint
from ec1.gpu.settings import VllmSettings
from ec1.home import CHECKOUT

STREAM = "meeting"


@contextmanager
def on_core(deployment: Deployment, settings: VllmSettings, model: Path, core: int) -> Iterator[Endpoint]:
    """An engine that runs on one core only."""
    cores = os.sched_getaffinity(0)
    with ExitStack() as stack:
        os.sched_setaffinity(0, {core})
        try:
            endpoint = stack.enter_context(serving(deployment, settings, model))
        finally:
            os.sched_setaffinity(0, cores)
        yield endpoint


def texts(count: int) -> list[str]:
    """Pieces of three lines of the sample's documents."""
    lines = [
        line
        for path in sorted((CHECKOUT / "examples" / "documents").rglob("*.md"))
        for line in path.read_text().splitlines()
        if line.strip()
    ]
    return ["\n".join(lines[(3 * at + turn) % len(lines)] for turn in range(3)) for at in range(count)]


def client_of(endpoints: Sequence[Endpoint], settings: ExtractionSettings) -> ChatClient:
    """As phase 1 asks a server and its replicas."""
    first, *others = [endpoint.base_url for endpoint in endpoints]
    server = ServerSettings(kind="server", base_url=first, replicas=tuple(others), model=endpoints[0].model)
    return server_client(server, settings)


async def seconds_of(client: ChatClient, asked: Sequence[str], settings: ExtractionSettings) -> float:
    """How long it takes until all are answered, with as many under way as phase 1 has."""
    slots = asyncio.Semaphore(settings.max_in_flight)
    async with client:

        async def ask(text: str) -> None:
            async with slots:
                await client.complete(messages(text, STREAM), ENTITY_SCHEMA, stream=STREAM, deadline=None)

        started = time.perf_counter()
        await asyncio.gather(*(ask(text) for text in asked))
        return time.perf_counter() - started


def timed(
    way: str,
    client: ChatClient,
    endpoints: Sequence[Endpoint],
    asked: Sequence[str],
    settings: ExtractionSettings,
) -> float:
    """`seconds_of` with the engines' caches emptied before, said with the load of the machine."""
    for endpoint in endpoints:
        forget(endpoint)
    seconds = asyncio.run(seconds_of(client, asked, settings))
    print(f"{way}: {seconds:.1f} s (load of the machine {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)
    return seconds


def small() -> tuple[Deployment, VllmSettings, ExtractionSettings, list[int]]:
    """The sample's deployment with engines that two cores bear, its extraction, and these cores."""
    deployment, settings = embedded()
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise SystemExit("two engines need a core each: this process has one")
    extraction = deployment.extraction.model_copy(update={"max_answer_tokens": 64, "max_in_flight": 16})
    # Fewer at once than are asked, so that each engine is full as long as there is something to ask.
    settings = settings.model_copy(update={"max_num_seqs": 4, "kv_cache_gib": 1, "enforce_eager": True})
    return deployment, settings, extraction, cores


def main(requests: int = 16, turns: int = 3) -> dict[str, Any]:
    """Print and return the figures."""
    deployment, settings, extraction, cores = small()
    asked = texts(requests)
    took: dict[str, list[float]] = {"first": [], "second": [], "both": []}
    with tempfile.TemporaryDirectory() as name:
        model = model_of(deployment, Path(name))
        with ExitStack() as stack:
            first, second = (stack.enter_context(on_core(deployment, settings, model, core)) for core in cores)
            ways = {"first": [first], "second": [second], "both": [first, second]}
            for turn in range(-1, turns):
                for way, endpoints in ways.items():
                    # The first turn makes grammars and kernels ready.
                    some = asked if turn >= 0 else asked[:4]
                    seconds = timed(way, client_of(endpoints, extraction), endpoints, some, extraction)
                    if turn >= 0:
                        took[way].append(seconds)
    ratios = [
        (one + other) / 2 / both for one, other, both in zip(took["first"], took["second"], took["both"], strict=True)
    ]
    figures = {
        "requests": requests,
        **{f"{way}_per_second": round(requests / statistics.median(values), 3) for way, values in took.items()},
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(each, 3) for each in ratios],
    }
    print(json.dumps(figures, indent=2))
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    main(arguments.requests, arguments.turns)
