"""Checkpoints that travel: work that is ended on one machine goes on on another, from the newest one that was sent."""

import json
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from worker_parts import CHECKPOINTS, HERE, launcher_of, light_work, markers_of, wait_for, worker_of

from ec1.errors import InputError, ServiceError
from ec1.launch import checkpoints
from ec1.launch.checkpoints import KEPT, bring, copy, forget, keep
from ec1.launch.launcher import DeviceWork
from ec1.launch.orders import order_of
from ec1.launch.worker_launcher import WorkerLauncher
from ec1.storage.directory import DirectoryStore
from ec1.storage.store import ObjectStore

ORDER = "a" * 64


def written(output: Path, number: int, sealed: bool = True) -> None:
    """A checkpoint, as a trainer leaves it."""
    folder = output / "checkpoints" / f"checkpoint-{number}"
    (folder / "deep").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(bytes([number % 256]) * 1000)
    (folder / "deep" / "state.bin").write_text(f"step {number}")
    (output / "run.json").write_text('{"identity": "mine"}')
    if sealed:
        (folder / "sealed.json").write_text("{}")


def test_the_newest_whole_one_is_kept_and_found_on_another_machine(store: ObjectStore, tmp_path: Path) -> None:
    here, there = tmp_path / "here" / "training", tmp_path / "there" / "training"
    written(here, 75)
    written(here, 80, sealed=False)
    assert keep(store, ORDER, here, CHECKPOINTS) > 1000 and keep(store, ORDER, here, CHECKPOINTS) == 0
    assert bring(store, ORDER, there, CHECKPOINTS) == 75
    assert (there / "checkpoints" / "checkpoint-75" / "deep" / "state.bin").read_text() == "step 75"
    assert (there / "run.json").read_text() == '{"identity": "mine"}'
    # By number, not by name.
    written(here, 100)
    assert keep(store, ORDER, here, CHECKPOINTS) > 1000
    assert len(list(store.list(f"{KEPT}{ORDER}/"))) == 4, "the files of the one before are gone"
    assert bring(store, ORDER, there, CHECKPOINTS) == 100 and bring(store, ORDER, there, CHECKPOINTS) is None
    # Whoever was slower does not put an older one in its place.
    assert keep(store, ORDER, tmp_path / "nothing", CHECKPOINTS) == 0
    shutil.rmtree(there / "checkpoints" / "checkpoint-100")
    assert keep(store, ORDER, there, CHECKPOINTS) == 0 and bring(store, ORDER, there, CHECKPOINTS) == 100
    forget(store, ORDER)
    assert not list(store.list(KEPT)) and bring(store, ORDER, tmp_path / "third", CHECKPOINTS) is None


def test_it_passes_from_one_store_to_another(tmp_path: Path) -> None:
    machine, ours, next_one = (DirectoryStore(tmp_path / name) for name in ("machine", "ours", "next"))
    written(tmp_path / "here", 7)
    keep(machine, ORDER, tmp_path / "here", CHECKPOINTS)
    assert copy(machine, ours, ORDER, tmp_path / "passing") == 7
    assert copy(machine, ours, ORDER, tmp_path / "passing") is None, "once"
    assert copy(ours, next_one, ORDER, tmp_path / "passing") == 7
    assert bring(next_one, ORDER, tmp_path / "there", CHECKPOINTS) == 7
    assert not list((tmp_path / "passing").iterdir())


@pytest.mark.parametrize("name", ["summary.json", "checkpoints/checkpoint-8/x", "adapter/a", "../x", "checkpoints"])
def test_a_record_writes_nothing_but_a_checkpoint(tmp_path: Path, name: str) -> None:
    store = DirectoryStore(tmp_path / "store")
    written(tmp_path / "here", 7)
    keep(store, ORDER, tmp_path / "here", CHECKPOINTS)
    record = json.loads(store.get_bytes(f"{KEPT}{ORDER}.json"))
    record["files"]["files"][name] = record["files"]["files"]["run.json"]
    store.put_bytes(f"{KEPT}{ORDER}.json", json.dumps(record).encode())
    try:
        assert bring(store, ORDER, tmp_path / "there", CHECKPOINTS) is None
    except InputError as error:
        assert "other files than a checkpoint's" in str(error)
    assert not list(tmp_path.glob("there/*"))


