"""The Terraform module of docs/gce.md, held against the provider's own schema: Terraform itself is not at hand here."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hcl2
import pytest
from hcl2 import SerializationOptions

from ec1.deployment import load_deployment
from ec1.machines.compute import ComputeClient
from ec1.machines.settings import GceSettings
from ec1.storage.settings import GcsStoreSettings
from ec1.strict_yaml import parse_mapping

MODULE = Path(__file__).resolve().parents[2] / "deploy" / "gce" / "terraform"
# How it came to be stands in the file. `!` behind a name: it is required.
PROVIDER = json.loads(Path(__file__).with_name("google-provider.json").read_text())
# https://developer.hashicorp.com/terraform/language/meta-arguments
META = {"count": "number", "depends_on": "list", "for_each": "list", "provider": "string"}
LIFECYCLE = {"create_before_destroy": "bool", "prevent_destroy": "bool", "ignore_changes": "list"}
KINDS = {"string": str, "number": int | float, "bool": bool, "list": list, "map": dict}
REFERENCE = re.compile(r"\b(var|local|data|google_\w+|each)((?:\.\w+)+)")


def parsed(text: str) -> dict[str, Any]:
    found: dict[str, Any] = hcl2.loads(
        text, serialization_options=SerializationOptions(strip_string_quotes=True, with_comments=False)
    )
    return found


def module() -> str:
    return "\n".join(path.read_text() for path in sorted(MODULE.glob("*.tf")))


def blocks(text: str, kind: str) -> dict[str, Any]:
    """The blocks of a kind by their labels, joined by a dot."""
    found: dict[str, Any] = {}
    for block in parsed(text).get(kind, []):
        ((label, body),) = block.items()
        if kind == "resource":
            ((name, body),) = body.items()
            label = f"{label}.{name}"
        assert label not in found, f"{label} stands twice"
        found[label] = body
    return found


def faults(text: str) -> list[str]:
    """What Terraform would refuse: unknown and missing arguments, values of another kind, references to nothing."""
    resources, variables = blocks(text, "resource"), blocks(text, "variable")
    found = []
    for label, body in resources.items():
        kind = label.partition(".")[0]
        if kind not in PROVIDER["resources"]:
            found.append(f"{kind}: unknown")
            continue
        known = {**PROVIDER["resources"][kind]["arguments"], **META, "lifecycle": LIFECYCLE}
        found += [f"{label}.{each}" for each in _unfit(body, known)]
    for body in blocks(text, "provider").values():
        found += [f"provider.{each}" for each in _unfit(body, PROVIDER["provider"])]
    for scope, path in REFERENCE.findall(" ".join(_texts(parsed(text)))):
        name, *further = path[1:].split(".")
        if scope == "var" and name not in variables:
            found.append(f"var.{name}: not declared")
        elif scope in ("local", "data"):
            found.append(f"{scope}.{name}: not declared")
        elif scope.startswith("google_"):
            if f"{scope}.{name}" not in resources:
                found.append(f"{scope}.{name}: not declared")
            elif further and further[0] not in _attributes(scope):
                found.append(f"{scope}.{name}.{further[0]}: no such attribute")
    return found


def _unfit(body: dict[str, Any], known: dict[str, Any]) -> Iterator[str]:
    required = {name.removesuffix("!") for name in known if name.endswith("!")}
    types = {name.removesuffix("!"): kind for name, kind in known.items()}
    given = {name for name in body if not name.startswith("__")}
    yield from (f"{name}: missing" for name in sorted(required - given))
    for name in sorted(given):
        value = body[name]
        is_block = isinstance(value, list) and any(isinstance(each, dict) and "__is_block__" in each for each in value)
        if name not in types:
            yield f"{name}: unknown"
        elif isinstance(types[name], dict) != is_block:
            yield f"{name}: {'no block' if is_block else 'a block'}"
        elif is_block:
            for each in value:
                yield from (f"{name}.{problem}" for problem in _unfit(each, types[name]))
        elif not (isinstance(value, str) and "${" in value):
            kind = KINDS[types[name]]
            if not isinstance(value, kind) or (isinstance(value, bool) and types[name] != "bool"):
                yield f"{name}: not a {types[name]}"


def _attributes(kind: str) -> set[str]:
    known = PROVIDER["resources"].get(kind, {"arguments": {}, "attributes": []})
    return {name.removesuffix("!") for name in known["arguments"]} | set(known["attributes"])


def _texts(value: Any) -> Iterator[str]:
    """All texts in which something is to be evaluated."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
    elif isinstance(value, str) and "${" in value:
        yield value


