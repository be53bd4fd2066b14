"""The only place that reads EC1's environment variables: they choose a deployment and its home, nothing more."""

import os
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Choice:
    """Which deployment, in which home, below which project root."""

    deployment: str
    home: Path
    project: Path


def choice_from_environment() -> Choice:
    """EC1_DEPLOYMENT (default `embedded`) and EC1_HOME (default `.ec1` below the project's root)."""
    home = Path(os.environ.get("EC1_HOME") or ".ec1").expanduser()
    return Choice(os.environ.get("EC1_DEPLOYMENT") or "embedded", (PROJECT / home).resolve(), PROJECT)


def child_environment() -> dict[str, str]:
    """What an engine or trainer inherits: this process's environment, minus what could reach out or leak in."""
    keep = {key: value for key, value in os.environ.items() if not key.startswith(("DAGSTER_", "EC1_"))}
    # Weights are on disk before a child starts; nothing in it may ask a hub or report usage.
    return {**keep, "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}
