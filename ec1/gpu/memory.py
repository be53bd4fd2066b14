"""How much memory a device has free right now, and who uses it."""

from dataclasses import dataclass
from typing import Literal

GIB = 2**30


@dataclass(frozen=True)
class DeviceMemory:
    """A reading, in GiB. `users` are the ids of processes that hold memory on the card (not known for a CPU)."""

    name: str
    free_gib: float
    total_gib: float
    users: tuple[int, ...] = ()


def device_memory(device: Literal["cuda", "cpu"], index: int = 0) -> DeviceMemory:
    """Measure a device. For "cpu" it is the machine's memory, where the model lives then.

    Raises pynvml.NVMLError where there is no NVIDIA driver or card.
    """
    if device == "cpu":
        import psutil

        memory = psutil.virtual_memory()
        return DeviceMemory("CPU", memory.available / GIB, memory.total / GIB)
    import pynvml

    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        reading = pynvml.nvmlDeviceGetMemoryInfo(handle)
        users = tuple(int(process.pid) for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
        name = pynvml.nvmlDeviceGetName(handle)
        return DeviceMemory(str(name), reading.free / GIB, reading.total / GIB, users)
    finally:
        pynvml.nvmlShutdown()
