"""Whether a device works: it is there, has memory, and computes."""

from typing import Any, Literal

from ec1.errors import ServiceError
from ec1.gpu.memory import device_memory

_SIZE = 1024


def check_device(device: Literal["cuda", "cpu"]) -> dict[str, Any]:
    """Its name and memory, after a product of two matrices came out right on it. Raises ServiceError."""
    import pynvml
    import torch

    try:
        memory = device_memory(device)
    except pynvml.NVMLError as error:
        raise ServiceError(f"no NVIDIA card answers: {error}; look at nvidia-smi") from None
    if device == "cuda" and not torch.cuda.is_available():
        raise ServiceError(f"torch {torch.__version__} does not see the card: install the CUDA build (`ec1[gpu]`)")
    try:
        ones = torch.ones(_SIZE, _SIZE, device=device)
        result = float((ones @ ones).mean())
    except RuntimeError as error:
        raise ServiceError(f"{memory.name} does not compute: {str(error).splitlines()[0]}") from None
    if result != _SIZE:
        raise ServiceError(f"{memory.name} computes wrongly: {result} for {_SIZE}")
    return {"name": memory.name, "free_gib": round(memory.free_gib, 1), "total_gib": round(memory.total_gib, 1)}
