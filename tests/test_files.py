"""No file is ever seen half-written, and no name from outside becomes a path unchecked."""

import errno
import multiprocessing
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ec1.errors import InputError
from ec1.files import (
    atomic_file,
    canonical_json,
    checked_name,
    digest_of,
    inside,
    read_json,
    sha256_file,
    staged_directory,
    write_atomic,
)


@pytest.mark.parametrize("bad", ["", "..", "a/b", "A", "a_b", "x" * 65, "a\n", "é", "a b", "-\x00"])
def test_names_that_could_be_paths_are_refused(bad: str) -> None:
    with pytest.raises(InputError):
        checked_name(bad, "role")


def test_good_names_pass() -> None:
    assert [checked_name(name, "role") for name in ("a", "x" * 64, "crew-2")] == ["a", "x" * 64, "crew-2"]


@pytest.mark.parametrize("bad", ["../x", "/etc/passwd", "a/../../x", "link/x"])
def test_paths_stay_inside(tmp_path: Path, bad: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    with pytest.raises(InputError):
        inside(root, bad)


def test_equal_values_have_equal_bytes() -> None:
    assert canonical_json({"b": 1, "a": "é"}) == '{"a":"é","b":1}'.encode()
    assert digest_of({"x": 1, "y": 2}) == digest_of({"y": 2, "x": 1})
    with pytest.raises(ValueError):
        canonical_json(float("nan"))


def _rewrite(path: Path, letter: str) -> None:
    for _ in range(200):
        write_atomic(path, letter * 50_000)


def test_a_reader_sees_the_old_content_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "value"
    write_atomic(path, "a" * 50_000)
    writers = [multiprocessing.get_context("spawn").Process(target=_rewrite, args=(path, x)) for x in "ab"]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        text = path.read_text()
        assert len(text) == 50_000 and len(set(text)) == 1
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert [each.name for each in tmp_path.iterdir()] == ["value"]


def test_a_file_appears_whole_or_not_at_all_and_follows_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with pytest.raises(ZeroDivisionError), atomic_file(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert list(path.parent.iterdir()) == []
    before = os.umask(0o077)
    try:
        with atomic_file(path) as temporary:
            temporary.write_text("first")
        with staged_directory(tmp_path / "folder") as staging:
            (staging / "x").write_text("x")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError), atomic_file(path, exclusive=True) as temporary:
        temporary.write_text("second")
    assert path.read_text() == "first" and [each.name for each in path.parent.iterdir()] == ["file"]


def test_without_hard_links_a_name_is_given_once_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a share of another system, or a bucket that is mounted."""

    def no_links(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(target))

    monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "key"

    def name(text: str) -> bool:
        try:
            with atomic_file(path, exclusive=True) as temporary:
                temporary.write_text(text)
                first.wait()
        except FileExistsError:
            return False
        return True

    first = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        named = dict(zip("abcdefgh", pool.map(name, "abcdefgh"), strict=True))
    assert sum(named.values()) == 1 and named[path.read_text()]
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("read", [read_json, sha256_file])
def test_an_error_of_the_disk_names_the_file(read: Callable[[Path], object]) -> None:
    # Linux gives this error for it, as a failing disk does.
    with pytest.raises(OSError, match="Input/output error: '/proc/self/mem'"):
        read(Path("/proc/self/mem"))


def test_a_file_system_that_flushes_no_folders_is_used_and_one_that_fails_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = os.fsync

    def refuse(number: int) -> Callable[[int], None]:
        def fsync(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(number, os.strerror(number))
            flush(descriptor)

        return fsync

    monkeypatch.setattr(os, "fsync", refuse(errno.EINVAL))
    write_atomic(tmp_path / "value", "kept")
    assert (tmp_path / "value").read_text() == "kept"
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        write_atomic(tmp_path / "value", "not flushed")


def test_a_staged_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    final = tmp_path / "deep" / "final"
    with pytest.raises(ZeroDivisionError), staged_directory(final) as staging:
        (staging / "x").write_text("half")
        raise ZeroDivisionError
    assert not final.exists() and list(final.parent.iterdir()) == []
    with staged_directory(final) as staging:
        (staging / "x").write_text("first")
    with staged_directory(final) as staging:
        (staging / "x").write_text("second")
    assert (final / "x").read_text() == "first"
    assert [each.name for each in final.parent.iterdir()] == ["final"]


def test_broken_json_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(InputError, match=r"x\.json is not valid JSON"):
        read_json(tmp_path / "x.json")


def test_a_file_that_already_holds_the_same_bytes_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    for text, changes in (("one", True), ("one", False), ("two", True)):
        before = path.stat().st_ino if path.exists() else None
        with atomic_file(path, keep_equal=True) as temporary:
            temporary.write_text(text)
        assert path.read_text() == text
        assert (path.stat().st_ino != before) is changes
        assert list(tmp_path.iterdir()) == [path]
