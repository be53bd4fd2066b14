"""Requests a second of phase 1 from 1, 2 and 4 engines on the nodes of a Ray cluster (`inference.cluster`), beside one
engine without Ray, and what is lost when one of four is killed in the middle.

The cluster is a real one on this machine: four nodes, two on each of two cores, with the sample's own engine on each.
So 2 engines have twice the cores of 1, and 4 have no more than 2. The ways take turns, with the engines' caches of
prompts emptied before each; ratios are medians of the turns'. On a machine that does other work it says little.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from benchmarks._engine import model_of
from benchmarks.several_engines import on_core, small, texts, timed
from ec1.extraction.reading.client import ChatClient, Circuit
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.reading.several import PATIENCE_SECONDS, Servers, SeveralClients
from ec1.extraction.settings import ExtractionSettings
from ec1.gpu.cluster_engines import engines_on_cluster
from ec1.gpu.engine import Endpoint, VllmEngine
from ec1.gpu.settings import ClusterSettings
from ec1.home import CHECKOUT
from ec1.storage.settings import DirectoryStoreSettings

sys.path += [str(CHECKOUT / "tests"), str(CHECKOUT / "tests" / "training")]

ENGINES = 4


def server_of(endpoint: Endpoint) -> psutil.Process:
    """The process that answers there."""
    port = endpoint.base_url.rpartition(":")[2]
    for process in psutil.process_iter():
        words = process.cmdline()
        if "vllm.entrypoints.openai.api_server" in words and port in words:
            return process
    raise SystemExit(f"nothing on this machine serves {endpoint.base_url}")


def cluster_client(endpoints: Sequence[Endpoint], settings: ExtractionSettings) -> ChatClient:
    """As phase 1 asks the engines of a cluster."""
    by_address = {endpoint.base_url: endpoint for endpoint in endpoints}

    def client_of(address: str, circuit: Circuit) -> OpenAIClient:
        endpoint = by_address[address]
        return OpenAIClient(address, endpoint.model, settings, circuit=circuit, api_key=endpoint.api_key, answers_as=())

    return SeveralClients(Servers(lambda: list(by_address), client_of, settings.max_attempts), PATIENCE_SECONDS)


def main(requests: int = 16, turns: int = 3) -> dict[str, Any]:
    """Print and return the figures."""
    from ray_cluster import RayCluster

    deployment, settings, extraction, cores = small()
    asked = texts(requests)
    took: dict[str, list[float]] = {}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = model_of(deployment, scratch)
        alone = stack.enter_context(on_core(deployment, settings, model, cores[0]))
        cluster = stack.enter_context(RayCluster({"VLLM_SERVER_DEV_MODE": "1"}))
        for number in range(ENGINES):
            cluster.add_node("taskset", "-c", cores[number % len(cores)])
        asks = ClusterSettings.model_validate({**cluster.settings, "engines": ENGINES})
        engine = VllmEngine(settings.model_copy(update={"cluster": asks}), model, settings.model, "cpu")
        engines = stack.enter_context(
            engines_on_cluster(
                engine,
                deployment.gpu.model_copy(update={"lock_dir": scratch}),
                folder=scratch / "engines",
                store=DirectoryStoreSettings(),
                logs=scratch / "log",
                wait_seconds=600,
                progress=lambda state: print(state, file=sys.stderr, flush=True),
            )
        )
        while len(engines.addresses()) < ENGINES:
            time.sleep(1)
        there = [Endpoint(each, settings.model, api_key=engines.key) for each in engines.addresses()]
        there.sort(key=lambda each: server_of(each).cpu_affinity() != [cores[0]])
        first, *_, last = there
        ways = {"alone": [alone], "one": [first], "two": [first, last], "four": there}

        def measured(way: str, turn: int) -> float:
            # The first turn makes grammars and kernels ready, on each engine.
            some = asked if turn >= 0 else asked[: 2 * ENGINES]
            return timed(way, cluster_client(ways[way], extraction), ways[way], some, extraction)

        for turn in range(-1, turns):
            for way in ways:
                seconds = measured(way, turn)
                if turn >= 0:
                    took.setdefault(way, []).append(seconds)
        victim = server_of(last)
        threading.Timer(statistics.median(took["four"]) / 3, victim.kill).start()
        killed = measured("four", turns)
    figures = {
        "requests": requests,
        **{f"{way}_per_second": round(requests / statistics.median(values), 3) for way, values in took.items()},
        **{
            f"{way}_to_one": round(
                statistics.median(one / each for one, each in zip(took["one"], took[way], strict=True)), 3
            )
            for way in ("alone", "two", "four")
        },
        # All of them were answered, else it would have raised.
        "one_of_four_killed_per_second": round(requests / killed, 3),
    }
    print(json.dumps(figures, indent=2))
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    main(arguments.requests, arguments.turns)
