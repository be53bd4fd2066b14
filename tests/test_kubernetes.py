"""The manifests in docs/ are what a cluster accepts, checked without one, and agree with what `ec1 serve` does."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from ec1.serving_settings import ServingSettings

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="run `make install`")


@pytest.fixture
def manifests(project: Path) -> dict[str, dict[str, Any]]:
    found = YAML(typ="safe").load_all((project / "docs" / "kubernetes" / "serving.yaml").read_text())
    return {each["kind"]: each for each in found}


def test_core_kinds_fit_the_published_schemas(manifests: dict[str, dict[str, Any]]) -> None:
    for kind in ("ConfigMap", "Deployment", "Service", "PodDisruptionBudget"):
        kubernetes_validate.validate(manifests[kind], kubernetes_validate.latest_version(), strict=True)
    broken = {**manifests["Service"], "spec": {"port": 80}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, kubernetes_validate.latest_version(), strict=True)


def test_names_ports_and_times_agree(manifests: dict[str, dict[str, Any]]) -> None:
    pod = manifests["Deployment"]["spec"]["template"]["spec"]
    (container,), labels = pod["containers"], manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert manifests["Service"]["spec"]["selector"].items() <= labels.items()
    assert manifests["Service"]["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    (rule,) = manifests["HTTPRoute"]["spec"]["rules"]
    assert rule["backendRefs"] == [{"name": manifests["Service"]["metadata"]["name"], "port": 80}]
    settings = ServingSettings()
    assert pod["terminationGracePeriodSeconds"] > settings.drain_seconds
    assert rule["timeouts"]["request"] == f"{settings.request_timeout_seconds:.0f}s"
    probes = [container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")]
    assert probes == ["/healthz", "/readyz", "/healthz"]
    home = container["args"][container["args"].index("--home") + 1]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert (mounts["trusted-keys"], mounts["api-keys"]) == (f"{home}/keys", f"{home}/serving")
