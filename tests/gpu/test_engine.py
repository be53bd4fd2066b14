"""The engine's process: what it is started with, when it counts as ready, and how it ends."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from ec1.adapters.judging import judged_by, server_judge
from ec1.adapters.scores import Judge
from ec1.adapters.settings import JudgeSettings
from ec1.answers.answering import ModelAnswer
from ec1.errors import ServiceError
from ec1.gpu.engine import LOOPBACK, Endpoint, VllmEngine, meaning, stage
from ec1.gpu.lease import GpuLease, Grant, marked_processes
from ec1.gpu.settings import VllmSettings
from ec1.recipes.evaluation import TaskCase

SETTINGS = VllmSettings(kind="vllm", model="m/m", max_model_len=512, kv_cache_gib=1, enforce_eager=True)

READY = """
import http.server, json, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        data = json.dumps({"data": [{"id": "m/m"}]}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(data))); self.end_headers()
        self.wfile.write(data)
print("loading weights", flush=True)
time.sleep(0.3)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class OtherProgram(VllmEngine):
    """The engine with a small program in vLLM's place, for what has to do with processes only."""

    program = READY

    def command(self, port: int, *, lora: bool = False, host: str = LOOPBACK) -> list[str]:
        return [sys.executable, "-c", self.program, str(port)]


@pytest.fixture
def lease(tmp_path: Path) -> GpuLease:
    return GpuLease(tmp_path / "gpu.lock", device="cpu", min_free_gib=0)


@pytest.fixture
def grant(lease: GpuLease) -> Iterator[Grant]:
    with lease.hold("inference", night="2026-06-01", holder="test", wait_seconds=0) as grant:
        yield grant


def test_the_command_listens_on_loopback_and_has_no_lora(tmp_path: Path) -> None:
    engine = VllmEngine(SETTINGS, tmp_path, "m/m", "cpu")
    command = engine.command(8123)
    assert command[:3] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--served-model-name") + 1] == "m/m"
    assert "--enforce-eager" in command
    assert "--gpu-memory-utilization" not in command
    assert "--enable-lora" not in command
    assert "--enable-lora" in engine.command(8123, lora=True)
    on_gpu = VllmEngine(SETTINGS, tmp_path, "m/m", "cuda").command(8123)
    assert on_gpu[on_gpu.index("--gpu-memory-utilization") + 1] == "0.9"


