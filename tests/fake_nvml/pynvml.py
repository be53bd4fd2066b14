"""NVML of a machine with eight cards, for tests: what `ec1.gpu.cards` asks of it, under the real module's name.

The cards stand in the JSON file that `FAKE_NVML` names, so that a test changes them while processes look: for each
`{"used": GiB, "pids": [..], "mig": bool, "lost": bool, "name": .., "total": GiB}`; else each is an L4 with 24 GiB.
"""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NOT_FOUND, NVML_ERROR_GPU_IS_LOST = 2, 3, 6, 15
NVML_DEVICE_MIG_ENABLE = 1
TOTAL_GIB = 24
_GIB = 2**30


class NVMLError(Exception):
    """As in the real module."""

    def __init__(self, value: int) -> None:
        super().__init__({2: "Invalid Argument", 3: "Not Supported", 6: "Not Found", 15: "GPU is lost"}[value])
        self.value = value


def uuid_of(index: int) -> str:
    return f"GPU-0000000{index}-feed-4ace-beef-00000000000{index}"


def _cards() -> list[dict[str, Any]]:
    return list(json.loads(Path(os.environ["FAKE_NVML"]).read_text(encoding="utf-8")))


def _card(index: int) -> dict[str, Any]:
    card = _cards()[index]
    if card.get("lost"):
        raise NVMLError(NVML_ERROR_GPU_IS_LOST)
    return card


def nvmlInit() -> None: ...


def nvmlShutdown() -> None: ...


def nvmlDeviceGetCount() -> int:
    return len(_cards())


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    _card(index)
    return index


def nvmlDeviceGetHandleByUUID(uuid: str) -> int:
    for index in range(len(_cards())):
        if uuid_of(index) == uuid:
            _card(index)
            return index
    raise NVMLError(NVML_ERROR_NOT_FOUND)


def nvmlDeviceGetIndex(handle: int) -> int:
    return handle


def nvmlDeviceGetUUID(handle: int) -> str:
    return uuid_of(handle)


def nvmlDeviceGetName(handle: int) -> str:
    return str(_card(handle).get("name", "NVIDIA L4"))


def nvmlDeviceGetMigMode(handle: int) -> list[int]:
    card = _card(handle)
    if "mig" not in card:
        raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
    return [int(card["mig"]), int(card["mig"])]


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    card = _card(handle)
    total, used = card.get("total", TOTAL_GIB) * _GIB, card.get("used", 0) * _GIB
    return SimpleNamespace(total=total, used=used, free=total - used)


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=pid) for pid in _card(handle).get("pids", [])]