@pytest.mark.parametrize("record", [b"{", b"[]", b'{"order": "b", "number": -1, "files": {}}'])
def test_a_damaged_record_counts_as_none_and_is_replaced(tmp_path: Path, record: bytes) -> None:
    store = DirectoryStore(tmp_path / "store")
    written(tmp_path / "here", 7)
    store.put_bytes(f"{KEPT}{ORDER}.json", record)
    assert bring(store, ORDER, tmp_path / "there", CHECKPOINTS) is None
    assert keep(store, ORDER, tmp_path / "here", CHECKPOINTS) > 0
    assert bring(store, ORDER, tmp_path / "there", CHECKPOINTS) == 7


def test_a_damaged_file_is_no_checkpoint(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    written(tmp_path / "here", 7)
    keep(store, ORDER, tmp_path / "here", CHECKPOINTS)
    (item,) = [each for each in store.list(f"{KEPT}{ORDER}/") if each.size == 1000]
    (store.root / item.key).write_bytes(b"x" * 1000)
    with pytest.raises(ServiceError, match="damaged"):
        bring(store, ORDER, tmp_path / "there", CHECKPOINTS)
    assert not list(tmp_path.glob("there/**/sealed.json"))


def kept_in(store: ObjectStore, work: DeviceWork) -> int:
    """The number of the work's checkpoint in a store."""
    kept = checkpoints._known(store, order_of(work).digest)
    return -1 if kept is None else kept.number


def begun(store: DirectoryStore, work: DeviceWork, folder: Path) -> None:
    """A worker of a machine of its own takes the work, and the machine is gone once a checkpoint was sent."""
    command = [sys.executable, HERE / "worker_parts.py", store.root, folder, folder.name, "1.5", "0.1"]
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        worker = subprocess.Popen([str(each) for each in command], stdout=log, stderr=log)
    wait_for(lambda: kept_in(store, work) >= 3)
    worker.kill()
    worker.wait()
    # What it started ends by itself, out of anybody's sight.
    shutil.rmtree(folder, ignore_errors=True)


def ended(work: DeviceWork, future: "Future[float | None]") -> None:
    future.result(60)
    assert (work.output / "steps.txt").read_text().split() == [str(step) for step in range(40)]
    (went_on,) = work.output.glob("went-on-after-*.txt")
    assert int(went_on.stem.removeprefix("went-on-after-")) >= 3, "what was done is not done again"


def test_another_machine_goes_on_where_a_dead_one_was(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    work = light_work(tmp_path / "night", steps=40, seconds=0.1, checkpoints=True)
    future = ThreadPoolExecutor(1).submit(launcher_of(store).run, work, {}, tmp_path / "log.txt")
    begun(store, work, tmp_path / "first")
    living = worker_of(store, tmp_path / "second", name="second", expire_seconds=1.5)
    wait_for(lambda: any(done.outcome == "completed" for done in living.run(None)))
    ended(work, future)
    assert not list(store.list(KEPT)), "what is finished keeps nothing"


def test_a_machine_that_is_gone_with_its_store_has_left_its_checkpoint_here(tmp_path: Path) -> None:
    work = light_work(tmp_path / "night", steps=40, seconds=0.1, checkpoints=True)

    def asked(store: DirectoryStore, log: str) -> "Future[float | None]":
        launcher = WorkerLauncher(
            markers_of(store, 1.5),
            wait_seconds=5,
            follow_seconds=0.05,
            alone=True,
            keep=tmp_path / "checkpoints",
            keep_seconds=0.1,
        )
        return ThreadPoolExecutor(1).submit(launcher.run, work, {}, tmp_path / log)

    machine = DirectoryStore(tmp_path / "machine")
    future = asked(machine, "first.txt")
    begun(machine, work, tmp_path / "first")
    here = DirectoryStore(tmp_path / "checkpoints")
    wait_for(lambda: kept_in(here, work) >= 3)
    shutil.rmtree(machine.root)
    with pytest.raises(ServiceError):
        future.result(60)
    another = DirectoryStore(tmp_path / "another")
    again = asked(another, "second.txt")
    worker = worker_of(another, tmp_path / "second", name="second")
    wait_for(lambda: any(done.outcome == "completed" for done in worker.run(None)))
    ended(work, again)
    assert not list(here.list(KEPT))
