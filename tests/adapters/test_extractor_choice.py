"""Which adapter phase 1 is served with: the accepted version of the role, else the one that the deployment names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scoring_registry import ScoringRegistry

from ec1.adapters.extractor import extractor_adapter
from ec1.adapters.manifest import AdapterBase, AdapterManifest
from ec1.corpus.dataset import Dataset
from ec1.deployment import Deployment
from ec1.errors import InputError, PermanentError
from ec1.extraction.naming.calibration import CALIBRATION, Calibration
from ec1.home import Home
from ec1.night.steps.extractor import adapter_of, extractor_of
from ec1.night.steps.recipe_night import RecipeNight
from ec1.recipes.resolution import load_recipe
from ec1.storage.directory import DirectoryStore


@pytest.fixture
def shipped(embedded: Deployment, make_candidate: Callable[..., Path]) -> Deployment:
    """The embedded deployment with a tiny adapter of its model."""
    extraction = embedded.extraction.model_copy(update={"adapter": make_candidate(7, name="shipped")})
    return embedded.model_copy(update={"extraction": extraction})


def test_an_accepted_version_takes_the_place_of_the_shipped_adapter(
    shipped: Deployment,
    tmp_path: Path,
    make_candidate: Callable[..., Path],
    manifest: Callable[..., AdapterManifest],
) -> None:
    home = Home(tmp_path / "home")
    first, before = adapter_of(shipped, home), extractor_of(shipped, home).fingerprint("meeting")
    assert first is not None and first.folder == shipped.extraction.adapter
    registry = ScoringRegistry(DirectoryStore(home.root), home.adapters)
    registry.publish(make_candidate(1), manifest(role="extractor"))
    version = adapter_of(shipped, home)
    assert version is not None
    assert version.name == "fernhollow/extractor@v1"
    assert extractor_of(shipped, home).fingerprint("meeting") != before
    registry.withdraw("fernhollow", "extractor", 1, "it reads worse")
    assert adapter_of(shipped, home) == first


def test_a_version_brings_its_own_curve_and_the_fingerprint_names_it(
    shipped: Deployment,
    tmp_path: Path,
    make_candidate: Callable[..., Path],
    manifest: Callable[..., AdapterManifest],
) -> None:
    home = Home(tmp_path / "home")
    registry = ScoringRegistry(DirectoryStore(home.root), home.adapters)
    candidate = make_candidate(1)
    curve = Calibration(
        adapter=extractor_adapter(candidate, "HuggingFaceTB/SmolLM2-135M-Instruct").digest,
        mode="both",
        knots=((0.0, 0.1), (1.0, 0.9)),
        least=0.4,
        judged=200,
    )
    curve.save(tmp_path)
    published = registry.publish(candidate, manifest(role="extractor"), {CALIBRATION: tmp_path / CALIBRATION})
    assert CALIBRATION in published.files, "signed with the weights"
    extraction = shipped.extraction.model_copy(update={"min_confidence": None})
    with_curve = extractor_of(shipped.model_copy(update={"extraction": extraction}), home)
    assert with_curve.fitted == curve.curve and with_curve.min_confidence == 0.4
    before = with_curve.fingerprint("meeting")
    with_curve.fitted = curve.model_copy(update={"knots": ((0.0, 0.1), (1.0, 0.8))}).curve
    with_curve._fingerprints.clear()
    assert with_curve.fingerprint("meeting") != before


def test_a_version_is_served_where_the_deployment_names_no_adapter(
    embedded: Deployment, tmp_path: Path, make_candidate: Callable[..., Path], manifest: Callable[..., AdapterManifest]
) -> None:
    plain = embedded.model_copy(update={"extraction": embedded.extraction.model_copy(update={"adapter": None})})
    home = Home(tmp_path / "home")
    assert adapter_of(plain, home) is None
    ScoringRegistry(DirectoryStore(home.root), home.adapters).publish(make_candidate(1), manifest(role="extractor"))
    assert adapter_of(plain, home) is not None
    relations = plain.model_copy(update={"extraction": plain.extraction.model_copy(update={"relations": True})})
    assert adapter_of(relations, home) is None


def test_a_version_of_another_model_is_refused_with_a_way_out(
    embedded: Deployment, tmp_path: Path, make_candidate: Callable[..., Path], manifest: Callable[..., AdapterManifest]
) -> None:
    home = Home(tmp_path / "home")
    candidate = make_candidate(1, base_model_name_or_path="acme/other")
    fields: dict[str, Any] = {"role": "extractor", "base_model": AdapterBase(id="acme/other", revision="main")}
    ScoringRegistry(DirectoryStore(home.root), home.adapters).publish(candidate, manifest(**fields))
    with pytest.raises(InputError, match="withdraw it"):
        adapter_of(embedded, home)


def test_a_candidate_is_held_against_what_reads_now_and_learns_on_from_the_named_adapter(
    shipped: Deployment,
    project: Path,
    tmp_path: Path,
    make_candidate: Callable[..., Path],
    manifest: Callable[..., AdapterManifest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RecipeNight, "base_model", tmp_path)
    home, candidate = Home(tmp_path / "home"), make_candidate(9)
    file = tmp_path / "extractor.yaml"
    file.write_text(
        (project / "examples" / "extractor" / "recipe.yaml").read_text().replace("tenant: ec1", "tenant: fernhollow")
    )
    resolved = load_recipe(file, [])
    dataset = Dataset("d" * 64, home.datasets / "d", "sft", "s" * 64, 1, 1, 1, 1, {}, {}, 0, {"p100": 1}, 1, 1, [], [])

    def step(deployment: Deployment) -> RecipeNight:
        return RecipeNight(resolved, deployment, home, deployment.night("2026-06-09"))

    named = shipped.extraction.adapter
    spec = step(shipped).evaluation_spec(dataset, candidate, tmp_path / "out")
    assert spec.candidates == {"base": None, "candidate": candidate, "incumbent": named}
    assert spec.reading is not None and spec.reading.extraction == shipped.extraction
    start = step(shipped).spec(dataset).start_adapter
    assert start is not None and start.folder == named
    registry = ScoringRegistry(DirectoryStore(home.root), home.adapters)
    registry.publish(make_candidate(1), manifest(role="extractor"))
    incumbent = step(shipped).evaluation_spec(dataset, candidate, tmp_path / "out").candidates["incumbent"]
    assert incumbent is not None and incumbent != named
    # Its bucket holds all corrections: each night learns all of them anew, from the same adapter.
    assert step(shipped).spec(dataset).start_adapter == start
    other = shipped.model_copy(update={"inference": shipped.inference.model_copy(update={"model": "acme/other"})})
    with pytest.raises(PermanentError, match="phase 1 reads with acme/other"):
        step(other).evaluation_spec(dataset, candidate, tmp_path / "out")
