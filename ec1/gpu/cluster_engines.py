"""Engines on the nodes of a Ray cluster, asked for from here.

Belongs here: starting them as one job, where they answer, that they go on only as long as this process does, and their
end. Does not: what happens on a node (`ec1.gpu.ray_engines`).

They are told what to do, and tell where they answer, in a place of a store (`meeting.py`): a folder of the home, which
the nodes see at the same place, or the deployment's bucket, through which the model travels then.
"""

import datetime as dt
import itertools
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from ec1.errors import DeferredError, InputError, ServiceError
from ec1.gpu.engine import GRACE_SECONDS, ServedAdapter, VllmEngine
from ec1.gpu.meeting import Meeting, MeetingPlace
from ec1.gpu.settings import ClusterSettings, VllmSettings
from ec1.launch import blobs
from ec1.launch.beside import meanwhile, quietly
from ec1.launch.blobs import Tree
from ec1.launch.device import GpuSettings
from ec1.launch.orders import WORK
from ec1.launch.ray_jobs import POLL_SECONDS, RayJobs, RayNeed
from ec1.settings import Settings
from ec1.storage.settings import DirectoryStoreSettings, StoreSettings
from ec1.storage.store import ObjectStore

JOB = "ec1.gpu.ray_engines"
ORDER, ALIVE, STOP = "order.json", "alive", "stop"
ENGINE, BEGUN, HELD = "engine-", "begun-", "held-"
"""Beginnings of names: where an engine answers, that it has a card, for how many seconds a try has had one."""
BEAT_SECONDS = 5.0
DEAD_SECONDS = 60.0
"""How long who asked may be silent before its engines end."""
FILES = f"{WORK}engines/files/"
"""Where the models lie that nodes were sent through a store."""
_UNUSED = dt.timedelta(days=1)
_PROGRESS_SECONDS = 10.0


class EnginesOrder(Settings):
    """What the nodes are told: the engine, and what each node's lease asks for."""

    engine: VllmSettings
    model: Path
    sent: tuple[Tree, ...] = ()
    """The files of the model and of the adapter, if they came through the store."""
    name: str
    device: Literal["cuda", "cpu"]
    adapter: ServedAdapter | None
    key: str
    logs: Path
    """Beginning of the logs' names: the number of the engine follows."""
    lock_dir: Path | None
    min_free_gib: float
    wait_seconds: float

    @property
    def cluster(self) -> ClusterSettings:
        assert self.engine.cluster is not None
        return self.engine.cluster

    @property
    def need(self) -> RayNeed:
        """Of one engine."""
        cards = 1 if self.device == "cuda" else 0
        return RayNeed(what="an engine", resources=self.cluster.resources(self.cluster.cpus, cards))


class ClusterEngines:
    """The engines that were asked for, as they come and go: as `look` saw them last."""

    def __init__(self, meeting: Meeting, key: str) -> None:
        self._meeting = meeting
        self._addresses: list[str] = []
        self._held: list[float] = []
        self.begun = False
        """Whether one of them has had a card."""
        self.key = key

    def look(self) -> None:
        """Raises ServiceError if the store does not answer."""
        self._addresses = [str(each) for each in self._meeting.all_heard(ENGINE)]
        self.begun = self.begun or bool(self._meeting.all_heard(BEGUN))

    def count(self) -> None:
        """What they have had of their cards. Raises as `look`."""
        self._held = [float(each) for each in self._meeting.all_heard(HELD)]

    def addresses(self) -> list[str]:
        """Of those that have said where they answer. One that was lost says it anew when it was started again."""
        return self._addresses

    def card_seconds(self) -> float:
        """For how long they have had their cards: of two twice the time. Of a node that was lost it is what it last
        said, at most `BEAT_SECONDS` ago."""
        return sum(self._held)