def test_the_environment_is_the_callers_and_silent(tmp_path: Path) -> None:
    engine = VllmEngine(SETTINGS, tmp_path, "m/m", "cpu")
    environment = engine.environment({"PATH": "/bin"})
    assert environment["PATH"] == "/bin"
    assert environment["HF_HUB_OFFLINE"] == environment["VLLM_NO_USAGE_STATS"] == environment["DO_NOT_TRACK"] == "1"
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert environment["TORCHDYNAMO_DISABLE"] == "1", "no compiler is needed, and the folder's name may hold a blank"
    assert "HOME" not in environment
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" not in environment
    assert engine.environment({}, lora=True)["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "True"


def test_on_a_cpu_it_has_as_many_threads_as_cores_that_it_may_use(tmp_path: Path) -> None:
    asking = """
import os, pathlib
from ec1.gpu.settings import VllmSettings
from ec1.gpu.engine import VllmEngine
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
settings = VllmSettings(kind="vllm", model="m/m", max_model_len=512, kv_cache_gib=1)
engine = VllmEngine(settings, pathlib.Path("."), "m/m", "cpu")
for environment in ({}, {"OMP_NUM_THREADS": "7"}):
    print(engine.environment(environment)["OMP_NUM_THREADS"])
"""
    done = subprocess.run([sys.executable, "-c", asking], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "7"], "the caller's own choice stands"
    assert "OMP_NUM_THREADS" not in VllmEngine(SETTINGS, tmp_path, "m/m", "cuda").environment({})


def test_it_serves_while_the_block_lasts(grant: Grant, lease: GpuLease, tmp_path: Path) -> None:
    lines: list[str] = []
    engine = OtherProgram(SETTINGS, tmp_path, "m/m", "cpu")
    with engine.serve(grant, log=tmp_path / "log", progress=lines.append, environment={}) as endpoint:
        assert endpoint.model == "m/m"
        assert httpx.get(f"{endpoint.base_url}/v1/models").status_code == 200
        assert marked_processes(lease.lock)
    assert marked_processes(lease.lock) == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{endpoint.base_url}/v1/models")
    assert "starting" in lines[0] and "ready" in lines[-1]


def test_a_process_that_dies_is_reported_with_its_reason(grant: Grant, tmp_path: Path) -> None:
    class Dies(OtherProgram):
        program = "import sys; print('INFO all is well'); sys.exit('ValueError: not enough memory for the cache')"

    engine = Dies(SETTINGS, tmp_path, "m/m", "cpu")
    serve = engine.serve(grant, log=tmp_path / "log", progress=lambda line: None, environment={})
    with (
        pytest.raises(ServiceError, match=r"ended with status 1 before it was ready: ValueError: not enough memory"),
        serve,
    ):
        pass


def test_one_that_the_system_killed_is_told_as_killed(grant: Grant, tmp_path: Path) -> None:
    class IsKilled(OtherProgram):
        program = "import os, signal; print('ERROR of long ago', flush=True); os.kill(os.getpid(), signal.SIGKILL)"

    engine = IsKilled(SETTINGS, tmp_path, "m/m", "cpu")
    serve = engine.serve(grant, log=tmp_path / "log", progress=lambda line: None, environment={})
    told = r"was killed \(SIGKILL; by the system, probably for memory: see .*\) before it was ready \(log: "
    with pytest.raises(ServiceError, match=told), serve:
        pass


def test_what_an_engine_before_it_wrote_is_not_its_own(grant: Grant, tmp_path: Path) -> None:
    log = tmp_path / "log"
    earlier = (
        "(EngineCore pid=2) INFO 11-21 18:46:28 [loggers.py:1] Engine 000: 840 tokens/s\nValueError: of the first\n"
    )
    log.write_text(earlier)

    class DiesSilently(OtherProgram):
        program = "import sys; sys.exit(3)"

    engine = DiesSilently(SETTINGS, tmp_path, "m/m", "cpu")
    serve = engine.serve(grant, log=log, progress=lambda line: None, environment={})
    with pytest.raises(ServiceError, match=r"ended with status 3 before it was ready: its log is empty"), serve:
        pass
    assert stage(log) == "Engine 000: 840 tokens/s" and stage(log, len(earlier)) == "loading its libraries"


def test_another_servers_answer_does_not_count(grant: Grant, tmp_path: Path) -> None:
    class AnswersForAnother(OtherProgram):
        program = READY.replace('"m/m"', '"other"')

    settings = SETTINGS.model_copy(update={"ready_timeout_seconds": 3.0})
    engine = AnswersForAnother(settings, tmp_path, "m/m", "cpu")
    serve = engine.serve(grant, log=tmp_path / "log", progress=lambda line: None, environment={})
    with pytest.raises(ServiceError, match=r"was not ready after inference\.ready_timeout_seconds"), serve:
        pass


def test_a_process_that_never_gets_ready_is_stopped(grant: Grant, lease: GpuLease, tmp_path: Path) -> None:
    class Hangs(OtherProgram):
        program = "import time; print('loading weights', flush=True); time.sleep(600)"

    settings = SETTINGS.model_copy(update={"ready_timeout_seconds": 2.0})
    engine = Hangs(settings, tmp_path, "m/m", "cpu")
    serve = engine.serve(grant, log=tmp_path / "log", progress=lambda line: None, environment={})
    with pytest.raises(ServiceError, match="loading weights"), serve:
        pass
    assert marked_processes(lease.lock) == []


def test_ports_are_free_ones(tmp_path: Path) -> None:
    from ec1.launch.local import free_port

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", free_port()))


def test_the_meaning_of_a_log_is_found(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "(APIServer pid=1) INFO 06-01 starting\n"
        "(EngineCore pid=2) Traceback (most recent call last):\n"
        '(EngineCore pid=2)   File "x.py", line 1, in f\n'
        "(EngineCore pid=2) torch.OutOfMemoryError: tried to allocate 20 GiB\n"
        "\n    ^^^^^^\n(APIServer pid=1) INFO goodbye\n"
    )
    assert meaning(log) == "torch.OutOfMemoryError: tried to allocate 20 GiB"
    assert meaning(tmp_path / "none") == "its log is empty"


def test_the_meaning_is_the_error_and_not_what_it_leads_to(tmp_path: Path) -> None:
    """As vLLM's log ended on a machine without a compiler."""
    log, error = tmp_path / "log", "(EngineCore pid=100) ERROR 11-29 23:25:26 [core.py:1512] "
    log.write_text(
        f"{error}Traceback (most recent call last):\n"
        f'{error}  File "cpp_builder.py", line 108, in cpp_compiler_search\n'
        f"{error}    raise exc.InvalidCxxCompiler\n"
        f"{error}          ~~~~~~^^^^^^^\n"
        f"{error}torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found\n"
        f"{error}\n"
        f"{error}vllm.v1.engine.exceptions.EngineDeadError: See stack trace (above) for the root cause.\n"
        'INFO:     127.0.0.1:52000 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error\n'
        "INFO:     Application shutdown complete.\n"
        "(APIServer pid=49) WARNING 11-29 23:25:26 [utils.py:648] Process manager: force killing remaining processes\n"
    )
    assert meaning(log) == "torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found"


def test_progress_is_what_the_engine_says_it_does(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert stage(log) == "loading its libraries"
    log.write_text(
        "Triton is installed, but disabled\n(APIServer pid=1) INFO 11-21 18:46:28 [api_utils.py:347]   █▄█▀ █\n"
    )
    assert stage(log) == "loading its libraries"
    with log.open("a") as stream:
        stream.write("(EngineCore pid=2) INFO 11-21 18:46:28 [model.py:733] Resolved architecture: LlamaForCausalLM\n")
        stream.write("some library: warning\n")
    assert stage(log) == "Resolved architecture: LlamaForCausalLM"


def _judged(endpoint: Endpoint) -> tuple[dict[str, dict[str, bool | None]], Judge]:
    """What the served model says as the judge of a task case."""
    criterion = {
        "criterion": "It gives a reason.",
        "good": "We probe twice because one reply may be lost on the way.",
        "bad": "We probe twice, as we have done for years and years now.",
    }
    case = TaskCase(name="reason", prompt="Why do we probe twice?", check="judge", value=criterion)
    ask, judge = server_judge(JudgeSettings(base_url=endpoint.base_url, model=endpoint.model))
    answers = {"base": [ModelAnswer("Twice is what the handbook says.", cut=False)]}
    return judged_by([case], answers, ask, judge)


@pytest.mark.system
def test_the_real_engine_extracts_the_sample(lease: GpuLease, tmp_path: Path, project: Path, small_model: Path) -> None:
    """vLLM with the small model, from an empty outbox to grounded entities."""
    import os

    from ec1.deployment import load_deployment
    from ec1.documents.ledger import DocumentKey
    from ec1.documents.parse import parse_document
    from ec1.extraction.reading.extractor import Extractor, WorkItem
    from ec1.extraction.reading.loop import extract
    from ec1.extraction.reading.openai import OpenAIClient
    from ec1.extraction.reading.outbox import Outbox
    from ec1.files import sha256_file

    deployment = load_deployment("embedded", project)
    model = deployment.inference
    assert model.kind == "vllm"
    root = project / "examples" / "documents"
    documents = {}
    for path in sorted(root.glob("service-people/source/**/*.json"))[:4]:
        key = DocumentKey("contact", path.relative_to(root).as_posix())
        documents[sha256_file(path)] = parse_document(key, path.read_bytes())
    work = [WorkItem("contact", digest, partial(documents.__getitem__, digest)) for digest in documents]
    extractor = Extractor(deployment.extraction, model.model, model.revision, small_model)
    outbox = Outbox(tmp_path / "outbox")
    engine = VllmEngine(model, small_model, model.model, "cpu")
    with lease.hold("inference", night="2026-06-01", holder="test", wait_seconds=0) as grant:
        serving = engine.serve(
            grant, log=tmp_path / "log", progress=print, environment={**os.environ, "OMP_NUM_THREADS": "2"}
        )
        with serving as endpoint:
            names = {each.name() for each in marked_processes(lease.lock)}
            assert any(name.startswith("VLLM::EngineCo") for name in names), names
            assert not any(name.startswith("VLLM::Worker") for name in names), "two processes that wait by polling"
            client = OpenAIClient(endpoint.base_url, endpoint.model, deployment.extraction)
            report = extract(extractor, work, client, outbox, deadline=None, progress=print)
            judged, judge = _judged(endpoint)
    assert report.streams["contact"].complete == len(documents)
    assert report.entities["Person"] >= 4
    # The schema is obeyed; whether so small a model can tell is another matter, and is said.
    assert judge.digest
    assert judge.problem == "" or "tell the good from the bad" in judge.problem or "order of" in judge.problem
    assert judge.problem == "" or judged == {"base": {"reason": None}}
    for digest, document in documents.items():
        result = outbox.get(extractor.fingerprint("contact"), digest)
        assert result is not None
        assert all(answer.finish_reason == "stop" for answer in result.answers)
        for mention in result.mentions:
            assert " ".join(document.text[mention.start : mention.end].split()) == mention.name
    assert marked_processes(lease.lock) == []
    assert not [
        each for each in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(each.info["cmdline"] or [])
    ]
