"""A training as another scheduler's job: what is written, and that clusters take it."""

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from operator_schemas import operator_schema
from ruamel.yaml import YAML

from ec1.cli import app
from ec1.launch.launcher import GRACE_SECONDS
from ec1.launch.manifests import (
    CLUSTERS,
    PROGRAM,
    ClusterJob,
    as_yaml,
    job_name,
    ray_job,
    slurm_script,
    train_job,
    volcano_job,
)
from ec1.launch.manifests import GRACE_SECONDS as POD_GRACE_SECONDS

GOLDEN = Path(__file__).with_name("golden")
JOB = ClusterJob(
    name="ec1-acme-engineering",
    arguments=["train", "acme/engineering", "--hours", "6.00", "--confirm-cost", "4.20", "--json"],
    environment={"EC1_DEPLOYMENT": "cluster"},
    gpus=1,
    gpu_memory_gib=17.36,
    memory_gib=20,
    cpus=4,
    budget_seconds=21600,
    image="registry.example/ec1:0.1.0",
)


@pytest.mark.parametrize("cluster", [*CLUSTERS, "slurm"])
def test_what_is_written(cluster: str) -> None:
    """A change is seen in review: write the files again with `python tests/launch/test_manifests.py`."""
    assert written(cluster) == (GOLDEN / f"{cluster}.txt").read_text()


def written(cluster: str) -> str:
    return slurm_script(JOB, "/shared/ec1/bin/ec1") if cluster == "slurm" else as_yaml(CLUSTERS[cluster](JOB))


def pods(manifest: Any) -> list[dict[str, Any]]:
    """Every pod template inside a manifest."""
    if isinstance(manifest, list):
        return [pod for each in manifest for pod in pods(each)]
    if not isinstance(manifest, dict):
        return []
    own = manifest.get("template")
    if isinstance(own, dict) and "containers" in own.get("spec", {}):
        return [own]
    return [pod for value in manifest.values() for pod in pods(value)]


@pytest.mark.parametrize("gpus", [0, 1])
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_pods_fit_the_published_schema(cluster: str, gpus: int) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="run `make install`")
    (template,) = pods(CLUSTERS[cluster](dataclasses.replace(JOB, gpus=gpus)))
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", **template.get("metadata", {})}}
    pod["spec"] = template["spec"]
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    broken = {**pod, "spec": {**pod["spec"], "volumes": [{"name": "home", "claim": "ec1-home"}]}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, kubernetes_validate.latest_version(), strict=True)
    container = template["spec"]["containers"][0]
    asked = "nvidia.com/gpu" in json.dumps(CLUSTERS[cluster](dataclasses.replace(JOB, gpus=gpus)))
    assert asked == bool(gpus), "no card is asked for where none is used"
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in template["spec"]["volumes"]}
    assert template["spec"]["terminationGracePeriodSeconds"] == POD_GRACE_SECONDS > GRACE_SECONDS


def strict(schema: Any) -> Any:
    """A schema of the API as the server applies it: what it does not name is an error, not ignored."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        made.setdefault("additionalProperties", bool(schema.get("x-kubernetes-preserve-unknown-fields")))
    return made


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_operators_own_schemas_take_them(cluster: str) -> None:
    for manifest in YAML(typ="safe").load_all(written(cluster)):
        schema = strict(operator_schema(manifest["apiVersion"], manifest["kind"]))
        # The server itself checks what all objects have.
        schema["properties"]["metadata"] = {}
        jsonschema.validate(manifest, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**manifest, "spec": {**manifest["spec"], "retries": 3}}, schema)


def test_what_they_start_is_in_the_image(project: Path) -> None:
    dockerfile = (project / "deploy" / "Dockerfile").read_text()
    assert f'ENTRYPOINT ["{PROGRAM}"]' in dockerfile
    assert f"PATH={Path(PROGRAM).parent}:" in dockerfile, "KubeRay starts `ray` by its name"
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert JOB.arguments[0] in commands
    assert ray_job(JOB)[0]["spec"]["entrypoint"] == shlex.join([PROGRAM, *JOB.arguments])
    trainer = train_job(JOB)[0]["spec"]["trainer"]
    (container,) = pods(volcano_job(JOB))[0]["spec"]["containers"]
    for started in (trainer, container):
        assert [*started["command"], *started["args"]] == [PROGRAM, *JOB.arguments]


@pytest.mark.parametrize(
    ("tenant", "role"), [("acme", "engineering"), ("a" * 64, "b" * 64), ("a" * 30 + "-b", "c"), ("x", "y" * 63 + "z")]
)
def test_names_are_taken_everywhere(tenant: str, role: str) -> None:
    name = job_name(tenant, role)
    assert len(name) <= 40 and name.isascii() and name == name.lower() and name[-1].isalnum()
    assert name != job_name(tenant, f"{role[:-1]}9")


if __name__ == "__main__":
    for each in (*CLUSTERS, "slurm"):
        (GOLDEN / f"{each}.txt").write_text(written(each))
