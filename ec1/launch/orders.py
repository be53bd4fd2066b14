"""A piece of work as an order that another machine can carry out: its files by content, its paths as placeholders.

`work/orders/<digest>.json` is the order, `work/results/<digest>.json` what came of it, and below
`work/progress/<digest>/` lies what it reports meanwhile. Belongs here: their form, and how paths are exchanged. Does
not: who carries it out (`executor.py`), how one asks for it (`worker_launcher.py`), and its `checkpoints.py`.
"""

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ec1.files import digest_of, read_json
from ec1.launch.blobs import PathPart, Tree, tree_of
from ec1.launch.checkpoints import Checkpoints
from ec1.launch.launcher import DeviceWork
from ec1.settings import Settings

WORK = "work/"
ORDERS, RESULTS, PROGRESS = "work/orders/", "work/results/", "work/progress/"
SESSION, MESSAGES, LOG = "session.json", "messages.jsonl", "log.txt"
MAX_BYTES = 64 * 2**20
"""Of an order, a result or a session: a hundred thousand files' names and digests."""
_INPUT, _OUTPUT = "ec1-input:", "ec1-output:"


class Order(Settings):
    """`python -m <module>` on a specification in which paths are placeholders; complete."""

    version: Literal[1] = 1
    ec1: str
    what: str
    module: str
    device: Literal["cuda", "cpu"]
    specification: dict[str, Any]
    inputs: tuple[Tree, ...]
    output: PathPart
    leave: tuple[str, ...] = ()
    checkpoints: Checkpoints | None = None

    @property
    def digest(self) -> str:
        return digest_of(self.model_dump(mode="json"))

    @property
    def key(self) -> str:
        return f"{ORDERS}{self.digest}.json"


class Result(Settings):
    """What an order left: the files of its output."""

    order: str
    worker: str
    output: Tree
    card_seconds: float | None = None


def own_version() -> str:
    """The version of EC1 that runs here: both sides must be the same."""
    return importlib.metadata.version("ec1")


def order_of(work: DeviceWork) -> Order:
    """The order for a piece of work. Raises InputError for an input that is not there."""
    places = {str(path): f"{_INPUT}{number}" for number, path in enumerate(work.inputs)}
    places[str(work.output)] = _OUTPUT
    return Order(
        ec1=own_version(),
        what=work.what,
        module=work.module,
        device=work.device,
        specification=_exchanged(read_json(work.specification), places),
        inputs=tuple(tree_of(path) for path in work.inputs),
        output=work.output.name,
        leave=work.leave,
        checkpoints=work.checkpoints,
    )


def specification_for(order: Order, inputs: list[Path], output: Path) -> dict[str, Any]:
    """The order's specification with the paths of the machine that carries it out."""
    places = {f"{_INPUT}{number}": str(path) for number, path in enumerate(inputs)}
    places[_OUTPUT] = str(output)
    exchanged: dict[str, Any] = _exchanged(order.specification, places)
    return exchanged


def _exchanged(value: Any, places: Mapping[str, str]) -> Any:
    """`value` with each string that is one of `places`, or lies below one, replaced."""
    if isinstance(value, dict):
        return {key: _exchanged(each, places) for key, each in value.items()}
    if isinstance(value, list):
        return [_exchanged(each, places) for each in value]
    if isinstance(value, str):
        for old, new in places.items():
            if value == old or value.startswith(f"{old}/"):
                return new + value[len(old) :]
    return value
