"""Git, asked about a repository that anybody may have made: nothing that the repository names is started.

A repository's own settings name programs: monitors, hooks, checkers of signatures, and how missing objects are fetched.
Whoever runs nights is rarely who owns the repository, so Git's own refusal of others' repositories is no help here.
"""

import os
import shutil
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.defpath,
    "LC_ALL": "C.UTF-8",
    # Without the settings of user and system, and never a question.
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    # What a partial clone lacks stays away: fetching it starts what the repository says. Older versions know the first.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
}
_SETTINGS = ("safe.directory=*", "core.fsmonitor=false", "core.hooksPath=/dev/null", "log.showSignature=false")


def git_command(repository: Path, *arguments: str) -> list[str]:
    """Git's command line in a repository; run it in `ENVIRONMENT`."""
    settings = [part for each in _SETTINGS for part in ("-c", each)]
    return [shutil.which("git") or "git", *settings, "-C", os.fspath(repository), *arguments]


def what_git_said(errors: bytes) -> str:
    """Why Git failed, in one line of what it wrote to standard error."""
    lines = errors.decode(errors="replace").strip().splitlines()
    return next((line for line in lines if line.startswith("fatal:")), lines[0] if lines else "it gave no reason")
