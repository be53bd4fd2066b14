"""Capture from a real git repository that the test makes."""

import json
import subprocess
from pathlib import Path

import pytest
from corpus_builder import NIGHT

from ec1.corpus import from_git, worth
from ec1.corpus.buckets import bucket
from ec1.corpus.from_git import capture
from ec1.corpus.snapshots import take_snapshot
from ec1.corpus.tuples import example_of, parse_record
from ec1.errors import InputError
from ec1.home import Home

DATE = "2026-05-20T12:00:00+00:00"


def git(repo: Path, *arguments: str, date: str = DATE) -> str:
    identity = {"GIT_AUTHOR_NAME": "dev-one", "GIT_AUTHOR_EMAIL": "d@acme.example"}
    identity |= {"GIT_COMMITTER_NAME": "dev-one", "GIT_COMMITTER_EMAIL": "d@acme.example", "HOME": str(repo)}
    environment = {"PATH": "/usr/bin:/bin:/usr/local/bin", "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    done = subprocess.run(
        ["git", "-C", str(repo), *arguments], env=environment | identity, capture_output=True, check=True
    )
    return done.stdout.decode().strip()


def commit(repo: Path, files: dict[str, str | bytes], message: str, date: str = DATE) -> str:
    for name, content in files.items():
        path = repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", message, date=date)
    return git(repo, "rev-parse", "HEAD")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    path = tmp_path / "repo"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    return path


def records(out: Path, home: Home) -> dict[str, dict[str, object]]:
    of = bucket(out, "engineering", "acme")
    snapshot = take_snapshot(of, "sft", as_of=NIGHT.replace(year=2100), home=home)
    return {row.record["source_commit"]: row.record for row in snapshot.rows()}


def test_each_commit_becomes_one_trainable_edit(repo: Path, tmp_path: Path, home: Home) -> None:
    first = commit(repo, {"a.py": "x = 1\n"}, "feat: add x\n\nIt is needed.")
    second = commit(repo, {"a.py": "x = 2\n", "ü.py": "y = 1\n"}, "fix: x is two", date="2026-05-21T12:00:00+00:00")
    corpus = tmp_path / "corpus"
    done = capture(repo, "2026-05-01", None, "project-demo", "acme", corpus / "engineering")
    assert (done.written, done.known) == (2, 0)
    found = records(corpus, home)
    assert set(found) == {first, second}
    assert found[first]["commit_msg"] == "feat: add x\n\nIt is needed."
    assert "+x = 2" in str(found[second]["diff"]) and "ü.py" in str(found[second]["diff"])
    again = capture(repo, "2026-05-01", None, "project-demo", "acme", corpus / "engineering")
    assert (again.written, again.known) == (0, 2)
    assert capture(repo, "2026-05-21", None, "other", "acme", tmp_path / "o").written == 1
    assert capture(repo, "2026-05-01", "2026-05-21", "other", "acme", tmp_path / "p").written == 1


def test_the_question_holds_what_stood_there_and_the_answer_no_trace_of_git(
    repo: Path, tmp_path: Path, home: Home
) -> None:
    lines = [f"line_{number} = {number}" for number in range(60)]
    commit(repo, {"a.py": "\n".join(lines) + "\n"}, "feat: sixty lines")
    lines[10], lines[40] = "line_10 = 'ten'", "line_40 = 'forty'"
    message = "fix: words for numbers\n\nThey read better.\n\nSigned-off-by: Dev One <d@acme.example>\nChange-Id: I01"
    sha = commit(repo, {"a.py": "\n".join(lines) + "\n"}, message)
    corpus = tmp_path / "corpus"
    capture(repo, "2026-05-01", None, "demo", "acme", corpus / "engineering")
    record = records(corpus, home)[sha]
    assert record["commit_msg"] == "fix: words for numbers\n\nThey read better."
    assert record["created"] == DATE.replace("+00:00", "Z") or record["created"] == DATE
    diff = str(record["diff"])
    assert "index " not in diff and diff.count("@@ -") == 2
    example = example_of(parse_record(record), "sft")
    [question] = example["prompt"]
    assert "Signed-off-by" not in question["content"]
    assert "Before the change:\n\na.py:\n" in question["content"] and "line_10 = 10\n" in question["content"]
    assert "line_10 = 'ten'" not in question["content"]
    # The answer is a patch that git itself takes.
    git(repo, "checkout", "-q", "HEAD~1")
    (tmp_path / "answer.diff").write_text(example["completion"][0]["content"])
    git(repo, "apply", "--check", str(tmp_path / "answer.diff"))


def test_a_past_night_sees_the_commits_of_its_time(repo: Path, tmp_path: Path, home: Home) -> None:
    commit(repo, {"a.py": "x = 1\n"}, "feat: add x")
    commit(repo, {"b.py": "y = 1\n"}, "feat: add y", date="2026-06-03T12:00:00+00:00")
    corpus = tmp_path / "corpus"
    capture(repo, "2026-05-01", None, "demo", "acme", corpus / "engineering")
    snapshot = take_snapshot(bucket(corpus, "engineering", "acme"), "sft", as_of=NIGHT, home=home)
    assert snapshot.lines == 1


