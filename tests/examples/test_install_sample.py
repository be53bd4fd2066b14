"""The sample in a home: times, days one by one, nothing overwritten, nothing half there after a crash."""

import datetime as dt
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ec1.errors import InputError
from ec1.home import Home
from ec1.night.operations.sample import Installed, install_sample

DAYS = [dt.date(2026, 6, day) for day in range(1, 6)]

# Dies at the n-th file copied or renamed, as if the power had gone.
CRASHING = """
import os, sys
from pathlib import Path
from ec1.home import Home
from ec1.night.operations.sample import install_sample
left = int(sys.argv[3])
def hook(event, arguments):
    global left
    if event in ("shutil.copyfile", "os.rename"):
        left -= 1
        if left < 0:
            os._exit(9)
sys.addaudithook(hook)
install_sample(Path(sys.argv[1]), Home(Path(sys.argv[2])))
"""


@pytest.fixture
def sample(project: Path) -> Path:
    return project / "examples"


def contents(home: Home) -> dict[str, tuple[bytes, int]]:
    """Bytes and modification time of each file of both trees."""
    return {
        path.relative_to(home.root).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for top in (home.documents, home.corpus)
        for path in top.rglob("*")
        if path.is_file()
    }


def lines_of(sample: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in (sample / "training-corpus").rglob("*.jsonl"))


def test_everything_arrives_with_the_times_of_the_timeline(sample: Path, home: Home) -> None:
    installed = install_sample(sample, home)
    timeline = json.loads((sample / "timeline.json").read_text(encoding="utf-8"))
    assert installed == Installed(documents=26, tuples=lines_of(sample))
    assert contents(home) == {
        path: ((sample / path).read_bytes(), int(dt.datetime.fromisoformat(at).timestamp()) * 10**9)
        for path, at in timeline.items()
    }


def test_a_second_call_changes_nothing(sample: Path, home: Home) -> None:
    install_sample(sample, home)
    (home.documents / "service-agents/inbox/capture-0601.md").write_text("edited", encoding="utf-8")
    before = contents(home)
    assert install_sample(sample, home) is None
    assert contents(home) == before


def test_a_home_with_documents_of_its_own_is_left_alone(sample: Path, home: Home) -> None:
    home.documents.mkdir(parents=True)
    assert install_sample(sample, home) is None
    assert not home.corpus.exists()


def test_a_home_with_a_corpus_of_its_own_is_left_alone(sample: Path, home: Home) -> None:
    own = home.corpus / "engineering/project-own/0.jsonl"
    own.parent.mkdir(parents=True)
    own.write_text("{}\n", encoding="utf-8")
    assert install_sample(sample, home) is None
    assert not home.documents.exists()
    assert list(contents(home)) == ["training-corpus/engineering/project-own/0.jsonl"]


def test_days_added_one_by_one_give_the_same_home(sample: Path, tmp_path: Path) -> None:
    whole, daily = Home(tmp_path / "whole"), Home(tmp_path / "daily")
    everything = install_sample(sample, whole)
    steps = [step for day in DAYS if (step := install_sample(sample, daily, until=day)) is not None]
    assert len(steps) == len(DAYS) and all(step.documents >= 4 and step.tuples >= 20 for step in steps)
    assert sum(step.documents for step in steps) == everything.documents
    assert sum(step.tuples for step in steps) == everything.tuples
    assert contents(daily) == contents(whole)


def test_a_day_shows_nothing_of_the_next(sample: Path, home: Home) -> None:
    install_sample(sample, home, until=DAYS[2])
    latest = max(mtime for _, mtime in contents(home).values())
    assert latest < dt.datetime(2026, 6, 4, tzinfo=dt.UTC).timestamp() * 10**9


def test_a_further_day_never_writes_to_what_is_there(sample: Path, home: Home) -> None:
    install_sample(sample, home, until=DAYS[0])
    edited = home.documents / "service-agents/inbox/capture-0601.md"
    edited.write_text("edited", encoding="utf-8")
    before = contents(home)
    assert install_sample(sample, home, until=DAYS[1]) == Installed(5, 45)
    assert before.items() <= contents(home).items()


@pytest.mark.parametrize("step", [0, 60, 117, 118, 130, 144])
def test_a_crash_leaves_nothing_half_there(sample: Path, home: Home, tmp_path: Path, step: int) -> None:
    done = subprocess.run([sys.executable, "-c", CRASHING, str(sample), str(home.root), str(step)], check=False)
    assert done.returncode == 9
    assert not home.documents.exists()
    files = len(list((sample / "training-corpus").rglob("*.jsonl")))
    assert len(contents(home)) in (0, files)
    assert install_sample(sample, home) == Installed(26, lines_of(sample))
    install_sample(sample, Home(tmp_path / "undisturbed"))
    assert contents(home) == contents(Home(tmp_path / "undisturbed"))


def test_a_timeline_that_disagrees_is_named(sample: Path, home: Home, tmp_path: Path) -> None:
    copy = tmp_path / "sample"
    shutil.copytree(sample, copy)
    (copy / "documents/service-agents/extra.md").write_text("text", encoding="utf-8")
    with pytest.raises(InputError, match=r"extra\.md has no time in .*timeline\.json"):
        install_sample(copy, home)
    (copy / "documents/service-agents/extra.md").unlink()
    (copy / "documents/service-agents/inbox/capture-0601.md").unlink()
    with pytest.raises(InputError, match=r"capture-0601\.md does not exist, but has a time in"):
        install_sample(copy, home)
    assert not home.root.exists()


@pytest.mark.parametrize("bad", ["2026-06-01T09:30:00", "yesterday", 7])
def test_a_bad_time_is_named(sample: Path, home: Home, tmp_path: Path, bad: object) -> None:
    copy = tmp_path / "sample"
    shutil.copytree(sample, copy)
    timeline = json.loads((copy / "timeline.json").read_text(encoding="utf-8"))
    path = "documents/service-agents/inbox/capture-0601.md"
    (copy / "timeline.json").write_text(json.dumps(timeline | {path: bad}), encoding="utf-8")
    with pytest.raises(InputError, match=r"capture-0601\.md"):
        install_sample(copy, home)


def test_a_folder_without_a_timeline_is_not_a_sample(home: Home, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not a sample"):
        install_sample(tmp_path, home)
