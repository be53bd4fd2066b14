"""The local inference engine: vLLM in a process under the lease, ready when it answers, stopped when the block ends.

Belongs here: its command line, its environment, and how long it may take to get ready. Does not: what it is asked
(`ec1/extraction`), or who may start it (`ec1/gpu/lease.py`).
https://docs.vllm.ai/en/stable/configuration/engine_args.html
"""

import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import httpx

from ec1.errors import BusyError, ServiceError
from ec1.gpu.settings import VllmSettings
from ec1.gpu.tool_parsers import tool_parser_of
from ec1.http import authorization
from ec1.launch.local import free_port, usable_cores
from ec1.launch.process import ending_signal
from ec1.launch.temporary import temporary_folder
from ec1.models import precision_on, weight_bytes_in

if TYPE_CHECKING:
    from ec1.launch.launcher import DeviceGrant
    from ec1.launch.process import SupervisedProcess

GRACE_SECONDS = 20.0
LOOPBACK = "127.0.0.1"
_PROGRESS_SECONDS = 10.0
_NOISE = re.compile(
    r"^\s*$|^\s*[~^]+$|^\s+File \"|^\s*raise |^Traceback|For further information visit|^\s*\[.*input_value=|"
    # What follows from an error that was told before: refused requests, and "see above".
    r"^INFO:\s|^ERROR: ld\.so|(?i:root cause)"
)
_FAILURE = re.compile(r"error|exception|failed|refused|not enough|out of memory|unrecognized|killed", re.IGNORECASE)
_PREFIX = re.compile(r"^\((?:APIServer|EngineCore|Worker)[^)]*\)\s*")
# Before each line of a traceback that the engine logs.
_LEVEL = re.compile(r"^ERROR \S+ \S+ \[[^\]]+\] ?")
# Level, date, time and source line, then words: vLLM's banner has none, and what others print is not its progress.
_STAGE = re.compile(r"^INFO \S+ \S+ \[[^\]]+\] (?P<words>\w+ \w.*)$")


@dataclass(frozen=True)
class Endpoint:
    """Where an OpenAI-compatible server answers; `base_url` is without `/v1`. `died` says how its process ended,
    None while it lives."""

    base_url: str
    model: str
    died: Callable[[], str | None] = lambda: None
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ServedAdapter:
    """A LoRA adapter that is loaded with the model; `name` is the id under which it answers, `digest` of its files."""

    name: str
    folder: Path
    digest: str
    rank: int


