"""Whether each node of a Ray cluster that may be given trainings can do them."""

from pathlib import Path
from typing import Any

from ec1.deployment import Deployment
from ec1.errors import EC1Error
from ec1.home import Home
from ec1.launch.orders import own_version
from ec1.launch.ray_launcher import RayLauncherSettings
from ec1.launch.ray_worker_jobs import look_at_nodes
from ec1.night.health.finding import Symptom


def examine_nodes(deployment: Deployment, home: Home, project: Path) -> list[Symptom]:
    """Have `ec1 worker --check` run on each node, as a job of the cluster; nothing to say without `launcher: ray`."""
    launcher = deployment.launcher
    if not isinstance(launcher, RayLauncherSettings):
        return []
    name = launcher.deployment or deployment.name
    folder, root = str(home.root.absolute()), str(project.absolute())
    if launcher.files == "store":
        folder, root = f"{launcher.folder}/home", launcher.project or ""
    options = ["--deployment", name, "--home", folder, *(["--project", root] if root else [])]
    command = [*options, "worker", "--check", "--with-store", "--json"]
    try:
        found = look_at_nodes(launcher, command, deployment.gpu.device)
    except EC1Error as error:
        # It may be up by the night.
        return [Symptom("ray nodes", "note", str(error))]
    if not found:
        return [Symptom("ray nodes", "problem", f"{launcher.address} has no node for {deployment.gpu.device}")]
    return [_node(each, deployment) for each in found]


def _node(said: dict[str, Any], deployment: Deployment) -> Symptom:
    node = said["node"]
    if problem := said.get("problem"):
        return Symptom("ray node", "problem", f"{node}: {problem}")
    text = f"{node}: EC1 {said['version']}, {said['name']}, {said['free_gib']} GiB free, the store answers"
    if said["version"] != own_version():
        return Symptom("ray node", "problem", f"{text}; here is EC1 {own_version()}: install the same on both")
    if said["device"] != deployment.gpu.device:
        return Symptom("ray node", "problem", f"{text}; its deployment works on {said['device']}")
    return Symptom("ray node", "ok", text)
