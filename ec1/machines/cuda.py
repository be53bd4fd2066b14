"""Whether this machine's card works: `python -m ec1.machines.cuda`, in the container that will use it.

Prints one JSON object whose `cuda` is `ok` or what is wrong; exit status 0 or 1. `--versions` compares what is
installed with what pyproject.toml pins instead, and needs no card.
"""

import argparse
import importlib.metadata
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

MIN_FREE_GIB = 20.0
SIZE = 2048
TOLERANCE = 0.05
"""Of a product of matrices of bfloat16, relative to its largest element."""
CHECKED = ("torch", "vllm", "transformers", "peft", "trl")


def verify(min_free_gib: float) -> dict[str, Any]:
    """The report: driver, device, memory, and `cuda`."""
    report: dict[str, Any] = {"cuda": "ok", "driver": driver()}
    if report["driver"] is None:
        return {**report, "cuda": "nvidia-smi does not run: the driver is missing, or the container has no card"}
    import torch

    if not torch.cuda.is_available():
        return {**report, "cuda": f"torch {torch.__version__} sees no card (driver {report['driver']})"}
    free, total = (size / 2**30 for size in torch.cuda.mem_get_info())
    report |= {"device": torch.cuda.get_device_name(), "free_gib": round(free, 2), "total_gib": round(total, 2)}
    if free < min_free_gib:
        return {**report, "cuda": f"{free:.1f} GiB are free of {total:.1f}, {min_free_gib:g} are needed"}
    error = product_error("cuda")
    if not error <= TOLERANCE:
        return {**report, "cuda": f"a product of matrices is wrong by {error:.3g}"}
    return report


def driver() -> str | None:
    """The driver's version; None if `nvidia-smi` does not say one."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    lines = done.stdout.split()
    return lines[0] if done.returncode == 0 and lines else None


def product_error(device: str) -> float:
    """How far a product of bfloat16 matrices on a device is from the same product in float32 on the CPU, at most,
    relative to its largest element. NaN where the device gives one."""
    import torch

    generator = torch.Generator().manual_seed(0)
    one, other = (torch.randn(SIZE, SIZE, generator=generator).to(torch.bfloat16) for _ in range(2))
    right = one.float() @ other.float()
    found = (one.to(device) @ other.to(device)).float().cpu()
    return float((found - right).abs().max() / right.abs().max())


def wrong_versions(pyproject: Path) -> list[str]:
    """What is installed and is not what the project asks for."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    asked = [Requirement(line) for line in [*project["dependencies"], *project["optional-dependencies"]["gpu"]]]
    wrong = []
    for requirement in asked:
        if requirement.name not in CHECKED:
            continue
        try:
            found = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is not installed")
            continue
        if not requirement.specifier.contains(found.split("+")[0]):
            wrong.append(f"{requirement.name} is {found}, asked for is {requirement.specifier}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ec1.machines.cuda")
    parser.add_argument("--min-free-gib", type=float, default=MIN_FREE_GIB)
    parser.add_argument("--versions", action="store_true")
    arguments = parser.parse_args()
    if arguments.versions:
        wrong = wrong_versions(Path(__file__).parents[2] / "pyproject.toml")
        sys.stdout.write("".join(f"{each}\n" for each in wrong))
        return 1 if wrong else 0
    report = verify(arguments.min_free_gib)
    sys.stdout.write(json.dumps(report) + "\n")
    return 0 if report["cuda"] == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
