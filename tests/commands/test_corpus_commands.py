"""`ec1 corpus`: from a real git repository to tuples, counts and a file for other tools."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from datasets import load_dataset
from typer.testing import CliRunner, Result

from ec1.cli import app
from ec1.errors import InputError
from ec1.files import digest_of
from ec1.home import Home


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Three commits; the second one's file holds a password."""
    folder = tmp_path / "Dispatch App"
    folder.mkdir()
    moment = "2026-06-02T10:00:00Z"
    environment = {**os.environ, "GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=Dev One", "-c", "user.email=dev@fern.example"]
        command = ["git", "-C", str(folder), *identity, *arguments]
        subprocess.run(command, check=True, capture_output=True, env=environment)

    git("init", "--quiet")
    for name, text in {"a.py": "x = 1\n", "b.py": "password = 'hunter2-" + "Tr0ub4dor'\n", "c.py": "y = 2\n"}.items():
        (folder / name).write_text(text)
        git("add", name)
        git("commit", "--quiet", "-m", f"add {name}")
    return folder


@pytest.fixture
def ec1(home: Home) -> Callable[..., Result]:
    return lambda *arguments: CliRunner().invoke(app, ["--home", str(home.root), "corpus", *arguments])


def test_from_git_to_a_file(
    ec1: Callable[..., Result], repo: Path, home: Home, tmp_path: Path, small_model: Path
) -> None:
    home.root.mkdir(parents=True, exist_ok=True)
    home.models.symlink_to(small_model.parents[1])
    captured = ec1("from-git", str(repo), "--since", "2026-06-01", "--json")
    assert captured.exit_code == 0, captured.exception
    assert json.loads(captured.stdout) == {"written": 3, "known": 0, "dropped": {}}
    tuples = sorted((home.corpus / "engineering" / "project-dispatch-app").glob("*.jsonl"))
    assert len(tuples) == 3 and json.loads(tuples[0].read_text())["tenant"] == "fernhollow"
    again = ec1("from-git", str(repo), "--since", "2026-06-01")
    assert "0 tuples written" in again.stdout and "3 were there" in again.stdout
    assert json.loads(ec1("from-git", str(repo), "--since", "2026-06-03", "--json").stdout)["written"] == 0

    counted = {row["bucket"]: row for row in json.loads(ec1("stats", "--json").stdout)}
    engineering = counted["engineering-fernhollow"]
    assert [engineering[key] for key in ("lines", "trainable", "new", "threshold")] == [3, 3, 3, 50]
    assert counted["apprenticeship-fernhollow"]["lines"] == 0
    measured = {row["bucket"]: row for row in json.loads(ec1("stats", "--tokens", "--json").stdout)}
    tokens = measured["engineering-fernhollow"]["tokens"]
    assert tokens["rows"] == 3 and 50 < tokens["percentiles"]["p100"] < 200 and tokens["dropped"] == {}

    for suffix, kind in (("jsonl", "json"), ("parquet", "parquet")):
        file = tmp_path / "out" / f"tuples.{suffix}"
        written = ec1("export", "engineering", str(file), "--json")
        assert json.loads(written.stdout) == {"rows": 3, "rejected": {}}, written.exception
        rows = load_dataset(kind, data_files=str(file), split="train", cache_dir=str(tmp_path / suffix))
        assert set(rows.column_names) - {"tools"} == {"prompt", "completion", "group", "origin"}
        text = json.dumps(rows["completion"][:])
        assert "Tr0ub4dor" not in text and "<PASSWORD>" in text, "what leaves the corpus is scrubbed"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["tuples.jsonl", "tuples.parquet"]


def test_a_long_commit_becomes_tuples_as_long_as_the_base_model_counts(
    ec1: Callable[..., Result], repo: Path, home: Home, small_model: Path
) -> None:
    home.root.mkdir(parents=True, exist_ok=True)
    home.models.symlink_to(small_model.parents[1])
    # Short words and signs: a token has two characters here, and not the three of the estimate.
    lines = [f"x{n}=[{n % 7},-{n % 9}];y{n}={{{n}:{n}}}\n" for n in range(60)]
    for number in range(4):
        lines[30] = f"limit=[{number},-{number}]\n"
        (repo / "a.py").write_text("".join(lines))
        who = ("-c", "user.name=Dev One", "-c", "user.email=dev@fern.example")
        for command in (("add", "-A"), ("commit", "-q", "-m", f"fix: meter {number} has the tables of its plate")):
            subprocess.run(["git", "-C", repo, *who, *command], check=True)
    captured = json.loads(ec1("from-git", str(repo), "--since", "2026-06-01", "--max-tokens", "512", "--json").stdout)
    assert captured["written"] > 3
    measured = {row["bucket"]: row for row in json.loads(ec1("stats", "--tokens", "--json").stdout)}
    tokens = measured["engineering-fernhollow"]["tokens"]
    assert tokens["rows"] == captured["written"] and tokens["percentiles"]["p100"] <= 512


