"""A card by its name: which one it is, how much of its memory is free right now, and who uses it.

NVML counts all cards of the machine, whatever `CUDA_VISIBLE_DEVICES` says, and CUDA may count them in another order. So
a card is asked for by its index in NVML (as in `nvidia-smi`) or its UUID, and processes are given it by UUID.
https://docs.nvidia.com/deploy/nvml-api/
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from ec1.errors import InputError, ServiceError
from ec1.launch.device import GpuSettings
from ec1.memory import GIB, usable_memory

CardName = int | str
"""Its index in NVML, or its UUID (`GPU-…`)."""


@dataclass(frozen=True)
class Card:
    """A reading of a card, or of the machine's memory where a CPU takes its place. In GiB.

    `users` are the ids of processes that hold memory on it (not known for a CPU), `uuid` is empty for a CPU.
    """

    name: str
    free_gib: float
    total_gib: float
    users: tuple[int, ...] = ()
    index: int = 0
    uuid: str = ""

    def __str__(self) -> str:
        return f"{self.name} (card {self.index}, {self.uuid})" if self.uuid else self.name


def read_card(device: Literal["cuda", "cpu"], name: CardName = 0) -> Card:
    """Measure a card. For "cpu" it is the memory that this process may use, where the model lives then.

    Raises InputError for a card that is not there or is split by MIG, ServiceError for one that does not answer.
    """
    if device == "cpu":
        memory = usable_memory()
        return Card("CPU", memory.free / GIB, memory.total / GIB)
    with _nvml() as nvml, _answering(nvml, name):
        handle = nvml.nvmlDeviceGetHandleByUUID(name) if isinstance(name, str) else _by_index(nvml, name)
        return _reading(nvml, handle)


def index_of(name: CardName) -> int:
    """A card's index in NVML. Raises as `read_card`."""
    if isinstance(name, int):
        return name
    with _nvml() as nvml, _answering(nvml, name):
        return int(nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID(name)))


def cards_of(settings: GpuSettings, count: int) -> tuple[CardName, ...]:
    """The cards of a deployment that `count` processes use, one each. Raises InputError if there are fewer."""
    if isinstance(settings.index, str):
        return (settings.index,)
    wanted = range(settings.index, settings.index + count)
    if settings.visible is None:
        return tuple(wanted)
    visible = names_in(settings.visible)
    if wanted.stop > len(visible):
        raise InputError(
            f"gpu.index {settings.index} with {count} processes needs {wanted.stop} cards, and CUDA_VISIBLE_DEVICES "
            f"(or gpu.visible) names {len(visible)}: {settings.visible or 'none'}"
        )
    return visible[wanted.start : wanted.stop]


def card_of(settings: GpuSettings) -> Card | None:
    """The first card of a deployment; None where none answers, or none that EC1 can use."""
    try:
        return read_card("cuda", cards_of(settings, 1)[0])
    except (InputError, ServiceError):
        return None


def names_in(visible: str) -> tuple[CardName, ...]:
    """The cards that a value of `CUDA_VISIBLE_DEVICES` names. Raises InputError for a part of one (MIG)."""
    found: list[CardName] = []
    for each in (part.strip() for part in visible.split(",")):
        if each.isascii() and each.isdigit():
            found.append(int(each))
        elif each.startswith("GPU-"):
            found.append(each)
        elif each:
            raise InputError(f"CUDA_VISIBLE_DEVICES names {each[:60]!r}: EC1 uses whole cards, by number or UUID")
    return tuple(found)


def _by_index(nvml: Any, index: int) -> Any:
    count = nvml.nvmlDeviceGetCount()
    if index >= count:
        raise InputError(f"there is no card {index}: this machine has {count}; correct gpu.index or gpu.processes")
    return nvml.nvmlDeviceGetHandleByIndex(index)


def _reading(nvml: Any, handle: Any) -> Card:
    index, uuid = int(nvml.nvmlDeviceGetIndex(handle)), str(nvml.nvmlDeviceGetUUID(handle))
    name = str(nvml.nvmlDeviceGetName(handle))
    if _is_split(nvml, handle):
        raise InputError(
            f"card {index} ({name}, {uuid}) is split by MIG, and EC1 uses whole cards: choose another gpu.index, or "
            f"end the split (nvidia-smi -i {index} -mig 0)"
        )
    reading = nvml.nvmlDeviceGetMemoryInfo(handle)
    users = tuple(int(process.pid) for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    return Card(name, reading.free / GIB, reading.total / GIB, users, index, uuid)


def _is_split(nvml: Any, handle: Any) -> bool:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError as error:
        if error.value == nvml.NVML_ERROR_NOT_SUPPORTED:
            return False
        raise
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


@contextmanager
def _nvml() -> Iterator[Any]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise ServiceError(f"no NVIDIA card answers: {error}; look at nvidia-smi") from None
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


@contextmanager
def _answering(nvml: Any, name: CardName) -> Iterator[None]:
    """Say what is wrong with a card that does not answer."""
    try:
        yield
    except nvml.NVMLError as error:
        if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
            raise ServiceError(
                f"card {name} has fallen off the bus: the machine has to be started again (dmesg | grep Xid says more)"
            ) from None
        if error.value in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_INVALID_ARGUMENT):
            raise InputError(f"there is no card {name}: nvidia-smi -L lists those that are there") from None
        raise ServiceError(f"card {name} does not answer: {error}; look at nvidia-smi") from None
