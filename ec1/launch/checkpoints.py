"""The newest checkpoint of unfinished work in a store, so that another machine can go on from it.

`work/kept/<order>.json` says which it is, below `work/kept/<order>/` lie its files under their SHA-256. Belongs here:
sending, bringing and copying them. Does not: what is in a checkpoint, and whether it is whole (`ec1/training`, which
looks at its seal before it goes on from it).
"""

import logging
import re
import tempfile
from pathlib import Path

from pydantic import Field

from ec1.errors import InputError
from ec1.launch import blobs
from ec1.launch.blobs import PathPart, Tree
from ec1.launch.untrusted import read_object
from ec1.settings import Settings
from ec1.storage.store import NotFound, ObjectStore
from ec1.strict_yaml import validate

log = logging.getLogger(__name__)
KEPT = "work/kept/"
WHAT = "checkpoint"
"""What fails beside the work, in logs: without a checkpoint the work is done again, not wrong."""
_MAX_BYTES = 2**20
_NUMBER = re.compile(r"[A-Za-z]+-(\d{1,12})")


class Checkpoints(Settings):
    """Where a piece of work writes checkpoints in its output: `folder` holds numbered folders, such as
    `checkpoint-75`, each complete once it holds `seal`; the files `beside` tell whose they are."""

    folder: PathPart
    seal: PathPart
    beside: tuple[PathPart, ...] = ()


class KeptCheckpoint(Settings):
    """What is kept of an order: paths as in its output."""

    order: str
    number: int = Field(ge=0)
    files: Tree


def keep(store: ObjectStore, order: str, output: Path, where: Checkpoints) -> int:
    """Put the newest complete checkpoint of `output` into the store, unless it has that or a newer one; older ones go.

    Returns how many bytes were sent. Raises OSError if it is deleted meanwhile, ServiceError.
    """
    number, folder = _newest(output, where)
    known = _known(store, order)
    if folder is None or (known is not None and known.number >= number):
        return 0
    tree = blobs.tree_of(folder)
    files = {f"{where.folder}/{folder.name}/{name}": blob for name, blob in tree.files.items()}
    for name in where.beside:
        files[name] = blobs.tree_of(output / name).files[""]
    kept = KeptCheckpoint(order=order, number=number, files=Tree(name=output.name, files=files))
    sent = blobs.send(store, output, kept.files, _prefix(order))
    _replace(store, kept)
    return sent


def bring(store: ObjectStore, order: str, output: Path, where: Checkpoints) -> int | None:
    """Put what the store keeps into `output`, unless that has as new a one. Returns the checkpoint's number, or None.

    Raises InputError for a record that would write anything else, ServiceError for damage.
    """
    kept = _known(store, order)
    if kept is None or kept.number <= _newest(output, where)[0]:
        return None
    within = [name for name in kept.files.files if name.startswith(f"{where.folder}/")]
    folders = {name.split("/")[1] for name in within}
    others = kept.files.files.keys() - {*within, *where.beside}
    if others or len(folders) != 1 or _number(*folders) != kept.number:
        raise InputError(f"the checkpoint kept of order {order[:12]} holds other files than a checkpoint's")
    (folder,) = folders
    # The seal comes last, and before it what tells whose the checkpoint is.
    blobs.fetch_all(store, kept.files, output, (f"{where.folder}/{folder}/{where.seal}",), _prefix(order))
    return kept.number


def copy(source: ObjectStore, target: ObjectStore, order: str, by_way_of: Path) -> int | None:
    """Bring what one store keeps into another that has nothing as new, through the folder `by_way_of`.

    Returns the checkpoint's number, or None. Raises ServiceError for damage.
    """
    kept, there = _known(source, order), _known(target, order)
    if kept is None or (there is not None and there.number >= kept.number):
        return None
    by_way_of.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=by_way_of) as name:
        passing = Path(name) / "files"
        blobs.fetch_all(source, kept.files, passing, (), _prefix(order))
        blobs.send(target, passing, kept.files, _prefix(order))
    _replace(target, kept)
    return kept.number


def forget(store: ObjectStore, order: str) -> None:
    """Remove what is kept of an order."""
    store.delete(_record(order))
    for item in list(store.list(_prefix(order))):
        store.delete(item.key)


def _newest(output: Path, where: Checkpoints) -> tuple[int, Path | None]:
    """The highest number of a complete checkpoint, and its folder; -1 and None if there is none."""
    sealed = [path.parent for path in (output / where.folder).glob(f"*/{where.seal}")]
    found = [(number, path) for path in sealed if (number := _number(path.name)) is not None]
    return max(found, default=(-1, None), key=lambda each: each[0])


def _number(name: str) -> int | None:
    match = _NUMBER.fullmatch(name)
    return None if match is None else int(match[1])


def _known(store: ObjectStore, order: str) -> KeptCheckpoint | None:
    """What the store keeps; a record that cannot be read counts as none, and the next checkpoint replaces it."""
    what = f"the checkpoint kept of order {order[:12]}"
    try:
        kept = validate(KeptCheckpoint, read_object(store, _record(order), what, _MAX_BYTES), what)
    except NotFound:
        return None
    except InputError as error:
        log.warning("%s", error)
        return None
    return kept if kept.order == order else None


def _replace(store: ObjectStore, kept: KeptCheckpoint) -> None:
    """Make it the one that is kept, and remove the files of the one before."""
    store.put_bytes(_record(kept.order), kept.model_dump_json().encode())
    wanted = {blob.key(_prefix(kept.order)) for blob in kept.files.files.values()}
    for item in list(store.list(_prefix(kept.order))):
        if item.key not in wanted:
            store.delete(item.key)


def _record(order: str) -> str:
    return f"{KEPT}{order}.json"


def _prefix(order: str) -> str:
    return f"{KEPT}{order}/"
