"""A night in a cluster's job, whose temporary folder has a name too long for a socket in it."""

from pathlib import Path

import pytest
from light import light_project

pytestmark = pytest.mark.system


def test_a_night_begins_and_ends_there(
    tmp_path: Path, project: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("job" * 30)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    ec1 = light_project(tmp_path, project, tiny_model, train=False)
    assert ec1.environment["TMPDIR"] == str(folder)
    done = ec1.run("night", "--date", "2026-06-03")
    assert done.returncode == 0, done.stdout
    for link in Path("/tmp").glob("ec1-*"):
        if link.is_symlink() and link.readlink() == folder:
            link.unlink()