def test_what_cannot_be_done_is_said(ec1: Callable[..., Result], tmp_path: Path) -> None:
    nowhere = ec1("from-git", str(tmp_path), "--since", "2026-06-01")
    assert isinstance(nowhere.exception, InputError) and "not a git repository" in str(nowhere.exception)
    assert "ends in .jsonl or .parquet" in str(ec1("export", "engineering", str(tmp_path / "x.csv")).exception)
    assert ec1("export", "engineering", str(tmp_path / "x.jsonl"), "--objective", "ppo").exit_code == 2


def test_a_corpus_larger_than_one_piece_is_exported_whole(
    ec1: Callable[..., Result], tmp_path: Path, home: Home
) -> None:
    folder = home.corpus / "notes"
    folder.mkdir(parents=True)
    rows = [{"prompt": f"Ask {n}", "completion": f"Answer {n}"} for n in range(2500)]
    (folder / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = tmp_path / "notes.parquet"
    assert json.loads(ec1("export", "notes", str(file), "--json").stdout)["rows"] == 2500
    written = load_dataset("parquet", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
    assert len(set(written["group"][:])) == 2500


def test_rows_of_another_tenant_are_named_where_they_come_in(ec1: Callable[..., Result], tmp_path: Path) -> None:
    rows = [
        {"prompt": f"Ask {n}", "completion": f"Answer {n}", "tenant": "rival" if n else "fernhollow"} for n in range(3)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    imported = ec1("import", str(tmp_path / "rows.jsonl"), "--role", "engineering")
    assert "no recipe of fernhollow reads 2 rows of tenant rival" in imported.stdout, imported.exception
    assert "tenant fernhollow" not in imported.stdout
    assert "2 belongs to another tenant" in ec1("stats").stdout


def test_import_and_preview(
    ec1: Callable[..., Result], home: Home, tmp_path: Path, project: Path, small_model: Path
) -> None:
    source = tmp_path / "talks.jsonl"
    turns = [
        {"role": "user", "content": "Name a river."},
        {"role": "assistant", "content": "The Main?", "weight": 0},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "The Elbe \x1b[31m."},
    ]
    source.write_text(json.dumps({"messages": turns}) + "\n" + json.dumps({"prompt": "Sky?"}) + "\n")
    home.root.mkdir(parents=True)
    home.models.symlink_to(small_model.parents[1])
    imported = ec1("import", str(source), "--role", "engineering")
    assert imported.exit_code == 0, imported.exception
    assert "1 row of 1 file written" in imported.stdout
    assert "left out: 1 prompt without completion or response, first talks.jsonl:2" in imported.stdout
    recipe = str(project / "examples/recipes/engineering.yaml")
    for arguments in ((), ("--path", str(source), "--rows", "1")):
        shown = ec1("preview", recipe, *arguments)
        assert shown.exit_code == 0, shown.exception
        assert "«The Elbe \\x1b[31m.<|im_end|>\n»" in shown.stdout
        assert "assistant\nThe Main?<|im_end|>" in shown.stdout and "«The Main" not in shown.stdout
    (second,) = json.loads(ec1("preview", recipe, "--path", str(source), "--start", "1", "--json").stdout)
    assert second["origin"] == "talks.jsonl:2" and "completion" in second["problem"]


def test_forget_and_trace(ec1: Callable[..., Result], repo: Path, home: Home) -> None:
    ec1("from-git", str(repo), "--since", "2026-06-01")
    ec1("stats")
    [path] = [path for path in home.corpus.rglob("*.jsonl") if "c.py" in path.read_text()]
    row = digest_of(json.loads(path.read_text()))
    traced = json.loads(ec1("trace", row[:12], "--json").stdout)
    assert [found["row"] for found in traced["tuples"]] == [row] and len(traced["snapshots"]) == 1
    command = ["--home", str(home.root), "forget", "--match"]
    looked = CliRunner().invoke(app, [*command, "Add  C.py", "--dry-run"])
    assert "0 documents, 1 tuple, 1 snapshot, 0 datasets" in looked.stdout and path.exists()
    done = CliRunner().invoke(app, [*command, "Add  C.py"])
    assert done.exit_code == 0 and "removed" in done.stdout and not path.exists()
    again = json.loads(ec1("from-git", str(repo), "--since", "2026-06-01", "--json").stdout)
    assert (again["known"], again["dropped"]) == (2, {"commits that were removed from the corpus": 1})
    assert isinstance(CliRunner().invoke(app, command[:-1]).exception, InputError)
