"""Carries out an order of another machine here: its files are fetched and checked, its module runs under this machine's
GPU lease, and its output goes back.

Belongs here: one order, from the store to the store. Does not: which order is next, and whose it is (`worker.py`).
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from ec1.errors import InputError
from ec1.files import write_json
from ec1.launch import blobs, checkpoints
from ec1.launch.beside import meanwhile, quietly
from ec1.launch.launcher import GRACE_SECONDS, NOBODY, DeviceGrant, DeviceWork, LocalLauncher
from ec1.launch.orders import (
    LOG,
    MAX_BYTES,
    MESSAGES,
    ORDERS,
    PROGRESS,
    RESULTS,
    SESSION,
    Order,
    Result,
    own_version,
    specification_for,
)
from ec1.launch.reporting import imported_session
from ec1.launch.untrusted import read_object
from ec1.storage.store import AlreadyExists, NotFound, ObjectStore
from ec1.strict_yaml import validate

MODULES = frozenset({"ec1.training", "ec1.adapters.evaluation", "ec1.adapters.trial"})
"""What an order may run: whoever can write to the store is not to run anything on this machine."""
_LOG_BYTES = 4 * 2**20


class Executor:
    """Carries out orders of `store` in `folder`, which keeps the files of unfinished ones and a cache of blobs."""

    def __init__(
        self,
        store: ObjectStore,
        folder: Path,
        hold: Callable[[Order], AbstractContextManager[DeviceGrant]],
        env: Mapping[str, str],
        *,
        name: str,
        modules: frozenset[str] = MODULES,
        grace_seconds: float = GRACE_SECONDS,
        keep_seconds: float = 60,
    ) -> None:
        """`keep_seconds`: between two looks for a new checkpoint, which goes into the store."""
        self.store = store
        self._folder = folder
        self._hold = hold
        self._env = env
        self._name = name
        self._modules = modules
        self._grace_seconds = grace_seconds
        self._keep_seconds = keep_seconds
        self._sent: dict[Path, int] = {}

    def run(self, digest: str, attempt: int, watch: Callable[[], None]) -> None:
        """Carry out an order and leave its result in the store; at once if it has one. `watch` may raise to stop it.

        Raises InputError for an order that this machine must not or cannot carry out; else as `Launcher.run`.
        """
        key = f"{RESULTS}{digest}.json"
        if self.store.exists(key):
            return
        order = self._order(digest)
        place = self._folder / "orders" / digest
        place.mkdir(parents=True, exist_ok=True)
        os.utime(place)
        inputs = []
        for number, tree in enumerate(order.inputs):
            watch()
            inputs.append(place / "inputs" / str(number) / tree.name)
            blobs.receive(self.store, tree, inputs[-1], self._folder / "blobs")
        output = place / "output" / order.output
        output.parent.mkdir(parents=True, exist_ok=True)
        specification = place / "spec.json"
        write_json(specification, specification_for(order, inputs, output))
        with self._keeping(order, digest, output, watch):
            card_seconds = self._launch(order, digest, attempt, place, specification, output, watch)
        watch()
        tree = blobs.tree_of(output, order.leave)
        blobs.send(self.store, output, tree, f"{RESULTS}{digest}/")
        result = Result(order=digest, worker=self._name, output=tree, card_seconds=card_seconds)
        # Somebody else may have finished the same order: either result will do.
        with contextlib.suppress(AlreadyExists):
            self.store.put_bytes(key, result.model_dump_json().encode(), if_absent=True)
        self.send_progress(digest, attempt)
        shutil.rmtree(place, ignore_errors=True)

    def _order(self, digest: str) -> Order:
        what = f"order {digest[:12]}"
        try:
            order = validate(Order, read_object(self.store, f"{ORDERS}{digest}.json", what, MAX_BYTES), what)
        except NotFound:
            raise InputError(f"{what} is not in the store: ask again") from None
        if order.digest != digest:
            raise InputError(f"order {digest[:12]} is damaged: ask again")
        if order.ec1 != own_version():
            raise InputError(f"who asks has EC1 {order.ec1}, this worker {own_version()}: install the same on both")
        if order.module not in self._modules:
            raise InputError(f"{order.module} is not what a worker runs")
        return order

    @contextlib.contextmanager
    def _keeping(self, order: Order, digest: str, output: Path, watch: Callable[[], None]) -> Iterator[None]:
        """Go on from the newest checkpoint that any machine has sent, and send those that are written meanwhile."""
        if (where := order.checkpoints) is None:
            yield
            return

        def keep() -> None:
            # Whose claim is lost leaves the store to its successor.
            watch()
            checkpoints.keep(self.store, digest, output, where)

        quietly(lambda: checkpoints.bring(self.store, digest, output, where), checkpoints.WHAT)
        try:
            with meanwhile(keep, self._keep_seconds, checkpoints.WHAT):
                yield
        except BaseException:
            # A trainer that is asked to end writes one last checkpoint.
            quietly(keep, checkpoints.WHAT)
            raise

    def _launch(
        self,
        order: Order,
        digest: str,
        attempt: int,
        place: Path,
        specification: Path,
        output: Path,
        watch: Callable[[], None],
    ) -> float | None:
        env, reports = dict(self._env), self._reports(digest, attempt)
        # Without a session nobody listens.
        with contextlib.suppress(NotFound):
            context = read_object(self.store, f"{PROGRESS}{digest}/{SESSION}", "the Pipes session", MAX_BYTES)
            env |= imported_session(context, reports / MESSAGES)
        reports.mkdir(parents=True, exist_ok=True)
        (reports / MESSAGES).touch()
        launcher = LocalLauncher(lambda: self._hold(order), grace_seconds=self._grace_seconds, watch=watch)
        work = DeviceWork(order.what, order.module, specification, order.device, NOBODY, (), output)
        return launcher.run(work, env, reports / LOG)

    def _reports(self, digest: str, attempt: int) -> Path:
        return self._folder / "orders" / digest / "reports" / str(attempt)

    def prune(self, keep_days: float) -> None:
        """Remove what was not used for so long: cached files, and what is left of orders that ended badly."""
        oldest = time.time() - keep_days * 24 * 3600
        for path in [*self._folder.glob("orders/*"), *self._folder.glob("blobs/*")]:
            if path.stat().st_mtime < oldest:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def send_progress(self, digest: str, attempt: int) -> None:
        """Put what the attempt reported and printed so far into the store."""
        for name in (MESSAGES, LOG):
            file = self._reports(digest, attempt) / name
            if not file.is_file() or (size := file.stat().st_size) == self._sent.get(file, 0):
                continue
            self.store.put_bytes(f"{PROGRESS}{digest}/{attempt}/{name}", file.read_bytes()[:_LOG_BYTES])
            self._sent[file] = size
