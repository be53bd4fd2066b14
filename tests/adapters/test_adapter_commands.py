"""`ec1 adapters`: manual control of which version is in use."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from scoring_registry import ScoringRegistry
from typer.testing import CliRunner, Result

from ec1.adapters.manifest import AdapterManifest
from ec1.cli import app
from ec1.errors import InputError
from ec1.home import Home
from ec1.queries.adapters import versions
from ec1.storage.directory import DirectoryStore


@pytest.fixture
def ec1(
    home: Home, make_candidate: Callable[..., Path], manifest: Callable[..., AdapterManifest]
) -> Callable[..., Result]:
    """The command line on a home with three versions."""
    registry = ScoringRegistry(DirectoryStore(home.root), home.adapters)
    for number in (1, 2, 3):
        registry.publish(make_candidate(number), manifest(f"2026-06-0{number}", gain=number / 10))
    return lambda *arguments: CliRunner().invoke(app, ["--home", str(home.root), "adapters", *arguments])


def in_use(ec1: Callable[..., Result]) -> list[str]:
    return [row["name"] for row in json.loads(ec1("list", "--json").stdout) if row["in_use"]]


def test_versions_come_in_pages_the_newest_first(ec1: Callable[..., Result], home: Home) -> None:
    registry = ScoringRegistry(DirectoryStore(home.root), home.adapters)
    first = versions(registry, 2)
    (oldest,) = versions(registry, 2, first.next).items
    assert [each.name[-2:] for each in (*first.items, oldest)] == ["v3", "v2", "v1"]
    assert [each.in_use for each in (*first.items, oldest)] == [True, False, False]


def test_promote_rollback_and_quarantine_move_what_is_in_use(ec1: Callable[..., Result]) -> None:
    name = "fernhollow/engineering"
    assert in_use(ec1) == [f"{name}@v3"]
    assert ec1("rollback", name, "--reason", "too long").stdout == f"{name}@v2 is in use\n"
    assert in_use(ec1) == [f"{name}@v2"]
    assert ec1("promote", f"{name}@v1", "--reason", "a trial").stdout == f"{name}@v1 is in use\n"
    assert in_use(ec1) == [f"{name}@v1"]
    assert "no version to go back to" in str(ec1("rollback", name, "--reason", "again").exception)
    out = ec1("quarantine", f"{name}@v1", "--reason", "made things up").stdout
    assert out.startswith(f"{name}@v1 is withdrawn; ") and in_use(ec1) == [f"{name}@v2"]
    assert "was withdrawn (made things up)" in str(ec1("promote", f"{name}@v1", "--reason", "no").exception)
    assert any(line.startswith(f"x {name}@v1") for line in ec1("list").stdout.splitlines())


def test_history_says_who_chose_what_and_why(ec1: Callable[..., Result]) -> None:
    name = "fernhollow/engineering"
    ec1("rollback", name, "--reason", "too long")
    assert ec1("pin", f"{name}@v1", "--reason", "audited").stdout == f"{name}@v1 is in use, and stays so\n"
    assert ec1("unpin", name, "--reason", "done").stdout == f"{name}@v2 is in use\n", "3 was left by the rollback"
    assert "without an adapter" in ec1("promote", f"{name}@base", "--reason", "compare").stdout
    assert in_use(ec1) == []
    history = json.loads(ec1("history", name, "--json").stdout)
    moves = [(each["action"], each["before"], each["after"]) for each in history if each["action"] != "publish"]
    assert moves == [("rollback", 3, 2), ("pin", 2, 1), ("unpin", 1, None), ("base", 2, None)]
    assert len(history) == 7 and all(each["who"] for each in history)
    lines = ec1("history", name).stdout.splitlines()
    assert len(lines) == 7 and any("v3 to v2" in line and line.endswith("too long") for line in lines)


def test_a_damaged_version_is_listed_and_can_be_quarantined(ec1: Callable[..., Result], home: Home) -> None:
    (home.adapters / "fernhollow" / "engineering" / "v3" / "manifest.json").write_text("{")
    assert in_use(ec1) == ["fernhollow/engineering@v2"]
    assert "v3" in ec1("list").stdout and "damaged" in ec1("list").stdout
    out = ec1("quarantine", "fernhollow/engineering@v3", "--reason", "damaged").stdout
    assert out == "fernhollow/engineering@v3 is withdrawn; fernhollow/engineering@v2 is in use\n"


def test_pull_brings_the_version_in_use_or_another(ec1: Callable[..., Result], home: Home) -> None:
    folder = home.adapters / "fernhollow" / "engineering"
    assert ec1("pull", "fernhollow/engineering").stdout.strip() == str(folder / "v3")
    assert ec1("pull", "fernhollow/engineering@v1").stdout.strip() == str(folder / "v1")
    assert (folder / "v1" / "adapter_model.safetensors").is_file()
    assert "no version in use" in str(ec1("pull", "fernhollow/apprenticeship").exception)


def test_a_reason_is_required_and_names_are_checked(ec1: Callable[..., Result]) -> None:
    assert ec1("promote", "fernhollow/engineering@v1").exit_code == 2
    for arguments in (("promote", "v1", "--reason", "x"), ("rollback", "../x", "--reason", "x"), ("pull", "x")):
        assert isinstance(ec1(*arguments).exception, InputError)


def test_clean_says_what_it_would_do(ec1: Callable[..., Result], home: Home) -> None:
    assert ec1("clean", "--dry-run").stdout.strip() == "0 removed, would free 0.0 MiB"
    assert len(list((home.adapters / "fernhollow" / "engineering").glob("v*"))) == 3
