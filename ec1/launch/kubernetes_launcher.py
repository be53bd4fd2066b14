"""`launcher: kubernetes`: a Job for each training or evaluation, by the cluster's HTTP API.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/ and
https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/. Belongs here: the Job, and what its conditions
and its pod's mean. Does not: when one is started (`job_launcher.py`).
"""

import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, JsonValue

from ec1.errors import InputError, ServiceError, one_line
from ec1.launch.job_launcher import LEAVE_SECONDS, JobState, launcher_of, patiently
from ec1.launch.launcher import DeviceWork, Launcher, Place
from ec1.settings import HttpAddress, Name, Settings
from ec1.storage.loopback import checked_loopback

if TYPE_CHECKING:
    import httpx

_IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_WORKER = "worker"
_NEVER = ("CreateContainerConfigError", "ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName")
"""Why a container waits that no further waiting helps; a kubelet says the second of the pull errors after two tries."""
_TAIL_LINES = 30
_REFUSED = (400, 401, 403, 404, 413, 422)


class KubernetesLauncherSettings(Settings):
    """`kind: kubernetes`: a Job for each piece of work, whose worker finds the order in the deployment's store."""

    kind: Literal["kubernetes"] = Field("kubernetes", description="chooses this section")
    server: HttpAddress = Field(
        "https://kubernetes.default.svc",
        description="of the cluster's API, as a pod reaches it; from elsewhere `kubectl proxy`, http://127.0.0.1:8001",
    )
    token_file: Path = Field(_IN_CLUSTER / "token", description="the service account's token; read for each call")
    ca_file: Path = Field(_IN_CLUSTER / "ca.crt", description="who signs the server's certificate")
    namespace: str = Field("default", pattern="^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", description="of the Jobs")
    image: str = Field(description="of deploy/Dockerfile, with a deployment of the same store in its configs/")
    command: tuple[str, ...] = Field(("/srv/ec1/checkout/.venv/bin/ec1",), description="`ec1` in the image")
    home: str = Field("/srv/ec1/home", pattern="^/", description="its home there; a volume `home` of `pod` outlives it")
    deployment: Name | None = Field(None, description="the pods' deployment; default: of the same name as this one")
    cpus: float = Field(4, gt=0, description="CPUs that a pod asks for; typically 2–16")
    memory: str = Field("20Gi", description="of a pod, such as 20Gi: the base model's files and 6 GiB for each card")
    labels: dict[str, str] = Field(
        {}, description="of Jobs and pods, such as `kueue.x-k8s.io/queue-name: ec1` where Kueue admits them"
    )
    pod: dict[str, JsonValue] = Field(
        {},
        description="what a pod's spec has beside ours, in Kubernetes' words: serviceAccountName, tolerations, "
        "nodeSelector, imagePullSecrets, volumes",
    )
    container: dict[str, JsonValue] = Field(
        {}, description="what its container has beside ours: env, envFrom, volumeMounts, resources"
    )
    retries: int = Field(3, ge=0, le=100, description="how often a pod that failed is started again; typically 1–5")
    deadline_seconds: int = Field(
        36000, gt=0, description="so long after it was asked for the cluster ends a Job, all its tries together"
    )
    keep_seconds: int = Field(86400, ge=0, description="so long an ended Job and its log are kept there")
    wait_seconds: float = Field(14400, gt=0, description="how long a Job may wait for a node")
    follow_seconds: float = Field(5, gt=0, description="seconds between two looks at how far it is")

    def open(self, place: Place) -> Launcher:
        wait, follow = self.wait_seconds, self.follow_seconds
        return launcher_of(KubernetesJobs(self), place, self.deployment, self.home, wait, follow)