class VllmEngine:
    """Starts vLLM for one model. `model_name` is the id under which it is served; the folder holds its safetensors.

    With an `adapter`, the endpoint's model is the adapter, by its own name; the base answers beside it, and so do all
    `others`.
    """

    def __init__(
        self,
        settings: VllmSettings,
        model_folder: Path,
        model_name: str,
        device: Literal["cuda", "cpu"],
        adapter: ServedAdapter | None = None,
        others: Sequence[ServedAdapter] = (),
    ) -> None:
        self.settings = settings
        self.model_folder = model_folder
        self.model_name = model_name
        self.device = device
        self.adapter = adapter
        self.adapters = [*([adapter] if adapter else []), *others]

    @property
    def served_as(self) -> str:
        """The id under which what phase 1 asks answers."""
        return self.adapter.name if self.adapter else self.model_name

    def command(self, port: int, *, lora: bool = False, host: str = LOOPBACK) -> list[str]:
        """The server's command line. The `vllm` command is not used: the CPU build's looks up another distribution."""
        program = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        return [*program, "--host", host, "--port", str(port), *self.arguments(lora=lora)]

    def arguments(self, *, lora: bool = False) -> list[str]:
        """The server's arguments but for where it listens."""
        settings = self.settings
        command = [
            *("--model", str(self.model_folder), "--served-model-name", self.model_name),
            *("--max-model-len", str(settings.max_model_len), "--max-num-seqs", str(settings.max_num_seqs)),
            # The model cannot lose itself in blanks, and a grammar without them is smaller.
            *("--structured-outputs-config", json.dumps({"backend": "xgrammar", "disable_any_whitespace": True})),
            "--enable-prefix-caching",
        ]
        if self.device == "cuda":
            command += ["--gpu-memory-utilization", str(settings.gpu_memory_utilization)]
        elif precision_on(self.device, weight_bytes_in(self.model_folder)) == "float32":
            command += ["--dtype", "float32"]
        if settings.enforce_eager:
            command.append("--enforce-eager")
        if settings.reasoning_parser:
            command += ["--reasoning-parser", settings.reasoning_parser]
        if lora or self.adapters:
            rank = max(settings.max_lora_rank, *(each.rank for each in self.adapters), 1)
            command += ["--enable-lora", "--max-lora-rank", str(rank)]
        if lora:
            command += ["--max-loras", str(settings.max_loras)]
            if parser := settings.tool_parser or tool_parser_of(self.model_folder):
                command += ["--enable-auto-tool-choice", "--tool-call-parser", parser]
        if self.adapters:
            command += ["--lora-modules", *(f"{each.name}={each.folder}" for each in self.adapters)]
        return [*command, *settings.extra_args]

    def environment(self, environment: Mapping[str, str], *, lora: bool = False) -> dict[str, str]:
        """The server's environment: the caller's, plus what keeps it offline and silent."""
        ours = {
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_LOGGING_LEVEL": "INFO",
            # It makes sockets there.
            "TMPDIR": temporary_folder(),
        }
        if self.device == "cpu":
            ours["VLLM_CPU_KVCACHE_SPACE"] = str(self.settings.kv_cache_gib)
            # Its own choice is a process for the model beside the scheduler's; both then poll without a pause, which
            # takes one core of two from the model. It refuses one process for both as long as this is not set, since
            # it could not set the threads of a process that runs already: we set them for the whole server.
            ours["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
            # Unbound, because others use the cores too.
            ours["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
            if self.settings.enforce_eager:
                # Nothing of the model is compiled then, but a sum in the sampler: for that vLLM would want a C++
                # compiler, which few machines have, and a path without blanks.
                ours["TORCHDYNAMO_DISABLE"] = "1"
            # More threads than cores wait for each other at each barrier: a third of the tokens.
            ours["OMP_NUM_THREADS"] = environment.get("OMP_NUM_THREADS") or str(usable_cores())
        if lora:
            # An administrative interface: it listens on loopback only, like the rest.
            ours["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "True"
        return {**environment, **ours}

    @contextmanager
    def serve(
        self,
        grant: "DeviceGrant",
        *,
        log: Path,
        progress: Callable[[str], None],
        environment: Mapping[str, str],
        lora: bool = False,
        api_key: str | None = None,
        host: str = LOOPBACK,
        give_up: Callable[[], bool] = lambda: False,
    ) -> Iterator[Endpoint]:
        """Start the server, yield its endpoint when it answers, stop it when the block ends.

        With `api_key` it answers only to who has it; without one it must listen on loopback. Raises ServiceError, with
        the last lines of its log that mean something, if it dies or is not ready within `ready_timeout_seconds`;
        BusyError if `give_up` says so before.
        """
        assert api_key or host == LOOPBACK
        port = free_port(host)
        endpoint = Endpoint(f"http://{host}:{port}", self.served_as, api_key=api_key)
        secret = {"VLLM_API_KEY": api_key} if api_key else {}
        begin = time.monotonic()
        served = self.model_name + (f" and {self.adapter.name}" if self.adapter else "")
        progress(f"starting vLLM with {served} on the {self.device}, log in {log}")
        # An engine that served before in the same night wrote into the same log.
        since = log.stat().st_size if log.exists() else 0
        with grant.start(
            self.command(port, lora=lora, host=host),
            env=self.environment({**environment, **secret}, lora=lora),
            log=log,
            grace_seconds=GRACE_SECONDS,
        ) as process:
            self._wait(process, endpoint, log, since, progress, begin, give_up)
            progress(f"vLLM is ready after {time.monotonic() - begin:.0f} s")

            def died() -> str | None:
                return None if process.poll() is None else why_ended(process, log, since)

            yield replace(endpoint, died=died)

    def _wait(
        self,
        process: "SupervisedProcess",
        endpoint: Endpoint,
        log: Path,
        since: int,
        progress: Callable[[str], None],
        begin: float,
        give_up: Callable[[], bool],
    ) -> None:
        reported = begin
        while True:
            if give_up():
                raise BusyError("vLLM was stopped before it was ready: somebody asks for the card")
            # Before the question whether it lives: another process's answer on this port must not count.
            ready = _answers(endpoint)
            if process.poll() is not None:
                raise ServiceError(why_ended(process, log, since, " before it was ready"))
            if ready:
                return
            now = time.monotonic()
            if now - begin > self.settings.ready_timeout_seconds:
                raise ServiceError(
                    f"vLLM was not ready after inference.ready_timeout_seconds "
                    f"({self.settings.ready_timeout_seconds:.0f} s): {meaning(log, since)} (log: {log})"
                )
            if now - reported >= _PROGRESS_SECONDS:
                reported = now
                progress(f"vLLM is starting, {now - begin:.0f} s: {stage(log, since)}")


def why_ended(process: "SupervisedProcess", log: Path, since: int, when: str = "") -> str:
    """How the engine ended, and where to read on. What it said last is not the reason if it was killed."""
    said = "" if ending_signal(process.wait()) == signal.SIGKILL else f": {meaning(log, since)}"
    return f"vLLM {process.how_it_ended(when)}{said} (log: {log})"


def meaning(log: Path, since: int = 0, *, lines: int = 3) -> str:
    """The last lines of a log that say what went wrong, of those after its first `since` bytes, in one line."""
    candidates = [line for each in _tail(log, since) if not _NOISE.search(line := _LEVEL.sub("", each))]
    telling = [line for line in candidates if _FAILURE.search(line) and not line.startswith("WARNING")] or candidates
    return " | ".join(telling[-lines:])[-600:] or "its log is empty"


def stage(log: Path, since: int = 0) -> str:
    """The last line of progress in vLLM's log after its first `since` bytes, shortened."""
    words = [match["words"] for line in _tail(log, since) if (match := _STAGE.match(line))]
    return words[-1][:100] if words else "loading its libraries"


def _tail(log: Path, since: int, size: int = 2**15) -> list[str]:
    if not log.exists():
        return []
    with log.open("rb") as stream:
        stream.seek(max(since, log.stat().st_size - size))
        text = stream.read().decode(errors="replace")
    return [_PREFIX.sub("", line).strip() for line in text.splitlines()]


def _answers(endpoint: Endpoint) -> bool:
    """True if the server is ready. Takes between a quarter and two seconds otherwise."""
    try:
        headers = authorization(endpoint.api_key)
        response = httpx.get(f"{endpoint.base_url}/v1/models", headers=headers, timeout=2.0, trust_env=False)
        models = [model.get("id") for model in response.json()["data"]] if response.status_code == 200 else []
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError):
        models = []
    if endpoint.model in models:
        return True
    time.sleep(0.25)
    return False
