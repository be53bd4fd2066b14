"""Versions are used only if a trusted key has signed them: not after an edit of weights and manifest together."""

import json
import shlex
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from scoring_registry import ScoringRegistry
from typer.testing import CliRunner

from ec1.adapters.card import card_of
from ec1.adapters.manifest import AdapterBase, AdapterManifest
from ec1.adapters.registry import AdapterRegistry
from ec1.adapters.scores import Overlap, Success
from ec1.adapters.signing import SigningKeys
from ec1.cli import app
from ec1.errors import EC1Error, PermanentError
from ec1.files import sha256_file
from ec1.home import Home
from ec1.serving.resolver import checked_folder
from ec1.storage.directory import DirectoryStore

WHO = ("fernhollow", "engineering")
BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture
def registry(
    home: Home, make_candidate: Callable[..., Path], manifest: Callable[..., AdapterManifest]
) -> AdapterRegistry:
    """With two versions."""
    registry = ScoringRegistry(DirectoryStore(home.root), home.adapters)
    for number in (1, 2):
        registry.publish(make_candidate(number), manifest(f"2026-06-0{number}", gain=number / 10))
    return registry


def edit_together(folder: Path, weights: Path) -> None:
    """Other weights, and a manifest that fits them and praises them."""
    (folder / "adapter_model.safetensors").write_bytes(weights.read_bytes())
    manifest = json.loads((folder / "manifest.json").read_bytes())
    entry = manifest["files"]["adapter_model.safetensors"]
    entry["sha256"] = manifest["evaluation"]["scored"]["adapter_model.safetensors"] = sha256_file(weights)
    manifest["evaluation"]["differences"]["base"]["mean"] = 9.0
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_weights_and_manifest_edited_together_are_refused_everywhere(
    registry: AdapterRegistry, home: Home, make_candidate: Callable[..., Path]
) -> None:
    assert registry.verify(*WHO, 2) == []
    edit_together(home.adapters / "fernhollow" / "engineering" / "v2", make_candidate(9) / "adapter_model.safetensors")
    uses: tuple[Callable[[], object], ...] = (
        lambda: registry.fetch(*WHO, 2),
        lambda: registry.promote(*WHO, 2, "a trial"),
        lambda: registry.pin(*WHO, 2, "a trial"),
        lambda: checked_folder(registry, BASE, "fernhollow/engineering@v2"),
    )
    for use in uses:
        with pytest.raises(PermanentError, match="was changed after it was signed"):
            use()
    (problem,) = registry.verify(*WHO, 2)
    assert "was changed after it was signed" in problem
    incumbent, best = registry.incumbent(*WHO), registry.best(*WHO)
    assert incumbent is not None and incumbent.version == 1
    assert best is not None and best.version == 1, "its +9.0 counts for nothing"


def test_a_signature_that_was_taken_away_does_not_help(registry: AdapterRegistry, home: Home) -> None:
    (home.adapters / "fernhollow" / "engineering" / "v2" / "model.sig").unlink()
    with pytest.raises(PermanentError, match="is not signed"):
        registry.fetch(*WHO, 2)


def test_the_signature_of_another_version_or_of_a_strangers_key_is_none(
    registry: AdapterRegistry, home: Home, tmp_path: Path
) -> None:
    folder = home.adapters / "fernhollow" / "engineering"
    manifest = (folder / "v2" / "manifest.json").read_bytes()
    strangers = SigningKeys(tmp_path / "elsewhere").sign(manifest)
    for signature in ((folder / "v1" / "model.sig").read_bytes(), strangers, b"{}", b"\xff\x00", b""):
        (folder / "v2" / "model.sig").write_bytes(signature)
        with pytest.raises(PermanentError, match="was changed after it was signed, or signed by a key"):
            registry.get(*WHO, 2)


def test_the_key_is_the_owners_alone_and_is_made_once(registry: AdapterRegistry, home: Home) -> None:
    private = home.keys / "adapters.pem"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert "PRIVATE" not in (home.keys / "adapters.pub").read_text()
    before = private.read_bytes()
    SigningKeys(home.keys).sign(b"{}")
    assert private.read_bytes() == before
    private.chmod(0o644)
    with pytest.raises(PermanentError, match="can be read by others"):
        SigningKeys(home.keys).sign(b"{}")


def test_another_machine_needs_the_publishers_public_key(registry: AdapterRegistry, home: Home, tmp_path: Path) -> None:
    replica = AdapterRegistry(DirectoryStore(home.root), tmp_path / "replica" / "adapters")
    with pytest.raises(PermanentError, match=r"copy the publisher's adapters\.pub"):
        replica.get(*WHO, 1)
    (tmp_path / "replica" / "keys").mkdir(parents=True)
    (tmp_path / "replica" / "keys" / "trainer.pub").write_bytes((home.keys / "adapters.pub").read_bytes())
    assert replica.fetch(*WHO, 1).is_relative_to(tmp_path / "replica")


