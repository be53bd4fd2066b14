"""What loading the definitions may cost, and that the domain takes what it needs as arguments.

That imports point one way, and that nothing in `ec1` knows Dagster, is import-linter's work (`make lint`).
"""

import ast
from collections import Counter
from pathlib import Path

import pytest


def test_the_domain_reads_no_environment(project: Path) -> None:
    entry_points = {
        *(
            "ec1/cli.py",
            "ec1/training/__main__.py",
            "ec1/adapters/evaluation.py",
            "ec1/gpu/ray_engines.py",
            "ec1/gpu/ray_job.py",
            "ec1/gpu/ray_worker.py",
        ),
        # vLLM calls it without an argument.
        "ec1/serving/resolver.py",
    }
    wrong = []
    for path in sorted((project / "ec1").rglob("*.py")):
        name = path.relative_to(project).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute) or node.attr not in ("environ", "getenv"):
                continue
            if isinstance(node.value, ast.Name) and node.value.id == "os" and name not in entry_points:
                wrong.append(f"{name}:{node.lineno}")
    assert wrong == []


def test_text_is_read_and_written_in_one_encoding(project: Path) -> None:
    """Not in that of the locale. ruff sees it only where it knows that something is a path."""
    wrong = []
    for path in sorted((project / "ec1").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr in ("read_text", "write_text") and not any(
                keyword.arg == "encoding" for keyword in node.keywords
            ):
                wrong.append(f"{path.relative_to(project).as_posix()}:{node.lineno}")
    assert wrong == []


def test_test_files_have_names_of_their_own(project: Path) -> None:
    # pytest imports them by bare name: of two that are called the same, the second is not collected.
    names = Counter(path.name for path in (project / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_a_class_name_means_one_thing(project: Path) -> None:
    names: Counter[str] = Counter()
    for folder in ("ec1", "ec1_assets", "resources", "jobs", "schedules", "studio"):
        for path in (project / folder).rglob("*.py"):
            names.update(node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef))
    # A private class is its file's own.
    assert sorted(name for name, count in names.items() if count > 1 and not name.startswith("_")) == []


@pytest.mark.parametrize(
    "heavy", ["torch", "transformers", "trl", "peft", "vllm", "ladybug", "datasets", "matplotlib", "ray"]
)
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