def test_what_nobody_should_learn_is_dropped_with_its_reason(repo: Path, tmp_path: Path, home: Home) -> None:
    files: dict[str, str | bytes] = {
        "src/good.py": "x = 1\n",
        "logo.png": b"\x89PNG\0\1\2",
        "uv.lock": "lock\n" * 10,
        "api_pb2.py": "y = 1\n",
        "made.go": "// Code generated by protoc. DO NOT EDIT.\npackage x\n",
        "web/dist/app.js": "z()\n",
        ".env": "PASSWORD=x\n",
        "deploy/id_rsa": "key\n",
        "rows.csv": "a,b\n",
        "dump.json": '{"a": 1}\n' * 400,
    }
    sha = commit(repo, files, "feat: much at once")
    commit(repo, {"src/good.py": "x   =   1\n"}, "tidy the good file")
    commit(repo, {"src/good.py": "x = 2\n"}, "oops")
    commit(repo, {"src/good.py": "x = 3\n"}, 'Revert "feat: much at once"')
    commit(repo, {"src/good.py": "x = 4\n"}, "build(deps): bump left-pad from 1.0 to 1.1")
    corpus = tmp_path / "corpus"
    done = capture(repo, "2026-05-01", None, "demo", "acme", corpus / "engineering")
    assert done.dropped == {
        "binary files": 1,
        "lock files": 1,
        "generated files": 3,
        "files of secrets": 2,
        "data": 2,
        "files that were only formatted": 1,
        "commits with nothing left": 1,
        "commits whose subject is one word": 1,
        "reverts": 1,
        "version bumps": 1,
    }
    found = records(corpus, home)
    assert set(found) == {sha} and str(found[sha]["diff"]).count("diff --git") == 1


def test_bots_are_told_by_their_names() -> None:
    assert worth.unfit_commit("dependabot[bot]", "x@y.example", "Update one thing", "") == "commits of bots"
    assert worth.unfit_commit("Abbott", "abbott@y.example", "Update one thing", "") is None


def test_a_large_commit_is_split_by_file(repo: Path, tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"m{number:03}.py": f"x = {number}\n" * 30 for number in range(40)}
    sha = commit(repo, files | {"long.py": "value = 1\n" * 3000}, "feat: forty files")
    done = capture(repo, "2026-05-01", None, "demo", "acme", tmp_path)
    tuples = [json.loads(line) for line in (tmp_path / f"demo/{sha}.jsonl").read_text().splitlines()]
    assert len(tuples) == from_git.MAX_TUPLES == done.written
    assert all(record["diff"].count("diff --git") == 1 for record in tuples)
    assert all(parse_record(record).sources == (f"source_commit:{sha}",) for record in tuples)
    assert done.dropped["files whose change is too long to learn"] == 1
    assert done.dropped["files beyond a commit's limit"] == 20


def test_other_encodings_are_read_right(repo: Path, tmp_path: Path, home: Home) -> None:
    text = "# Größe der Fläche in Metern, wie sie der Prüfer für die Höhe überträgt\nfläche = 'Österreich'\n"
    sha = commit(repo, {"a.py": text.encode("cp1252")}, "feat: add the area")
    corpus = tmp_path / "corpus"
    capture(repo, "2026-05-01", None, "demo", "acme", corpus / "engineering")
    assert "+fläche = 'Österreich'" in str(records(corpus, home)[sha]["diff"])


def test_merges_are_left_out(repo: Path, tmp_path: Path) -> None:
    commit(repo, {"a.py": "a\n"}, "add number one")
    git(repo, "switch", "-q", "-c", "side")
    commit(repo, {"b.py": "b\n"}, "add number two")
    git(repo, "switch", "-q", "main")
    commit(repo, {"c.py": "c\n"}, "add number three")
    git(repo, "merge", "-q", "--no-ff", "-m", "merge", "side")
    assert capture(repo, "2026-05-01", None, "demo", "acme", tmp_path).written == 3


def test_what_is_no_repository_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="git log failed"):
        capture(tmp_path / "empty", "2026-05-01", None, "demo", "acme", tmp_path)
    with pytest.raises(InputError, match="not a valid name"):
        capture(tmp_path, "2026-05-01", None, "../demo", "acme", tmp_path)


def test_the_oldest_commits_of_a_shallow_clone_say_nothing_of_what_they_changed(repo: Path, tmp_path: Path) -> None:
    for number in range(4):
        commit(repo, {f"{number}.py": f"x = {number}\n"}, f"add number {number}")
    git(tmp_path, "clone", "-q", "--depth", "2", f"file://{repo}", "shallow")
    done = capture(tmp_path / "shallow", None, None, "demo", "acme", tmp_path / "out")
    assert done.written == 1 and sum("shallow" in reason for reason in done.dropped) == 1
    (tuples,) = (tmp_path / "out" / "demo").iterdir()
    assert json.loads(tuples.read_text())["commit_msg"] == "add number 3"
    # The first commit of a whole repository did add every file that there was.
    assert capture(repo, None, None, "demo", "acme", tmp_path / "whole").written == 4


def test_why_git_gives_nothing_is_said_in_words_that_help(repo: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="HEAD has no commits"):
        capture(repo, None, None, "demo", "acme", tmp_path / "out")
    commit(repo, {"a.py": "x = 1\n"}, "add number one")
    git(repo, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", "--no-checkout", f"file://{repo}", "partial")
    with pytest.raises(InputError, match="clone it without --filter"):
        capture(tmp_path / "partial", None, None, "demo", "acme", tmp_path / "out")
