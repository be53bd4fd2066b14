"""Documents a second through the whole of phase 1, against the two plain ways of asking the same engine the same.

- one by one: a loop that sends phase 1's own requests to the same server, one after the other;
- offline: the engine's own batch (`LLM.generate`) of those requests, all handed over at once, in a separate process:
  the limit of each mode (`extraction.mode`), which nobody has who must wait for an answer before the next question.

Phase 1 is what a night of the sample does, with its trained extractor: listing, extraction, graph, publication. The
engine forgets all prompts between the runs, and each run begins with one question of the same form, so that grammar and
constant prompt are ready for all alike. The machine must be idle: seconds are compared, in one run.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from benchmarks._engine import embedded, forget, model_of, serving
from ec1.deployment import Deployment
from ec1.documents.chunks import Chunk
from ec1.extraction.reading.extractor import Extractor
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.gpu.engine import Endpoint, VllmEngine
from ec1.graph.ladybug_store import LadybugStore
from ec1.home import CHECKOUT, Home
from ec1.night.steps.extraction import extract_night, work_of
from ec1.night.steps.extractor import adapter_of, engine_of
from ec1.night.steps.graph import apply_night
from ec1.night.steps.listing import list_documents
from ec1.streams import CONTRACT_STREAMS

NIGHT = "2026-06-01"
MODES = ("answer", "both", "decide")

# The path of a request, and its body.
Request = tuple[str, dict[str, Any]]


def _install(home: Home, documents: int) -> None:
    """Copy the smallest documents of the sample."""
    source = CHECKOUT / "examples" / "documents"
    files = sorted((path for path in source.rglob("*") if path.is_file()), key=lambda path: (path.stat().st_size, path))
    for path in files[:documents]:
        target = home.documents / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        os.utime(target, (1_780_300_000, 1_780_300_000))


@contextmanager
def _recorded() -> Iterator[list[Request]]:
    """The requests that are sent meanwhile."""
    sent: list[Request] = []
    plain = httpx.AsyncClient.stream

    def stream(self: httpx.AsyncClient, method: str, url: str, **options: Any) -> Any:
        sent.append((httpx.URL(url).path, options["json"]))
        return plain(self, method, url, **options)

    with patch.object(httpx.AsyncClient, "stream", stream):
        yield sent


@dataclass(frozen=True)
class _PhaseOne:
    """Phase 1 on one home, with an engine that runs already."""

    deployment: Deployment
    home: Home
    extractor: Extractor
    endpoint: Endpoint

    def client(self) -> OpenAIClient:
        return OpenAIClient(self.endpoint.base_url, self.endpoint.model, self.extractor.settings, ends_repetition=True)

    def first(self) -> list[Request]:
        """Questions that make the grammar and the constant prompt ready."""
        text, asked = "Nobody came.", []
        if self.extractor.settings.mode != "decide":
            body = self.client()._body(self.extractor.messages(text, "meeting"), self.extractor.answer_schema)
            asked.append(("/v1/chat/completions", dict(body)))
        if self.extractor.settings.mode != "answer":
            prompts = self.extractor.questions(Chunk(0, 0, len(text), text), ["Nobody"])
            shape = {"labels": self.extractor.labels(), "add_special_tokens": self.extractor.adapter is None}
            body = self.client().decider()._body([{"role": "user", "content": each} for each in prompts], shape)
            asked.append(("/v1/completions", dict(body)))
        return asked

    def ready(self) -> None:
        """Make the engine forget what it read, but for what every question begins with."""
        forget(self.endpoint)
        self.one_by_one(self.first())

    def whole(self) -> tuple[float, float, ExtractionRecord]:
        """Seconds of all of it, CPU seconds of this process in them, and what was read."""

        @contextmanager
        def serve() -> Iterator[OpenAIClient]:
            yield self.client()

        deployment, home = self.deployment, self.home
        for folder in (home.outbox, home.graph.parent, home.published_graph.parent):
            shutil.rmtree(folder, ignore_errors=True)
        night, outbox = deployment.night(NIGHT), Outbox(home.outbox)
        now = night.start + dt.timedelta(hours=23)
        fingerprints = self.extractor.fingerprints()
        self.ready()
        started, cpu = time.perf_counter(), time.process_time()
        with LadybugStore.open(home.graph, buffer_pool_mib=256, wait_seconds=0) as store:
            listing, _ = list_documents(
                deployment, home, store.ledger(), fingerprints, outbox, night, as_of=now, now=now
            )
        report = extract_night(
            work_of(listing, CONTRACT_STREAMS, deployment.document_reader(home)),
            self.extractor,
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
        return seconds, time.process_time() - cpu, report

    def looped(self, requests: Sequence[Request]) -> float:
        """Seconds of a loop that sends one request after the other."""
        self.ready()
        started = time.perf_counter()
        self.one_by_one(requests)
        return time.perf_counter() - started

    def one_by_one(self, requests: Sequence[Request]) -> None:
        """Send one request after the other."""
        with httpx.Client(timeout=600, trust_env=False) as http:
            for path, body in requests:
                http.post(f"{self.endpoint.base_url}{path}", json=body).raise_for_status()


def _offline(specification: Path) -> None:
    """The engine's own batch, in this process: prints its seconds on a line of their own."""
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import RepetitionDetectionParams, StructuredOutputsParams

    value = json.loads(specification.read_text(encoding="utf-8"))
    llm = LLM(**value["engine"])
    tokenizer = llm.get_tokenizer()

    def read(path: str, body: dict[str, Any]) -> Iterator[tuple[dict[str, list[int]], SamplingParams]]:
        """A request as prompts of the engine, each with its parameters."""
        if path.endswith("chat/completions"):
            ids = tokenizer.apply_chat_template(
                body["messages"], add_generation_prompt=True, tokenize=True, return_dict=False
            )
            parameters = SamplingParams(
                temperature=0,
                seed=0,
                max_tokens=body["max_tokens"],
                structured_outputs=StructuredOutputsParams(json=body["response_format"]["json_schema"]["schema"]),
                repetition_detection=RepetitionDetectionParams(**body["repetition_detection"]),
            )
            yield {"prompt_token_ids": ids}, parameters
            return
        parameters = SamplingParams(
            temperature=0,
            seed=0,
            max_tokens=1,
            allowed_token_ids=body["allowed_token_ids"],
            logprob_token_ids=body["logprob_token_ids"],
            logprobs=body["logprobs"],
        )
        for prompt in body["prompt"]:
            ids = tokenizer.encode(prompt, add_special_tokens=body["add_special_tokens"])
            yield {"prompt_token_ids": ids}, parameters

    def generate(requests: Sequence[Request]) -> None:
        prompts, parameters = zip(*(each for request in requests for each in read(*request)), strict=True)
        llm.generate(prompts, parameters, use_tqdm=False)

    generate(value["first"])
    # What is asked about a chunk's names is asked behind its answer, so that here, too, both share what is computed.
    requests = sorted(value["requests"], key=lambda request: "prompt" in request[1])
    started = time.perf_counter()
    generate(requests)
    sys.stdout.write(f"\n{time.perf_counter() - started}\n")


