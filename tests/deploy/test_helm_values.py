"""The values for Dagster's Helm chart, checked without a cluster and without the chart: its documented keys, pods that
Kubernetes accepts, and the instance that Dagster makes of them."""

import tomllib
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from ruamel.yaml import YAML

import jobs.pod
from jobs.queue import NightQueue

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="run `make install`")
# From the chart's own documentation; a key that it does not know is refused by Helm or, worse, ignored.
KEYS: dict[str, set[str]] = {
    "": {
        *("global", "postgresql", "dagsterWebserver", "dagster-user-deployments", "runLauncher", "dagsterDaemon"),
        *("additionalInstanceConfig", "telemetry"),
    },
    "postgresql": {"enabled", "postgresqlUsername", "postgresqlPassword", "postgresqlDatabase", "postgresqlHost"},
    "deployment": {
        *("name", "image", "dagsterApiGrpcArgs", "codeServerArgs", "includeConfigInLaunchedRuns", "port", "env"),
        *("envConfigMaps", "envSecrets", "nodeSelector", "affinity", "tolerations", "podSecurityContext", "resources"),
        *("securityContext", "volumeMounts", "volumes", "labels", "annotations", "initContainers"),
    },
    "k8sRunLauncher": {
        *("image", "imagePullPolicy", "jobNamespace", "loadInclusterConfig", "envConfigMaps", "envSecrets", "envVars"),
        *("volumeMounts", "volumes", "labels", "resources", "securityContext", "runK8sConfig", "failPodOnRunFailure"),
    },
    "runK8sConfig": {
        *("containerConfig", "podSpecConfig", "podTemplateSpecMetadata", "jobSpecConfig", "jobMetadata"),
    },
}


SHARED = ("concurrency", "run_coordinator", "python_logs")


@pytest.fixture(scope="module")
def values(project: Path) -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe", pure=True).load((project / "deploy/kubernetes/values.yaml").read_text())
    return found


def test_its_keys_are_those_of_the_chart(values: dict[str, Any]) -> None:
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    launcher = values["runLauncher"]["config"]["k8sRunLauncher"]
    parts = {"": values, "postgresql": values["postgresql"], "deployment": deployment, "k8sRunLauncher": launcher}
    parts["runK8sConfig"] = launcher["runK8sConfig"]
    for name, part in parts.items():
        assert set(part) <= KEYS[name], name


def test_a_nights_pod_is_what_kubernetes_accepts(values: dict[str, Any]) -> None:
    """Put together as the launcher does: the code server's volumes and variables, and what is there for runs."""
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    config = values["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]
    container, spec = config["containerConfig"], config["podSpecConfig"]
    image = f"{deployment['image']['repository']}:{deployment['image']['tag']}"
    mounts = [*deployment["volumeMounts"], *container["volumeMounts"]]
    made = {**container, "name": "dagster", "image": image, "env": deployment["env"], "volumeMounts": mounts}
    volumes = [*deployment["volumes"], *spec["volumes"]]
    pod = {**spec, "containers": [made], "volumes": volumes, "restartPolicy": "Never"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "night"},
        "spec": {**config["jobSpecConfig"], "template": {"spec": pod}},
    }
    kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)
    assert {each["name"] for each in mounts} == {each["name"] for each in volumes}
    assert container["command"][1:] == ["-m", jobs.pod.__name__]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    # One node has the volume.
    assert spec["nodeSelector"] == deployment["nodeSelector"] and "nvidia.com/gpu" not in str(deployment["resources"])


def test_dagster_takes_the_instance(values: dict[str, Any], tmp_path: Path, project: Path) -> None:
    """The parts that the chart writes into its dagster.yaml, and that the server's own configuration says alike."""
    monitoring = values["dagsterDaemon"]["runMonitoring"]
    assert not values["dagsterDaemon"]["runCoordinator"]["enabled"]
    written = {
        "run_monitoring": {_snake(key): value for key, value in monitoring.items()},
        "run_retries": values["dagsterDaemon"]["runRetries"],
        "telemetry": values["telemetry"],
        **values["additionalInstanceConfig"],
    }
    with (tmp_path / "dagster.yaml").open("w") as stream:
        YAML(typ="safe", pure=True).dump(written, stream)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.get_settings("telemetry") == {"enabled": False}
        assert isinstance(instance.run_coordinator, NightQueue)
    server = YAML(typ="safe", pure=True).load((project / "configs" / "dagster-postgres.yaml").read_text())
    assert {key: written[key] for key in SHARED} == {key: server[key] for key in SHARED}
    # Who puts runs into the queue has its code.
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    assert values["dagsterWebserver"]["image"] == values["dagsterDaemon"]["image"] == deployment["image"]


def test_it_names_the_dagster_that_is_pinned(project: Path) -> None:
    pinned = {}
    for line in tomllib.loads((project / "pyproject.toml").read_text())["project"]["dependencies"]:
        name, _, version = line.partition("~=")
        pinned[name] = version
    assert f"'dagster-k8s~={pinned['dagster-postgres']}'" in (project / "deploy/kubernetes/Dockerfile").read_text()
    assert f"--version {pinned['dagster']} " in (project / "deploy/kubernetes/values.yaml").read_text()


def _snake(key: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in key)
