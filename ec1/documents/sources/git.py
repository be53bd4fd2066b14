"""The files of a Git repository at a revision. Only Git's plumbing is run: no hook, no filter, no diff driver."""

import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ec1.documents.sources.source import Item
from ec1.errors import DeferredError, RejectedError

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
                    yield Item(name.decode("utf-8", "surrogateescape"), blob, moment, read, int(size))

    def _read(self, blob: str) -> bytes:
        data = self._git("cat-file", "blob", blob)
        if data.startswith(_LARGE_FILE):
            raise RejectedError("kept by Git LFS: its content is not in the repository")
        return data

    def _git(self, *arguments: str) -> bytes:
        """Raises DeferredError with what Git says."""
        command = ["git", "-c", "safe.directory=*", "-C", os.fspath(self._repository), *arguments]
        # Without the settings of user and system, and never a question.
        quiet = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C.UTF-8"}
        try:
            done = subprocess.run(command, capture_output=True, check=False, env={"PATH": os.defpath, **quiet})
        except OSError as error:
            raise DeferredError(f"git cannot be run: {error.strerror}") from None
        if done.returncode:
            said = (done.stderr.decode(errors="replace").strip().splitlines() or ["it failed"])[0]
            raise DeferredError(f"the repository {self._repository} cannot be read at {self._revision}: {said}")
        return done.stdout
