"""Documents a second through the whole of phase 1, against the two plain ways of asking the same engine.

- one by one: a loop that sends one document at a time, chunk after chunk, to the same server;
- offline: the engine's own batch (`LLM.chat`) on the same prompts, in a separate process.

Phase 1 is what a night does: listing, extraction, graph, publication. The engine forgets all prompts between the runs,
and each run begins with one question of the same form, so that grammar and constant prompt are ready for all alike.
"""

import argparse
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks._engine import embedded, forget, model_of, serving
from ec1.deployment import Deployment
from ec1.extraction.prompt import messages
from ec1.extraction.reading.extractor import Extractor
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.schema import ENTITY_SCHEMA
from ec1.gpu.engine import Endpoint, VllmEngine
from ec1.graph.ladybug_store import LadybugStore
from ec1.home import CHECKOUT, Home
from ec1.night.steps.extraction import extract_night, work_of
from ec1.night.steps.graph import apply_night
from ec1.night.steps.listing import list_documents
from ec1.streams import CONTRACT_STREAMS

NIGHT = "2026-06-01"


def _install(home: Home, documents: int) -> int:
    """Copy the smallest documents of the sample; return how many."""
    source = CHECKOUT / "examples" / "documents"
    files = sorted((path for path in source.rglob("*") if path.is_file()), key=lambda path: (path.stat().st_size, path))
    for path in files[:documents]:
        target = home.documents / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        os.utime(target, (1_780_300_000, 1_780_300_000))
    return min(documents, len(files))


def _phase_one(deployment: Deployment, home: Home, extractor: Extractor, endpoint: Endpoint) -> float:
    """Seconds of a whole phase 1; the engine is running already."""

    @contextmanager
    def serve() -> Iterator[OpenAIClient]:
        yield OpenAIClient(endpoint.base_url, endpoint.model, deployment.extraction)

    fingerprints = extractor.fingerprints()
    night, outbox = deployment.night(NIGHT), Outbox(home.outbox)
    now = night.start + dt.timedelta(hours=23)
    started = time.perf_counter()
    with LadybugStore.open(home.graph, buffer_pool_mib=256, wait_seconds=0) as store:
        listing, _ = list_documents(deployment, home, store.ledger(), fingerprints, outbox, night, as_of=now, now=now)
    report = extract_night(
        work_of(listing, CONTRACT_STREAMS, deployment.document_reader(home)),
        extractor,
        outbox,
        serve,
        deadline_of=lambda: time.monotonic() + 3600,
        progress=lambda _: None,
    )
    with LadybugStore.open(home.graph, buffer_pool_mib=256, wait_seconds=0) as store:
        apply_night(store, listing, outbox, fingerprints, quarantine_after=3)
        store.publish(home.published_graph)
    seconds = time.perf_counter() - started
    assert report.documents == len(listing.changed), report
    return seconds


def _body(deployment: Deployment, text: str, stream: str) -> dict[str, Any]:
    return {
        "model": deployment.inference.model,
        "messages": messages(text, stream),
        "max_tokens": deployment.extraction.max_answer_tokens,
        "temperature": 0,
        "seed": 0,
        "response_format": {"type": "json_schema", "json_schema": {"name": "entities", "schema": ENTITY_SCHEMA}},
    }


def _one_by_one(deployment: Deployment, chunks: list[list[tuple[str, str]]], endpoint: Endpoint) -> float:
    """Seconds of the loop: one document after the other, one chunk after the other."""
    url = f"{endpoint.base_url}/v1/chat/completions"
    started = time.perf_counter()
    with httpx.Client(timeout=600, trust_env=False) as http:
        for document in chunks:
            for stream, text in document:
                http.post(url, json=_body(deployment, text, stream)).raise_for_status()
    return time.perf_counter() - started


def _warm(deployment: Deployment, endpoint: Endpoint) -> None:
    forget(endpoint)
    _one_by_one(deployment, [[("meeting", "Nobody came.")]], endpoint)


