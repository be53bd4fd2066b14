"""The templates of a training as another scheduler's job: filled as a user fills them, and what clusters take."""

import shlex
import shutil
import string
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer.main
from operator_schemas import operator_schema
from ruamel.yaml import YAML

from ec1.cli import app
from ec1.launch.launcher import GRACE_SECONDS

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / "deploy" / "kubernetes"
TEMPLATES = ("rayjob", "trainjob", "volcano")
PROGRAM = "/srv/ec1/checkout/.venv/bin/ec1"
ARGUMENTS = ["train", "acme/engineering", "--hours", "6", "--confirm-cost", "4.20", "--json"]


def sourced(command: str) -> str:
    """The output of a command in the environment that training.env makes."""
    script = f"set -euaf; . {shlex.quote(str(FOLDER / 'training.env'))}; {command}"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout


def filled(template: str) -> str:
    """A template with the values of training.env. Raises KeyError for one that is not in it."""
    values = dict(line.split("=", 1) for line in sourced("env -0").split("\0") if line)
    return string.Template((FOLDER / f"{template}.yaml").read_text()).substitute(values)


def objects(template: str) -> list[dict[str, Any]]:
    return list(YAML(typ="safe").load_all(filled(template)))


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


@pytest.mark.skipif(shutil.which("envsubst") is None, reason="needs envsubst: apt-get install gettext-base")
def test_envsubst_fills_them_as_the_guide_says() -> None:
    for template in TEMPLATES:
        assert sourced(f"envsubst < {shlex.quote(str(FOLDER / f'{template}.yaml'))}") == filled(template)


@pytest.mark.parametrize("template", TEMPLATES)
def test_pods_fit_the_published_schema(template: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="run `make install`")
    (found,) = pods(objects(template))
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", **found.get("metadata", {})}}
    pod["spec"] = found["spec"]
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    broken = {**pod, "spec": {**pod["spec"], "volumes": [{"name": "home", "claim": "ec1-home"}]}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, kubernetes_validate.latest_version(), strict=True)
    mounted = {mount["name"] for mount in found["spec"]["containers"][0]["volumeMounts"]}
    assert mounted == {volume["name"] for volume in found["spec"]["volumes"]}
    assert found["spec"]["terminationGracePeriodSeconds"] > GRACE_SECONDS, "time for a checkpoint"


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_operators_own_schemas_take_them(template: str) -> None:
    for manifest in objects(template):
        schema = strict(operator_schema(manifest["apiVersion"], manifest["kind"]))
        # The server itself checks what all objects have.
        schema["properties"]["metadata"] = {}
        jsonschema.validate(manifest, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**manifest, "spec": {**manifest["spec"], "retries": 3}}, schema)


def test_each_asks_for_a_card_that_is_large_enough_and_ends_after_its_budget() -> None:
    for template in TEMPLATES:
        text = filled(template)
        assert 'limits: {memory: "20Gi", nvidia.com/gpu: "1"}' in text, template
        assert 'key: nvidia.com/gpu.memory, operator: Gt, values: ["17777"]' in text, template
        assert f"activeDeadlineSeconds: {6 * 3600 + 900}\n" in text, template


def test_what_they_start_is_in_the_image() -> None:
    dockerfile = (PROJECT / "deploy" / "Dockerfile").read_text()
    assert f'ENTRYPOINT ["{PROGRAM}"]' in dockerfile
    assert f"PATH={Path(PROGRAM).parent}:" in dockerfile, "KubeRay starts `ray` by its name"
    assert shlex.split(objects("rayjob")[0]["spec"]["entrypoint"]) == [PROGRAM, *ARGUMENTS]
    trainer = objects("trainjob")[0]["spec"]["trainer"]
    (container,) = pods(objects("volcano"))[0]["spec"]["containers"]
    for started in (trainer, container):
        assert [*started["command"], *started["args"]] == [PROGRAM, *ARGUMENTS]


def test_the_command_line_takes_what_they_give_it() -> None:
    train = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    given = train.make_context("train", ARGUMENTS[1:]).params
    assert (given["recipe"], given["hours"], given["confirm_cost"]) == ("acme/engineering", 6, 4.2)
