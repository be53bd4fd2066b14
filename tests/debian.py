"""Programs that come in Debian packages. A test that needs one that is missing skips, and the end of the test run names
the packages with which all of them would have run."""

import re
import shutil
from pathlib import Path

import pytest

PACKAGES = {
    "bwrap": "bubblewrap",
    "chromium": "chromium",
    "pg_ctl": "postgresql",
    "rsync": "rsync",
    "ssh": "openssh-client",
    "sshd": "openssh-server",
    "systemd-analyze": "systemd",
    "tesseract": "tesseract-ocr",
}
_OTHER_NAMES = {"chromium": ("chromium-browser", "google-chrome")}
_REASON = "{} is not installed (Debian: {})"


def program(name: str) -> str:
    """The path of a program; the test skips where there is none."""
    # Debian keeps PostgreSQL's programs out of the path, by version.
    versions = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    newest = sorted(versions, key=lambda path: int(path.parts[-3]))[-1:]
    found = [
        shutil.which(each) or shutil.which(each, path="/usr/sbin:/sbin") for each in (name, *_OTHER_NAMES.get(name, ()))
    ]
    for path in (*found, *map(str, newest)):
        if path:
            return path
    pytest.skip(_REASON.format(name, PACKAGES[name]))


def packages_that_skipped(reasons: list[str]) -> list[str]:
    """The packages that skipped tests named as their reasons."""
    pattern = re.escape(_REASON).replace(r"\{\}", "([a-z-]+)")
    return sorted({match.group(2) for reason in reasons if (match := re.search(pattern, reason))})
