"""The live line of a training that a person started."""

import json
import os
from pathlib import Path

import pytest
from patience import until

from ec1.commands import following as module
from ec1.commands.following import following


def test_the_newest_progress_is_shown_and_who_has_the_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_QUIET_SECONDS", 0.0)
    log = tmp_path / "training.log"
    told: list[str] = []
    log.write_text(json.dumps({"progress": "of another day"}) + "\n")

    def shown(text: str) -> bool:
        told.append(capsys.readouterr().err)
        return text in "".join(told)

    with following([log, tmp_path / "none.log"], lambda: "a night (training, process 1, since noon)"):
        until(lambda: shown("waits for the lease of a night"))
        with log.open("a") as stream:
            stream.write("not JSON\n" + json.dumps({"progress": "step 1 of 9: \x1b[31mloss"}) + "\n{")
        until(lambda: shown("step 1 of 9: \\x1b[31mloss"))
    assert "of another day" not in "".join(told)


def test_this_process_does_not_wait_for_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[bool] = []

    def held_by() -> str:
        asked.append(True)
        return f"ec1 train (training, process {os.getpid()}, since noon)"

    with following([tmp_path / "log"], held_by):
        until(lambda: len(asked) > 1)
    assert capsys.readouterr().err == ""
