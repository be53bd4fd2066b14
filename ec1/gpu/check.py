"""Whether a device works: it is there, has memory, and computes."""

from typing import Any, Literal

from ec1.errors import ServiceError
from ec1.gpu.cards import Card, CardName, read_card

_SIZE = 1024


def check_device(device: Literal["cuda", "cpu"], name: CardName = 0) -> dict[str, Any]:
    """Its name and memory, after a product of two matrices came out right on it. Raises ServiceError, InputError."""
    import torch

    card = read_card(device, name)
    place = torch.device("cuda", _as_torch_counts(card)) if device == "cuda" else torch.device("cpu")
    try:
        ones = torch.ones(_SIZE, _SIZE, device=place)
        result = float((ones @ ones).mean())
    except RuntimeError as error:
        raise ServiceError(f"{card} does not compute: {str(error).splitlines()[0]}") from None
    if result != _SIZE:
        raise ServiceError(f"{card} computes wrongly: {result} for {_SIZE}")
    return {"name": str(card), "free_gib": round(card.free_gib, 1), "total_gib": round(card.total_gib, 1)}


def _as_torch_counts(card: Card) -> int:
    """The number that a card has in this process. Raises ServiceError if torch does not see it."""
    import torch

    if not torch.cuda.is_available():
        raise ServiceError(f"torch {torch.__version__} does not see {card}: install the CUDA build (`ec1[gpu]`)")
    for index in range(torch.cuda.device_count()):
        if card.uuid == f"GPU-{torch.cuda.get_device_properties(index).uuid}":
            return index
    raise ServiceError(f"torch sees other cards than {card}: look at CUDA_VISIBLE_DEVICES")