class KubernetesJobs:
    """The Jobs of a namespace (`ec1.launch.job_launcher.Jobs`)."""

    def __init__(self, settings: KubernetesLauncherSettings) -> None:
        self._settings = settings

    def submit(self, name: str, arguments: Sequence[str], work: DeviceWork) -> None:
        answer = self._call("POST", self._jobs, json=job_manifest(self._settings, name, arguments, work))
        if answer.status_code != 409:
            self._checked(answer)

    def look(self, name: str) -> JobState | None:
        answer = self._call("GET", f"{self._jobs}/{name}")
        if answer.status_code == 404:
            return None
        job = self._checked(answer)
        if "deletionTimestamp" in job["metadata"]:
            return JobState(True, "it is being removed")
        status = job.get("status", {})
        for each in status.get("conditions", []):
            if each["type"] in ("Complete", "Failed") and each["status"] == "True":
                return JobState(True, f"{each.get('reason', each['type'])}: {each.get('message', '')}".rstrip(": "))
        if job["spec"].get("suspend"):
            return JobState(False, "it is suspended until its queue admits it")
        pods = self._pods(name)
        return JobState(False, _waits_for(pods[-1], name) if pods else "it has no pod yet")

    def remove(self, name: str) -> None:
        # Foreground: the Job is gone when its pods are.
        how = {"propagationPolicy": "Foreground"}

        def gone() -> bool:
            answer = self._call("DELETE", f"{self._jobs}/{name}", params=how)
            if answer.status_code == 404:
                return True
            self._checked(answer)
            return False

        patiently(gone, LEAVE_SECONDS + 30)

    def tail(self, name: str) -> str:
        pods = self._pods(name)
        if not pods:
            return "no pod of it is left"
        pod = pods[-1]["metadata"]["name"]
        asked = {"container": _WORKER, "tailLines": _TAIL_LINES}
        answer = self._call("GET", f"{self._core}/pods/{pod}/log", params=asked)
        return f"the end of pod {pod}:\n{answer.text}" if answer.is_success else f"pod {pod} has no log"

    @property
    def _jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self._settings.namespace}/jobs"

    @property
    def _core(self) -> str:
        return f"/api/v1/namespaces/{self._settings.namespace}"

    def _pods(self, name: str) -> list[dict[str, Any]]:
        """The Job's pods, the newest last."""
        asked = {"labelSelector": f"batch.kubernetes.io/job-name={name}"}
        found = self._checked(self._call("GET", f"{self._core}/pods", params=asked))["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"].get("creationTimestamp")))

    def _call(self, method: str, path: str, **options: Any) -> "httpx.Response":
        """One call. Raises ServiceError if nothing answers, InputError without a token."""
        import httpx

        server, headers, verify = self._settings.server, {}, None
        if server.startswith("https:"):
            try:
                headers = {"Authorization": f"Bearer {self._settings.token_file.read_text(encoding='utf-8').strip()}"}
                verify = ssl.create_default_context(cafile=self._settings.ca_file)
            except OSError as error:
                raise InputError(
                    f"launcher kubernetes: {error.filename or self._settings.ca_file}: {error.strerror}: set "
                    "token_file and ca_file, or server to `kubectl proxy`"
                ) from None
        else:
            checked_loopback(server)
        try:
            with httpx.Client(base_url=server, headers=headers, verify=verify or True, trust_env=False) as http:
                return http.request(method, path, timeout=30, **options)
        except httpx.HTTPError as error:
            raise ServiceError(f"{server} does not answer: {type(error).__name__}: {error}") from None

    def _checked(self, answer: "httpx.Response") -> dict[str, Any]:
        """What was answered. Raises InputError for what is refused for good, else ServiceError."""
        try:
            said = answer.json()
        except ValueError:
            said = None
        if answer.is_success and isinstance(said, dict):
            return said
        message = said.get("message", "") if isinstance(said, dict) else ""
        where = f"{self._settings.server} answers {answer.status_code}: {one_line(message)}"
        raise (InputError if answer.status_code in _REFUSED else ServiceError)(where)


def job_manifest(
    settings: KubernetesLauncherSettings, name: str, arguments: Sequence[str], work: DeviceWork
) -> dict[str, Any]:
    """The Job: restricted as Pod Security Standards' `restricted` wants it, with the settings' own words on top."""
    cards = {"nvidia.com/gpu": str(work.processes)} if work.device == "cuda" else {}
    container = {
        "name": _WORKER,
        "image": settings.image,
        "command": list(settings.command),
        "args": list(arguments),
        "resources": {
            "requests": {"cpu": f"{settings.cpus:g}", "memory": settings.memory},
            "limits": {"memory": settings.memory, **cards},
        },
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "home", "mountPath": settings.home}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": LEAVE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_with(container, settings.container)],
        "volumes": [
            {"name": "home", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "4Gi"}},
        ],
    }
    labels = {"app.kubernetes.io/name": "ec1", "app.kubernetes.io/component": "training", **settings.labels}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": settings.retries,
            "activeDeadlineSeconds": settings.deadline_seconds,
            "ttlSecondsAfterFinished": settings.keep_seconds,
            # A pod whose node is taken away says nothing against the work: the deadline bounds those.
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "template": {"metadata": {"labels": labels}, "spec": _with(pod, settings.pod)},
        },
    }


def _with(ours: Any, theirs: Any) -> Any:
    """`ours` with `theirs` on top: mappings key by key, lists of named things by their names."""
    if isinstance(ours, dict) and isinstance(theirs, Mapping):
        return {**ours, **{key: _with(ours.get(key), value) for key, value in theirs.items()}}
    if isinstance(ours, list) and isinstance(theirs, list) and all("name" in each for each in [*ours, *theirs]):
        named = {each["name"]: each for each in theirs}
        return [named.pop(each["name"], each) for each in ours] + list(named.values())
    return theirs


def _waits_for(pod: Mapping[str, Any], name: str) -> str:
    """What a pod does or waits for, in words. Raises InputError for one that can never begin."""
    status = pod.get("status", {})
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting")
        if waiting is not None and waiting.get("reason") in _NEVER:
            raise InputError(f"{name} cannot begin: {waiting['reason']}: {waiting.get('message', '')[:300]}")
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "no node takes it")
    return f"its pod is {str(status.get('phase', 'unknown')).lower()}"
