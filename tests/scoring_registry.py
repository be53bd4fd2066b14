"""A registry for tests of versions, where nothing is trained or judged."""

from collections.abc import Mapping
from pathlib import Path

from ec1.adapters.evaluation import digests
from ec1.adapters.manifest import AdapterManifest
from ec1.adapters.registry import AdapterRegistry


class ScoringRegistry(AdapterRegistry):
    """Publishes what an evaluation has scored: these tests are about versions, not about how they were judged."""

    def publish(
        self, candidate: Path, manifest: AdapterManifest, attachments: Mapping[str, Path] | None = None
    ) -> AdapterManifest:
        if manifest.evaluation is not None and not manifest.evaluation.scored:
            evaluation = manifest.evaluation.model_copy(update={"scored": digests(candidate)})
            manifest = manifest.model_copy(update={"evaluation": evaluation})
        return super().publish(candidate, manifest, attachments)
