"""A training as another scheduler's job: KubeRay's RayJob, Kubeflow's TrainJob, Volcano's Job, a Slurm batch script.

Belongs here: how one command with its needs is written for each of them. Does not: what it needs (the plan says), and
submitting it (`kubectl`, `sbatch`): none of these schedulers is driven from here.

Each runs `ec1 train` on a home that the cluster's nodes share. A job that is started again goes on from the newest
checkpoint, because the same recipe, dataset and seed have the same folder.

Versions: ray.io/v1 (KubeRay 1.7), trainer.kubeflow.org/v1alpha1 (Kubeflow Trainer 2.3), batch.volcano.sh/v1alpha1 and
scheduling.volcano.sh/v1beta1 (Volcano 1.15), sbatch's options (https://slurm.schedmd.com/sbatch.html).
"""

import hashlib
import io
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML

HOME = "/srv/ec1/home"
"""Where a pod sees the home."""
PROGRAM = "/srv/ec1/checkout/.venv/bin/ec1"
"""In the image of deploy/Dockerfile."""
CLAIM = "ec1-home"
USER = 1000
"""Of that image."""
RETRIES = 3
GRACE_SECONDS = 90
"""From the termination to the kill: more than the minute in which a trainer writes its checkpoint."""
LATE_SECONDS = 900
"""Beyond the training's own budget: images, preparing the dataset, waiting for a node that was lost."""
KEPT_SECONDS = 86400
"""How long a finished job can be looked at."""
_NAME_LENGTH = 40
# The label of NVIDIA's GPU feature discovery, in MiB.
_CARD_MEMORY = "nvidia.com/gpu.memory"


@dataclass(frozen=True)
class ClusterJob:
    """One training and what it needs. `arguments` are those of `ec1`."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    gpus: int
    gpu_memory_gib: float
    """Of one card; it counts where `gpus` is not 0."""
    memory_gib: int
    """Of the machine."""
    cpus: int
    budget_seconds: float
    image: str
    claim: str = CLAIM
    queue: str | None = None

    @property
    def seconds(self) -> int:
        """When the job is ended, whatever it does."""
        return math.ceil(self.budget_seconds) + LATE_SECONDS


def job_name(tenant: str, role: str) -> str:
    """A name that every one of these schedulers takes; one that is too long ends with its digest."""
    name = f"ec1-{tenant}-{role}"
    if len(name) <= _NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _NAME_LENGTH - len(digest) - 1].rstrip('-')}-{digest}"


def ray_job(job: ClusterJob) -> list[dict[str, Any]]:
    """A Ray cluster of one node for this job, on which KubeRay submits it, again if it fails."""
    container = _container(job, "ray-head")
    for key in ("command", "args"):
        # KubeRay starts Ray here; the entrypoint is what Ray starts.
        del container[key]
    return [
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": _metadata(job),
            "spec": {
                "entrypoint": shlex.join([PROGRAM, *job.arguments]),
                "backoffLimit": RETRIES,
                "activeDeadlineSeconds": job.seconds,
                "shutdownAfterJobFinishes": True,
                "ttlSecondsAfterFinished": 60,
                "rayClusterSpec": {
                    "headGroupSpec": {
                        "rayStartParams": {"dashboard-host": "0.0.0.0"},
                        "template": {"metadata": {"labels": _labels(job)}, "spec": _pod(job, container)},
                    }
                },
            },
        }
    ]


def train_job(job: ClusterJob) -> list[dict[str, Any]]:
    """One node of Kubeflow's runtime `torch-distributed`."""
    pod = _pod(job, {"name": "node", "volumeMounts": _mounts()})
    # The runtime sets it.
    del pod["restartPolicy"]
    patch = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]}
    return [
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": _metadata(job),
            "spec": {
                "runtimeRef": {"name": "torch-distributed"},
                "activeDeadlineSeconds": job.seconds,
                "trainer": {
                    "image": job.image,
                    "command": [PROGRAM],
                    "args": list(job.arguments),
                    "env": _environment(job),
                    "numNodes": 1,
                    "resourcesPerNode": _resources(job),
                },
                "runtimePatches": [
                    {"manager": "ec1.io/manifests", "trainingRuntimeSpec": {"template": {"spec": patch}}}
                ],
            },
        }
    ]


