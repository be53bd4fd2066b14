"""A repository is read as data: whatever its own settings name is not started."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ec1.corpus.from_git import capture
from ec1.documents.sources.git import GitFiles
from ec1.errors import DeferredError, EC1Error
from ec1.training.provenance import git_state

SIGNATURE = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ\n -----END PGP SIGNATURE-----"


def git(repository: Path, *arguments: str, text: str | None = None) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    command = ["git", "-C", str(repository), *identity, *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout.strip()


def signed(repository: Path, program: Path) -> None:
    """A signed commit, and a program that says whether the signature is good."""
    head, _, message = git(repository, "cat-file", "commit", "HEAD").partition("\n\n")
    commit = git(repository, "hash-object", "-t", "commit", "-w", "--stdin", text=f"{head}\n{SIGNATURE}\n\n{message}\n")
    git(repository, "update-ref", "HEAD", commit)
    git(repository, "config", "log.showSignature", "true")
    git(repository, "config", "gpg.program", str(program))


def partial(repository: Path, program: Path) -> None:
    """A clone that lacks an object, and a program that fetches it."""
    blob = git(repository, "rev-parse", "HEAD:a.md")
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for name, value in (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", "ssh://x/y"),
        ("core.sshCommand", str(program)),
    ):
        git(repository, "config", name, value)


def monitored(repository: Path, program: Path) -> None:
    git(repository, "config", "core.fsmonitor", str(program))


@pytest.mark.parametrize("plant", [signed, partial, monitored])
def test_nothing_that_a_repository_names_is_started(plant: Callable[[Path, Path], None], tmp_path: Path) -> None:
    repository, program, ran = tmp_path / "repository", tmp_path / "program", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    repository.mkdir()
    git(repository, "init", "--quiet")
    (repository / "a.md").write_text("Anna Smith met Bob Jones.\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "Add what was said on Monday")
    plant(repository, program)
    found = list(GitFiles(repository, "HEAD", "").items())
    assert [each.name for each in found] == ["a.md"]
    if plant is partial:
        with pytest.raises(DeferredError, match="cannot be read at HEAD: fatal"):
            found[0].read()
        with pytest.raises(EC1Error, match="git log failed"):
            capture(repository, None, None, "project", "acme", tmp_path / "engineering")
    else:
        assert found[0].read() == b"Anna Smith met Bob Jones.\n"
        assert capture(repository, None, None, "project", "acme", tmp_path / "engineering").written == 1
    git_state(repository)
    assert not ran.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a repository to somebody else")
def test_a_repository_of_somebody_else_is_read(tmp_path: Path) -> None:
    """Git refuses one, because its programs might be started; the account that runs nights owns none of them."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "a.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "feat: add x\n\nIt is needed.")
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, 12345, 12345)
    assert capture(tmp_path, None, None, "project", "acme", tmp_path / "engineering").written == 1
    assert git_state(tmp_path) is not None and len(list(GitFiles(tmp_path, "HEAD", "").items())) == 1
