"""What the registry records and who may rely on it: decisions, withdrawals, removals, quarantine, downloads.

On a directory that lies elsewhere than this machine's folder; `test_registry.py` holds the registry on a bucket too.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from scoring_registry import ScoringRegistry

from ec1.adapters.manifest import ADAPTER_FILES, AdapterManifest
from ec1.adapters.registry import AdapterRegistry
from ec1.errors import InputError, PermanentError
from ec1.storage.directory import DirectoryStore

MakeCandidate = Callable[..., Path]
Manifest = Callable[..., AdapterManifest]
WHO = ("fernhollow", "engineering")


def keys(registry: AdapterRegistry) -> list[str]:
    return [item.key for item in registry.store.list("") if not item.key.endswith("/.claim")]


@pytest.fixture
def apart(tmp_path: Path) -> AdapterRegistry:
    """A store elsewhere than on this machine's folder of versions."""
    return ScoringRegistry(DirectoryStore(tmp_path / "store"), tmp_path / "home" / "adapters")


def test_files_that_differ_from_the_manifest_are_not_published(
    apart: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    candidate, other = make_candidate(1), make_candidate(2)
    published = apart.publish(candidate, manifest()).files
    listed = {name: entry for name, entry in published.items() if name in ADAPTER_FILES}
    with pytest.raises(PermanentError, match="the files are not those that the manifest lists: train again"):
        apart.publish(other, manifest().model_copy(update={"files": listed}))
    assert apart.versions(*WHO) == [1]
    again = manifest(dataset=manifest().dataset.model_copy(update={"digest": "d" * 64}))
    assert apart.publish(candidate, again.model_copy(update={"files": listed})).version == 2


def test_a_manifest_says_when_it_was_published_unless_it_says_so_itself(
    apart: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    before = dt.datetime.now(dt.UTC).replace(microsecond=0)
    published = apart.publish(make_candidate(1), manifest()).created_at
    assert published is not None and before <= published <= dt.datetime.now(dt.UTC)
    assert published.utcoffset() == dt.timedelta() and not published.microsecond
    given = dt.datetime(2026, 6, 1, 23, 30, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    second = apart.publish(make_candidate(2), manifest(created_at=given))
    assert second.created_at == given
    event = apart.store.get_bytes("adapters/.events/20260601T213000Z-fernhollow_engineering_v2.json")
    assert json.loads(event)["at"] == "2026-06-01T21:30:00+00:00"
    quarantined = apart.quarantine(make_candidate(3), manifest(verdict="review", created_at=given), "why")
    assert AdapterManifest.model_validate_json((quarantined / "manifest.json").read_bytes()).created_at == given


def test_a_refusal_names_the_candidate_and_what_the_gate_said(
    apart: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    candidate = make_candidate()
    for refused, said in ((manifest(verdict="review"), "review"), (manifest(evaluation=None), "nothing")):
        with pytest.raises(InputError, match=f"^fernhollow/engineering is not published: the gate says {said};"):
            apart.publish(candidate, refused)
    with pytest.raises(InputError, match=r"is not a folder: give the folder of a trained adapter"):
        apart.publish(candidate / "none", manifest())
    with pytest.raises(
        InputError, match=r"^'notes\.txt' is not published beside an adapter: use one of evaluation\.json, "
    ):
        apart.publish(candidate, manifest(), {"notes.txt": candidate / "adapter_config.json"})
    for at, damage in enumerate(("{}", "")):
        broken = make_candidate(7, name=f"broken-{at}")
        (broken / "adapter_config.json").write_text(damage)
        with pytest.raises(PermanentError, match=f"broken-{at} is not published: "):
            apart.publish(broken, manifest())
    assert keys(apart) == []


def test_what_lies_beside_a_candidate_is_published_with_it(
    apart: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest, tmp_path: Path
) -> None:
    candidate = make_candidate()
    (candidate / "recipe.json").write_text('{"name": "r"}')
    (candidate / "evaluation.json").write_text('{"of": "an earlier one"}')
    (tmp_path / "scores.json").write_text('{"of": "this one"}')
    published = apart.publish(candidate, manifest(), {"evaluation.json": tmp_path / "scores.json"})
    folder = apart.fetch(*WHO, 1)
    assert (folder / "recipe.json").read_text() == '{"name": "r"}'
    assert (folder / "evaluation.json").read_text() == '{"of": "this one"}', "what is given stands for what lies there"
    assert {name: (entry.sha256, entry.size) for name, entry in published.files.items()} == {
        path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size)
        for path in folder.iterdir()
        if path.name not in ("manifest.json", "model.sig")
    }


def test_a_version_is_downloaded_once_and_again_where_it_was_damaged(
    apart: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    candidate = make_candidate()
    apart.publish(candidate, manifest())
    folder = apart.fetch(*WHO, 1)
    weights = (candidate / "adapter_model.safetensors").read_bytes()
    whole = {path.name for path in folder.iterdir()}
    assert whole >= {"adapter_config.json", "adapter_model.safetensors", "manifest.json"}
    kept = (folder / "adapter_model.safetensors").stat().st_ino
    assert apart.fetch(*WHO, 1) == folder and (folder / "adapter_model.safetensors").stat().st_ino == kept
    for damage in (
        lambda: (folder / "adapter_model.safetensors").write_bytes(weights[:-1]),
        lambda: (folder / "adapter_model.safetensors").write_bytes(weights[:-1] + b"x"),
        lambda: (folder / "adapter_config.json").unlink(),
        lambda: (folder / "manifest.json").unlink(),
    ):
        damage()
        assert apart.fetch(*WHO, 1) == folder
        assert (folder / "adapter_model.safetensors").read_bytes() == weights
        assert {path.name for path in folder.iterdir()} == whole
    assert [path.name for path in folder.parent.iterdir()] == ["v1"]
    assert [path.name for path in apart.local.iterdir()] == ["fernhollow"], "no temporary folder stays"


def test_a_manifest_that_was_moved_or_lists_no_weights_is_not_believed(
    apart: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    apart.publish(make_candidate(1), manifest())
    prefix = "adapters/fernhollow/engineering"
    apart.store.put_bytes(f"{prefix}/v2/manifest.json", apart.store.get_bytes(f"{prefix}/v1/manifest.json"))
    with pytest.raises(
        PermanentError, match=r"v2/manifest\.json is the manifest of fernhollow/engineering@v1: it was moved"
    ):
        apart.get(*WHO, 2)
    assert apart.usable(*WHO) == [1]
    record = json.loads(apart.store.get_bytes(f"{prefix}/v1/manifest.json"))
    del record["files"]["adapter_model.safetensors"]
    apart.store.put_bytes(f"{prefix}/v1/manifest.json", json.dumps(record).encode())
    with pytest.raises(PermanentError, match=r"@v1 is not signed: the manifest lists no adapter_model\.safetensors"):
        apart.sign(*WHO, 1, "looks right")
    with pytest.raises(InputError, match=r"there is no fernhollow/other@v1: the role has no version yet"):
        apart.get("fernhollow", "other", 1)


def test_a_withdrawal_is_for_good_and_a_second_one_changes_nothing(
    apart: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    for seed in (1, 2):
        apart.publish(make_candidate(seed), manifest())
    assert apart.withdrawal(*WHO, 2) is None
    for reason in ("leaks", "rude"):
        apart.withdraw(*WHO, 2, reason, who="ann")
    withdrawn = apart.withdrawal(*WHO, 2)
    assert withdrawn is not None and withdrawn.reason == "leaks"
    assert dt.datetime.now(dt.UTC) - withdrawn.at < dt.timedelta(minutes=10)
    (said,) = apart.decisions(*WHO)
    assert (said.action, said.before, said.after, said.as_of, said.who, said.reason) == (
        "withdraw",
        2,
        2,
        2,
        "ann",
        "leaks",
    )
    for choose in (apart.promote, apart.pin):
        with pytest.raises(InputError, match=r"^fernhollow/engineering@v2 was withdrawn \(leaks\): choose another"):
            choose(*WHO, 2, "again")
    apart.store.put_bytes("adapters/fernhollow/engineering/v1/withdrawn.json", b"{}")
    with pytest.raises(PermanentError, match=r"v1/withdrawn\.json is damaged: 2 errors; write it again"):
        apart.withdrawal(*WHO, 1)
    assert apart.usable(*WHO) == [], "whoever cannot tell does not serve it"


def test_each_decision_says_who_and_why(
    apart: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    for seed in (1, 2, 3):
        apart.publish(make_candidate(seed), manifest())
    assert apart.promote(*WHO, 1, "better", who="ann").version == 1
    assert apart.pin(*WHO, 2, "audited", who="bob").version == 2
    unpinned = apart.unpin(*WHO, "done", who="cem")
    assert unpinned is not None and unpinned.version == 3
    apart.promote_base(*WHO, "compare", who="dan")
    assert apart.incumbent(*WHO) is None
    apart.promote(*WHO, 3, "back", who="eve")
    assert apart.rollback(*WHO, "rude", who="fay").version == 2
    said = [(each.action, each.before, each.after, each.as_of, each.who, each.reason) for each in apart.decisions(*WHO)]
    assert said == [
        ("promote", 3, 1, 3, "ann", "better"),
        ("pin", 1, 2, 3, "bob", "audited"),
        ("unpin", 2, None, 3, "cem", "done"),
        ("base", 3, None, 3, "dan", "compare"),
        ("promote", None, 3, 3, "eve", "back"),
        ("rollback", 3, 2, 3, "fay", "rude"),
    ]
    names = [item.key.rpartition("/")[2] for item in apart.store.list("adapters/fernhollow/engineering/decisions/")]
    assert names == [*(f"{number:06}.json" for number in range(1, 7)), "head.json"]
    apart.store.put_bytes("adapters/fernhollow/engineering/decisions/000003.txt", b"a note")
    assert len(apart.decisions(*WHO)) == 6


def test_history_is_in_the_order_of_time_and_tells_who_published(
    apart: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    accepted = manifest()
    assert accepted.evaluation is not None
    evaluation = accepted.evaluation.model_copy(update={"reasons": ("better than base", "keeps 80%")})
    moments = [dt.datetime(2026, 6, day, tzinfo=dt.UTC) for day in (3, 1, 2)]
    apart.publish(make_candidate(1), accepted.model_copy(update={"evaluation": evaluation, "created_at": moments[0]}))
    apart.publish(make_candidate(2), manifest(verdict="review", override="read by hand", created_at=moments[1]))
    apart.publish(make_candidate(3), manifest(evaluation=None, override="a trial", created_at=moments[2]))
    apart.promote(*WHO, 1, "best")
    said = [(each.action, each.after, each.who, each.reason) for each in apart.history(*WHO)]
    assert said == [
        ("publish", 2, "a person, against the gate", "read by hand"),
        ("publish", 3, "a person, against the gate", "a trial"),
        ("publish", 1, "the gate", "better than base; keeps 80%"),
        ("promote", 1, "", "best"),
    ]


def test_only_what_nobody_needs_is_expendable_the_worst_first(
    apart: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    def expendable(keep: int) -> list[int | None]:
        return [each.version for each in apart.expendable(*WHO, keep)]

    assert expendable(0) == []
    for seed, gain in enumerate((0.4, 0.1, 0.9, 0.1, 0.2, 0.3), start=1):
        apart.publish(make_candidate(seed), manifest(gain=gain))
    apart.publish(make_candidate(7), manifest(evaluation=None, override="a trial"))
    apart.publish(make_candidate(8), manifest(gain=0.5))
    apart.promote(*WHO, 5, "in use")
    assert expendable(0) == [7, 2, 4, 6, 1], "3 is the best, 5 in use, 8 the newest"
    assert expendable(5) == [7, 2, 4]
    assert expendable(8) == expendable(9) == []
    apart.withdraw(*WHO, 2, "leaks")
    assert expendable(0) == [7, 4, 6, 1], "what was withdrawn is kept for audits"


def test_what_is_removed_leaves_its_manifest_for_the_auditor(
    apart: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    for seed, gain in ((1, 0.9), (2, 0.1), (3, 0.2), (4, 0.3)):
        apart.publish(make_candidate(seed), manifest(gain=gain))
    apart.promote(*WHO, 3, "in use")
    for needed in (1, 3, 4):
        with pytest.raises(
            InputError, match=f"@v{needed} is not removed: it is the version in use, the best or the newest"
        ):
            apart.remove(*WHO, needed, "room")
    kept, removed = apart.fetch(*WHO, 1), apart.fetch(*WHO, 2)
    expected = apart.get(*WHO, 2)
    apart.remove(*WHO, 2, "room")
    assert apart.versions(*WHO) == [1, 3, 4]
    assert [key for key in keys(apart) if "/v2/" in key] == []
    record = json.loads(apart.store.get_bytes("adapters/.removed/fernhollow_engineering_v2.json"))
    assert AdapterManifest.model_validate(record["manifest"]) == expected and record["reason"] == "room"
    assert kept.is_dir() and not removed.exists()
    assert apart.publish(make_candidate(5), manifest()).version == 5


def test_what_is_in_quarantine_is_whole_and_never_called_accepted(
    apart: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    def kept(seed: int, of: AdapterManifest) -> AdapterManifest:
        folder = apart.quarantine(make_candidate(seed), of, "why")
        found = AdapterManifest.model_validate_json((folder / "manifest.json").read_bytes())
        place = f"quarantine/fernhollow/engineering/2026-06-01-{found.identity[:12]}"
        assert folder == apart.local.parent / place
        names = sorted(path.name for path in folder.iterdir())
        assert names == ["adapter_config.json", "adapter_model.safetensors", "manifest.json", "reason.txt"]
        stored = [item.key for item in apart.store.list(place) if not item.key.endswith(".claim")]
        assert stored == [f"{place}/{name}" for name in names]
        assert set(found.files) == {"adapter_config.json", "adapter_model.safetensors"}
        assert found.created_at is not None and not found.created_at.microsecond
        return found

    assert kept(1, manifest()).status == "rejected"
    assert kept(2, manifest(evaluation=None)).status == "rejected"
    assert kept(3, manifest(verdict="no_effect")).status == "no_effect"
