"""Whether the services that a night depends on answer: servers of models, clusters, hosts over SSH, the object store.

Belongs here: one look at each, which takes seconds at most. Does not: what follows. None of them stops a night from
beginning: it may be up in time, and what needs it waits for a later night.
"""

import importlib.metadata
import importlib.util
import itertools
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ec1.adapters.settings import JudgeSettings
from ec1.deployment import Deployment
from ec1.errors import EC1Error, InputError, ServiceError
from ec1.extraction.settings import DoormanSettings
from ec1.gpu.settings import VllmSettings
from ec1.home import Home
from ec1.http import authorization, trusted
from ec1.launch.job_launcher import Jobs
from ec1.launch.kubernetes_launcher import KubernetesJobs, KubernetesLauncherSettings
from ec1.launch.ray_jobs import RayClusterSettings, asked_of
from ec1.launch.slurm_launcher import SlurmJobs, SlurmLauncherSettings
from ec1.launch.ssh_launcher import SshLauncherSettings
from ec1.night.health.finding import Symptom
from ec1.refused import advice_for

if TYPE_CHECKING:
    import httpx


def peers(deployment: Deployment, home: Home) -> Iterator[Symptom]:
    """Each service of the deployment, ready or not."""
    if deployment.machine is None and not isinstance(deployment.inference, VllmSettings):
        yield guarded("inference", lambda: _inference(deployment))
    yield from map(_ray, _ray_clusters(deployment))
    if isinstance(deployment.launcher, SshLauncherSettings):
        yield _ssh(deployment.launcher)
    if isinstance(deployment.launcher, KubernetesLauncherSettings):
        yield _scheduler("kubernetes", deployment.launcher.server, KubernetesJobs(deployment.launcher))
    if isinstance(deployment.launcher, SlurmLauncherSettings):
        yield _scheduler("slurm", "the queue", SlurmJobs(deployment.launcher))
    yield guarded("object store", lambda: _store(deployment, home))
    if "service_content" in deployment.graph_stores:
        yield _service_content(deployment)
    if deployment.judge is not None:
        yield _judge(deployment.judge)


def guarded(subject: str, look: Callable[[], Symptom]) -> Symptom:
    """What `look` finds; what it raises on purpose is a problem."""
    try:
        return look()
    except EC1Error as error:
        return Symptom(subject, "problem", str(error))
    except OSError as error:
        return Symptom(subject, "problem", advice_for(error))


def _inference(deployment: Deployment) -> Symptom:
    model = deployment.inference
    assert not isinstance(model, VllmSettings)
    import httpx

    from ec1.extraction.reading.doorman import too_long_an_answer, why_not_ready

    if isinstance(model, DoormanSettings) and (slow := too_long_an_answer(model, deployment.extraction)):
        return Symptom("inference", "problem", slow)
    with httpx.Client(timeout=5.0, trust_env=False, verify=trusted()) as http:
        if isinstance(model, DoormanSettings):
            problems = {model.base_url: why_not_ready(model.base_url, http)}
        else:
            names = {model.served_name, *model.answers_as}
            http.headers.update(authorization(model.key()))
            problems = {each: _unserved(each, names, http) for each in (model.base_url, *model.replicas)}
    # They may be up by the night, so this is not a problem yet.
    text = "; ".join(f"{address}: {problem or 'ready'}" for address, problem in problems.items())
    return Symptom("inference", "note" if any(problems.values()) else "ok", text)


def _unserved(address: str, names: Collection[str], http: "httpx.Client") -> str | None:
    """Why an OpenAI-compatible server is not ready to serve a model of one of these names, or None."""
    import httpx

    from ec1.extraction.reading.openai import unanswered, unserved

    try:
        return unserved(http.get(f"{address}/v1/models"), names)
    except httpx.HTTPError as error:
        return unanswered(error)


def _ray_clusters(deployment: Deployment) -> list[RayClusterSettings]:
    """Those that the deployment names, each once."""
    cluster = deployment.inference.cluster if isinstance(deployment.inference, VllmSettings) else None
    named = (deployment.launcher, cluster)
    return list({each.address: each for each in named if isinstance(each, RayClusterSettings)}.values())


def _ray(cluster: RayClusterSettings) -> Symptom:
    import httpx

    if importlib.util.find_spec("ray") is None:
        return Symptom("ray", "problem", "Ray is not installed: pip install 'ec1[ray]'")
    try:
        answer = asked_of(cluster, "api/version")
        if answer.status_code == 401:
            return Symptom("ray", "problem", f"{cluster.address} wants a token: keep it in {cluster.token_file}")
        answer.raise_for_status()
        theirs, ours = answer.json()["ray_version"], importlib.metadata.version("ray")
    except InputError as error:
        return Symptom("ray", "problem", str(error))
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        # It may be up by the night.
        return Symptom("ray", "note", f"{cluster.address} does not answer as a Ray cluster: {type(error).__name__}")
    if theirs != ours:
        return Symptom("ray", "problem", f"{cluster.address} has Ray {theirs}, here is {ours}: install the same")
    return Symptom("ray", "ok", f"{cluster.address}: Ray {theirs}")


def _ssh(launcher: SshLauncherSettings) -> Symptom:
    """What is needed here to reach the machine that trains; it may be stopped now, and is not asked."""
    if missing := [name for name in ("ssh", "rsync") if shutil.which(name) is None]:
        return Symptom("ssh", "problem", f"not installed: {', '.join(missing)}; apt-get install openssh-client rsync")
    named = [Path(key) for option, key in itertools.pairwise(launcher.options) if option == "-i"]
    if absent := [str(path) for path in named if not path.is_file()]:
        return Symptom("ssh", "problem", f"launcher.options names a key that is not there: {', '.join(absent)}")
    where = launcher.host or "the machine that is booted for nights"
    return Symptom("ssh", "ok", f"trainings go to {where}, {launcher.folder}")


def _scheduler(kind: str, where: str, jobs: Jobs) -> Symptom:
    """Whether a cluster answers, and lets us ask for a job."""
    try:
        jobs.look("ec1-doctor")
    except ServiceError as error:
        # It may be up by the night.
        return Symptom(kind, "note", str(error))
    except EC1Error as error:
        return Symptom(kind, "problem", str(error))
    return Symptom(kind, "ok", f"{where} answers")


def _service_content(deployment: Deployment) -> Symptom:
    import httpx

    address = deployment.service_content.base_url
    try:
        answer = httpx.get(f"{address}/healthz", timeout=5.0, trust_env=False, verify=trusted())
        problem = None if answer.is_success else f"it answers {answer.status_code}"
    except httpx.HTTPError as error:
        problem = f"it does not answer: {type(error).__name__}"
    if problem:
        return Symptom(
            "service-content", "note", f"{address}: {problem}; what a night would send waits for a later one"
        )
    return Symptom("service-content", "ok", f"{address}: ready")


def _judge(judge: JudgeSettings) -> Symptom:
    from ec1.adapters.judging import model_entry

    try:
        model_entry(judge)
    except ServiceError as error:
        return Symptom("judge", "note", f"{error}; until then task cases that it judges are left open")
    return Symptom("judge", "ok", f"{judge.model} at {judge.base_url}")


def _store(deployment: Deployment, home: Home) -> Symptom:
    from ec1.night.stores import open_registry

    roles = list(open_registry(deployment, home).roles())
    return Symptom("object store", "ok", f"{deployment.store.kind}, adapters for {len(roles)} roles")
