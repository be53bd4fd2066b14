"""Own classes in the real graph: what may be one, what readers see, what service-content gets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_service_content import fake_service_content
from graph_samples import NIGHT, key, result

from ec1.documents.ledger import LedgerEntry, Status
from ec1.errors import InputError
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.settings import ExtractionSettings
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.neighbours import neighbourhood, write_graphml, write_html
from ec1.graph.reader import GraphReader
from ec1.graph.resolution.overrides import NO_OVERRIDES
from ec1.graph.schema_page import schema_of
from ec1.graph.service_content import ServiceContentClient
from ec1.graph.service_content_store import ServiceContentStore
from ec1.graph.settings import ServiceContentSettings
from ec1.vocabulary import Vocabulary

SHIP: dict[str, Any] = {
    "name": "Ship",
    "description": "a vessel",
    "examples": ["We boarded the [Kestrel]."],
    "words": ["MV"],
    "sent_as": "Project",
}


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Ships beside persons and firms of the same names."""
    with LadybugStore.open(tmp_path / "live", buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply(
            key("a.md"),
            "mk-a",
            result("a", ("Ship Aurora Star", "Ship"), ("Victoria Bell", "Ship"), ("Victoria Bell", "Person")),
            NIGHT,
        )
        store.apply(
            key("b.md"),
            "mk-b",
            result("b", ("Aurora Star", "Ship"), ("Bell, Victoria", "Ship"), ("Bell, Victoria", "Person")),
            NIGHT,
        )
        store.apply(
            key("c.md"),
            "mk-c",
            result("c", ("Aurora Star 2", "Ship"), ("Aurora Star 3", "Ship"), ("Ann Lee", "Person")),
            NIGHT,
        )
        store.resolve(NO_OVERRIDES)
        return store.publish(tmp_path / "published")


@pytest.fixture
def reader(published: Path) -> Iterator[GraphReader]:
    with GraphReader(published, buffer_pool_mib=64) as opened:
        yield opened


def test_an_own_class_is_resolved_as_things_are_and_never_across_classes(reader: GraphReader) -> None:
    resolution = reader.resolution()
    members = {cluster.members for cluster in resolution.clusters}
    # The class's own name says nothing of which ship it is; what turns a person's name round turns no ship's.
    assert ("Ship:aurora star", "Ship:ship aurora star") in members
    assert ("Person:bell, victoria", "Person:victoria bell") in members
    assert all(len({each.partition(":")[0] for each in cluster}) == 1 for cluster in members)
    assert not any({"Ship:aurora star 2", "Ship:aurora star 3"} <= set(cluster) for cluster in members)
    assert not any({"Ship:victoria bell", "Ship:bell, victoria"} <= set(cluster) for cluster in members)


def test_readers_know_the_classes_that_the_graph_holds(reader: GraphReader) -> None:
    assert reader.classes() == ("Person", "Company", "Project", "Account", "Location", "Ship")
    assert {each.entity_class for each in reader.entities(None, "Ship")} == {"Ship"}
    person, ship = (entity for entity, _ in reader.show("victoria bell"))
    assert person.members == ("Person:bell, victoria", "Person:victoria bell") and ship.key == "Ship:victoria bell"
    (entity,) = [each for each in schema_of(reader) if each.table == "Entity"]
    assert entity.meaning.endswith("beside the contract's classes there are Ship")
    with pytest.raises(InputError, match=r"unknown entity class 'Dog': choose one of Person, .*Ship"):
        reader.entities(entity_class="Dog")
    with pytest.raises(InputError, match="unknown entity class"):
        reader.entities(entity_class="Ship' OR true //")


def test_own_classes_are_drawn_and_written(reader: GraphReader, tmp_path: Path) -> None:
    graph = neighbourhood(reader, "Ship:aurora star")
    write_graphml(graph, tmp_path / "a.graphml")
    write_html(graph, tmp_path / "a.html")
    assert ">Ship<" in (tmp_path / "a.graphml").read_text()
    # A colour that no class of the contract has.
    assert "#666666" not in (tmp_path / "a.html").read_text()


def test_service_content_gets_an_own_class_as_the_one_that_the_deployment_names(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox")
    found = result("a", ("MV Kestrel", "Ship"), ("Kestrel of old", "Ferry"), ("Ann Lee", "Person"))
    outbox.put(found)
    ledger = {
        key("a.md"): LedgerEntry(key("a.md"), "mk-a", found.content_sha256, found.fingerprint, Status.APPLIED, NIGHT)
    }

    with fake_service_content() as service:
        values = ServiceContentSettings(base_url=service.url)
        with ServiceContentClient(values, "acme", backoff_seconds=0.01) as client:

            def night(sent_as: str) -> tuple[dict[str, str], dict[str, int]]:
                before = len(service.writes)
                store = ServiceContentStore(tmp_path / "state.sqlite", client, _vocabulary(sent_as))
                delivery = store.deliver(ledger, outbox, NIGHT)
                sent = [each for write in service.writes[before:] for each in write["entities"]]
                return {each["entity_name"]: each["classification"] for each in sent}, delivery.refused

            # A ferry is of a class that the deployment no longer has.
            assert night("Project") == ({"MV Kestrel": "Project", "Ann Lee": "Person"}, {"unknown class": 1})
            assert night("Project") == ({}, {})
            # Another class there is said again, though the document has not changed.
            assert night("Account") == ({"MV Kestrel": "Account"}, {"unknown class": 1})


def _vocabulary(sent_as: str) -> Vocabulary:
    return ExtractionSettings.model_validate({"classes": ["Person", SHIP | {"sent_as": sent_as}]}).vocabulary
