"""A package adds a kind that a deployment can name. The package is the one that docs/extensions.md shows, installed."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ec1.deployment import load_deployment
from ec1.errors import InputError
from ec1.home import Home
from ec1.night.stores import open_store

DEPLOYMENT = "tenant: acme\nrecipes: []\ninference: {kind: vllm, model: some/model}\n"


@pytest.fixture
def package(tmp_path: Path, project: Path) -> Path:
    """A folder with the package of the page, as an installer leaves it: its module, and its metadata."""
    page = (project / "docs" / "extensions.md").read_text()
    code, settings = (re.findall(f"```{kind}\n(.*?)```", page, re.DOTALL)[0] for kind in ("python", "toml"))
    read = tomllib.loads(settings)
    name, version = read["project"]["name"], read["project"]["version"]
    folder = tmp_path / "site"
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (folder / "acme_ec1.py").write_text(code)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = read["project"]["entry-points"].items()
    text = "".join(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in each.items()) for group, each in points)
    (metadata / "entry_points.txt").write_text(text)
    return folder


def project_with(tmp_path: Path, line: str) -> Path:
    folder = tmp_path / "configs" / "deployments"
    folder.mkdir(parents=True)
    (folder / "here.yaml").write_text(DEPLOYMENT + line)
    return tmp_path


def test_a_store_of_an_installed_package_keeps_what_is_stored(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(package)
    deployment = load_deployment("here", project_with(tmp_path, "store: {kind: team, team: research}\n"))
    home = Home(tmp_path / "home")
    open_store(deployment.store, home).put_bytes("a/b", b"kept")
    assert (home.root / "teams" / "research" / "a" / "b").read_bytes() == b"kept"
    # As `ec1 serve` hands it to the engine's processes.
    assert type(deployment).model_validate_json(deployment.model_dump_json()).store == deployment.store


def test_a_mistake_in_such_a_section_is_named(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(package)
    with pytest.raises(InputError, match="team"):
        load_deployment("here", project_with(tmp_path, "store: {kind: team}\n"))


def test_a_kind_that_nobody_brings_is_refused_with_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"store.*'directory', 'gcs', 's3'"):
        load_deployment("here", project_with(tmp_path, "store: {kind: team, team: research}\n"))


def test_a_package_that_does_not_load_is_named(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / "acme_ec1.py").write_text("import nothing_of_that_name\n")
    monkeypatch.syspath_prepend(package)
    monkeypatch.delitem(sys.modules, "acme_ec1", raising=False)
    with pytest.raises(InputError, match=r"acme-ec1.*does not load.*nothing_of_that_name"):
        load_deployment("here", project_with(tmp_path, "store: {kind: team, team: research}\n"))


def test_a_package_never_replaces_a_kind_of_ours(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (points,) = package.glob("*.dist-info/entry_points.txt")
    points.write_text(points.read_text().replace("team =", "directory ="))
    monkeypatch.syspath_prepend(package)
    deployment = load_deployment("here", project_with(tmp_path, "store: {kind: directory}\n"))
    assert type(deployment.store).__module__ == "ec1.storage.settings"


@pytest.mark.parametrize(
    ("group", "line", "base", "section"),
    [
        ("ec1.launchers", "launcher: mine\n", "ec1.settings import Settings as Base", "launcher"),
        (
            "ec1.machines",
            "machine: {kind: mine, zones: [a], daily_cost: 1}\nlauncher: {kind: ssh, python: p, folder: /w}\n"
            "gpu: {cost_per_hour: 1}\n",
            "ec1.machines.settings import MachineSettings as Base",
            "machine",
        ),
    ],
)
def test_launchers_and_machines_come_by_packages_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, line: str, base: str, section: str
) -> None:
    name = f"mine_{section}"
    code = (
        f'from {base}\nclass Mine(Base):\n    kind: str\n    def open(self, given):\n        return ("opened", given)\n'
    )
    metadata = tmp_path / "site" / f"{name}-1.dist-info"
    metadata.mkdir(parents=True)
    (tmp_path / "site" / f"{name}.py").write_text(code)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\nmine = {name}:Mine\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    deployment = load_deployment("here", project_with(tmp_path, line))
    assert getattr(deployment, section).open(1) == ("opened", 1)


def test_a_deployment_does_not_load_what_it_does_not_name(tmp_path: Path, package: Path) -> None:
    (package / "acme_ec1.py").write_text("raise SystemExit('loaded')\n")
    code = "from ec1.deployment import load_deployment; from pathlib import Path; load_deployment('here', Path({!r}))"
    root = str(project_with(tmp_path, ""))
    done = subprocess.run(
        [sys.executable, "-c", code.format(root)], env={"PYTHONPATH": str(package)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
