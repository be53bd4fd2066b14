"""What a card is, and what it gives: matrix products and copies of its memory."""

import importlib.metadata
import platform
import time
from collections.abc import Callable
from typing import Any

PACKAGES = ("torch", "transformers", "peft", "accelerate", "trl", "datasets", "bitsandbytes", "liger-kernel", "vllm")


def synchronise(device: str) -> None:
    """Wait until the device has done what was asked of it."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def facts(device: str) -> dict[str, Any]:
    """Card, driver, memory as NVML tells it, and versions."""
    from ec1.gpu.cards import read_card
    from ec1.machines.cuda import driver

    memory = read_card("cuda" if device == "cuda" else "cpu")
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "card": memory.name,
        "driver": driver(),
        "memory_gib": round(memory.total_gib, 2),
        "free_gib": round(memory.free_gib, 2),
        "python": platform.python_version(),
        "versions": versions,
    }


def matmul_tflops(device: str, size: int, seconds: float = 2.0) -> float:
    """TFLOP/s of square bfloat16 products, the best of several runs: what "the peak" means in the table."""
    import torch

    one, other = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / _best(lambda: one @ other, device, seconds) / 1e12


def copy_gb_per_second(device: str, mib: int, seconds: float = 1.0) -> float:
    """GB/s of copying memory on the device: each byte is read and written."""
    import torch

    one = torch.empty(mib * 2**20, device=device, dtype=torch.uint8)
    other = torch.empty_like(one)
    return 2 * one.numel() / _best(lambda: other.copy_(one), device, seconds) / 1e9


def _best(work: Callable[[], Any], device: str, seconds: float) -> float:
    for _ in range(3):
        work()
    synchronise(device)
    best, end = float("inf"), time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        for _ in range(5):
            work()
        synchronise(device)
        best = min(best, (time.monotonic() - began) / 5)
    return best
