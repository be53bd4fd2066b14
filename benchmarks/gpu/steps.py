"""The steps of the box: each is a process of its own, ends within nine minutes, and writes its rows as it gets them."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import httpx

from benchmarks.gpu.card import copy_gb_per_second, facts, matmul_tflops
from benchmarks.gpu.engine import left_out, served
from benchmarks.gpu.guards import guarded
from benchmarks.gpu.models import write_model
from benchmarks.gpu.training import Case, measured, two_in_one_process
from benchmarks.train_tokens import WITH_LIGER
from ec1.errors import ServiceError
from ec1.home import CHECKOUT
from ec1.launch.environment import process_environment

Rows = Iterator[dict[str, Any]]


@dataclass(frozen=True)
class Session:
    """What the steps run on and with: `tiny` sizes are for a test of the box itself, on a CPU."""

    device: Literal["cuda", "cpu"]
    tiny: bool
    scratch: Path

    @property
    def shape(self) -> str:
        return "tiny" if self.tiny else "7b"

    @property
    def seconds(self) -> float:
        """Of steps, per case."""
        return 0.05 if self.tiny else 3.0

    def card(self) -> str:
        return str(facts(self.device)["card"])


def _card(session: Session) -> Rows:
    yield facts(session.device)
    size, seconds = (256, 0.1) if session.tiny else (8192, 2.0)
    yield {"what": f"bf16 products of {size} × {size}", "tflops": matmul_tflops(session.device, size, seconds)}
    mib = 16 if session.tiny else 2048
    yield {"what": f"copy of {mib} MiB", "gb_per_second": copy_gb_per_second(session.device, mib, seconds / 2)}


def _cases(session: Session, method: str) -> list[Case]:
    lengths = (32, 64) if session.tiny else (1024, 4096, 16384)
    batches = (1, 2) if session.tiny else (1, 4, 16)
    return [
        Case(method, length, batch, checkpointing)
        # Without checkpointing a batch of short rows is enough to see the cost.
        for checkpointing, length, batch in product((True, False), lengths, batches)
        if batch * length <= 32768 and (checkpointing or batch * length <= 4096)
    ]


def _training(session: Session, method: str) -> Rows:
    yield from _measured(session, _cases(session, method))


def _kernels(session: Session) -> Rows:
    length, batches = (64, (1,)) if session.tiny else (2048, (1, 4))
    plain = [Case("lora", length, batch, True) for batch in batches]
    yield from _measured(session, plain)
    yield from _measured(session, [Case("lora", length, batch, True, liger=True) for batch in batches])


def _packing(session: Session) -> Rows:
    """Rows of a quarter of the length, padded, against as many tokens packed into full rows."""
    length, batch = (64, 2) if session.tiny else (2048, 4)
    yield from _measured(session, [Case("lora", length, batch, True, filled=0.25), Case("lora", length, batch, True)])


def _measured(session: Session, cases: Sequence[Case]) -> Rows:
    return measured(session.shape, session.device, cases, session.seconds, session.scratch, session.card())


def _two(session: Session) -> Rows:
    length = 64 if session.tiny else 2048
    yield from two_in_one_process(session.shape, session.device, length, session.seconds, session.scratch)


def _guards(session: Session) -> Rows:
    yield from guarded(session.device, session.device, 0.25 if session.tiny else 4.0)


def _beside_trl(session: Session) -> Rows:
    """Our trainer and a plain TRL script, the same recipe and rows, in turns."""
    import trl  # noqa: F401  without it this step is left out

    shape, length, rows = (session.shape, 64, 8) if session.tiny else (f"{session.shape}-quarter", 2048, 128)
    model = write_model(shape, session.scratch / "model", session.device, length)
    plain = {key: value for key, value in os.environ.items() if key not in process_environment(session.device, {})}
    for variant in ("ours", "bare", *([WITH_LIGER] if session.device == "cuda" else [])):
        command = [sys.executable, "-m", "benchmarks.train_tokens", "--variant", variant, "--device", session.device]
        command += ["--model", str(model), "--rows", str(rows), "--max-length", str(length), "--epochs", "2"]
        env = plain if variant == "bare" else process_environment(session.device, plain)
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, env=env)
        if done.returncode:
            sys.stderr.write(done.stderr)
            yield {"what": variant, "left_out": done.stderr.strip()[-300:]}
            continue
        yield {"what": variant, **json.loads(done.stdout.splitlines()[-1])}


def _engine(session: Session) -> Rows:
    """Without vLLM this step is left out."""
    import vllm  # noqa: F401

    requests, at_once = (8, 4) if session.tiny else (256, 64)
    environment = {key: value for key, value in os.environ.items() if key != "PYTORCH_ALLOC_CONF"}
    try:
        yield from served(
            session.device, session.scratch, environment, shape=session.shape, requests=requests, at_once=at_once
        )
    except (ServiceError, httpx.HTTPError) as error:
        yield left_out(error, session.scratch)


STEPS: dict[str, Callable[[Session], Rows]] = {
    "card": _card,
    "lora": functools.partial(_training, method="lora"),
    "qlora": functools.partial(_training, method="qlora"),
    "kernels": _kernels,
    "packing": _packing,
    "two": _two,
    "guards": _guards,
    "trl": _beside_trl,
    "engine": _engine,
}
"""By name, in their order."""


def run_step(name: str, session: Session, out: Path) -> None:
    """Run one step here; each row is in `<out>/<name>.jsonl` as soon as it is known."""
    with (out / f"{name}.jsonl").open("w") as file:
        try:
            for row in STEPS[name](session):
                file.write(json.dumps(row) + "\n")
                file.flush()
        except ImportError as error:
            file.write(json.dumps({"left_out": f"{error.name or error} is not installed"}) + "\n")
