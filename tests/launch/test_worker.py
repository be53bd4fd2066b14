"""Work that a worker does for a night elsewhere: asked for by a marker, done once, brought back and checked."""

import errno
import json
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from dagster_pipes import encode_param
from worker_parts import ENVIRONMENT, launcher_of, light_work, markers_of, wait_for, worker_of

from ec1.errors import BusyError, PermanentError, ServiceError
from ec1.launch import blobs
from ec1.launch.launcher import DeviceWork
from ec1.launch.markers import PREFIX
from ec1.launch.orders import order_of
from ec1.launch.worker import Done
from ec1.storage.directory import DirectoryStore
from ec1.storage.store import ObjectStore


def asked(
    store: ObjectStore, work: DeviceWork, folder: Path, env: dict[str, str] | None = None, **options: float
) -> Future[float | None]:
    """Ask for work in a thread, as a night's step does."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(launcher_of(store, **options).run, work, env or {}, folder / "log.txt")
    pool.shutdown(wait=False)
    wait_for(lambda: future.done() or bool(markers_of(store).pending()))
    return future


def states(store: ObjectStore) -> list[str]:
    """What is said of each marker: the names' ends."""
    return [item.key.rpartition(".json")[2] for item in store.list(PREFIX) if "/." not in item.key]


def test_what_is_asked_for_is_done_and_comes_back(store: ObjectStore, tmp_path: Path) -> None:
    work = light_work(tmp_path / "night")
    context, messages = tmp_path / "context.json", tmp_path / "messages"
    context.write_text(json.dumps({"asset_keys": ["a"], "run_id": "r", "extras": {}}))
    session = {
        "DAGSTER_PIPES_CONTEXT": encode_param({"path": str(context)}),
        "DAGSTER_PIPES_MESSAGES": encode_param({"path": str(messages)}),
    }
    future = asked(store, work, tmp_path, session)
    (done,) = worker_of(store, tmp_path / "worker").run(None)
    assert (done.outcome, done.reason) == ("completed", "")
    taken = future.result(60)
    assert taken is not None and 0 < taken < done.seconds + 0.1, "card-seconds, without the way there and back"
    assert sorted(path.name for path in work.output.iterdir()) == ["steps.txt", "summary.json"]
    assert json.loads((work.output / "summary.json").read_text())["sources"] == [
        blob.sha256 for blob in blobs.tree_of(work.inputs[0]).files.values()
    ]
    methods = [json.loads(line)["method"] for line in messages.read_text().splitlines()]
    assert methods[0] == "opened" and methods[-1] == "closed" and "report_custom_message" in methods
    assert states(store) == [".completed"]
    # What was sent stays for the next time; what came back, and the order, are gone.
    left = {item.key.split("/")[1] for item in store.list("work/")}
    assert left == {"blobs"}
    assert len(list(store.list("work/blobs/"))) == 2
    assert list((tmp_path / "worker" / "orders").iterdir()) == []


