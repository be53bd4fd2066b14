"""Where a run comes from, beside its specification: code, packages, machine. Written when it starts, always kept.

Belongs here: looking. Does not: what a recipe or a dataset is (the specification names both by digest).
"""

import os
import platform
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from ec1.git import ENVIRONMENT, git_command
from ec1.home import CHECKOUT
from ec1.memory import usable_memory

LOCK = "packages.txt"
"""Every installed distribution with its version, in pip's form, beside the run's other files."""


def provenance(device: str) -> dict[str, Any]:
    """Code, interpreter and machine of this process."""
    return {
        "git": git_state(CHECKOUT),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "command": [Path(sys.executable).name, *sys.argv[:2]],
        "hardware": _hardware(device),
    }


def package_lock() -> str:
    """All installed distributions, one per line, sorted."""
    found = {(each.metadata["Name"].lower().replace("_", "-"), each.version) for each in distributions()}
    return "".join(sorted(f"{name}=={version}\n" for name, version in found))


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and whether tracked files differ from it; None if that folder is not the top of a git checkout."""
    try:
        top = _git(folder, "rev-parse", "--show-toplevel")
        if Path(top).resolve() != folder.resolve():
            return None
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
        return {"commit": _git(folder, "rev-parse", "HEAD"), "dirty": bool(changed)}
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = git_command(folder, *arguments)
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, env=ENVIRONMENT).stdout.strip()


def _hardware(device: str) -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {
        "device": device,
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(usable_memory().total / 2**30, 1),
    }
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "gpu": properties.name,
            "gpu_memory_gib": round(properties.total_memory / 2**30, 1),
            "cuda": torch.version.cuda,
        }
    return found
