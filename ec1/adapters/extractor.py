"""The adapter that makes the served model an extractor: a folder that was checked, ready for the engine.

Belongs here: the check. Does not: which one a night takes (`ec1.night.steps.extractor`), what it is asked
(`ec1.extraction.naming.trained`), and how versions are kept (`registry`).
"""

from pathlib import Path

from ec1.adapters.checks import adapter_problems
from ec1.adapters.manifest import CONFIG, WEIGHTS
from ec1.errors import InputError
from ec1.files import digest_of, read_json, sha256_file
from ec1.gpu.engine import ServedAdapter

ROLE = "extractor"
"""The role whose accepted versions phase 1 is served with."""


def extractor_adapter(folder: Path, base_id: str, name: str | None = None) -> ServedAdapter:
    """The adapter in `folder`, for the model `base_id`. Its name carries its digest where none is given: an engine
    caches by name. Raises InputError if it is not one that can be served with that model."""
    if problems := adapter_problems(folder, base_id):
        raise InputError(
            f"the extractor's adapter {folder} cannot be served with {base_id}: {'; '.join(problems)}: name another "
            "one in extraction.adapter, or none"
        )
    digest = digest_of([sha256_file(folder / each) for each in (CONFIG, WEIGHTS)])
    return ServedAdapter(name or f"{ROLE}@{digest[:12]}", folder.resolve(), digest, read_json(folder / CONFIG)["r"])
