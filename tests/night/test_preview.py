"""What a night would do, told before it is done."""

import datetime as dt
import errno
import os
from pathlib import Path

import pytest

from ec1.deployment import Deployment
from ec1.documents import steady
from ec1.home import Home
from ec1.night.operations.preview import plan_whole_night
from ec1.night.operations.sample import install_sample
from ec1.recipes.resolution import load_recipe

NIGHT = "2026-06-05"


def test_a_recipe_whose_base_cannot_be_had_is_refused_and_the_plan_goes_on(
    project: Path, embedded: Deployment, home: Home, tmp_path: Path
) -> None:
    install_sample(project / "examples", home)
    for document in home.documents.rglob("*.*"):
        # What is not read needs no model.
        document.unlink()
    text = (project / "examples" / "recipes" / "engineering.yaml").read_text()
    (misspelt := tmp_path / "x.yaml").write_text(text.replace("SmolLM2-135M-Instruct", "SmolLM2-135M-Instruckt"))
    recipe = load_recipe(misspelt, [project / "configs" / "recipes"])
    now = dt.datetime.now(dt.UTC)
    planned = plan_whole_night(embedded, home, embedded.night(NIGHT), [recipe, recipe], now, project)
    assert planned.extraction.documents == 0
    assert [(each.train, each.plan) for each in planned.recipes] == [(True, None)] * 2
    assert all("SmolLM2-135M-Instruckt" in (each.refused or "") for each in planned.recipes), planned.recipes


def test_what_would_not_be_read_is_told_with_the_reason(
    project: Path, embedded: Deployment, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_sample(project / "examples", home)
    every = sorted(path for path in home.documents.rglob("*.md"))
    for document in home.documents.rglob("*.*"):
        document.unlink()
    every[0].touch()
    every[1].write_text("on a disk that fails")
    for document in every[:2]:
        # Before the night, which is past.
        os.utime(document, (10**9, 10**9))
    given = steady._hash_file

    def lost(path: Path, max_bytes: int) -> object:
        if path.name == every[1].name:
            raise OSError(errno.EIO, "Input/output error")
        return given(path, max_bytes)

    monkeypatch.setattr(steady, "_hash_file", lost)
    now = dt.datetime.now(dt.UTC)
    planned = plan_whole_night(embedded, home, embedded.night(NIGHT), [], now, project).extraction
    assert (planned.documents, planned.rejected) == (0, 1)
    empty, unread = planned.problems
    assert empty.startswith("1 rejected: empty (") and every[0].name in empty
    assert unread.startswith("1 left for a later night: unreadable now: Input/output error (")
    assert every[1].name in unread
