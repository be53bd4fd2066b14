"""Parts of a test with a worker: a light piece of work, a worker that may do it, and a night that asks for it."""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from light_work import LightSpec

from ec1.files import write_json
from ec1.launch.checkpoints import Checkpoints
from ec1.launch.executor import Executor
from ec1.launch.launcher import DeviceGrant, DeviceWork, Subject
from ec1.launch.markers import PendingMarkers
from ec1.launch.orders import Order
from ec1.launch.process import SupervisedProcess
from ec1.launch.worker import MarkerWorker
from ec1.launch.worker_launcher import WorkerLauncher
from ec1.storage.store import ObjectStore

HERE = Path(__file__).parent
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(HERE)}
MODULES = frozenset({"light_work"})
CHECKPOINTS = Checkpoints(folder="checkpoints", seal="sealed.json", beside=("run.json",))


@contextlib.contextmanager
def unguarded(order: Order) -> Iterator[DeviceGrant]:
    processes: list[SupervisedProcess] = []

    class Granted:
        cards = ("the only one",)

        @staticmethod
        def start(*args: object, **options: object) -> SupervisedProcess:
            processes.append(SupervisedProcess(*args, **options))  # type: ignore[arg-type]
            return processes[-1]

    yield Granted()  # type: ignore[misc]
    for process in processes:
        process.stop()


def light_work(folder: Path, **settings: object) -> DeviceWork:
    """A piece of work whose input and output lie in `folder`."""
    source, output = folder / "source", folder / "output"
    (source / "deep").mkdir(parents=True, exist_ok=True)
    (source / "a.txt").write_text("a")
    (source / "deep" / "b.txt").write_text("b")
    specification = folder / "light.json"
    write_json(specification, LightSpec(source=source, output=output, **settings).model_dump(mode="json"))  # type: ignore[arg-type]
    return DeviceWork(
        "the light work",
        "light_work",
        specification,
        "cpu",
        Subject("acme", "clerk", "2026-06-09"),
        inputs=(source,),
        output=output,
        last=("summary.json",),
        leave=("checkpoints",),
        checkpoints=CHECKPOINTS if settings.get("checkpoints") else None,
    )


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def markers_of(store: ObjectStore, expire_seconds: float = 180, max_attempts: int = 3) -> PendingMarkers:
    return PendingMarkers(store, expire_seconds=expire_seconds, max_attempts=max_attempts)


def worker_of(
    store: ObjectStore,
    folder: Path,
    *,
    name: str = "one",
    beat_seconds: float = 0.1,
    expire_seconds: float = 180,
    max_attempts: int = 3,
    modules: frozenset[str] = MODULES,
    only: str | None = None,
) -> MarkerWorker:
    executor = Executor(
        store, folder, unguarded, ENVIRONMENT, name=name, modules=modules, grace_seconds=2, keep_seconds=0.1
    )
    markers = markers_of(store, expire_seconds, max_attempts)
    return MarkerWorker(markers, executor, name=name, device="cpu", beat_seconds=beat_seconds, only=only)


def launcher_of(store: ObjectStore, wait_seconds: float = 60, expire_seconds: float = 180) -> WorkerLauncher:
    return WorkerLauncher(markers_of(store, expire_seconds), wait_seconds=wait_seconds, follow_seconds=0.05)


def main(store: str, folder: str, name: str, expire: str, poll: str, *options: str) -> None:
    """A worker in a process of its own, on a directory, that can be killed; it knows the command's `--once`,
    `--marker FILE` and `--check --json`."""
    from ec1.launch.orders import own_version
    from ec1.storage.directory import DirectoryStore

    if "--check" in options:
        print(json.dumps({"version": own_version(), "device": "cpu"}))
        return
    only = options[options.index("--marker") + 1] if "--marker" in options else None
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    worker = worker_of(
        DirectoryStore(Path(store)), Path(folder), name=name, expire_seconds=float(expire), max_attempts=1000, only=only
    )
    for done in worker.run(None if "--once" in options else float(poll)):
        print(done.file, done.outcome, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