def test_terraform_would_take_it() -> None:
    assert faults(module()) == []


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ('resource "google_storage_bucket" "b" { name = "b" }', "google_storage_bucket.b.location: missing"),
        (
            'resource "google_project_service" "s" {\n service = "x"\n on_destroy = false\n}',
            "google_project_service.s.on_destroy: unknown",
        ),
        (
            'resource "google_compute_disk" "d" {\n name = "d"\n size = "big"\n}',
            "google_compute_disk.d.size: not a number",
        ),
        (
            'resource "google_storage_bucket" "b" {\n name = "b"\n location = "l"\n versioning = true\n}',
            "google_storage_bucket.b.versioning: a block",
        ),
        (
            'resource "google_storage_bucket" "b" {\n name = "b"\n location = "l"\n versioning { on = true }\n}',
            "google_storage_bucket.b.versioning.enabled: missing",
        ),
        ('resource "google_project_service" "s" { service = var.x }', "var.x: not declared"),
        (
            'resource "google_project_service" "s" { service = "a-${google_compute_disk.d.name}" }',
            "google_compute_disk.d: not declared",
        ),
        (
            'resource "google_service_account" "a" { account_id = "a" }\n'
            'output "o" { value = yamlencode({ a = { b = google_service_account.a.address } }) }',
            "google_service_account.a.address: no such attribute",
        ),
        ('provider "google" { proyect = "p" }', "provider.proyect: unknown"),
    ],
)
def test_what_terraform_would_refuse_is_found(wrong: str, fault: str) -> None:
    assert fault in faults(wrong)


def test_its_output_is_what_a_deployment_takes() -> None:
    value = blocks(module(), "output")["deployment"]["value"]
    given = {
        "google_storage_bucket.store.name": '"acme-ec1"',
        "google_compute_instance_template.gpu.id": '"projects/acme-1/global/instanceTemplates/ec1-gpu-1"',
        "var.project": '"acme-1"',
        "var.zones": json.dumps(blocks(module(), "variable")["zones"]["default"]),
        "var.engine_port": "8001",
    }
    text = value.removeprefix("${yamlencode(").removesuffix(")}").replace(" = ", ": ")
    for reference, literal in given.items():
        text = text.replace(reference, literal)
    said = parse_mapping(text, "the output")
    machine = GceSettings.model_validate({**said["machine"], "daily_cost": 2.5})
    assert machine.template == "projects/acme-1/global/instanceTemplates/ec1-gpu-1" and machine.engine_port == 8001
    assert GcsStoreSettings.model_validate(said["store"]).bucket == "acme-ec1"


def test_its_machine_is_the_one_that_ec1_expects(project: Path) -> None:
    resources, variables = blocks(module(), "resource"), blocks(module(), "variable")
    template = resources["google_compute_instance_template.gpu"]
    (scheduling,) = template["scheduling"]
    client = ComputeClient("acme-1", "http://127.0.0.1:9")
    started = client._scheduling(600)
    for name, value in scheduling.items():
        if not name.startswith("__"):
            assert getattr(started, name) == value, f"a start would change {name}"
    assert template["metadata"]["enable-guest-attributes"] == "TRUE", "without it the machine cannot report"
    boot, weights = template["disk"]
    assert boot["boot"] is True and weights["mode"] == "READ_ONLY"
    # The device that the start-up script mounts, and the name that each zone's disk has.
    script = (MODULE.parent / "startup_script.py").read_text()
    assert f'"--disk", default="{weights["device_name"]}"' in script
    assert weights["source"] == resources["google_compute_disk.weights"]["name"]
    gce = load_deployment("gce", project).machine
    assert isinstance(gce, GceSettings)
    assert variables["zones"]["default"] == list(gce.zones)
    assert variables["engine_port"]["default"] == gce.engine_port


def test_nothing_is_open_but_to_ec1_and_its_operators() -> None:
    resources = blocks(module(), "resource")
    rules = {label: body for label, body in resources.items() if label.startswith("google_compute_firewall.")}
    assert set(rules) == {"google_compute_firewall.ec1_to_gpu", "google_compute_firewall.operators_to_ec1"}
    to_gpu = rules["google_compute_firewall.ec1_to_gpu"]
    assert to_gpu["source_service_accounts"] == ["${google_service_account.ec1.email}"]
    assert "source_ranges" not in to_gpu
    # https://cloud.google.com/iap/docs/using-tcp-forwarding
    assert rules["google_compute_firewall.operators_to_ec1"]["source_ranges"] == ["35.235.240.0/20"]
    bucket = resources["google_storage_bucket.store"]
    assert bucket["public_access_prevention"] == "enforced" and bucket["uniform_bucket_level_access"] is True
    roles = {label: body["role"] for label, body in resources.items() if "role" in body}
    of_the_gpu = [role for label, role in roles.items() if "gpu.member" in resources[label]["member"]]
    assert of_the_gpu == ["roles/artifactregistry.reader"], "the machine may read its image, and nothing else"
