"""A small cluster: the API of Jobs and pods over real HTTP, pods that are real processes, and as many cards as it has.

What it takes is checked against Kubernetes' own schemas, strictly, as the server does. A pod is the container's command
on this machine; the cluster starts another one where it was killed, up to the Job's `backoffLimit`.
"""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate
from loopback_server import send, serving


@dataclass
class Pod:
    name: str
    process: subprocess.Popen[bytes] | None
    log: Path

    @property
    def code(self) -> int | None:
        return None if self.process is None else self.process.poll()


@dataclass
class Job:
    manifest: dict[str, Any]
    pods: list[Pod] = field(default_factory=list)
    deleted: bool = False

    def living(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.process is not None and pod.code is None]


class FakeKubernetes:
    """`cards`: what a pod may ask for; `broken_image`: why no image can be pulled; `silent`: it answers 503."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.cards = 1
        self.broken_image = ""
        self.silent = False
        self.jobs: dict[str, Job] = {}
        self.posted = 0
        self._lock = threading.Lock()

    def kill_pod(self, name: str) -> None:
        """As the kernel does for want of memory: the container and all that runs in it."""
        for pod in self.jobs[name].living():
            assert pod.process is not None
            os.killpg(pod.process.pid, signal.SIGKILL)
            pod.process.wait()

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, Any]:
        with self._lock:
            if self.silent:
                return 503, _status(503, "the server is currently unable to handle the request")
            match path.strip("/").split("/"):
                case ["apis", "batch", "v1", "namespaces", "trainings", "jobs"] if method == "POST":
                    return self._create(json.loads(body))
                case ["apis", "batch", "v1", "namespaces", "trainings", "jobs", name]:
                    return self._job(method, name)
                case ["api", "v1", "namespaces", "trainings", "pods"]:
                    label, _, name = query["labelSelector"][0].partition("=")
                    assert label == "batch.kubernetes.io/job-name"
                    job = self.jobs.get(name)
                    return 200, {"items": [self._pod(job, pod) for pod in job.pods] if job else []}
                case ["api", "v1", "namespaces", "trainings", "pods", name, "log"]:
                    pod = next(pod for job in self.jobs.values() for pod in job.pods if pod.name == name)
                    return 200, pod.log.read_bytes() if pod.log.exists() else b""
        return 404, _status(404, f"{path} not found")

    def _create(self, manifest: dict[str, Any]) -> tuple[int, Any]:
        try:
            kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
        except kubernetes_validate.ValidationError as error:
            return 422, _status(422, f"Job is invalid: {error.message}")
        name = manifest["metadata"]["name"]
        if name in self.jobs:
            return 409, _status(409, f'jobs.batch "{name}" already exists')
        self.posted += 1
        self.jobs[name] = job = Job(manifest)
        self._start(job)
        return 201, manifest

    def _start(self, job: Job) -> None:
        name = f"{job.manifest['metadata']['name']}-{len(job.pods)}"
        log = self.folder / f"{name}.log"
        container = job.manifest["spec"]["template"]["spec"]["containers"][0]
        wanted = int(container["resources"]["limits"].get("nvidia.com/gpu", 0))
        if self.broken_image or wanted > self.cards:
            job.pods.append(Pod(name, None, log))
            return
        with log.open("wb") as output:
            command = [*container["command"], *container["args"]]
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        job.pods.append(Pod(name, process, log))

    def _job(self, method: str, name: str) -> tuple[int, Any]:
        job = self.jobs.get(name)
        if job is None:
            return 404, _status(404, f'jobs.batch "{name}" not found')
        if method == "DELETE" and not job.deleted:
            job.deleted = True
            for pod in job.living():
                assert pod.process is not None
                # Kubernetes signals the container's first process alone.
                pod.process.terminate()
        if job.deleted and not job.living():
            del self.jobs[name]
            return (200, job.manifest) if method == "DELETE" else (404, _status(404, "not found"))
        failed = [pod for pod in job.pods if pod.code not in (None, 0)]
        conditions = []
        if any(pod.code == 0 for pod in job.pods):
            conditions = [{"type": "Complete", "status": "True", "reason": "CompletionsReached", "message": ""}]
        elif len(failed) > job.manifest["spec"]["backoffLimit"]:
            why = "Job has reached the specified backoff limit"
            conditions = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": why}]
        elif failed and len(failed) == len(job.pods) and not job.deleted:
            self._start(job)
        deletion = {"deletionTimestamp": "2026-06-09T00:00:00Z"} if job.deleted else {}
        metadata = {**job.manifest["metadata"], **deletion}
        return 200, {**job.manifest, "metadata": metadata, "status": {"conditions": conditions}}

    def _pod(self, job: Job, pod: Pod) -> dict[str, Any]:
        metadata = {"name": pod.name, "creationTimestamp": f"2026-06-09T00:00:{job.pods.index(pod):02}Z"}
        if pod.process is not None:
            phase = {None: "Running", 0: "Succeeded"}.get(pod.code, "Failed")
            return {"metadata": metadata, "status": {"phase": phase}}
        status: dict[str, Any] = {"phase": "Pending"}
        if self.broken_image:
            waiting = {"reason": "ImagePullBackOff", "message": self.broken_image}
            status["containerStatuses"] = [{"name": "worker", "state": {"waiting": waiting}}]
        else:
            message = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
            status["conditions"] = [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            ]
        return {"metadata": metadata, "status": status}

    def end(self) -> None:
        for job in self.jobs.values():
            for pod in job.living():
                assert pod.process is not None
                os.killpg(pod.process.pid, signal.SIGKILL)
                pod.process.wait()


@contextmanager
def fake_kubernetes(folder: Path) -> Iterator[FakeKubernetes]:
    """The cluster, whose API server answers until the block ends; its namespace is `trainings`."""
    cluster = FakeKubernetes(folder)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, said = cluster.answer(self.command, parts.path, parse_qs(parts.query), body)
            send(self, status, said if isinstance(said, bytes) else json.dumps(said).encode(), None)

        do_GET = do_POST = do_DELETE = _answer

        def log_message(self, *arguments: object) -> None:
            pass

    with serving(Handler) as cluster.url:
        try:
            yield cluster
        finally:
            cluster.end()


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
