"""Resolution beside the graph: made, read, made again and dropped, while what the documents said stays."""

import shutil
from pathlib import Path

import ladybug
import pytest
from graph_samples import NIGHT, key, random_changes, result

from ec1.errors import InputError
from ec1.extraction.results import ExtractionResult, Trait
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.reader import GraphReader
from ec1.graph.resolution.clusters import Band
from ec1.graph.resolution.overrides import NO_OVERRIDES, Decision, Overrides

JANE, SMITH = "Person:jane smith", "Person:smith, jane"


@pytest.fixture
def store(tmp_path: Path):
    with LadybugStore.open(tmp_path / "live", buffer_pool_mib=64, wait_seconds=0) as opened:
        yield opened


def people(content: str, *names: str, email: str | None = None) -> ExtractionResult:
    found = result(content, *((name, "Person") for name in names))
    traits = [Trait(name=names[0], entity_class="Person", kind="email", value=email)] if email else []
    return found.model_copy(update={"traits": tuple(traits)})


def test_forms_of_one_name_become_a_cluster_that_readers_see(store: LadybugStore, tmp_path: Path) -> None:
    store.apply(key("a.md"), "mk-a", people("a", "Jane Smith", "J. Cole"), NIGHT)
    store.apply(key("b.md"), "mk-b", people("b", "Smith, Jane", "Jim Cole"), NIGHT)
    made = store.resolve(NO_OVERRIDES)
    assert [cluster.members for cluster in made.clusters] == [(JANE, SMITH)]
    assert [(link.one, link.other) for link in made.band(Band.REVIEW)] == [("Person:j. cole", "Person:jim cole")]
    with GraphReader(store.publish(tmp_path / "published")) as reader:
        assert reader.resolution() == made
        cluster, (link,) = reader.cluster_of(SMITH)
        assert cluster == made.clusters[0] and link == made.band(Band.MERGE)[0]
        assert reader.cluster_of("Person:j. cole")[0] is None
        query = "MATCH (e:Entity)-[:MEMBER_OF]->(c:Cluster) RETURN e.key AS key, c.members AS n ORDER BY key"
        assert reader.query(query) == [{"key": JANE, "n": 2}, {"key": SMITH, "n": 2}]


def test_it_can_be_dropped_and_made_again_and_the_graph_stays(store: LadybugStore) -> None:
    store.apply_many(random_changes(3, 40, 60), NIGHT)
    store.apply(key("a.md"), "mk-a", people("a", "Jane Smith", "Smith, Jane"), NIGHT)
    before, stats = store.digest(), store.stats()
    made = store.resolve(NO_OVERRIDES)
    assert made.clusters
    store.drop_resolution()
    assert store.digest() == before and store.stats() == stats
    again = store.resolve(NO_OVERRIDES)
    assert again == made and store.digest() == before


def test_dropping_what_is_not_there_writes_nothing(store: LadybugStore, tmp_path: Path) -> None:
    store.apply(key("a.md"), "mk-a", people("a", "Jane Smith"), NIGHT)
    published = store.publish(tmp_path / "published")
    stamp = published.stat().st_mtime_ns
    store.drop_resolution()
    assert store.publish(published).stat().st_mtime_ns == stamp


def test_the_order_of_documents_does_not_matter(store: LadybugStore, tmp_path: Path) -> None:
    documents = [(key(f"{n}.md"), "mk", people(f"{n}", *names)) for n, names in enumerate(NAMES)]
    store.apply_many(documents, NIGHT)
    made = store.resolve(NO_OVERRIDES)
    with LadybugStore.open(tmp_path / "other", buffer_pool_mib=64, wait_seconds=0) as other:
        for document in reversed(documents):
            other.apply(*document, NIGHT)
            other.resolve(NO_OVERRIDES)
        assert other.resolve(NO_OVERRIDES) == made
        assert other.digest_with_resolution() == store.digest_with_resolution()
    assert made.clusters and made.band(Band.REVIEW)


NAMES = [("Jane Smith", "Bo Ek"), ("Smith, Jane",), ("J. Smith", "Ek, Bo"), ("Dr. Jane A. Smith",), ("John Smith",)]


def test_another_e_mail_keeps_two_apart_until_its_document_goes(store: LadybugStore) -> None:
    store.apply(key("a.md"), "mk-a", people("a", "Jane Smith", email="jane@a.example"), NIGHT)
    store.apply(key("b.md"), "mk-b", people("b", "Smith, Jane", email="js@b.example"), NIGHT)
    (link,) = store.resolve(NO_OVERRIDES).links
    assert (link.band, link.veto) == (Band.NEW, "other email")
    store.apply(key("b.md"), "mk-b", people("b2", "Smith, Jane"), NIGHT)
    assert [link.band for link in store.resolve(NO_OVERRIDES).links] == [Band.MERGE]


def test_an_unchanged_graph_is_not_written_again(store: LadybugStore, tmp_path: Path) -> None:
    store.apply(key("a.md"), "mk-a", people("a", "Jane Smith", "Smith, Jane"), NIGHT)
    made = store.resolve(NO_OVERRIDES)
    published = store.publish(tmp_path / "published")
    stamp = published.stat().st_mtime_ns
    assert store.resolve(NO_OVERRIDES) == made
    assert store.publish(published).stat().st_mtime_ns == stamp


def test_new_decisions_resolve_an_unchanged_graph_again(store: LadybugStore) -> None:
    store.apply(key("a.md"), "mk-a", people("a", "Jane Smith", "Smith, Jane"), NIGHT)
    assert store.resolve(NO_OVERRIDES).clusters
    different = Overrides(different=(Decision(entities=(JANE, SMITH), reason="mother and daughter"),))
    assert store.resolve(different).clusters == ()
    wrong = different.model_copy(update={"same": (Decision(entities=(JANE, SMITH), reason="x"),)})
    with pytest.raises(InputError, match="mother and daughter"):
        store.resolve(wrong)
    assert store.resolve(different).clusters == ()


def test_an_entity_that_goes_leaves_its_cluster(store: LadybugStore) -> None:
    store.apply(key("a.md"), "mk-a", people("a", "Jane Smith"), NIGHT)
    store.apply(key("b.md"), "mk-b", people("b", "Smith, Jane"), NIGHT)
    store.resolve(NO_OVERRIDES)
    store.retract_many([key("b.md")], NIGHT)
    assert store.resolve(NO_OVERRIDES).clusters == ()


def test_a_graph_of_the_first_schema_gets_the_tables_that_it_lacks(tmp_path: Path) -> None:
    live = tmp_path / "live"
    with LadybugStore.open(live, buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply(key("a.md"), "mk-a", people("a", "Jane Smith", "Smith, Jane"), NIGHT)
        before = store.digest()
    with ladybug.Database(live, buffer_pool_size=2**26) as database, ladybug.Connection(database) as connection:
        for table in ("SAME_AS", "MEMBER_OF", "Cluster", "TRAIT"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("MATCH (m:Meta {name: 'schema'}) SET m.value = '1'")
        connection.execute("CHECKPOINT")
    shutil.copy(live, tmp_path / "published")
    with LadybugStore.open(live, buffer_pool_mib=64, wait_seconds=0) as store:
        assert store.digest() == before
        assert len(store.resolve(NO_OVERRIDES).clusters) == 1
        with GraphReader(store.publish(tmp_path / "published")) as reader:
            assert reader.digest() == before
