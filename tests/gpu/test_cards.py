"""A card by its name on a machine of eight: card 0 is somebody else's, card 3 is ours, one is split, one is lost."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eight_cards import EightCards
from worker_parts import MODULES, launcher_of, light_work, markers_of

from ec1.deployment import Deployment
from ec1.errors import BusyError, InputError, ServiceError
from ec1.gpu.cards import cards_of, names_in, read_card
from ec1.gpu.lease import GpuLease
from ec1.home import Home
from ec1.launch.executor import Executor
from ec1.launch.launcher import DeviceGrant
from ec1.launch.markers import PREFIX, PendingMarkers
from ec1.launch.orders import Order, order_of
from ec1.launch.worker import Done, MarkerWorker
from ec1.night.launchers import open_worker
from ec1.night.operations.doctor import _device, _lease
from ec1.serving.server import _lease as serving_lease
from ec1.serving_settings import ServingSettings
from ec1.storage.directory import DirectoryStore

PRINT = [sys.executable, "-c", "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"]
FULL = {"used": 23, "pids": [4711]}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    return home


def deployed(tmp_path: Path, **gpu: Any) -> Deployment:
    values = {
        **{"name": "d", "tenant": "acme", "recipes": [], "inference": {"kind": "vllm", "model": "m"}},
        "gpu": {"device": "cuda", "min_free_gib": 20, "lock_dir": tmp_path, **gpu},
        "budgets": {"lease_wait_seconds": 1},
    }
    return Deployment.model_validate(values)


def granted(lease: GpuLease, log: Path, wait_seconds: float = 0) -> str:
    """What a process that is started under the lease sees as its cards."""
    with (
        lease.hold("training", night="", holder="test", wait_seconds=wait_seconds) as grant,
        grant.start(PRINT, env={"CUDA_VISIBLE_DEVICES": "0"}, log=log) as process,
    ):
        assert process.wait() == 0
    return log.read_text(encoding="utf-8").split()[-1]


def test_a_card_is_read_by_its_number_and_by_its_uuid(eight: EightCards) -> None:
    eight.tell(3, used=2, pids=[7])
    card = read_card("cuda", 3)
    assert card == read_card("cuda", eight.uuid(3))
    assert (card.index, card.uuid, card.free_gib, card.total_gib, card.users) == (3, eight.uuid(3), 22, 24, (7,))
    assert str(card) == f"NVIDIA L4 (card 3, {eight.uuid(3)})"
    with pytest.raises(InputError, match="there is no card 8: this machine has 8"):
        read_card("cuda", 8)
    with pytest.raises(InputError, match="there is no card GPU-feed: nvidia-smi -L lists"):
        read_card("cuda", "GPU-feed")


def test_card_0_is_full_and_card_3_is_ours(eight: EightCards, tmp_path: Path, home: Home) -> None:
    eight.tell(0, **FULL)
    with pytest.raises(BusyError, match=r"card 0, GPU-.* has 1\.0 GiB free of 24\.0.*used by processes 4711"):
        deployed(tmp_path).gpu_lease(home)._enough_memory(settle_seconds=0)
    ours = deployed(tmp_path, index=3)
    assert granted(ours.gpu_lease(home), tmp_path / "log") == eight.uuid(3)
    by_uuid = deployed(tmp_path, index=eight.uuid(3))
    assert granted(by_uuid.gpu_lease(home), tmp_path / "log") == eight.uuid(3)
    assert by_uuid.gpu_lease(home).lock == ours.gpu_lease(home).lock == tmp_path / "ec1-gpu-3.lock"
    assert _device(ours).level == "ok" and "card 3" in _device(ours).detail
    assert _device(deployed(tmp_path)).level == "problem"


def test_cuda_visible_devices_says_which_cards_are_counted(eight: EightCards, tmp_path: Path, home: Home) -> None:
    """As Slurm and device plugins set it: NVML shows all eight all the same."""
    eight.tell(0, **FULL)
    given = deployed(tmp_path).on_cards("5,6")
    assert granted(given.gpu_lease(home), tmp_path / "log") == eight.uuid(5)
    assert granted(given.gpu_lease(home, processes=2), tmp_path / "log") == f"{eight.uuid(5)},{eight.uuid(6)}"
    assert deployed(tmp_path, visible="7").on_cards("5,6").gpu_lease(home).cards == (7,)
    with pytest.raises(InputError, match=r"with 3 processes needs 3 cards, and CUDA_VISIBLE_DEVICES .* names 2: 5,6"):
        cards_of(given.gpu, 3)
    with pytest.raises(InputError, match="names 'MIG-1c': EC1 uses whole cards"):
        names_in("0,MIG-1c")


def test_a_card_that_is_split_is_refused(eight: EightCards, tmp_path: Path, home: Home) -> None:
    eight.tell(2, mig=True)
    eight.tell(4, mig=False)
    with pytest.raises(InputError, match=r"card 2 \(NVIDIA L4, GPU-.*\) is split by MIG, and EC1 uses whole cards"):
        granted(deployed(tmp_path, index=2).gpu_lease(home), tmp_path / "log")
    assert granted(deployed(tmp_path, index=4).gpu_lease(home), tmp_path / "log") == eight.uuid(4)


def test_a_card_that_falls_off_the_bus_takes_no_other_with_it(eight: EightCards, tmp_path: Path, home: Home) -> None:
    lost, other = (deployed(tmp_path, index=index).gpu_lease(home) for index in (5, 6))
    eight.tell(5, lost=True)
    with pytest.raises(ServiceError, match=r"card 5 has fallen off the bus: .* \(dmesg"):
        granted(lost, tmp_path / "log")
    assert "fallen off the bus" in (lost.why_busy() or "")
    assert granted(other, tmp_path / "log") == eight.uuid(6) and other.why_busy() is None


def test_a_lease_on_two_cards_keeps_both_from_others(eight: EightCards, tmp_path: Path, home: Home) -> None:
    two = deployed(tmp_path, index=1, processes=2)
    assert granted(two.gpu_lease(home, processes=2), tmp_path / "log") == f"{eight.uuid(1)},{eight.uuid(2)}"
    second, third = (deployed(tmp_path, index=index).gpu_lease(home) for index in (2, 3))
    with two.gpu_lease(home, processes=2).hold("training", night="", holder="both", wait_seconds=0) as grant:
        with pytest.raises(BusyError, match=r"ec1-gpu-2\.lock is held by both"):
            granted(second, tmp_path / "log")
        assert granted(third, tmp_path / "log") == eight.uuid(3)
        assert grant.locks == (tmp_path / "ec1-gpu-1.lock", tmp_path / "ec1-gpu-2.lock")
    with second.hold("training", night="", holder="one", wait_seconds=0):
        assert "held by one" in (two.gpu_lease(home, processes=2).why_busy() or "")
        # The doctor asks for all cards that a training takes, whichever of them somebody has.
        assert "held by one (training" in _lease(two, home).detail
    assert _lease(two, home).detail == "free"


def test_what_a_crashed_holder_of_two_cards_left_is_ended_by_the_next_of_either(
    eight: EightCards, tmp_path: Path, home: Home
) -> None:
    two = deployed(tmp_path, index=1, processes=2).gpu_lease(home, processes=2)
    nap = [sys.executable, "-c", "import time; time.sleep(60)"]
    with two.hold("training", night="", holder="both", wait_seconds=0) as grant:
        process = grant.start(nap, env={}, log=tmp_path / "log")
        # As after a crash: the locks are free, and the process lives.
        for lock in grant.locks:
            lock.unlink()
        with (
            deployed(tmp_path, index=2).gpu_lease(home).hold("training", night="", holder="n", wait_seconds=5) as next_
        ):
            assert process.pid in next_.swept


def test_a_card_that_somebody_else_uses_is_waited_for(eight: EightCards, tmp_path: Path, home: Home) -> None:
    eight.tell(3, **FULL)
    threading.Timer(0.7, lambda: eight.tell(3)).start()
    begin = time.monotonic()
    assert granted(deployed(tmp_path, index=3).gpu_lease(home), tmp_path / "log", wait_seconds=40) == eight.uuid(3)
    assert 0.5 < time.monotonic() - begin < 30


def asked(store: DirectoryStore, folder: Path, number: int) -> str:
    work = replace(light_work(folder / f"night-{number}", number=number), device="cuda")
    return launcher_of(store)._ask(work, order_of(work))


def worker_on(tmp_path: Path, store: DirectoryStore, eight: EightCards, home: Home, **gpu: Any) -> MarkerWorker:
    return open_worker(deployed(tmp_path, **gpu), home, store, eight.environment, MODULES)


def test_several_workers_on_one_machine_each_have_their_card(eight: EightCards, tmp_path: Path, home: Home) -> None:
    """The one whose card is full claims nothing, so the other one does it; it comes back when its card is free."""
    store = DirectoryStore(tmp_path / "store")
    eight.tell(0, **FULL)
    first, third = (worker_on(tmp_path, store, eight, home, index=index) for index in (0, 3))
    asked(store, tmp_path, 1)
    assert list(first.run(None)) == []
    assert [done.outcome for done in third.run(None)] == ["completed"]
    asked(store, tmp_path, 2)
    eight.tell(0)
    assert [done.outcome for done in first.run(None)] == ["completed"]
    cards = [
        json.loads(store.get_bytes(item.key))["output"]["files"]
        for item in store.list("work/results/")
        if item.key.endswith(".json")
    ]
    assert all("card.txt" in each for each in cards)
    digests = {each["card.txt"]["sha256"] for each in cards}
    assert len(digests) == 2, "each saw its own card"


def test_a_worker_does_not_take_on_more_processes_than_it_has_cards(
    eight: EightCards, tmp_path: Path, home: Home
) -> None:
    store = DirectoryStore(tmp_path / "store")
    worker = worker_on(tmp_path, store, eight, home, processes=2)
    order = order_of(light_work(tmp_path / "night"))
    with worker._executor._hold(order.model_copy(update={"module": "ec1.training"})) as one:
        assert len(one.cards) == 1  # type: ignore[attr-defined]
    for wanted, specification in ((2, {"processes": 2}), (3, {"processes": 3})):
        changed = order.model_copy(update={"module": "ec1.training", "specification": specification})
        with contextlib.ExitStack() as stack:
            if wanted == 3:
                with pytest.raises(InputError, match=r"is for 3 processes, and this worker's deployment gives it 2"):
                    stack.enter_context(worker._executor._hold(changed))
            else:
                grant = stack.enter_context(worker._executor._hold(changed))
                assert [card.index for card in grant.cards] == [0, 1]  # type: ignore[attr-defined]


def test_a_busy_card_is_retried_however_often_and_no_attempt_of_the_work(tmp_path: Path) -> None:
    store, busy = DirectoryStore(tmp_path / "store"), [True] * 5

    @contextlib.contextmanager
    def hold(order: Order) -> Iterator[DeviceGrant]:
        if busy:
            busy.pop()
            raise BusyError("the card is taken")
        raise ServiceError("the card has fallen off the bus")
        yield

    markers: PendingMarkers = markers_of(store, max_attempts=2)
    executor = Executor(store, tmp_path / "there", hold, {}, name="w", modules=MODULES)
    worker = MarkerWorker(markers, executor, name="w", device="cpu", beat_seconds=60)
    work = light_work(tmp_path / "night")
    file = launcher_of(store)._ask(work, order_of(work))
    outcomes: list[Done] = []
    for _ in range(9):
        outcomes += worker.run(None)
    assert [done.outcome for done in outcomes] == ["released"] * 7
    assert markers.state(file).name == "failed"
    assert "given up after 2 attempts; the card has fallen off the bus" in markers.reason(file)
    assert not list(store.list(f"{PREFIX}.attempts/"))


def test_serving_on_a_card_of_its_own_asks_about_that_one(eight: EightCards, tmp_path: Path, home: Home) -> None:
    eight.tell(0, **FULL)
    own = serving_lease(ServingSettings(visible_devices="1"), deployed(tmp_path), home)
    assert own.lock == tmp_path / "ec1-gpu-1.lock" and granted(own, tmp_path / "log") == eight.uuid(1)
    shared = serving_lease(ServingSettings(), deployed(tmp_path, index=2), home)
    assert shared.lock == deployed(tmp_path, index=2).gpu_lease(home).lock, "the night's, to which it gives way"
