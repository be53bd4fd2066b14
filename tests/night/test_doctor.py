"""`ec1 doctor` finds what is wrong with a machine or a home, and says how it is mended."""

import contextlib
import datetime as dt
import fcntl
import os
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from damage import flip
from debian import program
from fake_openai import fake_server
from loopback_server import free_port

from ec1.deployment import Deployment
from ec1.documents.settings import ConversionSettings, DocumentSettings
from ec1.errors import DamagedError
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.results import ExtractionResult
from ec1.extraction.settings import ServerSettings
from ec1.graph import file_seal
from ec1.home import CHECKOUT, Home
from ec1.launch.ray_launcher import RayLauncherSettings
from ec1.night.health import preflight
from ec1.night.health.databases import damaged_databases
from ec1.night.health.finding import Symptom
from ec1.night.health.preflight import why_not
from ec1.night.operations import doctor
from ec1.night.operations.deep import examine_deeply
from ec1.night.stores import open_registry
from ec1.training.checkpoints import seal
from jobs.doctor import examine
from jobs.instance import prepare_instance
from jobs.workers import PROCESS_TAG, WorkerProcess
from resources.dagster_private import RemoteJobOrigin, RemoteRepositoryOrigin, WorkspaceFileTarget

NIGHT = {"dagster/partition": "2026-06-05"}


def found(findings: "Iterator[Symptom] | list[Symptom]", subject: str) -> Symptom:
    return next(each for each in findings if each.subject == subject)


def clock_behind(home: Home) -> None:
    path = home.nights / "2031-01-01"
    path.mkdir(parents=True)
    os.utime(path, (time.time() + 3600, time.time() + 3600))


def published_damaged(home: Home) -> None:
    home.published_graph.parent.mkdir(parents=True)
    home.published_graph.write_bytes(b"a graph" * 100)
    file_seal.seal(home.published_graph)
    flip(home.published_graph)


def published_empty(home: Home) -> None:
    home.published_graph.parent.mkdir(parents=True)
    home.published_graph.touch()


def live_lost(home: Home) -> None:
    home.published_graph.parent.mkdir(parents=True)
    home.published_graph.write_bytes(b"a graph")


def open_to_others(home: Home) -> None:
    home.root.mkdir(mode=0o755)


def history_damaged(home: Home) -> None:
    (home.dagster / "history").mkdir(parents=True)
    (home.dagster / "history" / "runs.db").write_bytes(b"\0" * 4096)


