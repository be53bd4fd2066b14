"""What only a directory can get wrong: links, leftovers, things in the way."""

import os
import time
from pathlib import Path

import pytest

from ec1.errors import InputError
from ec1.home import Home
from ec1.night.stores import open_store
from ec1.storage.directory import DirectoryStore
from ec1.storage.settings import DirectoryStoreSettings
from ec1.storage.store import NotFound


def test_links_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    store = DirectoryStore(tmp_path / "store")
    store.put_bytes("a/x", b"x")
    (tmp_path / "store" / "out").symlink_to(tmp_path)
    (tmp_path / "store" / "a" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="outside"):
        store.get_bytes("out/secret")
    with pytest.raises(InputError, match="outside"):
        store.put_bytes("out/new", b"")
    with pytest.raises(NotFound):
        store.get_bytes("a/link")
    store.put_bytes("a/link", b"new")  # replaces the link, not what it points to
    assert (tmp_path / "secret").read_text() == "secret"
    assert [item.key for item in store.list("")] == ["a/link", "a/x"]


def test_unfinished_work_is_invisible_and_goes_away(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    old, young = tmp_path / "f" / ".ec1-tmp-old", tmp_path / "f" / ".ec1-tmp-young"
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "weights").write_text("half")
    long_ago = time.time() - 3 * 24 * 3600
    os.utime(old, (long_ago, long_ago))
    assert list(store.list("")) == []
    (tmp_path / "seal").write_text("")
    store.put_folder("f/v1", {"seal": tmp_path / "seal"}, seal="seal", claim="1")
    assert not old.exists()
    assert young.exists(), "another writer may still be at work there"


def test_a_file_in_the_way_of_a_folder(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put_bytes("a", b"")
    with pytest.raises(InputError, match="in the way"):
        store.put_bytes("a/b", b"")
    store.put_bytes("c/d", b"")
    with pytest.raises(InputError, match="in the way"):
        store.put_bytes("c", b"")
    store.delete("c")
    assert store.exists("c/d")


def test_the_home_is_the_default_root(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    open_store(DirectoryStoreSettings(), home).put_bytes("adapters/acme/clerk/v1/x", b"x")
    assert (home.adapters / "acme" / "clerk" / "v1" / "x").read_bytes() == b"x"
    open_store(DirectoryStoreSettings(root=tmp_path / "other"), home).put_bytes("x", b"x")
    assert (tmp_path / "other" / "x").exists()
