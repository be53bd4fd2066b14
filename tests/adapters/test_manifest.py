"""What a manifest refuses: it is what an auditor relies on."""

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from ec1.adapters.manifest import AdapterBase, AdapterManifest, DatasetRef, FileEntry, is_model_id


def test_it_survives_json(manifest: Callable[..., AdapterManifest]) -> None:
    one = manifest()
    assert AdapterManifest.model_validate_json(one.model_dump_json()) == one
    assert one.name == "fernhollow/engineering"


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": "../up"},
        {"role": "Engineering"},
        {"night": "2026-6-1"},
        {"version": 0},
        {"unknown": 1},
        {"created_at": "2026-06-01T00:00:00"},
        {"files": {"../../evil": FileEntry(sha256="a" * 64, size=1)}},
        {"files": {"optimizer.pt": FileEntry(sha256="a" * 64, size=1)}},
        {"status": "fine"},
    ],
)
def test_it_refuses(manifest: Callable[..., AdapterManifest], change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        AdapterManifest.model_validate(manifest().model_dump() | change)


def test_digests_and_model_ids() -> None:
    with pytest.raises(ValidationError):
        DatasetRef(digest="abc", train_rows=1, heldout_rows=1)
    for path in ("/data/models/small", "./small", "../small", "C:\\models", "a/b/c", "~/models", ""):
        assert not is_model_id(path)
        with pytest.raises(ValidationError):
            AdapterBase(id=path, revision="main")
    assert is_model_id("HuggingFaceTB/SmolLM2-135M-Instruct")
    assert is_model_id("gpt2")