PLANTED: dict[str, tuple[Callable[[Home], None], str, str, str]] = {
    "clock behind": (clock_behind, "clock", "problem", "timedatectl"),
    "published graph damaged": (published_damaged, "graph", "note", "the next night publishes it again"),
    "published graph empty": (published_empty, "graph", "note", "the next night publishes it again"),
    "live graph lost": (live_lost, "graph", "note", "the next night restores"),
    "home open to others": (open_to_others, "home", "note", "chmod 700"),
    "history damaged": (history_damaged, "database", "problem", "the next night begins a new history"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_wrong_is_found_with_its_mend(name: str, embedded: Deployment, home: Home) -> None:
    plant, subject, level, mend = PLANTED[name]
    plant(home)
    finding = found(doctor.examine(embedded, home), subject)
    assert finding.level == level and mend in finding.detail and "\n" not in finding.detail, finding


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_takes_no_files_is_a_problem(embedded: Deployment, home: Home) -> None:
    home.outbox.mkdir(parents=True, mode=0o500)
    assert "chown" in found(doctor.examine(embedded, home), "home").detail


def test_a_file_system_that_keeps_no_permissions_is_told_before_a_night(
    embedded: Deployment, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A night would train for hours and then not publish: the key that signs may be read by nobody else."""
    made = os.open

    def as_mounted(path: str, flags: int, mode: int = 0o777, **of: int) -> int:
        descriptor = made(path, flags, mode, **of)
        if flags & os.O_CREAT or flags & os.O_TMPFILE == os.O_TMPFILE:
            os.fchmod(descriptor, 0o644)
        return descriptor

    monkeypatch.setattr(os, "open", as_mounted)
    seen = found(doctor.examine(embedded, home), "keys")
    assert seen.level == "problem" and "mount it for its owner alone" in seen.detail
    assert why_not(embedded, home, dt.datetime.now(dt.UTC)) == seen.detail
    reads_only = embedded.model_copy(update={"recipes": ()})
    assert found(doctor.examine(reads_only, home), "keys").level == "note"


def test_a_library_that_the_engine_lacks_stops_a_night_before_anything_is_started(
    embedded: Deployment, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an image of Debian without libnuma vLLM's build for CPUs starts, and says that an attribute is missing."""
    now = dt.datetime.now(dt.UTC)
    assert found(doctor.examine(embedded, home), "engine").level == "ok" and why_not(embedded, home, now) is None
    monkeypatch.setattr(preflight, "_CPU_LIBRARY", "libnuma-that-is-not-there.so.1")
    seen = found(doctor.examine(embedded, home), "engine")
    assert seen.level == "problem" and "install libnuma1" in seen.detail
    assert why_not(embedded, home, now) == seen.detail
    others = ServerSettings(kind="server", base_url="http://127.0.0.1:9", model=embedded.inference.model)
    assert why_not(embedded.model_copy(update={"inference": others}), home, now) is None


def test_a_card_without_a_compiler_is_noted(embedded: Deployment, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton compiles at the first use of a kernel; Ubuntu's servers have Python without its headers."""
    assert preflight.engine("cuda").level == "ok" or "python3-dev" in preflight.engine("cuda").detail
    monkeypatch.setenv("PATH", "/nowhere")
    seen = preflight.engine("cuda")
    assert seen.level == "note" and "install gcc" in seen.detail and preflight.engine("cpu").level == "ok"


def test_too_little_room_is_a_problem_for_the_doctor_and_stops_a_night(embedded: Deployment, home: Home) -> None:
    now = dt.datetime.now(dt.UTC)
    assert why_not(embedded, home, now) is None
    wanting = embedded.model_copy(update={"budgets": embedded.budgets.model_copy(update={"min_free_gib": 10.0**9})})
    seen = found(doctor.examine(wanting, home), "disk")
    assert seen.level == "problem" and "budgets.min_free_gib" in seen.detail
    # How much is free may have changed meanwhile.
    assert "budgets.min_free_gib" in (why_not(wanting, home, now) or "")


def test_who_has_the_ui_or_its_port_is_said(home: Home) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert "--port" in doctor._port(home, port).detail
        lock = home.dagster / ".ui.lock"
        lock.parent.mkdir(parents=True)
        with lock.open("a+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            stream.write("process 1 on http://127.0.0.1:3000")
            stream.flush()
            assert "served by process 1" in doctor._port(home, port).detail


def test_a_service_that_does_not_answer_is_named(embedded: Deployment, home: Home) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{probe.getsockname()[1]}"
    service = embedded.service_content.model_copy(update={"base_url": address})
    deployment = embedded.model_copy(
        update={"graph_stores": ("ladybug", "service_content"), "service_content": service}
    )
    assert address in found(doctor.examine(deployment, home), "service-content").detail


def test_a_ray_cluster_and_every_replica_are_asked(embedded: Deployment, home: Home) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    with fake_server() as server, fake_server() as other:
        server.models = [embedded.inference.model]
        ray = RayLauncherSettings(address=gone)
        replicas = (gone, other.url)
        model = ServerSettings(kind="server", base_url=server.url, replicas=replicas, model=embedded.inference.model)
        findings = list(doctor.examine(embedded.model_copy(update={"launcher": ray, "inference": model}), home))
    assert found(findings, "ray").level == "note" and gone in found(findings, "ray").detail
    assert found(findings, "inference").level == "note"
    assert f"{server.url}: ready; {gone}: it does not answer" in found(findings, "inference").detail
    assert (
        f"{other.url}: it serves m, some/model, not {embedded.inference.model}" in found(findings, "inference").detail
    )


def test_servers_that_want_a_key_are_asked_with_it(embedded: Deployment, home: Home, tmp_path: Path) -> None:
    key = tmp_path / "key"
    with fake_server() as server:
        server.key = "sk-1"
        model = ServerSettings(
            kind="server", base_url=server.url, model=embedded.inference.model, served_as="m", key_file=key
        )
        deployment = embedded.model_copy(update={"inference": model})
        lacking = found(doctor.examine(deployment, home), "inference")
        key.write_text("sk-1")
        there = found(doctor.examine(deployment, home), "inference")
    assert lacking.level == "problem" and f"key_file {key}: No such file" in lacking.detail
    assert there.level == "ok"


def test_memory_that_no_phase_needs_here_is_not_asked_for(embedded: Deployment, home: Home) -> None:
    model = ServerSettings(kind="server", base_url="http://127.0.0.1:9", model=embedded.inference.model)
    wanting = embedded.model_copy(update={"gpu": embedded.gpu.model_copy(update={"min_free_gib": 10.0**6})})
    elsewhere = wanting.model_copy(update={"inference": model, "recipes": ()})
    # Trainings would need it, and an engine would.
    for each in (wanting, wanting.model_copy(update={"inference": model}), wanting.model_copy(update={"recipes": ()})):
        assert each.uses_own_card and found(doctor.examine(each, home), "device").level == "problem"
    assert not elsewhere.uses_own_card and found(doctor.examine(elsewhere, home), "device").level == "ok"


@pytest.mark.parametrize(
    ("languages", "level", "text"),
    [(("eng",), "ok", "pictures are read in eng"), (("eng", "xyz"), "problem", "Language 'xyz' not found")],
)
def test_whether_pictures_can_be_read_is_tried(
    embedded: Deployment, home: Home, languages: tuple[str, ...], level: str, text: str
) -> None:
    program("tesseract")
    documents = embedded.documents.model_copy(update={"conversion": ConversionSettings(ocr=languages)})
    finding = found(doctor.examine(embedded.model_copy(update={"documents": documents}), home), "ocr")
    assert finding.level == level and text in finding.detail


def test_that_nothing_can_be_converted_is_a_problem_where_a_stream_needs_it(
    embedded: Deployment, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(doctor.examine(embedded, home), "conversion").level == "ok"
    monkeypatch.setattr(sys, "executable", "/bin/false")
    finding = found(doctor.examine(embedded, home), "conversion")
    assert finding.level == "note" and "does not start: it ended with status 1" in finding.detail
    needing = DocumentSettings.model_validate({"streams": {"all": {"folder": "."}}})
    finding = found(doctor.examine(embedded.model_copy(update={"documents": needing}), home), "conversion")
    assert finding.level == "problem"


@pytest.mark.parametrize("content", [None, "", "not JSON", '{"entities": []}'])
def test_a_gold_file_that_is_wrong_is_named_and_stops_no_night(
    embedded: Deployment, home: Home, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "gold.jsonl"
    if content is not None:
        path.write_text(content)
    extraction = embedded.extraction.model_copy(update={"gold": path})
    finding = found(doctor.examine(embedded.model_copy(update={"extraction": extraction}), home), "gold")
    assert finding.level == "note" and "extraction will not be scored" in finding.detail


@pytest.fixture
def instance(home: Home) -> Iterator[dg.DagsterInstance]:
    with prepare_instance(home) as instance:
        yield instance


@dg.op
def nothing() -> None:
    """Is never reached."""


@dg.job
def night() -> None:
    nothing()


def run_of(instance: dg.DagsterInstance, status: dg.DagsterRunStatus, worker: WorkerProcess | None = None) -> str:
    (location,) = WorkspaceFileTarget([str(CHECKOUT / "workspace.yaml")]).create_origins()
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), "night")
    run = instance.create_run_for_job(night, tags=NIGHT, status=status, remote_job_origin=origin)
    if worker is not None:
        instance.add_run_tags(run.run_id, {PROCESS_TAG: worker.tag[PROCESS_TAG].replace(worker.run, run.run_id[:8])})
    return run.run_id[:8]


def test_runs_daemon_and_schedule_are_told(instance: dg.DagsterInstance) -> None:
    assert found(examine(instance, scheduled=True), "runs").detail == "none is going"
    me = WorkerProcess.of("00000000")
    living = run_of(instance, dg.DagsterRunStatus.STARTED, me)
    orphan = run_of(instance, dg.DagsterRunStatus.STARTED, WorkerProcess(me.run, me.host, 2**22 - 1, 1.0))
    waiting = run_of(instance, dg.DagsterRunStatus.QUEUED)
    runs = found(examine(instance, scheduled=True), "runs")
    assert runs.level == "note"
    assert f"running: {living}" in runs.detail and f"waiting: {waiting}" in runs.detail
    assert f"process gone: {orphan}" in runs.detail and "ec1 doctor --reconcile" in runs.detail
    daemon = found(examine(instance, scheduled=True), "daemon")
    assert daemon.level == "note" and "never seen" in daemon.detail and "ec1 ui" in daemon.detail


def test_a_damaged_history_is_one_line_with_the_way_out(instance: dg.DagsterInstance, home: Home) -> None:
    (path,) = home.dagster.rglob("runs.db")
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(path.read_bytes()[:100] + b"\xff" * 3000)
    assert [str(path) in line for line in damaged_databases(home)] == [True]
    with pytest.raises(DamagedError, match="the next night begins a new history"):
        prepare_instance(home)


def test_the_deep_look_reads_what_is_named_by_content(embedded: Deployment, home: Home) -> None:
    outbox = Outbox(home.outbox)
    kept = ExtractionResult(fingerprint="f" * 64, content_sha256="c" * 64, stream="meeting", status="complete")
    outbox.put(kept)
    step = home.run("acme", "engineering", "2026-06-05") / "training" / "checkpoints" / "checkpoint-4"
    step.mkdir(parents=True)
    (step / "optimizer.pt").write_bytes(b"state")
    seal(step)
    registry = open_registry(embedded, home)
    assert {each.level for each in examine_deeply(home, registry)} == {"ok"}
    assert outbox.get("f" * 64, "c" * 64) == kept
    (step / "optimizer.pt").write_bytes(b"stats")
    path = outbox.path("f" * 64, "c" * 64)
    path.write_bytes(path.read_bytes().replace(b"meeting", b"meetinG"))
    findings = list(examine_deeply(home, registry))
    assert "optimizer.pt" in found(findings, "checkpoints").detail
    assert "extracted again" in found(findings, "outbox").detail
    assert outbox.get("f" * 64, "c" * 64) is None and not path.exists()