def volcano_job(job: ClusterJob) -> list[dict[str, Any]]:
    """A queue that holds what this job needs, and the job in it. An evicted or failed one is started again."""
    queue = job.queue or "ec1"
    capability = _resources(job)["limits"]
    return [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": queue},
            "spec": {"weight": 1, "reclaimable": True, "capability": {**capability, "cpu": str(job.cpus)}},
        },
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": _metadata(job),
            "spec": {
                "schedulerName": "volcano",
                "queue": queue,
                "minAvailable": 1,
                "maxRetry": RETRIES,
                "ttlSecondsAfterFinished": KEPT_SECONDS,
                "policies": [
                    {"event": "PodEvicted", "action": "RestartJob"},
                    {"event": "PodFailed", "action": "RestartJob"},
                    {"event": "TaskCompleted", "action": "CompleteJob"},
                ],
                "tasks": [
                    {
                        "name": "training",
                        "replicas": 1,
                        "template": {
                            "metadata": {"labels": _labels(job)},
                            "spec": {
                                **_pod(job, _container(job, "training")),
                                "activeDeadlineSeconds": job.seconds,
                            },
                        },
                    }
                ],
            },
        },
    ]


CLUSTERS: dict[str, Callable[[ClusterJob], list[dict[str, Any]]]] = {
    "kuberay": ray_job,
    "trainer": train_job,
    "volcano": volcano_job,
}


def slurm_script(job: ClusterJob, program: str) -> str:
    """A batch script for `sbatch`; `program` is `ec1` as the nodes see it, `job.environment` names the home there."""
    hours, rest = divmod(job.seconds, 3600)
    options = {
        "job-name": job.name,
        "nodes": 1,
        "ntasks": 1,
        "cpus-per-task": job.cpus,
        "mem": f"{job.memory_gib}G",
        **({"gpus": job.gpus} if job.gpus else {}),
        "time": f"{hours:02}:{rest // 60:02}:{rest % 60:02}",
        **({"partition": job.queue} if job.queue else {}),
        "open-mode": "append",
        "signal": f"B:TERM@{GRACE_SECONDS}",
    }
    lines = ["#!/bin/bash", *(f"#SBATCH --{name}={value}" for name, value in options.items()), "#SBATCH --requeue"]
    if job.gpus:
        lines.append(f"# The card needs {job.gpu_memory_gib:.1f} GiB: if cards differ, --gpus=KIND:{job.gpus}.")
    lines += ["set -euo pipefail", *(f"export {name}={shlex.quote(value)}" for name, value in job.environment.items())]
    # In place of the shell, so that the signals reach it.
    lines.append(f"exec {shlex.join([program, *job.arguments])}")
    return "\n".join(lines) + "\n"


def as_yaml(manifests: Sequence[Mapping[str, Any]]) -> str:
    """One YAML file with a document for each manifest."""
    yaml = YAML()
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    text = io.StringIO()
    yaml.dump_all(manifests, text)
    return text.getvalue()


def _metadata(job: ClusterJob) -> dict[str, Any]:
    return {"name": job.name, "labels": _labels(job)}


def _labels(job: ClusterJob) -> dict[str, str]:
    return {"app.kubernetes.io/name": "ec1", "app.kubernetes.io/component": "training"}


def _environment(job: ClusterJob) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in {**job.environment, "EC1_HOME": HOME}.items()]


def _mounts() -> list[dict[str, str]]:
    return [{"name": "home", "mountPath": HOME}, {"name": "shared-memory", "mountPath": "/dev/shm"}]


def _resources(job: ClusterJob) -> dict[str, dict[str, str]]:
    limits = {"memory": f"{job.memory_gib}Gi"}
    if job.gpus:
        limits["nvidia.com/gpu"] = str(job.gpus)
    return {"requests": {"cpu": str(job.cpus), "memory": limits["memory"]}, "limits": limits}


def _container(job: ClusterJob, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": job.image,
        "command": [PROGRAM],
        "args": list(job.arguments),
        "env": _environment(job),
        "resources": _resources(job),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": _mounts(),
    }


def _pod(job: ClusterJob, container: dict[str, Any]) -> dict[str, Any]:
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER, "fsGroup": USER},
        "containers": [container],
        "volumes": [
            {"name": "home", "persistentVolumeClaim": {"claimName": job.claim}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "4Gi"}},
        ],
    }
    if job.gpus:
        needed = {"key": _CARD_MEMORY, "operator": "Gt", "values": [str(math.ceil(job.gpu_memory_gib * 1024))]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [needed]}]}
        pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return pod