def test_only_what_is_new_is_sent(store: ObjectStore, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a").write_bytes(b"a" * 1000)
    (folder / "b").write_bytes(b"b" * 500)
    assert blobs.send(store, folder, blobs.tree_of(folder)) == 1500
    (folder / "c").write_bytes(b"c" * 10)
    (folder / "d").write_bytes(b"a" * 1000)
    assert blobs.send(store, folder, blobs.tree_of(folder)) == 10


def test_what_was_sent_long_ago_is_removed(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    store.put_bytes("work/blobs/aa/old", b"")
    os.utime(tmp_path / "store" / "work" / "blobs" / "aa" / "old", (0, 0))
    future = asked(store, light_work(tmp_path / "night"), tmp_path)
    list(worker_of(store, tmp_path / "worker").run(None))
    future.result(60)
    assert not store.exists("work/blobs/aa/old") and len(list(store.list("work/blobs/"))) == 2


def test_damage_is_seen_and_mended_by_asking_again(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    work = light_work(tmp_path / "night")
    tree = blobs.tree_of(work.inputs[0])
    blobs.send(store, work.inputs[0], tree)
    damaged = tree.files["a.txt"]
    (tmp_path / "store" / damaged.key()).write_bytes(b"x")
    with pytest.raises(ServiceError, match="damaged"):
        blobs.receive(store, tree, tmp_path / "there", tmp_path / "cache")
    assert blobs.send(store, work.inputs[0], tree) == damaged.size
    blobs.receive(store, tree, tmp_path / "there", tmp_path / "cache")
    assert (tmp_path / "there" / "deep" / "b.txt").read_text() == "b"


def test_what_fails_says_why_and_may_be_asked_for_again(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    work = light_work(tmp_path / "night", fail="the loss is not a number")
    for _ in range(2):
        future = asked(store, work, tmp_path)
        (done,) = worker_of(store, tmp_path / "worker").run(None)
        assert done.outcome == "failed"
        with pytest.raises(PermanentError, match=r"the light work failed on its worker[\s\S]*the loss is not a number"):
            future.result(60)
        (key,) = [item.key for item in store.list(PREFIX) if "/." not in item.key]
        failed = json.loads(store.get_bytes(key))["failed"]
        assert "the loss is not a number" in failed["reason"] and failed["worker"] == "one"


def test_an_order_runs_nothing_else(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    future = asked(store, light_work(tmp_path / "night"), tmp_path)
    (done,) = worker_of(store, tmp_path / "worker", modules=frozenset({"ec1.training"})).run(None)
    assert (done.outcome, done.reason) == ("failed", "light_work is not what a worker runs")
    with pytest.raises(PermanentError, match="is not what a worker runs"):
        future.result(60)


def test_a_changed_order_is_refused(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    work = light_work(tmp_path / "night")
    future = asked(store, work, tmp_path)
    order = order_of(work)
    store.put_bytes(order.key, order.model_copy(update={"what": "another"}).model_dump_json().encode())
    (done,) = worker_of(store, tmp_path / "worker").run(None)
    assert done.outcome == "failed" and "is damaged" in done.reason
    with pytest.raises(PermanentError):
        future.result(60)


def test_a_dead_workers_claim_is_taken_up_and_goes_on(store: ObjectStore, tmp_path: Path) -> None:
    work = light_work(tmp_path / "night")
    future = asked(store, work, tmp_path, expire_seconds=1.5)
    dead = markers_of(store, 1.5).claim("dead")
    assert dead is not None
    assert list(worker_of(store, tmp_path / "worker").run(None)) == [], "it may still live"
    begun = tmp_path / "worker" / "orders" / dead.marker.work / "output" / "output" / "steps.txt"  # type: ignore[union-attr]
    begun.parent.mkdir(parents=True)
    begun.write_text("0\n1\n")
    living = worker_of(store, tmp_path / "worker", expire_seconds=1.5)
    finished: list[Done] = []

    def taken_up() -> bool:
        finished.extend(living.run(None))
        return bool(finished)

    # A bucket's clock may count whole seconds.
    wait_for(taken_up)
    (done,) = finished
    assert done.outcome == "completed"
    future.result(60)
    assert (work.output / "steps.txt").read_text() == "0\n1\n2\n", "what was done is not done again"
    assert len(list(store.list(f"{PREFIX}.attempts/"))) == 0


def test_a_worker_that_was_only_slow_finds_that_it_lost_its_claim(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    asked(store, light_work(tmp_path / "night", steps=10_000), tmp_path, expire_seconds=3)
    slow = worker_of(store, tmp_path / "slow", name="slow")
    ended = ThreadPoolExecutor(1).submit(lambda: list(slow.run(None)))
    wait_for(lambda: bool(list((tmp_path / "slow").rglob("steps.txt"))))
    markers = markers_of(store)
    (file,) = [claim.file for claim in markers.claimed()]
    store.put_bytes(f"{PREFIX}.attempts/{file}/0002", b"{}", if_absent=True)
    (done,) = ended.result(60)
    assert done.outcome == "lost" and "another worker" in done.reason
    assert states(store) == [".claimed"]
    markers.withdraw(file)


def test_a_marker_whose_workers_die_is_given_up(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    future = asked(store, light_work(tmp_path / "night"), tmp_path)
    for _ in range(2):
        assert markers_of(store, 0, 2).claim("dying") is not None
        time.sleep(0.01)
    assert markers_of(store, 0, 2).claim("next") is None
    with pytest.raises(PermanentError, match="given up after 2 attempts"):
        future.result(60)


def test_who_ends_the_run_ends_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirectoryStore(tmp_path / "store")
    launcher, interrupt = launcher_of(store), threading.Event()

    def wake(file: str) -> None:
        if interrupt.is_set():
            raise KeyboardInterrupt

    launcher._wake = wake
    pool = ThreadPoolExecutor(2)
    night = pool.submit(launcher.run, light_work(tmp_path / "night", steps=10_000), {}, tmp_path / "log.txt")
    wait_for(lambda: states(store) == [""])
    worker = pool.submit(lambda: list(worker_of(store, tmp_path / "worker").run(None)))
    wait_for(lambda: bool(list((tmp_path / "worker").rglob("steps.txt"))))
    interrupt.set()
    with pytest.raises(KeyboardInterrupt):
        night.result(60)
    (done,) = worker.result(60)
    assert done.outcome == "lost" and "withdrawn" in done.reason
    assert states(store) == [".failed"]


def test_no_worker_is_told(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    with pytest.raises(BusyError, match=r"no worker took .* start `ec1 worker`"):
        launcher_of(store, wait_seconds=0.3).run(light_work(tmp_path / "night"), {}, tmp_path / "log.txt")
    assert states(store) == []


def test_a_result_that_is_there_is_brought_without_asking(tmp_path: Path) -> None:
    """The night's step died after its work was done."""
    store = DirectoryStore(tmp_path / "store")
    work = light_work(tmp_path / "night")
    kept = DirectoryStore(tmp_path / "store")
    future = asked(kept, work, tmp_path)
    kept.delete = lambda key: None  # type: ignore[method-assign]
    list(worker_of(store, tmp_path / "worker").run(None))
    wait_for(future.done)
    first = (work.output / "summary.json").read_bytes()
    (work.output / "summary.json").unlink()
    launcher_of(store).run(work, {}, tmp_path / "log2.txt")
    assert (work.output / "summary.json").read_bytes() == first
    assert ENVIRONMENT


def test_malformed_markers_are_set_aside_and_block_nobody(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    rubbish = {
        "aaa-acme-2026-06-01.json": b"{not json",
        "bbb-acme-2026-06-01.json": b"[" * 200_000,
        "ccc-acme-2026-99-99.json": b"{}",
        "No Name.json": b"{}",
    }
    for name, data in rubbish.items():
        store.put_bytes(PREFIX + name, data)
    future = asked(store, light_work(tmp_path / "night"), tmp_path)
    long_ago = time.time() - 600
    for name in rubbish:
        os.utime(tmp_path / "store" / PREFIX / name, (long_ago, long_ago))
    (done,) = worker_of(store, tmp_path / "worker").run(None)
    assert done.outcome == "completed"
    future.result(60)
    assert states(store).count(".malformed") == states(store).count(".malformed.reason") == 4
    said = json.loads(store.get_bytes(PREFIX + "bbb-acme-2026-06-01.json.malformed.reason"))
    assert "too deep to be read" in said["state"]
    assert store.get_bytes(PREFIX + "bbb-acme-2026-06-01.json.malformed") == rubbish["bbb-acme-2026-06-01.json"]


def test_a_marker_for_other_programs_is_refused_by_name_and_left(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    contract = {
        **{"adapter": "clerk-acme", "tenant": "acme", "role": "clerk", "corpus_path": "c", "method": "sft"},
        **{"tuple_count": 60, "triggered_at": "2026-06-09T02:12:00+00:00", "version": 1},
    }
    store.put_bytes(f"{PREFIX}clerk-acme-2026-06-09.json", json.dumps(contract).encode())
    store.put_bytes(f"{PREFIX}later-acme-2026-06-09.json", b'{"version": 3, "anything": []}')
    worker = worker_of(store, tmp_path / "worker")
    one, other = worker.run(None)
    assert (one.outcome, other.outcome) == ("refused", "refused")
    assert "clerk-acme-2026-06-09.json" in one.reason and "format 1" in one.reason
    assert "later-acme-2026-06-09.json has format 3" in other.reason
    assert list(worker.run(None)) == [], "it is said once"
    assert states(store) == ["", ""]


def test_who_asked_learns_that_the_marker_was_damaged(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    future = asked(store, light_work(tmp_path / "night"), tmp_path)
    (file,) = [claim.file for claim in markers_of(store).pending()]
    store.put_bytes(PREFIX + file, b'{"version": 2, "tenant": ["acme"]}')
    os.utime(tmp_path / "store" / PREFIX / file, (0, 0))
    assert list(worker_of(store, tmp_path / "worker").run(None)) == []
    with pytest.raises(PermanentError, match=r"it was set aside: .*adapter: Field required"):
        future.result(60)
    again = asked(store, light_work(tmp_path / "night"), tmp_path)
    assert [done.outcome for done in worker_of(store, tmp_path / "worker").run(None)] == ["completed"]
    again.result(60)
    assert states(store) == [".completed"]


def test_a_cut_off_order_fails_its_marker_and_stops_no_worker(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    work = light_work(tmp_path / "night")
    future = asked(store, work, tmp_path)
    key = order_of(work).key
    store.put_bytes(key, store.get_bytes(key)[:-40])
    (done,) = worker_of(store, tmp_path / "worker").run(None)
    assert done.outcome == "failed" and "is not JSON" in done.reason
    with pytest.raises(PermanentError, match="is not JSON"):
        future.result(60)


def test_an_orders_output_stays_in_its_folder(tmp_path: Path) -> None:
    order = order_of(light_work(tmp_path / "night"))
    with pytest.raises(ValueError, match="not one name"):
        type(order).model_validate({**order.model_dump(), "output": "../../elsewhere"})


def test_a_store_that_stays_away_for_a_while_ends_no_worker(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    looks = []

    def list_or_fail(prefix: str) -> object:
        looks.append(prefix)
        if len(looks) == 2:
            raise ServiceError("the bucket cannot be reached")
        return DirectoryStore.list(store, prefix)

    store.list = list_or_fail  # type: ignore[method-assign,assignment]
    ended = worker_of(store, tmp_path / "worker").run(0.05)
    work = light_work(tmp_path / "night")
    thread = ThreadPoolExecutor(1).submit(next, ended)
    wait_for(lambda: len(looks) > 3)
    launcher_of(store)._ask(work, order_of(work))
    assert thread.result(60).outcome == "completed"


def test_a_full_disk_of_the_worker_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirectoryStore(tmp_path / "store")
    future = asked(store, light_work(tmp_path / "night"), tmp_path)

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "worker" / "blobs"))

    monkeypatch.setattr("ec1.launch.executor.blobs.receive", full)
    (done,) = worker_of(store, tmp_path / "worker", name="gpu1").run(None)
    assert done.outcome == "failed"
    with pytest.raises(PermanentError, match=r"gpu1: No space left on device: .*worker/blobs"):
        future.result(60)
