"""The extractor of a night: the deployment's model, with the adapter that it is served with.

Belongs here: which adapter that is. Does not: how documents are extracted (`ec1.extraction`).
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from ec1.deployment import Deployment
from ec1.documents.upgrades import changed_contents
from ec1.errors import InputError
from ec1.gpu.settings import VllmSettings
from ec1.home import Home
from ec1.models import pinned_revision, prepare_tokenizer, tokenizer_folder

if TYPE_CHECKING:
    from ec1.extraction.naming.known import KnownNames
    from ec1.extraction.reading.extractor import Extractor
    from ec1.gpu.engine import ServedAdapter, VllmEngine

log = logging.getLogger(__name__)


def extractor_of(deployment: Deployment, home: Home) -> "Extractor":
    """The extractor that the deployment's documents are read with tonight."""
    from ec1.extraction.defence.releases import read_releases

    extractor = _extractor(deployment, home, adapter_of(deployment, home))
    extractor.max_chunks = deployment.documents.max_chunks
    extractor.releases = read_releases(home.releases).by_content()
    extractor.converted = changed_contents(home.conversions)
    return extractor


def _extractor(deployment: Deployment, home: Home, adapter: "ServedAdapter | None") -> "Extractor":
    """An extractor with the deployment's model and this adapter."""
    from ec1.extraction.reading.extractor import Extractor

    model = deployment.inference
    folder = tokenizer_folder(model.model, model.revision, deployment.models, home.models)
    source = deployment.models.get(model.model)
    if (source is None or source.source == "hub") and not folder.exists():
        # Before anything is asked by it: which commit a branch is belongs to the extractor's fingerprint.
        folder = prepare_tokenizer(model.model, model.revision, deployment.models, home.models)
    revision = pinned_revision(folder, model.revision)
    extractor = Extractor(deployment.extraction, model.model, revision, folder, adapter=adapter)
    extractor.max_model_len = model.max_model_len
    extractor.streams = deployment.documents.all_streams
    return extractor


def class_notes(deployment: Deployment) -> list[str]:
    """What a person should know of a deployment whose classes are not the contract's; nothing of another."""
    extraction = deployment.extraction
    vocabulary = extraction.vocabulary
    if vocabulary.is_contracts:
        return []
    notes = [f"classes: {', '.join(vocabulary.classes)}"]
    if isinstance(deployment.inference, VllmSettings):
        named = f" ({extraction.adapter.name})" if extraction.adapter is not None else ""
        notes.append(
            f"a trained extractor{named} knows the contract's classes only and is not used: the model itself is asked, "
            "and its confidences are not calibrated"
        )
    return notes


def known_names(home: Home) -> "KnownNames | None":
    """The names in the last published copy of the graph, as candidates for tonight; None before the first.

    None of a damaged copy, too: the night publishes it again.
    """
    from ec1.extraction.naming.known import KnownNames
    from ec1.graph.reader import GraphReader

    if not home.published_graph.is_file():
        return None
    try:
        with GraphReader(home.published_graph) as reader:
            return KnownNames(reader.names())
    except InputError as error:
        log.warning("names that are known are not used tonight: %s", error)
        return None


def adapter_of(deployment: Deployment, home: Home) -> "ServedAdapter | None":
    """The accepted version of `<tenant>/extractor` if there is one, else what `extraction.adapter` names; None without.

    Only an engine of our own on this machine is served with one, and only where no relations and no classes but the
    contract's are asked for, which none is trained for. Raises InputError for an adapter of another model.
    """
    from ec1.adapters.extractor import ROLE, extractor_adapter
    from ec1.adapters.registry import vllm_name
    from ec1.night.stores import open_registry

    model, extraction = deployment.inference, deployment.extraction
    if deployment.own_engine is None or extraction.relations:
        return None
    if not extraction.vocabulary.is_contracts:
        return None
    registry = open_registry(deployment, home)
    incumbent = registry.incumbent(deployment.tenant, ROLE)
    if incumbent is None or incumbent.version is None:
        shipped = extraction.adapter
        return None if shipped is None else extractor_adapter(shipped, model.model)
    if incumbent.base_model.id != model.model:
        raise InputError(
            f"{incumbent.name} was trained on {incumbent.base_model.id}, and inference.model is {model.model}: "
            "withdraw it with `ec1 adapters quarantine`, or train the recipe on that model"
        )
    folder = registry.fetch(deployment.tenant, ROLE, incumbent.version)
    return extractor_adapter(folder, model.model, vllm_name(deployment.tenant, ROLE, incumbent.version))


def engine_of(deployment: Deployment, home: Home, model: Path, adapter: "ServedAdapter | None") -> "VllmEngine":
    """The engine that serves the model in the folder `model` with `adapter`: beside it, or merged into it."""
    from ec1.adapters.merged import merged_model
    from ec1.gpu.engine import VllmEngine

    settings = deployment.inference
    assert isinstance(settings, VllmSettings)
    if adapter is not None and deployment.extraction.merge_adapter:
        merged = merged_model(model, adapter, home.models)
        return VllmEngine(settings, merged, adapter.name, deployment.gpu.device)
    return VllmEngine(settings, model, settings.model, deployment.gpu.device, adapter)
