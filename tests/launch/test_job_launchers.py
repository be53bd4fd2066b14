"""`launcher: kubernetes` and `slurm`: one job for each piece of work, against an API server and a queue that are fakes;
jobs, workers and stores are real."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fake_slurm
import kubernetes_validate
import pytest
from fake_kubernetes import FakeKubernetes, fake_kubernetes
from patience import until
from pydantic import ValidationError
from worker_parts import HERE, light_work, markers_of

from ec1.errors import BusyError, InputError, PermanentError, ServiceError
from ec1.launch.job_launcher import JobLauncher, Jobs
from ec1.launch.kubernetes_launcher import KubernetesJobs, KubernetesLauncherSettings, job_manifest
from ec1.launch.launcher import DeviceWork
from ec1.launch.slurm_launcher import SlurmJobs, SlurmLauncherSettings
from ec1.storage.directory import DirectoryStore

pytestmark = pytest.mark.slow
EXPIRE = 3.0


def worker_in(folder: Path) -> list[str]:
    parts = [sys.executable, HERE / "worker_parts.py", folder / "store", folder / "there", "job", EXPIRE, 0.2]
    return [str(each) for each in parts]


def kubernetes_jobs(folder: Path, url: str, **settings: Any) -> KubernetesJobs:
    given = {"image": "registry.example/ec1:1", "command": worker_in(folder), "namespace": "trainings", "retries": 1}
    return KubernetesJobs(KubernetesLauncherSettings(server=url, **{**given, **settings}))


def slurm_jobs(folder: Path, env: dict[str, str], *options: str) -> SlurmJobs:
    script = folder / "ec1"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(worker_in(folder))} "$@"\n')
    script.chmod(0o755)
    settings = SlurmLauncherSettings(ec1=str(script), folder=folder / "slurm-shared", options=options)
    return SlurmJobs(settings, env=env)


def launcher_to(jobs: Jobs, folder: Path, wait_seconds: float = 60) -> JobLauncher:
    markers = markers_of(DirectoryStore(folder / "store"), EXPIRE)  # type: ignore[arg-type]
    return JobLauncher(
        jobs, markers, "cluster", ["--home", "/x"], wait_seconds=wait_seconds, follow_seconds=0.1, look_seconds=0.3
    )


@dataclass
class Cluster:
    """What both kinds are asked in these tests."""

    jobs: Jobs
    again: list[str]
    """How another process reaches it."""
    started: Callable[[], int]
    waiting: Callable[[], int]
    kill_job: Callable[[], None]
    fill: Callable[[], None]
    away: Callable[[bool], None]
    why_full: str


@pytest.fixture(params=["kubernetes", "slurm"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if request.param == "kubernetes":
        with fake_kubernetes(tmp_path) as fake:
            yield _kubernetes(fake, tmp_path)
        return
    folder = tmp_path / "slurm"
    env = fake_slurm.install(folder)

    def kill() -> None:
        (job,) = fake_slurm.jobs(folder)
        os.killpg(job.told["pid"], signal.SIGKILL)

    def away(gone: bool) -> None:
        (folder / "away").touch() if gone else (folder / "away").unlink()

    yield Cluster(
        slurm_jobs(tmp_path, env),
        ["slurm", str(folder / "bin")],
        lambda: len(fake_slurm.jobs(folder)),
        lambda: sum(job.state == "PENDING" for job in fake_slurm.jobs(folder)),
        kill,
        (folder / "full").touch,
        away,
        "Resources",
    )
    for job in fake_slurm.jobs(folder):
        if job.state == "RUNNING":
            os.killpg(job.told["pid"], signal.SIGKILL)


def _kubernetes(fake: FakeKubernetes, folder: Path) -> Cluster:
    def away(gone: bool) -> None:
        fake.silent = gone

    return Cluster(
        kubernetes_jobs(folder, fake.url),
        ["kubernetes", fake.url],
        lambda: fake.posted,
        lambda: len(fake.jobs),
        lambda: fake.kill_pod(next(iter(fake.jobs))),
        lambda: setattr(fake, "cards", 0),
        away,
        "Insufficient nvidia.com/gpu",
    )


def steps(folder: Path) -> list[str]:
    """Of the attempts that are going on or are done, where the worker works."""
    found = list((folder / "there").rglob("steps.txt"))
    return found[0].read_text().split() if found else []


def asked_by_another(cluster: Cluster, folder: Path, **settings: Any) -> "subprocess.Popen[str]":
    """A night in a process of its own that can be killed."""
    command = [sys.executable, str(Path(__file__)), str(folder), json.dumps(settings), *cluster.again]
    environment = {**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parent}"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def check_done(work: DeviceWork, count: int) -> None:
    assert (work.output / "steps.txt").read_text().split() == [str(step) for step in range(count)], "each step once"
    assert json.loads((work.output / "summary.json").read_text())["n"] == 0


def test_a_job_does_it_and_its_result_and_log_come_back(cluster: Cluster, tmp_path: Path) -> None:
    work = light_work(tmp_path / "night")
    taken = launcher_to(cluster.jobs, tmp_path).run(work, {}, tmp_path / "log.txt")
    check_done(work, 3)
    assert taken is not None and taken > 0
    assert (tmp_path / "log.txt").read_text().count('"step 0"') == 1, "what it prints is in the log here"
    assert cluster.started() == 1


def test_a_night_that_is_killed_finds_its_job_again(cluster: Cluster, tmp_path: Path) -> None:
    work = light_work(tmp_path / "night", steps=40, seconds=0.1)
    night = asked_by_another(cluster, tmp_path, steps=40, seconds=0.1)
    until(lambda: len(steps(tmp_path)) > 3)
    night.kill()
    night.wait()
    launcher_to(cluster.jobs, tmp_path).run(work, {}, tmp_path / "log.txt")
    check_done(work, 40)
    assert cluster.started() == 1, "the job that runs is followed"


def test_a_night_that_is_ended_ends_its_job(cluster: Cluster, tmp_path: Path) -> None:
    night = asked_by_another(cluster, tmp_path, steps=600, seconds=0.1)
    until(lambda: len(steps(tmp_path)) > 3)
    night.send_signal(signal.SIGINT)
    night.wait(60)
    done = len(steps(tmp_path))
    time.sleep(1)
    assert len(steps(tmp_path)) == done < 600, "nobody works on it any more"
    assert not markers_of(DirectoryStore(tmp_path / "store"), EXPIRE).pending()


def test_a_job_whose_process_is_killed_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    """Kubernetes starts another pod; a job of Slurm that was killed has ended, and the next try goes on."""
    work = light_work(tmp_path / "night", steps=30, seconds=0.1)
    launcher = launcher_to(cluster.jobs, tmp_path)
    with ThreadPoolExecutor(1) as pool:
        night = pool.submit(launcher.run, work, {}, tmp_path / "log.txt")
        until(lambda: len(steps(tmp_path)) > 3)
        cluster.kill_job()
        if isinstance(cluster.jobs, SlurmJobs):
            with pytest.raises(ServiceError, match=r"ended \(node_fail\) without a result and can go on"):
                night.result(60)
            launcher.run(work, {}, tmp_path / "log.txt")
        else:
            night.result(60)
    check_done(work, 30)


def test_work_that_fails_says_why_and_is_not_tried_again(cluster: Cluster, tmp_path: Path) -> None:
    work = light_work(tmp_path / "night", fail="the loss is not a number")
    with pytest.raises(PermanentError, match="the loss is not a number"):
        launcher_to(cluster.jobs, tmp_path).run(work, {}, tmp_path / "log.txt")
    assert cluster.started() == 1


def test_no_room_ends_the_wait_with_the_schedulers_words(cluster: Cluster, tmp_path: Path) -> None:
    cluster.fill()
    work = light_work(tmp_path / "night")
    work = DeviceWork(**{**vars(work), "device": "cuda"})
    with pytest.raises(BusyError, match=cluster.why_full):
        launcher_to(cluster.jobs, tmp_path, wait_seconds=3).run(work, {}, tmp_path / "log.txt")
    assert (cluster.started(), cluster.waiting()) == (1, 0), "it does not begin later, when nobody waits for it"
    assert not markers_of(DirectoryStore(tmp_path / "store")).pending()


def test_a_scheduler_that_is_away_for_a_while_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    cluster.away(True)
    work = light_work(tmp_path / "night")
    with ThreadPoolExecutor(1) as pool:
        night = pool.submit(launcher_to(cluster.jobs, tmp_path).run, work, {}, tmp_path / "log.txt")
        time.sleep(1.5)
        assert cluster.started() == 0 and not night.done()
        cluster.away(False)
        night.result(60)
    check_done(work, 3)
    assert cluster.started() == 1


def test_what_a_cluster_refuses_for_good_is_said_at_once(tmp_path: Path) -> None:
    work = light_work(tmp_path / "night")
    with fake_kubernetes(tmp_path) as fake:
        wrong = kubernetes_jobs(tmp_path, fake.url, pod={"volumes": [{"name": "home", "claim": "x"}]})
        with pytest.raises(InputError, match="answers 422: Job is invalid"):
            launcher_to(wrong, tmp_path).run(work, {}, tmp_path / "log.txt")
        elsewhere = kubernetes_jobs(tmp_path, fake.url, namespace="nobodys")
        with pytest.raises(InputError, match="answers 404"):
            launcher_to(elsewhere, tmp_path).run(work, {}, tmp_path / "log.txt")
        fake.broken_image = "manifest unknown"
        with pytest.raises(InputError, match="ImagePullBackOff: manifest unknown"):
            launcher_to(kubernetes_jobs(tmp_path, fake.url), tmp_path).run(work, {}, tmp_path / "log.txt")
        assert not fake.jobs, "a Job that can never begin is not left there"
    with pytest.raises(InputError, match="token_file and ca_file"):
        KubernetesJobs(KubernetesLauncherSettings(image="x", token_file=tmp_path / "none")).look("x")
    with pytest.raises(InputError, match="not on this machine"):
        kubernetes_jobs(tmp_path, "http://10.0.0.1:8001").look("x")
    slurm = slurm_jobs(tmp_path, fake_slurm.install(tmp_path / "slurm"), "--partition=none")
    with pytest.raises(InputError, match="invalid partition specified: none"):
        launcher_to(slurm, tmp_path).run(work, {}, tmp_path / "log.txt")
    with pytest.raises(InputError, match="sbatch is not installed here"):
        slurm_jobs(tmp_path, {"PATH": "/nowhere"}).submit("x", [], work)


def test_the_job_is_restricted_and_takes_the_deployments_own_words(tmp_path: Path) -> None:
    settings = KubernetesLauncherSettings(
        image="registry.example/ec1:1",
        labels={"kueue.x-k8s.io/queue-name": "nights"},
        pod={
            "serviceAccountName": "ec1-trainer",
            "imagePullSecrets": [{"name": "registry"}],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "ec1-home"}}],
        },
        container={"envFrom": [{"secretRef": {"name": "store"}}], "resources": {"limits": {"memory": "30Gi"}}},
    )
    work = DeviceWork(**{**vars(light_work(tmp_path)), "device": "cuda", "processes": 8})
    job = job_manifest(settings, "ec1-cluster-1", ["worker", "--marker", "x"], work)
    kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"memory": "30Gi", "nvidia.com/gpu": "8"}
    assert [volume["name"] for volume in pod["volumes"]] == ["home", "shm"]
    assert pod["volumes"][0] == {"name": "home", "persistentVolumeClaim": {"claimName": "ec1-home"}}
    assert (pod["serviceAccountName"], pod["securityContext"]["runAsNonRoot"]) == ("ec1-trainer", True)
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "nights"
    assert job["spec"]["activeDeadlineSeconds"] == 36000, "all tries together"
    with pytest.raises(ValidationError):
        KubernetesLauncherSettings(image="x", namespace="Not A Name")


def main(folder: Path, settings: str, kind: str, where: str) -> None:
    """A night that asks for the light work, to be killed."""
    env = {**os.environ, "PATH": f"{where}:{os.environ['PATH']}"}
    jobs: Jobs = kubernetes_jobs(folder, where) if kind == "kubernetes" else slurm_jobs(folder, env)
    work = light_work(folder / "night", **json.loads(settings))
    launcher_to(jobs, folder).run(work, {}, folder / "first.txt")


if __name__ == "__main__":
    # A shell that starts the tests in the background lets them ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(Path(sys.argv[1]), *sys.argv[2:])
