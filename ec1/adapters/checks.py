"""Whether a folder holds a LoRA adapter that can be served: every problem is found, not only the first.

Weights are read as safetensors only: a pickle runs code when it is loaded. https://huggingface.co/docs/safetensors
"""

import json
import re
from pathlib import Path
from typing import Any

from ec1.adapters.manifest import CONFIG, WEIGHTS, is_model_id

_MAX_RANK = 512
_TENSOR = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<half>[AB])\.weight")


def adapter_problems(folder: Path, base_id: str) -> list[str]:
    """Why the adapter in `folder` cannot be published or served as one of the model `base_id`; empty if it can."""
    config, problems = _read_config(folder / CONFIG, base_id)
    ranks = (config.get("r"), *(config.get("rank_pattern") or {}).values())
    return problems + _weight_problems(folder / WEIGHTS, {rank for rank in ranks if isinstance(rank, int)})


def _read_config(path: Path, base_id: str) -> tuple[dict[str, Any], list[str]]:
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}, [f"{CONFIG} is missing"]
    except (ValueError, OSError) as error:
        return {}, [f"{CONFIG} cannot be read: {error}"]
    if not isinstance(config, dict):
        return {}, [f"{CONFIG} is not a JSON object"]
    problems = []
    base = str(config.get("base_model_name_or_path"))
    if not is_model_id(base):
        problems.append(f"{CONFIG}: base_model_name_or_path {base!r} is a path, not a model id")
    elif base != base_id:
        problems.append(f"{CONFIG}: base_model_name_or_path is {base!r}, the manifest says {base_id!r}")
    if config.get("peft_type") != "LORA":
        problems.append(f"{CONFIG}: peft_type is {config.get('peft_type')!r}, not 'LORA'")
    rank = config.get("r")
    if not isinstance(rank, int) or not 1 <= rank <= _MAX_RANK:
        problems.append(f"{CONFIG}: r is {rank!r}, not a rank of 1 to {_MAX_RANK}")
    if not config.get("target_modules"):
        problems.append(f"{CONFIG}: target_modules is empty")
    for key in ("modules_to_save", "use_dora", "trainable_token_indices"):
        if config.get(key):
            problems.append(f"{CONFIG}: {key} cannot be served as LoRA")
    if config.get("bias", "none") != "none":
        problems.append(f"{CONFIG}: trained biases cannot be served as LoRA")
    return config, problems


def _weight_problems(path: Path, ranks: set[int]) -> list[str]:
    from safetensors import SafetensorError, deserialize

    try:
        tensors = dict(deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
    except FileNotFoundError:
        return [f"{WEIGHTS} is missing"]
    except (SafetensorError, OSError) as error:
        return [f"{WEIGHTS} is not a whole safetensors file: {error}"]
    problems: list[str] = []
    halves: dict[str, set[str]] = {}
    changed = False
    for name, tensor in tensors.items():
        match = _TENSOR.fullmatch(name)
        if not match:
            problems.append(f"{WEIGHTS}: {name} is not part of a LoRA adapter")
            continue
        halves.setdefault(match["module"], set()).add(match["half"])
        shape = tensor["shape"]
        rank = shape[0 if match["half"] == "A" else -1] if len(shape) == 2 else None
        if ranks and rank not in ranks:
            problems.append(f"{WEIGHTS}: {name} has the shape {shape}, which is not of rank {sorted(ranks)}")
        try:
            finite, zero = _finite_and_zero(tensor["dtype"], tensor["data"])
        except KeyError:
            problems.append(f"{WEIGHTS}: {name} has the type {tensor['dtype']}")
            continue
        if not finite:
            problems.append(f"{WEIGHTS}: {name} holds NaN or infinity")
        changed |= match["half"] == "B" and not zero
    for module, found in halves.items():
        if found != {"A", "B"}:
            problems.append(f"{WEIGHTS}: {module} has only lora_{found.pop()}")
    if not halves:
        problems.append(f"{WEIGHTS} holds no LoRA matrices")
    elif not changed:
        problems.append(f"{WEIGHTS}: every lora_B is zero, so the adapter does nothing")
    # A long list of tensors says the same thing again and again.
    return [*problems[:8], f"{len(problems) - 8} more"] if len(problems) > 9 else problems


def _finite_and_zero(dtype: str, data: bytes) -> tuple[bool, bool]:
    """Whether all values are finite, and all are zero. Raises KeyError for a type that no adapter has."""
    import numpy as np

    # numpy has no bf16: it is the upper half of a float32.
    size, exponent = {"F32": ("<u4", 0x7F800000), "F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80)}[dtype]
    values = np.frombuffer(data, dtype=size)
    # Twice the bits drops the sign: minus zero is zero too.
    return bool(((values & exponent) != exponent).all()), not (values << 1).any()
