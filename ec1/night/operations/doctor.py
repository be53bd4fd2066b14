"""What `ec1 doctor` checks: whether this machine, this configuration and this home can run a night."""

import base64
import contextlib
import datetime as dt
import importlib.metadata
import platform
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from ec1.deployment import Deployment
from ec1.documents.convert import Converter, NoConverterError
from ec1.documents.settings import DocumentSettings
from ec1.documents.unread import unread_files
from ec1.errors import InputError, RejectedError
from ec1.extraction.scoring import read_gold
from ec1.gpu.cards import cards_of, read_card
from ec1.gpu.lease import marked_processes
from ec1.graph import file_seal
from ec1.graph.resolution.overrides import load_overrides
from ec1.home import Home
from ec1.launch.launcher import LocalLauncherSettings
from ec1.models import model_folder, tokenizer_folder
from ec1.night.health import preflight
from ec1.night.health.finding import Level, Symptom
from ec1.night.health.peers import guarded, peers
from ec1.night.health.starting import served_by
from ec1.night.steps.extractor import class_notes
from ec1.plural import counted
from ec1.recipes.resolution import ResolvedRecipe
from ec1.streams import CONVERTED

UI_PORT = 3000
_BLANK_PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABAAQAAAACCEkxzAAAAFElEQVR42mP8zwABTAyjjFEGyQwAzx8Bf7QK4E8AAAAASUVORK5CYII="
)
PACKAGES = ("dagster", "torch", "transformers", "peft", "trl", "bitsandbytes", "ladybug")


def examine(deployment: Deployment, home: Home) -> Iterator[Symptom]:
    """Check everything that a night needs; starts nothing and changes nothing."""
    yield Symptom("python", "ok", f"{platform.python_version()} on {platform.platform(terse=True)}")
    yield _packages()
    if deployment.machine is None:
        yield guarded("device", lambda: _device(deployment))
    else:
        yield guarded("machine", lambda: _machine(deployment, home))
    yield from peers(deployment, home)
    yield guarded("lease", lambda: _lease(deployment, home))
    yield from preflight.findings(deployment, home, dt.datetime.now(dt.UTC))
    yield _port(home, UI_PORT)
    yield _documents(deployment, home)
    yield from _conversion(deployment.documents)
    # That of phase 1 is looked at before each night; without another the training of its recipe fails.
    for model_id in sorted(set(deployment.models) - {deployment.inference.model}):
        folder = model_folder(model_id, deployment.inference.revision, deployment.models, home.models)
        yield preflight.model(model_id, folder, deployment)
    if notes := class_notes(deployment):
        yield guarded("classes", lambda: _classes(deployment, home, notes))
    yield guarded("graph", lambda: _graph(home))
    if deployment.extraction.gold is not None:
        yield _gold(deployment, deployment.extraction.gold)
    if (decisions := deployment.graph.overrides or home.overrides) != home.overrides or decisions.is_file():
        yield guarded("overrides", lambda: _overrides(decisions))


def examine_sandbox(deployment: Deployment, recipes: Sequence[ResolvedRecipe]) -> list[Symptom]:
    """Whether what recipes have executed can be executed here; nothing to say if no recipe has anything executed."""
    needing = [each.recipe for each in recipes if each.recipe.executes]
    if not needing:
        return []
    names = ", ".join(f"{recipe.tenant}/{recipe.role}" for recipe in needing)
    if (why := next(filter(None, (recipe.why_unchecked() for recipe in needing)), None)) is None:
        return [Symptom("sandbox", "ok", f"works; needed by {names}")]
    # Evaluations on another machine need it there.
    here = isinstance(deployment.launcher, LocalLauncherSettings)
    return [Symptom("sandbox", "problem" if here else "note", f"{why}; needed by {names}")]


def _conversion(documents: DocumentSettings) -> Iterator[Symptom]:
    settings = documents.conversion
    with contextlib.closing(Converter(settings)) as converter:
        try:
            converter.start()
        except NoConverterError as error:
            needed = any(not set(CONVERTED).isdisjoint(stream.suffixes) for stream in documents.all_streams.values())
            level: Level = "problem" if needed else "note"
            yield Symptom("conversion", level, f"no PDF, Word file or mail can be read: {error}")
            return
        yield Symptom("conversion", "ok", "PDFs, Word files, mails and the like can be read")
        if not settings.ocr:
            return
        languages = ", ".join(settings.ocr)
        try:
            converter.convert(_BLANK_PNG, ".png", "")
        except RejectedError as error:
            packages = " ".join(f"tesseract-ocr-{each.replace('_', '-')}" for each in settings.ocr)
            yield Symptom("ocr", "problem", f"pictures are not read in {languages}: {error}; on Debian: {packages}")
        else:
            yield Symptom("ocr", "ok", f"pictures are read in {languages}")


def _gold(deployment: Deployment, path: Path) -> Symptom:
    try:
        documents = len(read_gold(path, deployment.extraction.vocabulary.classes))
    except InputError as error:
        # The night goes on without figures.
        return Symptom("gold", "note", f"extraction will not be scored: {error}")
    return Symptom("gold", "ok", f"{counted(documents, 'document')} in {path}")


def _overrides(path: Path) -> Symptom:
    overrides = load_overrides(path)
    count = len(overrides.same) + len(overrides.different)
    return Symptom("overrides", "ok", f"{counted(count, 'decision')} in {path}")


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


def _device(deployment: Deployment) -> Symptom:
    wanted = deployment.gpu.device
    bound = deployment.gpu.min_free_gib if deployment.uses_own_card else 0.0
    names = cards_of(deployment.gpu, deployment.gpu.processes if wanted == "cuda" else 1)
    cards = [read_card(wanted, name) for name in names]
    text = "; ".join(f"{card}: {card.free_gib:.1f} of {card.total_gib:.1f} GiB free" for card in cards)
    if any(card.free_gib < bound for card in cards):
        return Symptom("device", "problem", f"{text}, gpu.min_free_gib asks for {bound:g}")
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


def _lease(deployment: Deployment, home: Home) -> Symptom:
    # A training of several processes waits for all their cards.
    lease = deployment.gpu_lease(home, processes=deployment.gpu.processes if deployment.gpu.device == "cuda" else 1)
    if (holder := lease.held_by()) is not None:
        return Symptom("lease", "note", f"held by {holder}")
    if left := {process.pid for lock in lease.locks for process in marked_processes(lock)}:
        ids = ", ".join(map(str, sorted(left)))
        return Symptom("lease", "note", f"free; a crashed holder left processes {ids}, which the next holder ends")
    return Symptom("lease", "ok", "free")


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


def _classes(deployment: Deployment, home: Home, notes: list[str]) -> Symptom:
    """Whether the model can be asked for the deployment's own classes, as far as its tokenizer is here."""
    from ec1.extraction.reading.extractor import Extractor

    model = deployment.inference
    folder = tokenizer_folder(model.model, model.revision, deployment.models, home.models)
    if (folder / "tokenizer.json").is_file():
        extractor = Extractor(deployment.extraction, model.model, model.revision, folder)
        extractor.max_model_len = model.max_model_len
        extractor.check()
    return Symptom("classes", "note" if len(notes) > 1 else "ok", "; ".join(notes).removeprefix("classes: "))


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


def _port(home: Home, port: int) -> Symptom:
    if (holder := served_by(home)) is not None:
        return Symptom("ui", "ok", f"served by {holder}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return Symptom("ui", "note", f"not served; port {port} is taken by another program: use `ec1 ui --port`")
    return Symptom("ui", "ok", f"not served; port {port} is free")
