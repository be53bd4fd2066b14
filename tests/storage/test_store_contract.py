"""What every store promises, held against a directory and against a real fake-gcs-server."""

import datetime as dt
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ec1.errors import InputError
from ec1.storage.store import AlreadyExists, NotFound, ObjectStore


def test_what_was_put_is_what_one_gets(store: ObjectStore, tmp_path: Path) -> None:
    source = tmp_path / "source.bin"
    source.write_bytes(bytes(range(256)) * 40_000)  # 10 MB: over the border to a resumable upload
    store.put_file("adapters/acme/big.bin", source)
    store.put_bytes("adapters/acme/empty", b"")
    store.get_file("adapters/acme/big.bin", tmp_path / "below" / "copy.bin")
    assert (tmp_path / "below" / "copy.bin").read_bytes() == source.read_bytes()
    assert store.get_bytes("adapters/acme/empty") == b""
    store.put_bytes("adapters/acme/empty", "näh".encode())
    assert store.get_bytes("adapters/acme/empty") == "näh".encode()


def test_what_is_not_there(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        store.get_bytes("no/such")
    with pytest.raises(NotFound):
        store.get_file("no/such", tmp_path / "copy")
    with pytest.raises(NotFound):
        store.rename("no/such", "other")
    assert not (tmp_path / "copy").exists()
    assert not store.exists("no/such")
    assert list(store.list("no/")) == []
    store.delete("no/such")


def test_if_absent_never_overwrites(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "two").write_bytes(b"two")
    store.put_bytes("a/key", b"one", if_absent=True)
    with pytest.raises(AlreadyExists, match="a/key"):
        store.put_bytes("a/key", b"two", if_absent=True)
    with pytest.raises(AlreadyExists):
        store.put_file("a/key", tmp_path / "two", if_absent=True)
    assert store.get_bytes("a/key") == b"one"
    store.delete("a/key")
    store.put_file("a/key", tmp_path / "two", if_absent=True)
    assert store.get_bytes("a/key") == b"two"


def test_list_is_by_string_prefix_and_in_byte_order(store: ObjectStore) -> None:
    keys = ["a/b/1", "a/b/2", "a/b-c/1", "a/bc", "a/.events/x", "ab", "b/é"]
    before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=5)
    for number, key in enumerate(keys):
        store.put_bytes(key, b"x" * number)
    everything = list(store.list(""))
    assert [item.key for item in everything] == sorted(keys, key=str.encode)
    assert {item.key: item.size for item in everything} == {key: number for number, key in enumerate(keys)}
    assert all(before <= item.updated <= dt.datetime.now(dt.UTC) for item in everything)
    assert [item.key for item in store.list("a/b")] == ["a/b-c/1", "a/b/1", "a/b/2", "a/bc"]
    assert [item.key for item in store.list("a/b/")] == ["a/b/1", "a/b/2"]
    assert [item.key for item in store.list("a/b/1")] == ["a/b/1"]


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/etc/passwd",
        "../up",
        "a/../../up",
        "a/./b",
        "a//b",
        "a/",
        "a\\b",
        "a\nb",
        "a\x00b",
        "a\x7fb",
        "a\u2028b",
        "a\ud800b",
        ".ec1-tmp-x/a",
        "x" * 1025,
        "a/" + "x" * 201,
    ],
)
def test_bad_keys_are_refused_everywhere(store: ObjectStore, key: str, tmp_path: Path) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.put_bytes(key, b""),
        lambda: store.get_bytes(key),
        lambda: store.get_file(key, tmp_path / "x"),
        lambda: store.exists(key),
        lambda: store.delete(key),
        lambda: store.rename("a", key),
        lambda: store.rename(key, "a"),
        lambda: store.put_folder(key, {"x": tmp_path / "x"}, seal="x", claim="1"),
    ]
    if not key.endswith("/") and key:
        calls.append(lambda: list(store.list(key)))
    store.put_bytes("a", b"")
    for call in calls:
        with pytest.raises(InputError, match="is not a key"):
            call()
    assert store.get_bytes("a") == b""


def folder_of(path: Path, **files: str) -> dict[str, Path]:
    path.mkdir()
    for name, text in files.items():
        (path / name).write_text(text)
    return {name: path / name for name in files}


def test_a_folder_appears_once(store: ObjectStore, tmp_path: Path) -> None:
    one = folder_of(tmp_path / "one", weights="1", seal="first")
    two = folder_of(tmp_path / "two", weights="2", seal="second")
    store.put_folder("f/v1", one, seal="seal", claim="one")
    for files, claim in ((two, "two"), (one, "one")):
        with pytest.raises(AlreadyExists):
            store.put_folder("f/v1", files, seal="seal", claim=claim)
    assert store.get_bytes("f/v1/weights") == b"1"
    assert store.get_bytes("f/v1/seal") == b"first"


def test_a_folder_that_cannot_be_read_leaves_no_seal(store: ObjectStore, tmp_path: Path) -> None:
    files = folder_of(tmp_path / "one", weights="1", seal="first") | {"gone": tmp_path / "gone"}
    with pytest.raises((FileNotFoundError, NotFound)):
        store.put_folder("f/v1", files, seal="seal", claim="one")
    assert not store.exists("f/v1/seal")
    (tmp_path / "gone").write_text("back")
    store.put_folder("f/v1", files, seal="seal", claim="one")  # the same content completes it
    assert store.get_bytes("f/v1/gone") == b"back"


def test_rename(store: ObjectStore) -> None:
    store.put_bytes("p/a", b"a")
    store.put_bytes("p/b", b"b")
    with pytest.raises(AlreadyExists):
        store.rename("p/a", "p/b")
    store.rename("p/a", "p/a.claimed")
    assert not store.exists("p/a")
    assert store.get_bytes("p/a.claimed") == b"a"


def race(count: int, action: Callable[[int], None]) -> list[int]:
    """Run `action(i)` in threads at once; return who did not get AlreadyExists or NotFound."""
    barrier, winners = threading.Barrier(count), list[int]()

    def run(number: int) -> None:
        barrier.wait()
        try:
            action(number)
            winners.append(number)
        except (AlreadyExists, NotFound):
            pass

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return winners


def put(store: ObjectStore, key: str, number: int) -> None:
    store.put_bytes(key, str(number).encode(), if_absent=True)


def rename(store: ObjectStore, source: str, destination: str, _: int) -> None:
    store.rename(source, destination)


def put_folder(store: ObjectStore, prefix: str, folders: list[dict[str, Path]], number: int) -> None:
    store.put_folder(prefix, folders[number], seal="seal", claim=str(number))


def test_of_many_writers_one_wins(store: ObjectStore, tmp_path: Path) -> None:
    folders = [folder_of(tmp_path / f"f{i}", weights=str(i), seal=f"seal {i}") for i in range(6)]
    for turn in range(5):
        names = f"race/{turn}", f"race/{turn}.claimed", f"race/v{turn}"
        winners = race(6, partial(put, store, names[0]))
        assert len(winners) == 1
        assert store.get_bytes(f"race/{turn}") == str(winners[0]).encode()
        assert len(race(6, partial(rename, store, names[0], names[1]))) == 1
        winners = race(6, partial(put_folder, store, names[2], folders))
        assert len(winners) == 1
        assert store.get_bytes(f"race/v{turn}/weights") == str(winners[0]).encode()
        assert store.get_bytes(f"race/v{turn}/seal") == f"seal {winners[0]}".encode()
