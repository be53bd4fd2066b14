"""What a night tells of classes that are the deployment's own, and that no trained extractor is served for them."""

from pathlib import Path
from typing import Any

import pytest

from ec1.deployment import Deployment, load_deployment
from ec1.extraction.results import ENTITY_CLASSES
from ec1.home import Home
from ec1.night.records import GraphRecord, Records
from ec1.night.report.growth import growth
from ec1.night.steps.extractor import adapter_of, class_notes

SHIP: dict[str, Any] = {"name": "Ship", "description": "a vessel", "examples": ["We boarded the [Kestrel]."]}


@pytest.fixture
def own(embedded: Deployment) -> Deployment:
    """The embedded deployment, which names the shipped adapter, with ships."""
    extraction = embedded.extraction.model_dump() | {"classes": ["Person", SHIP]}
    return embedded.model_copy(update={"extraction": type(embedded.extraction).model_validate(extraction)})


def test_a_trained_extractor_is_served_for_the_contracts_classes_only(
    own: Deployment, embedded: Deployment, home: Home
) -> None:
    assert adapter_of(embedded, home) is not None
    assert adapter_of(own, home) is None
    assert class_notes(embedded) == []
    classes, adapter = class_notes(own)
    assert classes == "classes: Person, Ship"
    assert "(shipped) knows the contract's classes only and is not used" in adapter


def test_the_commented_classes_of_a_shipped_deployment_load(project: Path, tmp_path: Path) -> None:
    """They are there to be uncommented."""
    text = (project / "configs" / "deployments" / "embedded.yaml").read_text()
    head, _, rest = text.partition("  # classes:\n")
    commented, _, tail = rest.partition("\ngpu:")
    folder = tmp_path / "configs" / "deployments"
    folder.mkdir(parents=True)
    classes = "  classes:\n" + commented.replace("  # ", "  ")
    (folder / "here.yaml").write_text(f"{head}{classes}\ngpu:{tail}")
    assert load_deployment("here", tmp_path).extraction.vocabulary.classes == ("Person", "Location", "Ship")


def test_growth_counts_every_class_that_the_graph_held(tmp_path: Path) -> None:
    for night, held in (("2026-06-01", {"Person": 2, "Vessel": 1}), ("2026-06-02", {"Person": 3, "Ship": 1})):
        record = GraphRecord(entities_by_class=held, mentions_by_class=held)
        Records(tmp_path / night).write("run", record)
    found = growth(tmp_path, "2026-06-02")
    assert list(found.entities) == [*ENTITY_CLASSES, "Vessel", "Ship"]
    assert found.entities["Vessel"] == (1, 0) and found.entities["Ship"] == (0, 1)
