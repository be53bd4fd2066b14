"""From a version down to tuples, commits and documents, and from a tuple or a person up to the versions."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scoring_registry import ScoringRegistry
from typer.testing import CliRunner, Result

from ec1.adapters.manifest import AdapterManifest, DatasetRef, SnapshotRef
from ec1.adapters.registry import AdapterRegistry
from ec1.cli import app
from ec1.errors import InputError
from ec1.files import digest_of
from ec1.home import Home
from ec1.seals import write_sealed
from ec1.storage.directory import DirectoryStore

AUTHORS = ("dev-one", "dev-two", "Ana Ruiz", "dev-one")


def edit(number: int) -> dict[str, object]:
    return {
        "tuple_type": "edit",
        "source_commit": f"{number}" * 40,
        "author": AUTHORS[number],
        "commit_msg": f"fix {number}",
        "diff": f"+line {number}",
        "document_id": f"meeting/{number}.md",
    }


@pytest.fixture
def registry(home: Home) -> AdapterRegistry:
    return ScoringRegistry(DirectoryStore(home.root), home.adapters)


@pytest.fixture
def publish(
    home: Home, registry: AdapterRegistry, make_candidate: Callable[..., Path], manifest: Callable[..., AdapterManifest]
) -> Callable[..., str]:
    """Publish a version that was trained on the tuples of these numbers; the last one of each is held out."""

    seeds = itertools.count(1)

    def made(role: str, *numbers: int, **fields: object) -> str:
        records = sorted((digest_of(edit(number)), number) for number in numbers)
        snapshot, dataset = digest_of(["snapshot", *records]), digest_of(["dataset", *records])
        folder = home.snapshots / f"{role}-fernhollow" / snapshot
        folder.mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps({"digest": digest, "origin": {"file": "a.jsonl", "line": number}, "tuple": edit(number)})
            for digest, number in records
        ]
        (folder / "tuples.jsonl").write_text("".join(f"{line}\n" for line in lines))
        figures = {"lines": len(lines), "trainable": len(lines), "rejected": {}, "files_read": 1, "bytes": 1}
        named = {"bucket": f"{role}-fernhollow", "objective": "sft", "digest": snapshot}
        write_sealed(folder, {**named, **figures})
        for side, part in (("train", numbers[:-1]), ("heldout", numbers[-1:])):
            path = home.datasets / dataset / side / "rows.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"row": [digest_of(edit(number)) for number in part]}), path)
        refs = {
            "snapshot": SnapshotRef(bucket=f"{role}-fernhollow", digest=snapshot, tuples=len(lines)),
            "dataset": DatasetRef(digest=dataset, train_rows=len(numbers) - 1, heldout_rows=1),
        }
        name = registry.publish(make_candidate(next(seeds)), manifest(role=role, **refs, **fields)).name
        assert (home.adapters / "fernhollow" / role).is_dir()
        return name

    return made


@pytest.fixture
def ec1(home: Home) -> Callable[..., Result]:
    return lambda *arguments: CliRunner().invoke(app, ["--home", str(home.root), *arguments])


def containing(ec1: Callable[..., Result], text: str) -> dict[str, int]:
    result = ec1("adapters", "containing", text, "--json")
    assert result.exit_code == 0, result.exception
    found: dict[str, int] = json.loads(result.stdout)["versions"]
    return found


def test_a_version_is_followed_to_tuples_commits_and_documents(
    publish: Callable[..., str], ec1: Callable[..., Result]
) -> None:
    name = publish("engineering", 0, 1, 3, git_commit="9f1c0de")
    found = json.loads(ec1("adapters", "lineage", name, "--json").stdout)
    assert found["name"] == name and found["git_commit"] == "9f1c0de"
    assert {each["digest"] for each in found["tuples"]} == {digest_of(edit(0)), digest_of(edit(1))}, "3 was held out"
    assert {each["author"] for each in found["tuples"]} == {"dev-one", "dev-two"}
    assert {each["commit"] for each in found["tuples"]} == {"0" * 40, "1" * 40}
    assert {each["document"] for each in found["tuples"]} == {"meeting/0.md", "meeting/1.md"}
    shown = ec1("adapters", "lineage", name).stdout
    assert "2 tuples" in shown and "2 commits" in shown and "dev-two" in shown


def test_what_a_version_rests_on_is_part_of_its_lineage(
    publish: Callable[..., str], ec1: Callable[..., Result]
) -> None:
    first, second = publish("engineering", 0, 1, 3), publish("apprenticeship", 2, 3)
    onward = publish("apprenticeship", 1, 0, started_from=second)
    last = publish("engineering", 3, 1, started_from=onward)
    found = json.loads(ec1("adapters", "lineage", last, "--json").stdout)
    assert [parent["name"] for parent in found["parents"]] == [onward]
    assert [parent["name"] for parent in found["parents"][0]["parents"]] == [second]
    assert containing(ec1, "Ana Ruiz") == {second: 1, onward: 0, last: 0}
    assert containing(ec1, digest_of(edit(0))[:12]) == {first: 1}
    assert containing(ec1, f"source_commit:{'1' * 40}") == {first: 1, onward: 1, last: 0}
    assert containing(ec1, "somebody else") == {}
    assert containing(ec1, f"source_commit:{'9' * 40}") == {}
    refused = ec1("adapters", "containing", "sourcecommit:1111")
    assert isinstance(refused.exception, InputError) and "no tuple here has 'sourcecommit'" in str(refused.exception)


def test_a_version_whose_data_is_gone_is_named_as_unknown(
    publish: Callable[..., str], ec1: Callable[..., Result], home: Home
) -> None:
    import shutil

    name = publish("engineering", 0, 1, 3)
    shutil.rmtree(home.datasets)
    result = json.loads(ec1("adapters", "containing", "dev-one", "--json").stdout)
    assert result == {"versions": {}, "unknown": [name]}
    assert "not in this home" in json.loads(ec1("adapters", "lineage", name, "--json").stdout)["missing"]


def test_forgetting_a_person_withdraws_what_went_on_from_it_too(
    publish: Callable[..., str], ec1: Callable[..., Result], home: Home, registry: AdapterRegistry
) -> None:
    second = publish("apprenticeship", 2, 3)
    publish("engineering", 0, 1, 3)
    onward = publish("engineering", 0, 1, 3, started_from=second)
    home.corpus.mkdir(parents=True)
    found = json.loads(ec1("forget", "--person", "Ana Ruiz", "--json").stdout)
    assert found["versions"] == [second, onward]
    assert registry.withdrawal("fernhollow", "engineering", 1) is None
    assert registry.withdrawal("fernhollow", "engineering", 2) is not None
