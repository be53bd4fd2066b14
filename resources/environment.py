"""The only place that reads EC1's environment variables: they choose a deployment and its home, nothing more."""

import os
from dataclasses import dataclass
from pathlib import Path

from ec1.home import CHECKOUT
from ec1.launch.process import OFFLINE, inherited


@dataclass(frozen=True)
class DeploymentChoice:
    """Which deployment, in which home, below which project root."""

    deployment: str
    home: Path
    project: Path


def choice_from_environment() -> DeploymentChoice:
    """EC1_DEPLOYMENT (default `embedded`), EC1_HOME (default `.ec1`) and EC1_PROJECT, the folder whose `configs/` holds
    deployments and recipes (default: this checkout). Relative paths are below the project."""
    project = (CHECKOUT / Path(os.environ.get("EC1_PROJECT") or ".").expanduser()).resolve()
    home = Path(os.environ.get("EC1_HOME") or ".ec1").expanduser()
    return DeploymentChoice(os.environ.get("EC1_DEPLOYMENT") or "embedded", (project / home).resolve(), project)


def ui_token() -> str | None:
    """EC1_UI_TOKEN: what a request to the UI must carry; without it, requests need no token."""
    return os.environ.get("EC1_UI_TOKEN") or None


def api_key() -> str | None:
    """EC1_API_KEY: the key that this person has for `ec1 serve`."""
    return os.environ.get("EC1_API_KEY") or None


def shell_environment() -> dict[str, str]:
    """This process's environment, for secrets that a deployment only names."""
    return dict(os.environ)


def child_environment() -> dict[str, str]:
    """What an engine or trainer inherits: this process's environment, minus what could reach out or leak in."""
    return {**inherited(os.environ), **OFFLINE}
