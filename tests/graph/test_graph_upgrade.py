"""A graph that an earlier version wrote becomes one of this version, and says the same."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import ladybug
import pytest
from graph_samples import NIGHT, key, random_changes, result

from ec1.errors import PermanentError
from ec1.graph import database, tables
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.reader import GraphReader
from ec1.graph.resolution.overrides import NO_OVERRIDES

HISTORY = random_changes(5, 30, 60)
TWO_WAYS = next(statement for statement in tables.SCHEMA if "MENTIONS" in statement).partition(" WITH")[0]
FROM_THE_ENTITY = "MATCH (d:Document)-[m:MENTIONS]->(e:Entity {key: 'x'}) HINT d JOIN (m JOIN e) RETURN m.name AS name"


def run(path: Path, *statements: str) -> list[dict[str, object]]:
    """What the last of some statements returns."""
    found: list[dict[str, object]] = []
    with ladybug.Database(path, buffer_pool_size=2**26) as base, ladybug.Connection(base) as connection:
        for statement in statements:
            found = tables.rows(connection, statement)
    return found


def opened(path: Path) -> contextlib.AbstractContextManager[LadybugStore]:
    return LadybugStore.open(path, buffer_pool_mib=64, wait_seconds=0)


@pytest.fixture
def earlier(tmp_path: Path) -> tuple[Path, str]:
    """A graph of schema 4, and its digest."""
    live = tmp_path / "graph" / "live"
    with opened(live) as store:
        store.apply_many(HISTORY, NIGHT)
        store.resolve(NO_OVERRIDES)
        digest = store.digest_with_resolution()
    values = ", ".join(f"{name}: m.{name}" for name in tables.MENTION_COLUMNS)
    run(
        live,
        "ALTER TABLE MENTIONS RENAME TO FORWARD",
        TWO_WAYS,
        f"MATCH (d:Document)-[m:FORWARD]->(e:Entity) CREATE (d)-[:MENTIONS {{{values}}}]->(e)",
        "DROP TABLE FORWARD",
        "MATCH (m:Meta {name: 'schema'}) SET m.value = '4'",
        "CHECKPOINT",
    )
    assert run(live, FROM_THE_ENTITY) == []
    return live, digest


def test_a_table_that_earlier_versions_wrote_and_this_one_does_not_need_does_no_harm(tmp_path: Path) -> None:
    live = tmp_path / "graph" / "live"
    with opened(live) as store:
        store.apply_many(HISTORY, NIGHT)
        store.resolve(NO_OVERRIDES)
        digest = store.digest_with_resolution()
    run(
        live,
        "CREATE NODE TABLE Unexported(key STRING PRIMARY KEY)",
        "CREATE (:Unexported {key: 'documents:0.md'}), (:Meta {name: 'exported', value: '2026-06-01-0123456789ab'})",
        "CHECKPOINT",
    )
    check(live, digest)


def check(live: Path, digest: str) -> None:
    with opened(live) as store:
        assert store.recovered is None
        assert store.digest_with_resolution() == digest
        assert store.digest() == store.recounted_digest()
        assert tables.meta(store._db.connection)["schema"] == tables.SCHEMA_VERSION == "5"
        # What an earlier version noted goes on: an edit takes back, a new document counts.
        store.apply(key("0.md"), "mk-new", result("new", ("Anna Berg", "Person")), "2026-06-02")
        assert store.digest() == store.recounted_digest()
        store.publish(live.with_name("published"))
    with GraphReader(live.with_name("published")) as reader:
        ((entity, mentions),) = reader.show("Anna Berg")
        assert (entity.documents, len(mentions)) == (1, 1)
    with pytest.raises(RuntimeError, match="storage direction"):
        run(live, FROM_THE_ENTITY)


def test_an_earlier_graph_says_the_same_afterwards(earlier: tuple[Path, str]) -> None:
    check(*earlier)


def test_readers_take_an_earlier_copy(earlier: tuple[Path, str]) -> None:
    with GraphReader(earlier[0]) as reader:
        assert reader.stats().mentions > 0


def test_a_large_graph_takes_many_steps(earlier: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_PAGE", 5)
    check(*earlier)


def test_what_fails_on_the_way_changes_nothing(earlier: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    live, digest = earlier

    def fail(path: Path, _: int) -> None:
        path.write_bytes(b"half of it")
        path.with_name(path.name + ".wal").write_bytes(b"its log")
        raise RuntimeError("Buffer manager exception: The buffer pool is full")

    with monkeypatch.context() as patch, pytest.raises(PermanentError, match="raise graph"):
        patch.setattr(database, "upgrade", fail)
        with opened(live):
            pass
    check(live, digest)


@pytest.mark.parametrize("step", range(1, 12, 2))
def test_a_kill_on_the_way_changes_nothing(earlier: tuple[Path, str], step: int) -> None:
    live, digest = earlier
    killed = f"""
import os, sys
from pathlib import Path
from ec1.graph import tables, upgrade
from ec1.graph.ladybug_store import LadybugStore
steps, rows = [], tables.rows
def counted(*arguments):
    steps.append(arguments)
    if len(steps) == {step}:
        os.kill(os.getpid(), 9)
    return rows(*arguments)
class Tables:
    rows = staticmethod(counted)
    def __getattr__(self, name):
        return getattr(tables, name)
upgrade.tables = Tables()
with LadybugStore.open(Path(sys.argv[1]), buffer_pool_mib=64, wait_seconds=0):
    pass
"""
    ended = subprocess.run([sys.executable, "-c", killed, live], env=os.environ, check=False)
    assert ended.returncode == -9
    check(live, digest)