def test_a_machine_that_served_can_decide_and_still_trusts_the_publisher(
    registry: AdapterRegistry, home: Home, tmp_path: Path
) -> None:
    """It has the publisher's key under the name that its own would get."""
    replica = AdapterRegistry(DirectoryStore(home.root), tmp_path / "replica" / "adapters")
    (tmp_path / "replica" / "keys").mkdir(parents=True)
    shutil.copy(home.keys / "adapters.pub", tmp_path / "replica" / "keys")
    replica.promote(*WHO, 1, "tried here")
    current = replica.incumbent(*WHO)
    assert current is not None and current.version == 1
    (own,) = (tmp_path / "replica" / "keys").glob("this-home.pub")
    with pytest.raises(PermanentError, match="was changed after it was signed, or signed by a key"):
        registry.incumbent(*WHO)
    shutil.copy(own, home.keys / "replica.pub")
    assert registry.incumbent(*WHO) == current


def test_a_person_vouches_for_versions_from_before_signatures(
    registry: AdapterRegistry, home: Home, make_candidate: Callable[..., Path]
) -> None:
    folder = home.adapters / "fernhollow" / "engineering"
    for version in ("v1", "v2"):
        (folder / version / "model.sig").unlink()
    (folder / "v1" / "adapter_model.safetensors").write_bytes(b"other")

    def ec1(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["--home", str(home.root), "adapters", *arguments])
        return str(result.exception) if isinstance(result.exception, EC1Error) else result.stdout

    assert "is not signed" in ec1("verify")
    assert "is not the file that was published" in ec1("sign", "fernhollow/engineering@v1", "--reason", "ours")
    assert ec1("sign", "fernhollow/engineering@v2", "--reason", "ours") == "fernhollow/engineering@v2: signed\n"
    assert ec1("sign", "fernhollow/engineering@v2", "--reason", "ours").endswith("was signed before\n")
    incumbent = registry.incumbent(*WHO)
    assert incumbent is not None and incumbent.version == 2
    assert [each.action for each in registry.decisions(*WHO)] == ["sign"]


def test_the_card_says_first_how_many_answers_are_right(manifest: Callable[..., AdapterManifest]) -> None:
    before = manifest(version=1)
    assert before.evaluation is not None
    success = Success(
        prompts=50, right={"base": 0, "candidate": 12}, formed={"base": 1, "candidate": 40}, too_long=3, held_out=60
    )
    overlap = Overlap(examples=60, rows=90, equal_answers=2, removed=2, ngrams=0.25)
    evaluation = before.evaluation.model_copy(
        update={
            "success": success,
            "overlap": overlap,
            "looks": 2.0,
            "general": {"base": 60, "candidate": 58},
            "general_asked": 64,
        }
    )
    card = card_of(before.model_copy(update={"evaluation": evaluation}))
    told = card.partition("## Evaluation")[2]
    assert told.index("12 of 50 right, base 0") < told.index("40 of 50 well formed, base 1") < told.index("nats")
    assert "asked were 50 of 60 held-out prompts, 3 have too long an answer" in told
    assert "58 of 64, base 60" in told
    assert "2 of 60 held-out examples stand in training" in told and "looked at 2.0 times" in told


def test_versions_from_before_answers_were_counted_can_be_read(manifest: Callable[..., AdapterManifest]) -> None:
    record = json.loads(manifest(version=1).model_dump_json())
    for key in ("success", "right", "general", "general_asked", "overlap", "looks"):
        del record["evaluation"][key]
    read = AdapterManifest.model_validate(record)
    assert read == manifest(version=1)
    assert "Verdict: **accepted**" in card_of(read)


def test_the_card_says_how_it_was_trained_and_how_it_is_loaded(manifest: Callable[..., AdapterManifest]) -> None:
    trained = {"rank": 24, "learning rate": 2e-4, "steps": 120, "base in training": "nf4, double"}
    card = card_of(manifest(version=1, training=trained))
    for row in ("| rank | 24 |", "| learning rate | 0.0002 |", "| steps | 120 |", "| base in training | nf4, double |"):
        assert row in card
    blocks = card.split("```")
    peft = next(each for each in blocks if each.startswith("python")).removeprefix("python")
    compile(peft, "README.md", "exec")
    assert f'from_pretrained("{BASE}", revision="main")' in peft and '"./engineering"' in peft
    command = next(each for each in blocks if each.startswith("shell")).removeprefix("shell")
    # Of the ranks that vLLM knows, the least that is no smaller than the adapter's.
    assert shlex.split(command)[:3] == ["vllm", "serve", BASE]
    assert "--max-lora-rank 32" in command and "engineering=./engineering" in shlex.split(command)


def test_the_card_says_what_the_manifest_says(
    home: Home, make_candidate: Callable[..., Path], manifest: Callable[..., AdapterManifest]
) -> None:
    from huggingface_hub import ModelCard

    registry = ScoringRegistry(DirectoryStore(home.root), home.adapters)
    base = AdapterBase(id=BASE, revision="main", license="apache-2.0")
    published = registry.publish(make_candidate(1), manifest(gain=0.5, base_model=base, git_commit="9f1c0de"))
    folder = registry.fetch(*WHO, 1)
    card = ModelCard.load(folder / "README.md")
    assert (card.data.base_model, card.data.license, card.data.library_name) == (BASE, "apache-2.0", "peft")
    for fact in ("fernhollow/engineering@v1", "a" * 64, "b" * 64, "c" * 64, "accepted", "+0.500", "9f1c0de", "80"):
        assert fact in card.text
    assert published.files["README.md"].sha256 == sha256_file(folder / "README.md")
    (home.adapters / "fernhollow" / "engineering" / "v1" / "README.md").write_text("the best model of all")
    assert registry.verify(*WHO, 1) == ["README.md is not the file that was published (SHA-256 differs)"]