@contextmanager
def engines_on_cluster(
    engine: VllmEngine,
    gpu: GpuSettings,
    *,
    folder: Path,
    store: StoreSettings,
    logs: Path,
    wait_seconds: float,
    progress: Callable[[str], None],
    held: Callable[[float], None] = lambda card_seconds: None,
) -> Iterator[ClusterEngines]:
    """Start as many engines as `engine.settings.cluster` says, yield when the first answers, end them with the block,
    and call `held` with the card-seconds that they had.

    Raises DeferredError if the cluster has had no card for any of them for `wait_seconds`, ServiceError if it does not
    answer or none of them could be started.
    """
    # Engines of a run that was killed find nothing there any more, and end.
    shutil.rmtree(folder, ignore_errors=True)
    job = f"ec1-engines-{secrets.token_hex(8)}"
    assert engine.settings.cluster is not None
    cluster = engine.settings.cluster
    order = EnginesOrder(
        engine=engine.settings,
        model=engine.model_folder.absolute(),
        name=engine.model_name,
        device=engine.device,
        adapter=engine.adapter,
        key=secrets.token_urlsafe(24),
        logs=logs.absolute(),
        lock_dir=gpu.lock_dir,
        min_free_gib=gpu.min_free_gib,
        wait_seconds=wait_seconds,
    )
    if cluster.files == "store":
        place = MeetingPlace(store=_reached_by_all(store), prefix=f"{WORK}engines/{job}/")
        meeting = place.open()
        order = order.model_copy(update={"sent": _send(meeting.store, order, progress)})
    else:
        # With the key in it: for the owner's eyes.
        (own := folder.absolute() / job).mkdir(parents=True, mode=0o700)
        place = MeetingPlace(store=DirectoryStoreSettings(root=own))
        meeting = place.open()
    jobs = RayJobs(cluster, "inference.cluster")
    engines = ClusterEngines(meeting, order.key)
    beats = itertools.count()

    def beat() -> None:
        meeting.say(ALIVE, next(beats))
        engines.count()

    with ExitStack() as ends:
        # Whatever counting meets: no key is left.
        ends.callback(shutil.rmtree, folder, ignore_errors=True)
        ends.callback(quietly, meeting.end, "engines")
        ends.callback(lambda: held(engines.card_seconds()))
        ends.callback(quietly, engines.count, "engines")
        meeting.say(ORDER, order.model_dump(mode="json"))
        beat()
        with meanwhile(beat, BEAT_SECONDS, "engines"), meanwhile(engines.look, POLL_SECONDS, "engines"):
            jobs.submit(job, [cluster.node_python, "-m", JOB, place.model_dump_json()])
            try:
                _wait(jobs, job, order, engines, progress)
                yield engines
            finally:
                quietly(lambda: meeting.say(STOP, True), "engines")
                # They end by themselves, with what they started; what does not is ended by Ray.
                if not jobs.ends_within(job, GRACE_SECONDS + 10):
                    jobs.stop(job, GRACE_SECONDS)


def _reached_by_all(store: StoreSettings) -> StoreSettings:
    """Raises InputError for a store that is only on this machine."""
    if isinstance(store, DirectoryStoreSettings) and store.root is None:
        raise InputError("inference.cluster.files: store needs a store that the nodes reach, such as a bucket")
    return store


def _send(store: ObjectStore, order: EnginesOrder, progress: Callable[[str], None]) -> tuple[Tree, ...]:
    """Put the model and the adapter into the store, as far as they are not there; those of earlier nights go."""
    folders = [order.model, *([order.adapter.folder] if order.adapter else [])]
    trees = tuple(blobs.tree_of(folder) for folder in folders)
    sent = sum(blobs.send(store, folder, tree, FILES) for folder, tree in zip(folders, trees, strict=True))
    wanted = {blob.key(FILES) for tree in trees for blob in tree.files.values()}
    oldest = dt.datetime.now(dt.UTC) - _UNUSED
    for item in list(store.list(FILES)):
        if item.key not in wanted and item.updated < oldest:
            store.delete(item.key)
    progress(f"sent {sent / 2**20:.1f} of {blobs.total(trees) / 2**20:.1f} MiB of {order.name} to the store")
    return trees


def _wait(
    jobs: RayJobs, job: str, order: EnginesOrder, engines: ClusterEngines, progress: Callable[[str], None]
) -> None:
    """Until one engine answers."""
    wanted = order.cluster.engines
    progress(f"asking the Ray cluster at {jobs.address} for {wanted} engines with {order.name}, logs in {order.logs}.*")
    began = reported = time.monotonic()
    while not (ready := engines.addresses()):
        if (said := jobs.ended(job)) is not None:
            raise ServiceError(f"none of {wanted} engines could be started on the Ray cluster ({said})")
        now = time.monotonic()
        due, long = now - reported >= _PROGRESS_SECONDS, now - began > order.wait_seconds
        lacks = jobs.lacking(order.need) if (due or long) and not engines.begun else ""
        if lacks and long:
            raise DeferredError(f"the Ray cluster had no room for an engine in {order.wait_seconds:.0f} s: {lacks}")
        if now - began > order.wait_seconds + order.engine.ready_timeout_seconds:
            raise ServiceError(f"no engine on the Ray cluster was ready in {now - began:.0f} s; logs in {order.logs}.*")
        if due:
            reported = now
            progress(f"no engine answers yet, {now - began:.0f} s{f': {lacks}' if lacks else ''}")
        time.sleep(POLL_SECONDS)
    progress(f"{len(ready)} of {wanted} engines answer after {time.monotonic() - began:.0f} s")