def _offline(specification: Path) -> None:
    """The engine's own batch, in this process: prints its seconds on a line of their own."""
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    value = json.loads(specification.read_text())
    llm = LLM(
        model=value["model"],
        max_model_len=value["max_model_len"],
        max_num_seqs=value["max_num_seqs"],
        enforce_eager=value["enforce_eager"],
        enable_prefix_caching=True,
        structured_outputs_config={"backend": "xgrammar", "disable_any_whitespace": True},
    )
    parameters = SamplingParams(
        temperature=0,
        seed=0,
        max_tokens=value["max_tokens"],
        structured_outputs=StructuredOutputsParams(json=ENTITY_SCHEMA),
    )
    llm.chat([messages("Nobody came.", "meeting")], parameters, use_tqdm=False)
    started = time.perf_counter()
    llm.chat(value["prompts"], parameters, use_tqdm=False)
    sys.stdout.write(f"\n{time.perf_counter() - started}\n")


def _told(what: str, seconds: float) -> float:
    """Say how long a part took as soon as it is known: on a busy machine the whole takes long."""
    load = os.getloadavg()[0]
    print(f"{what}: {seconds:.1f} s (load of the machine {load:.1f})", file=sys.stderr, flush=True)
    return seconds


def main(documents: int = 12) -> dict[str, float]:
    """Print and return seconds, rates and ratios."""
    deployment, settings = embedded()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        home = Home(scratch / "home")
        count = _install(home, documents)
        model = model_of(deployment, scratch)
        extractor = Extractor(deployment.extraction, settings.model, settings.revision, model)
        now = deployment.night(NIGHT).end
        fingerprints = extractor.fingerprints()
        listing, _ = list_documents(
            deployment, home, {}, fingerprints, Outbox(home.outbox), deployment.night(NIGHT), as_of=now, now=now
        )
        reader = deployment.document_reader(home)
        chunks = [
            [
                (version.key.stream, each.text)
                for each in extractor.chunks(reader.read(version.key, version.content_sha256).text)
            ]
            for version in listing.changed
        ]
        prompts = [messages(text, stream) for document in chunks for stream, text in document]
        with serving(deployment, settings, model) as endpoint:
            _warm(deployment, endpoint)
            whole = _told("phase 1", _phase_one(deployment, home, extractor, endpoint))
            _warm(deployment, endpoint)
            loop = _told("one by one", _one_by_one(deployment, chunks, endpoint))
            # Once more, so that a disturbance of the machine shows.
            shutil.rmtree(home.outbox)
            shutil.rmtree(home.graph.parent)
            _warm(deployment, endpoint)
            again = _told("phase 1 again", _phase_one(deployment, home, extractor, endpoint))
        specification = scratch / "offline.json"
        specification.write_text(
            json.dumps(
                {
                    "model": str(model),
                    "max_model_len": settings.max_model_len,
                    "max_num_seqs": settings.max_num_seqs,
                    "enforce_eager": settings.enforce_eager,
                    "max_tokens": deployment.extraction.max_answer_tokens,
                    "prompts": prompts,
                }
            )
        )
        environment = VllmEngine(settings, model, settings.model, deployment.gpu.device).environment(os.environ)
        finished = subprocess.run(
            [sys.executable, "-m", "benchmarks.extract_documents", "--offline", str(specification)],
            env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        # The engine says things on the same stream, before and after.
        offline = _told("offline", next(float(line) for line in finished.stdout.splitlines() if line[:1].isdigit()))
    best = min(whole, again)
    figures = {
        "documents": float(count),
        "chunks": float(len(prompts)),
        "phase_one_seconds": whole,
        "phase_one_again_seconds": again,
        "one_by_one_seconds": loop,
        "offline_seconds": offline,
        "documents_per_second": count / best,
        "ratio_to_one_by_one": loop / best,
        "ratio_to_offline": offline / best,
    }
    print(json.dumps({key: round(value, 3) for key, value in figures.items()}, indent=2))
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=12)
    parser.add_argument("--offline", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.offline:
        _offline(arguments.offline)
    else:
        main(arguments.documents)