def _in_a_batch(engine: VllmEngine, first: Sequence[Request], requests: Sequence[Request], scratch: Path) -> float:
    """Seconds of the engine's own batch of these requests."""
    arguments, settings = engine.arguments(), engine.settings
    options = {
        "model": str(engine.model_folder),
        "max_model_len": settings.max_model_len,
        "max_num_seqs": settings.max_num_seqs,
        "enforce_eager": settings.enforce_eager,
        "enable_prefix_caching": True,
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        "dtype": "float32" if "float32" in arguments else "auto",
        "block_size": int(arguments[arguments.index("--block-size") + 1]),
    }
    specification = scratch / "offline.json"
    specification.write_text(json.dumps({"engine": options, "first": first, "requests": requests}))
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.extract_documents", "--offline", str(specification)],
        env=engine.environment(os.environ), check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    # The engine says things on the same stream, before and after.
    return next(float(line) for line in finished.stdout.splitlines() if line[:1].isdigit())


def measured(mode: str, documents: int) -> dict[str, float]:
    """The figures of one mode."""
    deployment, settings = embedded()
    extraction = deployment.extraction.model_copy(update={"mode": mode})
    deployment = deployment.model_copy(update={"extraction": extraction})
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        home = Home(scratch / "home")
        _install(home, documents)
        model = model_of(deployment, scratch)
        adapter = adapter_of(deployment, home)
        extractor = Extractor(extraction, settings.model, settings.revision, model, adapter)
        with serving(deployment, settings, model, adapter) as endpoint:
            phase = _PhaseOne(deployment, home, extractor, endpoint)
            # By turns and twice, so that a disturbance of the machine shows.
            with _recorded() as requests:
                runs = [phase.whole()]
            loops = [phase.looped(requests)]
            runs.append(phase.whole())
            loops.append(phase.looped(requests))
            first = phase.first()
        offline = _in_a_batch(engine_of(deployment, home, model, adapter), first, requests, scratch)
    best, cpu, record = min(runs, key=lambda run: run[0])
    return {
        "documents": documents,
        "chunks": record.chunks,
        "requests": len(requests),
        "prompt_tokens_per_chunk": record.prompt_tokens / record.chunks,
        "answer_tokens_per_chunk": record.completion_tokens / record.chunks,
        "phase_one_seconds": best,
        "slower_phase_one_seconds": max(seconds for seconds, *_ in runs),
        "cpu_seconds_beside_the_engine": cpu,
        "one_by_one_seconds": min(loops),
        "slower_one_by_one_seconds": max(loops),
        "offline_seconds": offline,
        "ratio_to_one_by_one": min(loops) / best,
        "ratio_to_offline": offline / best,
    }


def main(modes: Sequence[str] = MODES, documents: int = 12) -> dict[str, dict[str, float]]:
    """Print and return each mode's seconds, counts and ratios."""
    figures = {}
    for mode in modes:
        figures[mode] = measured(mode, documents)
        print(json.dumps({mode: {key: round(value, 3) for key, value in figures[mode].items()}}, indent=2), flush=True)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.extract_documents", description=__doc__)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--documents", type=int, default=12)
    parser.add_argument("--offline", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.offline:
        _offline(arguments.offline)
    else:
        main(arguments.modes, arguments.documents)
