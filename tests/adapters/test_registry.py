"""The registry on a directory and on a real bucket emulator: versions are whole, counted once, and never change."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from scoring_registry import ScoringRegistry

from ec1.adapters.evaluation import digests
from ec1.adapters.manifest import AdapterManifest
from ec1.adapters.registry import AdapterRegistry, vllm_name
from ec1.errors import InputError, PermanentError
from ec1.storage.directory import DirectoryStore
from ec1.storage.gcs import GcsStore
from ec1.storage.store import ObjectStore

MakeCandidate = Callable[..., Path]
Manifest = Callable[..., AdapterManifest]
WHO = ("fernhollow", "engineering")


@pytest.fixture
def registry(store: ObjectStore, tmp_path: Path) -> AdapterRegistry:
    """With a directory the store is the home itself, as by default; with a bucket it is elsewhere."""
    home = store.root if isinstance(store, DirectoryStore) else tmp_path / "home"
    return ScoringRegistry(store, home / "adapters")


def keys(registry: AdapterRegistry) -> list[str]:
    return [
        item.key
        for item in registry.store.list("")
        if not item.key.endswith("/.claim") and not item.key.startswith("keys/")
    ]


def test_a_version_appears_with_all_that_explains_it(
    registry: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest, tmp_path: Path
) -> None:
    candidate = make_candidate()
    (candidate / "training_args.bin").write_bytes(b"a pickle")
    (candidate / "README.md").write_text("card")
    (candidate / "checkpoint-5").mkdir()
    (candidate / "checkpoint-5" / "optimizer.pt").write_bytes(b"a pickle")
    (tmp_path / "scores.json").write_text("{}")
    published = registry.publish(candidate, manifest(), {"evaluation.json": tmp_path / "scores.json"})

    assert (published.version, published.status, published.name) == (1, "accepted", "fernhollow/engineering@v1")
    assert published.created_at is not None
    prefix = "adapters/fernhollow/engineering/v1"
    files = [
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "evaluation.json",
        "manifest.json",
        "model.sig",
    ]
    moment = published.created_at.strftime("%Y%m%dT%H%M%SZ")
    event = f"adapters/.events/{moment}-fernhollow_engineering_v1.json"
    assert keys(registry) == [event, *(f"{prefix}/{name}" for name in files)]
    assert json.loads(registry.store.get_bytes(event)) == {
        "event": "adapter-published",
        "path": "fernhollow/engineering/v1",
        "at": published.created_at.isoformat(),
    }
    assert registry.get(*WHO, 1) == published
    assert registry.verify(*WHO, 1) == []
    assert registry.roles() == [WHO]
    folder = registry.fetch(*WHO, 1)
    assert folder == registry.local / "fernhollow" / "engineering" / "v1"
    assert (folder / "adapter_model.safetensors").read_bytes() == (candidate / "adapter_model.safetensors").read_bytes()
    assert AdapterManifest.model_validate_json((folder / "manifest.json").read_bytes()) == published


def test_the_same_candidate_is_the_same_version(
    registry: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    first = registry.publish(make_candidate(1), manifest())
    second = registry.publish(make_candidate(2), manifest("2026-06-02"))
    again = registry.publish(make_candidate(1, name="again"), manifest("2026-06-03"))
    assert (first.version, second.version) == (1, 2)
    assert again == first
    assert registry.versions(*WHO) == [1, 2]
    other = registry.publish(
        make_candidate(1, name="other"), manifest(dataset=manifest().dataset.model_copy(update={"digest": "d" * 64}))
    )
    assert other.version == 3
    assert len([key for key in keys(registry) if "/.events/" in key]) == 3


def test_versions_count_in_numbers_and_apart_for_each_role(
    registry: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    for seed in range(11):
        registry.publish(make_candidate(seed), manifest())
    registry.publish(make_candidate(99), manifest(role="apprenticeship"))
    assert registry.versions(*WHO) == list(range(1, 12))
    assert registry.versions("fernhollow", "apprenticeship") == [1]
    assert registry.versions("fernhollow", "engineer") == []
    assert registry.roles() == [("fernhollow", "apprenticeship"), WHO]
    incumbent = registry.incumbent(*WHO)
    assert incumbent is not None and incumbent.version == 11


def test_what_the_gate_did_not_accept_is_not_published(
    registry: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    for refused in (manifest(verdict="review"), manifest(verdict="rejected"), manifest(evaluation=None)):
        with pytest.raises(InputError, match="is not published"):
            registry.publish(make_candidate(name=f"c-{id(refused)}"), refused)
    assert keys(registry) == []
    published = registry.publish(make_candidate(), manifest(verdict="review", override="read by hand, sounds right"))
    assert published.version == 1
    assert registry.get(*WHO, 1).override == "read by hand, sounds right"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"base_model_name_or_path": "/data/models/small"}, "is a path"),
        ({"base_model_name_or_path": "other/model"}, "the manifest says"),
        ({"peft_type": "IA3"}, "peft_type"),
        ({"r": 4}, "not of rank"),
        ({"r": 0}, "not a rank"),
        ({"target_modules": []}, "target_modules"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "biases"),
    ],
)
def test_a_configuration_that_cannot_be_served_is_not_published(
    tmp_path: Path, make_candidate: MakeCandidate, manifest: Manifest, config: dict[str, object], problem: str
) -> None:
    registry = ScoringRegistry(DirectoryStore(tmp_path / "home"), tmp_path / "home" / "adapters")
    with pytest.raises(PermanentError, match=problem):
        registry.publish(make_candidate(**config), manifest())
    assert keys(registry) == []


def _weights(folder: Path, change: Callable[[dict[str, object]], object]) -> None:
    from safetensors.numpy import load_file, save_file

    tensors = load_file(folder / "adapter_model.safetensors")
    change(tensors)
    save_file(tensors, folder / "adapter_model.safetensors")


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda t: [v.fill(-0.0) for k, v in t.items() if "lora_B" in k], "every lora_B is zero"),
        (lambda t: [v.fill(float("nan")) for k, v in t.items() if "lora_A" in k], "NaN or infinity"),
        (lambda t: [t.pop(k) for k in list(t) if "lora_A" in k], "only lora_B"),
        (lambda t: t.clear(), "no LoRA matrices"),
        (lambda t: t.update({"optimizer.state": next(iter(t.values()))}), "not part of a LoRA"),
    ],
)
def test_weights_that_do_nothing_or_harm_are_not_published(
    tmp_path: Path, make_candidate: MakeCandidate, manifest: Manifest, damage: Callable[..., object], problem: str
) -> None:
    registry = ScoringRegistry(DirectoryStore(tmp_path / "home"), tmp_path / "home" / "adapters")
    candidate = make_candidate()
    _weights(candidate, damage)
    with pytest.raises(PermanentError, match=problem):
        registry.publish(candidate, manifest())
    assert keys(registry) == []


def test_other_weights_than_safetensors_are_not_read(
    tmp_path: Path, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    registry = ScoringRegistry(DirectoryStore(tmp_path / "home"), tmp_path / "home" / "adapters")
    candidate = make_candidate()
    (candidate / "adapter_model.safetensors").rename(candidate / "adapter_model.bin")
    with pytest.raises(PermanentError, match=r"adapter_model\.safetensors is missing"):
        registry.publish(candidate, manifest())
    (candidate / "adapter_model.safetensors").write_bytes(b"\x80\x04]\x94.")
    with pytest.raises(PermanentError, match="not a whole safetensors file"):
        registry.publish(candidate, manifest())


def test_damage_in_the_store_is_found(
    registry: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    registry.publish(make_candidate(1), manifest())
    registry.publish(make_candidate(2), manifest())
    prefix = "adapters/fernhollow/engineering/v1"
    other = registry.store.get_bytes("adapters/fernhollow/engineering/v2/adapter_model.safetensors")
    registry.store.put_bytes(f"{prefix}/adapter_model.safetensors", other)
    registry.store.put_bytes(f"{prefix}/optimizer.pt", b"")
    assert registry.verify(*WHO, 1) == [
        "optimizer.pt is not in the manifest",
        "adapter_model.safetensors is not the file that was published (SHA-256 differs)",
    ]
    with pytest.raises(PermanentError, match="damaged in the store"):
        registry.fetch(*WHO, 1)
    registry.store.delete(f"{prefix}/adapter_config.json")
    assert any("adapter_config.json is missing" in problem for problem in registry.verify(*WHO, 1))
    registry.store.put_bytes(f"{prefix}/manifest.json", b"{}")
    assert "manifest.json is damaged" in registry.verify(*WHO, 1)[0]
    assert registry.verify(*WHO, 2) == []
    with pytest.raises(InputError, match="versions are v1, v2"):
        registry.verify(*WHO, 3)


def test_a_local_copy_that_was_damaged_is_replaced(
    gcs_server: object, bucket: str, tmp_path: Path, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    registry = ScoringRegistry(GcsStore(bucket, gcs_server.url), tmp_path / "adapters")  # type: ignore[attr-defined]
    candidate = make_candidate()
    registry.publish(candidate, manifest())
    folder = registry.fetch(*WHO, 1)
    (folder / "adapter_model.safetensors").write_bytes(b"cut off")
    assert registry.fetch(*WHO, 1) == folder
    assert (folder / "adapter_model.safetensors").read_bytes() == (candidate / "adapter_model.safetensors").read_bytes()
    assert [path.name for path in folder.parent.iterdir()] == ["v1"]


def test_publishers_at_once_never_share_a_version(
    registry: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    candidates = [make_candidate(seed) for seed in range(6)]
    barrier = threading.Barrier(6)
    results: dict[int, AdapterManifest] = {}

    def publish(number: int) -> None:
        barrier.wait()
        results[number] = registry.publish(candidates[number], manifest())

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    assert sorted(result.version or 0 for result in results.values()) == registry.versions(*WHO)
    for number, result in results.items():
        key = f"adapters/fernhollow/engineering/v{result.version}/adapter_model.safetensors"
        assert registry.store.get_bytes(key) == (candidates[number] / "adapter_model.safetensors").read_bytes()
        assert registry.verify(*WHO, result.version or 0) == []


def test_one_candidate_published_at_once_is_one_version(
    registry: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    candidate, barrier = make_candidate(), threading.Barrier(4)
    results: list[AdapterManifest] = []

    def publish() -> None:
        barrier.wait()
        results.append(registry.publish(candidate, manifest()))

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.version for result in results] == [1, 1, 1, 1]
    assert registry.versions(*WHO) == [1]


class Dies(Exception):
    pass


def test_a_publisher_that_dies_leaves_no_version(
    registry: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket's upload ends after each of its objects in turn; a directory's staging before its rename."""
    kind = type(registry.store)
    step = "rename" if isinstance(registry.store, DirectoryStore) else "put_file"
    target = Path if isinstance(registry.store, DirectoryStore) else kind
    original = getattr(target, step)
    for survives in range(3 if target is kind else 1):
        calls = iter(range(100))

        def dying(*args: object, survives: int = survives, calls: object = calls, **options: object) -> object:
            if next(calls) >= survives:  # type: ignore[call-overload]
                raise Dies
            return original(*args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(target, step, dying)
            with pytest.raises(Dies):
                registry.publish(make_candidate(survives), manifest())
        assert registry.versions(*WHO) == []
        assert registry.incumbent(*WHO) is None
    first = registry.publish(make_candidate(50), manifest())
    assert first.version is not None
    assert registry.versions(*WHO) == [first.version]
    assert registry.verify(*WHO, first.version) == []


def test_the_incumbent_follows_people_until_the_next_version(
    registry: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    def incumbent() -> int | None:
        found = registry.incumbent(*WHO)
        return found.version if found else None

    assert incumbent() is None
    with pytest.raises(InputError, match="no version to go back to"):
        registry.rollback(*WHO, "try")
    for seed, gain in ((1, 0.3), (2, 0.5), (3, 0.1)):
        registry.publish(make_candidate(seed), manifest(gain=gain))
    best = registry.best(*WHO)
    assert best is not None and best.version == 2
    assert incumbent() == 3
    assert registry.rollback(*WHO, "rude answers").version == 2
    assert incumbent() == 2
    assert registry.rollback(*WHO, "still rude").version == 1
    assert incumbent() == 1
    registry.promote(*WHO, 3, "it was the prompt")
    assert incumbent() == 3
    registry.withdraw(*WHO, 3, "leaks a name")
    assert incumbent() == 1, "2 was left by a rollback"
    with pytest.raises(InputError, match="leaks a name"):
        registry.promote(*WHO, 3, "again")
    assert registry.publish(make_candidate(4), manifest()).version == 4
    assert incumbent() == 4
    registry.withdraw(*WHO, 2, "old")
    best = registry.best(*WHO)
    assert best is not None and best.version == 1
    assert registry.verify(*WHO, 3) == []


def test_what_a_rollback_left_never_comes_back_by_itself(
    registry: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    def incumbent() -> int | None:
        found = registry.incumbent(*WHO)
        return found.version if found else None

    for seed in (1, 2, 3):
        registry.publish(make_candidate(seed), manifest())
    registry.rollback(*WHO, "rude", who="ann")
    assert incumbent() == 2
    registry.withdraw(*WHO, 2, "leaks", who="ann")
    assert incumbent() == 1, "3 is the bad version that was left"
    registry.withdraw(*WHO, 1, "leaks too")
    assert incumbent() is None
    registry.promote(*WHO, 3, "it was the prompt", who="bob")
    assert incumbent() == 3
    said = [(each.action, each.before, each.after, each.who) for each in registry.decisions(*WHO)]
    assert said == [
        ("rollback", 3, 2, "ann"),
        ("withdraw", 2, 2, "ann"),
        ("withdraw", 1, 1, ""),
        ("promote", None, 3, "bob"),
    ]
    history = registry.history(*WHO)
    assert [each.action for each in history].count("publish") == 3 and len(history) == 7
    assert all(each.at.tzinfo is not None for each in history)


def test_a_pin_holds_and_the_base_can_be_chosen(
    registry: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    def incumbent() -> int | None:
        found = registry.incumbent(*WHO)
        return found.version if found else None

    for seed in (1, 2):
        registry.publish(make_candidate(seed), manifest())
    registry.pin(*WHO, 1, "audited")
    registry.publish(make_candidate(3), manifest())
    assert incumbent() == 1
    unpinned = registry.unpin(*WHO, "audit is over")
    assert unpinned is not None and unpinned.version == 3 == incumbent()
    with pytest.raises(InputError, match="no pinned version"):
        registry.unpin(*WHO, "again")
    registry.promote_base(*WHO, "compare")
    assert incumbent() is None
    registry.publish(make_candidate(4), manifest())
    assert incumbent() == 4


def test_a_damaged_manifest_is_skipped_and_can_be_withdrawn(
    registry: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    for seed, gain in ((1, 0.1), (2, 0.9), (3, 0.2)):
        registry.publish(make_candidate(seed), manifest(gain=gain))
    registry.store.put_bytes("adapters/fernhollow/engineering/v2/manifest.json", b'{"half')
    registry.store.put_bytes("adapters/fernhollow/engineering/v3/manifest.json", b"{}")
    assert registry.usable(*WHO) == [1] and registry.versions(*WHO) == [1, 2, 3]
    incumbent, best = registry.incumbent(*WHO), registry.best(*WHO)
    assert incumbent is not None and best is not None and incumbent.version == best.version == 1
    assert [each.version for each in registry.expendable(*WHO, 0)] == []
    registry.withdraw(*WHO, 3, "damaged")
    assert registry.withdrawal(*WHO, 3) is not None
    with pytest.raises(InputError, match=r"no fernhollow/engineering@v9"):
        registry.withdraw(*WHO, 9, "never was")
    assert registry.publish(make_candidate(4), manifest()).version == 4


def test_what_was_not_scored_is_not_published(
    registry: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    candidate, other = make_candidate(1), make_candidate(2)
    accepted = manifest()
    assert accepted.evaluation is not None
    evaluation = accepted.evaluation.model_copy(update={"scored": digests(candidate)})
    accepted = accepted.model_copy(update={"evaluation": evaluation})
    weights = (candidate / "adapter_model.safetensors").read_bytes()
    (candidate / "adapter_model.safetensors").write_bytes((other / "adapter_model.safetensors").read_bytes())
    with pytest.raises(PermanentError, match=r"adapter_model\.safetensors changed after the evaluation"):
        registry.publish(candidate, accepted)
    (candidate / "adapter_model.safetensors").write_bytes(weights)
    (candidate / "tokenizer_config.json").write_text("{}")
    with pytest.raises(PermanentError, match=r"tokenizer_config\.json changed after the evaluation"):
        registry.publish(candidate, accepted)
    (candidate / "tokenizer_config.json").unlink()
    unbound = accepted.model_copy(update={"evaluation": evaluation.model_copy(update={"scored": {}})})
    with pytest.raises(PermanentError, match="does not say which bytes were scored"):
        AdapterRegistry(registry.store, registry.local).publish(candidate, unbound)
    assert registry.publish(candidate, accepted).version == 1


def test_quarantine_keeps_the_candidate_and_the_reason(
    registry: AdapterRegistry, make_candidate: MakeCandidate, manifest: Manifest, tmp_path: Path
) -> None:
    (tmp_path / "scores.json").write_text('{"verdict": "bad"}')
    broken = make_candidate(1)
    (broken / "adapter_model.safetensors").unlink()
    for _ in range(2):
        folder = registry.quarantine(
            broken, manifest(verdict="rejected"), "training diverged", {"evaluation.json": tmp_path / "scores.json"}
        )
    assert folder.parent == registry.local.parent / "quarantine" / "fernhollow" / "engineering"
    assert folder.name.startswith("2026-06-01-") and len(folder.name) == len("2026-06-01-") + 12
    assert (folder / "reason.txt").read_text() == "training diverged\n"
    assert (folder / "evaluation.json").read_text() == '{"verdict": "bad"}'
    kept = AdapterManifest.model_validate_json((folder / "manifest.json").read_bytes())
    assert (kept.status, kept.version) == ("rejected", None)
    unsure = registry.quarantine(make_candidate(2), manifest(verdict="review"), "too few examples")
    assert AdapterManifest.model_validate_json((unsure / "manifest.json").read_bytes()).status == "review"
    assert len([key for key in keys(registry) if key.endswith("manifest.json")]) == 2
    assert registry.versions(*WHO) == []
    assert registry.publish(make_candidate(3), manifest()).version == 1


def test_names_from_outside_never_become_paths(
    tmp_path: Path, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    registry = ScoringRegistry(DirectoryStore(tmp_path / "home"), tmp_path / "home" / "adapters")
    for name in ("..", "a/b", "", "A", "x" * 65):
        with pytest.raises(InputError, match="not a valid name"):
            registry.versions(name, "clerk")
        with pytest.raises(InputError, match="not a valid name"):
            registry.fetch("acme", name, 1)
        with pytest.raises(InputError, match="not a valid name"):
            vllm_name("acme", name, 1)
    assert vllm_name("acme", "clerk", 3) == "acme/clerk@v3"
    with pytest.raises(InputError, match="evaluation"):
        registry.publish(make_candidate(), manifest(), {"../evil": tmp_path / "x"})


def test_of_many_versions_only_those_that_decide_are_checked(
    registry: AdapterRegistry,
    make_candidate: MakeCandidate,
    manifest: Manifest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Checking a signature takes two milliseconds: a night asks several times, and there may be thousands."""
    for number in range(6):
        registry.publish(make_candidate(number), manifest(night=f"2026-06-{number + 1:02}", gain=0.5 - number / 100))
    asked: list[int] = []
    get = AdapterRegistry.get

    def counted(self: AdapterRegistry, tenant: str, role: str, version: int) -> AdapterManifest:
        asked.append(version)
        return get(self, tenant, role, version)

    monkeypatch.setattr(AdapterRegistry, "get", counted)
    incumbent, best = registry.incumbent(*WHO), registry.best(*WHO)
    assert incumbent is not None and incumbent.version == 6
    assert best is not None and best.version == 1
    assert set(asked) == {1, 6}
    # A chosen one is looked at, and one whose manifest was changed is passed over.
    registry.promote(*WHO, 3, "as before")
    assert (chosen := registry.incumbent(*WHO)) is not None and chosen.version == 3
    key = "adapters/fernhollow/engineering/v1/manifest.json"
    registry.store.delete(key)
    registry.store.put_bytes(key, get(registry, *WHO, 2).model_copy(update={"version": 1}).model_dump_json().encode())
    assert (best := registry.best(*WHO)) is not None and best.version == 2
