"""The files of a Git repository at a revision."""

import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ec1.documents.sources.source import Item
from ec1.errors import DeferredError, RejectedError
from ec1.git import ENVIRONMENT, git_command, what_git_said

_LARGE_FILE = b"version https://git-lfs.github.com/spec/"
_FILES = ("100644", "100755")
"""Modes of plain files: links and submodules are not documents."""


class GitFiles:
    """A `Source`: the version of a file is its blob, its date the revision's."""

    def __init__(self, repository: Path, revision: str, folder: str) -> None:
        self._repository, self._revision, self._folder = repository, revision, folder

    def items(self) -> Iterator[Item]:
        commit = self._git("rev-parse", "--verify", "--end-of-options", f"{self._revision}^{{commit}}").decode().strip()
        moment = int(self._git("show", "-s", "--format=%ct", commit)) * 10**9
        tree = f"{commit}:{self._folder}" if self._folder else commit
        for line in self._git("ls-tree", "-r", "-z", "--long", tree).split(b"\0"):
            head, _, name = line.partition(b"\t")
            if name:
                mode, _, blob, size = head.decode().split()
                if mode in _FILES:
                    read = partial(self._read, blob)
                    # A blob that is not there, as in a partial clone, has no size.
                    known = int(size) if size.isdecimal() else None
                    yield Item(name.decode("utf-8", "surrogateescape"), blob, moment, read, known)

    def _read(self, blob: str) -> bytes:
        data = self._git("cat-file", "blob", blob)
        if data.startswith(_LARGE_FILE):
            raise RejectedError("kept by Git LFS: its content is not in the repository")
        return data

    def _git(self, *arguments: str) -> bytes:
        """Raises DeferredError with what Git says."""
        command = git_command(self._repository, *arguments)
        try:
            done = subprocess.run(command, capture_output=True, check=False, env=ENVIRONMENT)
        except OSError as error:
            raise DeferredError(f"git cannot be run: {error.strerror}") from None
        if done.returncode:
            said = what_git_said(done.stderr)
            raise DeferredError(f"the repository {self._repository} cannot be read at {self._revision}: {said}")
        return done.stdout
