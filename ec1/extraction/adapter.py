"""The adapter that makes the served model an extractor: a checked folder, its name in the engine, its digest.

Belongs here: what phase 1 must know of it. Does not: which one a night takes (`ec1.night.extractor`), what it is asked
(`trained`), and how versions are kept (`ec1.adapters.registry`).
"""

from dataclasses import dataclass
from pathlib import Path

from ec1.adapters.checks import adapter_problems
from ec1.adapters.manifest import CONFIG, WEIGHTS
from ec1.errors import InputError
from ec1.files import digest_of, read_json, sha256_file

ROLE = "extractor"
"""The role whose accepted versions phase 1 is served with."""


@dataclass(frozen=True)
class ExtractorAdapter:
    """`name` is the model id under which an engine serves it; `digest` is of configuration and weights."""

    name: str
    folder: Path
    digest: str
    rank: int


def extractor_adapter(folder: Path, base_id: str, name: str | None = None) -> ExtractorAdapter:
    """The adapter in `folder`, for the model `base_id`. Its name carries its digest where none is given: an engine
    caches by name. Raises InputError if it is not one that can be served with that model."""
    if problems := adapter_problems(folder, base_id):
        raise InputError(
            f"the extractor's adapter {folder} cannot be served with {base_id}: {'; '.join(problems)}: name another "
            "one in extraction.adapter, or none"
        )
    digest = digest_of([sha256_file(folder / each) for each in (CONFIG, WEIGHTS)])
    return ExtractorAdapter(name or f"{ROLE}@{digest[:12]}", folder.resolve(), digest, read_json(folder / CONFIG)["r"])
