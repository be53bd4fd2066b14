"""Imports point one way: schedules -> jobs -> ec1_assets -> resources -> ec1, and nothing in ec1 knows Dagster."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ORDER = ["ec1", "resources", "ec1_assets", "jobs", "schedules"]
# The composition root sees everything; the night's runner loads it, as Dagster itself does.
ABOVE_THE_RULE = {"ec1_assets/definitions.py"}
LOADS_THE_ROOT = {"jobs/run_night.py": "ec1_assets.definitions"}
# The protocol library that a launched process reports with: no Dagster in it, and no dependency.
PIPES_ONLY = "ec1/launch/reporting.py"


def modules(project: Path) -> list[Path]:
    return [path for room in ORDER for path in sorted((project / room).rglob("*.py"))]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide their direction"
            yield node.module or ""


def test_imports_point_one_way(project: Path) -> None:
    wrong = []
    for path in modules(project):
        name = path.relative_to(project).as_posix()
        if name in ABOVE_THE_RULE:
            continue
        room = ORDER.index(name.split("/")[0])
        for module in imports(path):
            top = module.split(".")[0]
            if top in ORDER and ORDER.index(top) > room and LOADS_THE_ROOT.get(name) != module:
                wrong.append(f"{name} imports {module}")
    assert wrong == []


def test_the_domain_does_not_know_dagster(project: Path) -> None:
    wrong = []
    for path in sorted((project / "ec1").rglob("*.py")):
        name = path.relative_to(project).as_posix()
        for module in imports(path):
            if module.split(".")[0].startswith("dagster") and not (name == PIPES_ONLY and module == "dagster_pipes"):
                wrong.append(f"{name} imports {module}")
    assert wrong == []


def test_the_domain_reads_no_environment(project: Path) -> None:
    entry_points = {"ec1/cli.py", "ec1/training/__main__.py", "ec1/adapters/evaluation.py"}
    wrong = []
    for path in sorted((project / "ec1").rglob("*.py")):
        name = path.relative_to(project).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
            if named and isinstance(node.value, ast.Name) and node.value.id == "os" and name not in entry_points:
                wrong.append(f"{name}:{node.lineno}")
    assert wrong == []


@pytest.mark.parametrize("heavy", ["torch", "transformers", "trl", "peft", "vllm", "ladybug", "datasets", "matplotlib"])
def test_loading_the_definitions_imports_nothing_heavy(
    project: Path, heavy: str, loaded_by_definitions: set[str]
) -> None:
    assert heavy not in loaded_by_definitions


@pytest.fixture(scope="module")
def loaded_by_definitions(project: Path) -> set[str]:
    import subprocess
    import sys

    code = "import ec1_assets.definitions, sys; print('\\n'.join(sorted({m.split('.')[0] for m in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    return set(done.stdout.split())
