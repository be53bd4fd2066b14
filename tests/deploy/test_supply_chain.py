"""What is installed is pinned by version and by hash, and the audit says plainly what it could not look up."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet


def pins(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {match[1]: match[2] for line in lines if (match := re.match(r"([A-Za-z0-9_.-]+)==([^ \\;]+)", line))}


def test_every_pin_has_the_hashes_of_its_version(project: Path) -> None:
    """But torch: each kind of machine has its own build."""
    pinned = pins(project / "constraints.txt")
    assert len(pinned) > 300
    assert pinned.pop("torch")
    assert pins(project / "hashes.txt") == pinned, "run `make hashes`"
    entries = re.split(r"\n(?=\S)", (project / "hashes.txt").read_text().strip())
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry) for entry in entries if "==" in entry)


@pytest.mark.parametrize(("variable", "kept"), [("HOME", ".venv/uv-cache"), ("XDG_CACHE_HOME", "")])
def test_without_a_home_to_write_to_downloads_are_kept_in_the_checkout(
    project: Path, tmp_path: Path, variable: str, kept: str
) -> None:
    """As for an account that only a container knows: uv would install nothing."""
    # Another account cannot be taken on here: root may write everywhere but where nothing is.
    homes = {"HOME": str(tmp_path / "none"), **({variable: str(tmp_path)} if variable != "HOME" else {})}
    asked = ["make", "--silent", "--eval", "show: ; @echo $$UV_CACHE_DIR", "show"]
    without = {name: value for name, value in os.environ.items() if name not in ("UV_CACHE_DIR", "XDG_CACHE_HOME")}
    said = subprocess.run(asked, cwd=project, env={**without, **homes}, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == kept


def test_every_pin_installs_on_the_oldest_python_that_is_promised(project: Path) -> None:
    """Debian 12's is 3.11.2: a pin that wants 3.11.5 is found by nobody whose own is newer."""
    promised = tomllib.loads((project / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = re.match(r">=([\d.]+)", promised)
    assert oldest, promised
    pinned = {name.lower() for name in pins(project / "constraints.txt")}
    wanted = {
        f"{found.name} {found.version}": found.metadata["Requires-Python"]
        for found in distributions()
        if found.name.lower() in pinned and "Requires-Python" in found.metadata
    }
    assert len(wanted) > 200
    assert not {name: asked for name, asked in wanted.items() if f"{oldest[1]}.0" not in SpecifierSet(asked)}


@pytest.mark.parametrize(
    ("output", "errors", "status", "said"),
    [
        ({"dependencies": [{"name": "a", "version": "1", "vulns": []}]}, "", 0, "1 packages, 0 known"),
        (
            {"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}]},
            "Found 1 known vulnerability in 1 package",
            1,
            "a 1: CVE-1, mended in 2",
        ),
        ({"dependencies": [{"name": "a", "skip_reason": "not found"}]}, "", 2, "NOT DONE"),
        ("", "ConnectionError: no route to host", 2, "not reachable: ConnectionError"),
        ("", "", 2, "said nothing"),
    ],
)
def test_the_audit_never_fails_silently(
    output: object, errors: str, status: int, said: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(project / "deploy"))
    import audit  # type: ignore[import-not-found]  # a script beside the package

    found, lines = audit.judged(json.dumps(output) if output else "", errors)
    assert found == status and said in "\n".join(lines)
    assert audit.main([sys.executable, "-c", "raise SystemExit('nothing works')"]) == 2
