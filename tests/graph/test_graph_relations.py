"""Relations in the graph: edges with their evidence, which come and go with the document that states them."""

from pathlib import Path

import pytest
from graph_samples import FINGERPRINT, NIGHT, key, result

from ec1.extraction.results import ExtractionResult, Relation
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.reader import GraphReader

ANNA, LABS = "Person:anna berg", "Company:cobalt labs"


@pytest.fixture
def store(tmp_path: Path):
    with LadybugStore.open(tmp_path / "live", buffer_pool_mib=64, wait_seconds=0) as opened:
        yield opened


def stating(content: str, *extra: str) -> ExtractionResult:
    """A document in which Anna Berg works at Cobalt Labs; she is mentioned twice."""
    names = [("Anna Berg", "Person"), ("Cobalt Labs", "Company"), ("Anna Berg", "Person")]
    found = result(content, *names, *((name, "Person") for name in extra))
    relation = Relation(
        relation="works_at",
        subject="Anna Berg",
        subject_class="Person",
        object="Cobalt Labs",
        object_class="Company",
        confidence=0.7,
        chunk=0,
        start=0,
        end=21,
    )
    return found.model_copy(update={"relations": (relation,)})


def stated(store: LadybugStore, folder: Path) -> list[str]:
    """The documents that state a relation of Anna Berg, as a reader sees them."""
    with GraphReader(store.publish(folder / "published")) as reader:
        return [relation.path for relation in reader.relations_of(ANNA)]


def test_a_relation_is_an_edge_with_evidence(store: LadybugStore, tmp_path: Path) -> None:
    store.apply(key("a.md"), "mk-a", stating("a"), NIGHT)
    with GraphReader(store.publish(tmp_path / "published")) as reader:
        (relation,) = reader.relations_of(LABS)
        assert reader.relations_of(ANNA) == [relation]
        query = "MATCH (a:Entity)-[r:RELATES {relation: 'works_at'}]->(b:Entity) RETURN a.name AS who, b.name AS place"
        assert reader.query(query) == [{"who": "Anna Berg", "place": "Cobalt Labs"}]
    assert (relation.subject, relation.relation, relation.object) == (ANNA, "works_at", LABS)
    assert (relation.path, relation.start, relation.end, relation.confidence) == ("a.md", 0, 21, 0.7)
    assert (relation.fingerprint, relation.model, relation.night) == (FINGERPRINT, "model-0", NIGHT)


def test_it_goes_with_its_document_and_others_stay(store: LadybugStore, tmp_path: Path) -> None:
    store.apply(key("a.md"), "mk-a", stating("a"), NIGHT)
    store.apply(key("b.md"), "mk-b", stating("b"), NIGHT)
    assert stated(store, tmp_path) == ["a.md", "b.md"]
    store.apply(key("a.md"), "mk-a2", result("a2", ("Anna Berg", "Person")), NIGHT)
    assert stated(store, tmp_path) == ["b.md"]
    store.retract_many([key("b.md")], NIGHT)
    assert stated(store, tmp_path) == []


def test_the_graph_is_the_same_whatever_the_order_and_after_a_new_start(store: LadybugStore, tmp_path: Path) -> None:
    store.apply_many([(key("a.md"), "mk-a", stating("a")), (key("b.md"), "mk-b", stating("b", "Bo Ek"))], NIGHT)
    with LadybugStore.open(tmp_path / "other", buffer_pool_mib=64, wait_seconds=0) as other:
        other.apply(key("b.md"), "mk-b", stating("b", "Bo Ek"), NIGHT)
        other.apply(key("a.md"), "mk-x", stating("x"), NIGHT)
        assert other.digest() != store.digest()
    with LadybugStore.open(tmp_path / "other", buffer_pool_mib=64, wait_seconds=0) as other:
        other.apply(key("a.md"), "mk-a", stating("a"), NIGHT)
        assert other.digest() == store.digest()


def test_a_relation_of_something_that_is_not_mentioned_is_not_kept(store: LadybugStore, tmp_path: Path) -> None:
    alone = stating("a").model_copy(update={"mentions": result("a", ("Anna Berg", "Person")).mentions})
    store.apply(key("a.md"), "mk-a", alone, NIGHT)
    assert stated(store, tmp_path) == []
