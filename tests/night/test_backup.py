"""A restored home equals the original, file for file; a backup that is not whole restores nothing."""

import hashlib
import os
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from published import ROLE, TENANT, publish
from typer.testing import CliRunner

from ec1.adapters.registry import AdapterRegistry
from ec1.cli import app
from ec1.errors import InputError, PermanentError
from ec1.home import Home
from ec1.night.operations.backup import back_up, restore
from ec1.storage.directory import DirectoryStore


def content(path: Path) -> str:
    """A file's digest; of a data base that of what it holds: its pages may lie in another order."""
    if path.suffix in (".db", ".sqlite"):
        with closing(sqlite3.connect(path)) as db:
            return hashlib.sha256("\n".join(db.iterdump()).encode()).hexdigest()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def contents(root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): content(path) for path in root.rglob("*") if path.is_file()}


REMADE = {"models/m/config.json", "cache/scan.json", "gpu.lock", "graph/live", "graph/live.wal", "runs/.x.0a1b2c3d"}


@pytest.fixture
def filled(home: Home, tmp_path: Path) -> Home:
    home.create()
    publish(AdapterRegistry(DirectoryStore(home.root), home.adapters), tmp_path, 1)
    for name in (
        *REMADE,
        "documents/a b/ünï.md",
        "graph/published",
        "keys/private.pem",
        "removals/tombstones.json",
        "adapters/.events/one.json",
        "nights/2026-06-01/records/x/r.json",
    ):
        path = home.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 1000)
    os.utime(home.root / "documents/a b/ünï.md", (1_780_000_000.25, 1_780_000_000.25))
    (home.root / "keys" / "private.pem").chmod(0o600)
    (home.snapshots / "b" / "one").mkdir(parents=True)
    (home.snapshots / "b" / "one" / "tuples.jsonl").write_text("{}\n")
    (home.snapshots / "b" / "two").mkdir()
    os.link(home.snapshots / "b" / "one" / "tuples.jsonl", home.snapshots / "b" / "two" / "tuples.jsonl")
    return home


def test_a_restored_home_is_the_same(filled: Home, tmp_path: Path) -> None:
    database = filled.dagster / "history" / "runs.db"
    database.parent.mkdir(parents=True)
    with closing(sqlite3.connect(database)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE runs (id TEXT)")
        db.executemany("INSERT INTO runs VALUES (?)", ((str(number),) for number in range(100)))
        db.commit()
        # It is open, what was committed is in the log beside it, and somebody is in the middle of something.
        db.execute("INSERT INTO runs VALUES ('half')")
        assert (database.parent / "runs.db-wal").stat().st_size > 0
        summary = back_up(filled, tmp_path / "backup", {})
    archive = tmp_path / "backup"
    assert archive.stat().st_mode & 0o777 == 0o600
    expected = {name: digest for name, digest in contents(filled.root).items() if name not in REMADE}
    other = Home(tmp_path / "elsewhere" / "home")
    restored = restore(archive, other, {})
    assert (restored.files, restored.bytes) == (summary.files, summary.bytes)
    assert contents(other.root) == expected
    with closing(sqlite3.connect(other.dagster / "history" / "runs.db")) as db:
        assert db.execute("SELECT count(*) FROM runs").fetchone() == (100,)
    document = other.root / "documents/a b/ünï.md"
    assert document.stat().st_mtime == 1_780_000_000.25, "a night reads files as of their time"
    assert (other.root / "keys" / "private.pem").stat().st_mode & 0o777 == 0o600
    assert other.root.stat().st_mode & 0o777 == 0o700
    registry = AdapterRegistry(DirectoryStore(other.root), other.adapters)
    assert registry.verify(TENANT, ROLE, 1) == []


def test_nothing_is_overwritten(filled: Home, tmp_path: Path) -> None:
    back_up(filled, tmp_path / "backup", {})
    for problem, run in (
        ("exists", lambda: back_up(filled, tmp_path / "backup", {})),
        ("lies in the home", lambda: back_up(filled, filled.root / "backup", {})),
        ("is not empty", lambda: restore(tmp_path / "backup", filled, {})),
        ("is not a home", lambda: back_up(Home(tmp_path / "none"), tmp_path / "other", {})),
        ("does not exist", lambda: restore(tmp_path / "none", Home(tmp_path / "new"), {})),
    ):
        with pytest.raises(InputError, match=problem):
            run()
    empty = tmp_path / "empty"
    empty.mkdir()
    assert restore(tmp_path / "backup", Home(empty), {}).files > 0


def test_a_damaged_backup_restores_nothing(filled: Home, tmp_path: Path) -> None:
    archive = tmp_path / "backup"
    back_up(filled, archive, {})
    whole = archive.read_bytes()
    place = whole.index(b"graph/publishedgraph/published") + 5
    damaged = {
        "flipped": whole[:place] + b"X" + whole[place + 1 :],
        "cut": whole[: len(whole) // 2],
        "empty": b"",
        "no archive": b"not a tar file at all" * 100,
    }
    for what, data in damaged.items():
        archive.write_bytes(data)
        with pytest.raises(PermanentError, match=r"take another one|other bytes"):
            restore(archive, Home(tmp_path / what), {})
        assert not (tmp_path / what).exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".ec1-tmp-")]


@pytest.mark.parametrize("name", ["../outside", "{outside}", "a/../../outside"])
def test_a_backup_that_leads_outside_restores_nothing(name: str, tmp_path: Path) -> None:
    archive, outside = tmp_path / "backup", tmp_path / "outside"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(tarfile.TarInfo(name.format(outside=outside)))
    with pytest.raises(PermanentError, match="not a plain file"):
        restore(archive, Home(tmp_path / "new"), {})
    assert not outside.exists() and not (tmp_path / "new").exists()


def test_what_is_restored_keeps_who_may_read_it_and_is_for_nobody_else_to_change(filled: Home, tmp_path: Path) -> None:
    secret, open_to_all = (filled.root / "keys" / name for name in ("secret", "open"))
    for path, mode in ((secret, 0o600), (open_to_all, 0o4777)):
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
        path.chmod(mode)
    back_up(filled, tmp_path / "backup", {})
    restore(tmp_path / "backup", Home(tmp_path / "new"), {})
    restored = [(tmp_path / "new" / "keys" / path.name).stat().st_mode & 0o7777 for path in (secret, open_to_all)]
    assert restored == [0o600, 0o755]


def test_by_the_commands(filled: Home, tmp_path: Path) -> None:
    made = CliRunner().invoke(app, ["--home", str(filled.root), "backup", str(tmp_path / "backup")])
    assert made.exit_code == 0 and "not in it: base models" in made.stdout, made.output
    again = CliRunner().invoke(app, ["--home", str(tmp_path / "new"), "restore", str(tmp_path / "backup")])
    assert again.exit_code == 0 and "all digests right" in again.stdout, again.output
    assert (tmp_path / "new" / "graph" / "published").is_file()


def test_postgresql_needs_its_address(filled: Home, tmp_path: Path, project: Path) -> None:
    filled.dagster.mkdir(parents=True)
    text = (project / "configs" / "dagster-postgres.yaml").read_text()
    (filled.dagster / "dagster.yaml").write_text(text)
    with pytest.raises(InputError, match="set EC1_DAGSTER_POSTGRES_URL"):
        back_up(filled, tmp_path / "backup", {})
    assert not (tmp_path / "backup").exists()
