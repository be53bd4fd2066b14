"""Archives and mails are opened in a process with limits: what breaks it is refused, and the next file is read."""

import errno
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import written

from ec1.documents.sources.containers import Container
from ec1.documents.sources.opened import Opener, OpeningLimits, TooSlowError
from ec1.documents.sources.source import Item
from ec1.errors import DeferredError, RejectedError

LIMITS = {"max_files": 100, "max_bytes": 2**30, "most": 2**20}


@pytest.fixture
def opener() -> Iterator[Opener]:
    with Opener(OpeningLimits(seconds=60, megabytes=512)) as opener:
        yield opener


def held_by(opener: Opener, path: Path) -> list[Item]:
    return list(opener.container(path, 7, **LIMITS))


def archive(folder: Path, **files: bytes) -> Path:
    (folder / "good.zip").write_bytes(written.zipped({f"{name}.txt": data for name, data in files.items()}))
    return folder / "good.zip"


def test_what_a_file_holds_comes_through_the_process(opener: Opener, tmp_path: Path) -> None:
    for content in (b"first", b"second\n" * 100_000):
        (item,) = held_by(opener, archive(tmp_path, a=content))
        assert (item.name, item.modified_ns, item.size) == ("a.txt", 7, len(content)) and item.read() == content
    # Opening the next one closed the one before.
    held_by(opener, archive(tmp_path))
    with pytest.raises(DeferredError):
        item.read()


def test_one_that_takes_too_much_memory_is_refused_and_the_next_is_read(opener: Opener, tmp_path: Path) -> None:
    before = psutil.Process().memory_info().rss
    (tmp_path / "large.eml").write_bytes(b"Content-Type: multipart/mixed; boundary=x\n\n--x\n")
    os.truncate(tmp_path / "large.eml", 2**30)
    with pytest.raises(RejectedError, match=r"documents\.conversion\.max_memory_mb"):
        held_by(opener, tmp_path / "large.eml")
    assert psutil.Process().memory_info().rss < before + 2**27
    assert [item.read() for item in held_by(opener, archive(tmp_path, a=b"first"))] == [b"first"]


def test_one_that_takes_too_long_is_given_up_and_the_next_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "endless.eml")
    with Opener(OpeningLimits(seconds=1, megabytes=512)) as opener:
        with pytest.raises(TooSlowError, match=r"not opened within 1 s \(documents\.conversion\.max_seconds\)"):
            held_by(opener, tmp_path / "endless.eml")
        assert opener._process is None
    with Opener(OpeningLimits(seconds=60, megabytes=512)) as opener:
        assert [item.read() for item in held_by(opener, archive(tmp_path, a=b"first"))] == [b"first"]


def test_a_process_that_ends_costs_its_file_alone(opener: Opener, tmp_path: Path) -> None:
    items = held_by(opener, archive(tmp_path, a=b"first", b=b"second"))
    assert opener._process is not None
    opener._process.kill()
    opener._process.wait()
    for item in items:
        with pytest.raises(DeferredError):
            item.read()
    assert len(held_by(opener, archive(tmp_path, a=b"first"))) == 1


def test_what_the_disk_does_not_give_is_no_verdict_on_the_file(
    opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.eml", "b.jsonl"):
        (tmp_path / name).mkdir()
        with pytest.raises(DeferredError, match="unreadable now: Is a directory"):
            held_by(opener, tmp_path / name)
    with pytest.raises(DeferredError, match="it went while it was opened"):
        held_by(opener, tmp_path / "gone.zip")
    path = archive(tmp_path, a=b"first")

    def lost(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with Container(path, 7, **LIMITS) as held:
        (item,) = held.items()
        monkeypatch.setattr(zipfile.ZipFile, "read", lost)
        with pytest.raises(OSError, match="Input/output"):
            item.read()
    monkeypatch.setattr(zipfile, "ZipFile", lost)
    with Container(path, 7, **LIMITS) as held, pytest.raises(OSError, match="Input/output"):
        list(held.items())


def test_it_knows_nothing_of_the_night(opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EC1_UI_TOKEN", "hunter2")
    held_by(opener, archive(tmp_path, a=b"first"))
    assert opener._process is not None
    process = psutil.Process(opener._process.pid)
    assert "EC1_UI_TOKEN" not in process.environ()
    opener.close()
    assert not process.is_running()
