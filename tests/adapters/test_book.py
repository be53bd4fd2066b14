"""What people decided cannot be bent: a decision that is changed, moved or deleted stops its role, and no other one."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scoring_registry import ScoringRegistry
from typer.testing import CliRunner

from ec1.adapters.decisions import ArmResult
from ec1.adapters.manifest import AdapterManifest
from ec1.adapters.registry import AdapterRegistry
from ec1.cli import app
from ec1.errors import PermanentError
from ec1.home import Home
from ec1.queries.adapters import version_page, versions
from ec1.serving.resolver import checked_folder
from ec1.storage.directory import DirectoryStore
from ec1.storage.store import ObjectInfo

WHO, OTHER = ("fernhollow", "engineering"), ("fernhollow", "other")
BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"
Damage = Callable[[Path], object]


@pytest.fixture
def registry(
    home: Home, make_candidate: Callable[..., Path], manifest: Callable[..., AdapterManifest]
) -> AdapterRegistry:
    """Three versions, of which the third was withdrawn; and another role."""
    registry = ScoringRegistry(DirectoryStore(home.root), home.adapters)
    for number in (1, 2, 3):
        registry.publish(make_candidate(number), manifest())
    registry.publish(make_candidate(4), manifest(role="other"))
    registry.promote(*WHO, 1, "the best of them", who="ann")
    registry.withdraw(*WHO, 3, "leaks a name", who="ann")
    return registry


@pytest.fixture
def folder(home: Home) -> Path:
    return home.adapters.joinpath(*WHO)


def edit(path: Path) -> None:
    record = json.loads(path.read_bytes())
    record["decision"]["after"] = 2
    path.write_text(json.dumps(record), encoding="utf-8")


def test_a_version_stays_withdrawn_when_the_file_beside_it_is_deleted(registry: AdapterRegistry, folder: Path) -> None:
    (folder / "v3" / "withdrawn.json").unlink()
    registry.promote(*WHO, 2, "newer")
    assert registry.usable(*WHO) == [1, 2]
    assert registry.verify(*WHO, 3) == ["withdrawn.json is gone: it is withdrawn all the same"]
    # Saying it again puts the file back.
    registry.withdraw(*WHO, 3, "again")
    assert registry.verify(*WHO, 3) == []
    withdrawn = registry.withdrawal(*WHO, 3)
    assert withdrawn is not None and withdrawn.reason == "leaks a name"


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda folder: edit(folder / "decisions/000001.json"), "was changed after it was signed"),
        (lambda folder: (folder / "decisions/000001.json").write_text("{"), "is damaged"),
        (lambda folder: (folder / "decisions/000001.json").unlink(), "is gone"),
        (lambda folder: (folder / "decisions/000002.json").unlink(), "is gone"),
        (lambda folder: shutil.rmtree(folder / "decisions"), "is gone"),
        (lambda folder: (folder / "decisions/head.json").unlink(), "is not the whole book"),
        (
            lambda folder: shutil.copy(folder / "decisions/000001.json", folder / "decisions/000002.json"),
            "was changed after it was signed",
        ),
    ],
)
def test_a_bent_record_stops_its_role_and_no_other_one(
    registry: AdapterRegistry, folder: Path, damage: Damage, what: str
) -> None:
    (folder / "v3" / "withdrawn.json").unlink()
    damage(folder)
    for use in (
        lambda: registry.incumbent(*WHO),
        lambda: registry.withdrawal(*WHO, 3),
        lambda: registry.promote(*WHO, 3, "bring it back"),
        lambda: checked_folder(registry, BASE, "fernhollow/engineering@v3"),
    ):
        with pytest.raises(PermanentError, match=rf"{what}.*ec1 adapters repair fernhollow/engineering"):
            use()
    assert what in registry.verify(*WHO, 3)[0]
    other = registry.incumbent(*OTHER)
    assert other is not None and registry.verify(*OTHER, 1) == []
    listed = {each.name: each for each in versions(registry).items}
    assert "repair" in str(listed["fernhollow/engineering@v1"].damaged)
    assert listed["fernhollow/other@v1"].in_use and not listed["fernhollow/other@v1"].damaged
    assert version_page(registry, (*WHO, 1)).stopped


def test_a_replica_that_has_seen_nothing_yet_sees_a_cut_book_too(
    registry: AdapterRegistry, folder: Path, home: Home, tmp_path: Path
) -> None:
    replica = AdapterRegistry(DirectoryStore(home.root), tmp_path / "replica" / "adapters")
    (tmp_path / "replica" / "keys").mkdir(parents=True)
    shutil.copy(home.keys / "adapters.pub", tmp_path / "replica" / "keys" / "trainer.pub")
    assert [each.action for each in replica.decisions(*WHO)] == ["promote", "withdraw"]
    shutil.rmtree(tmp_path / "replica" / "keys" / "decisions")
    (folder / "decisions" / "000002.json").unlink()
    with pytest.raises(PermanentError, match=r"000002\.json is gone"):
        replica.decisions(*WHO)


def test_a_decision_that_comes_while_the_book_is_read_stops_nothing(registry: AdapterRegistry, home: Home) -> None:
    class Busy(DirectoryStore):
        """After it has listed the decisions of a role, somebody decides."""

        def list(self, prefix: str) -> Iterator[ObjectInfo]:
            listed = list(super().list(prefix))
            if prefix.endswith("decisions/"):
                registry.promote(*WHO, 2, "in between")
            return iter(listed)

    reader = AdapterRegistry(Busy(home.root), home.adapters)
    for _ in range(3):
        assert reader.decisions(*WHO)[-1].reason == "in between"


def test_a_machine_whose_keys_are_read_only_serves(registry: AdapterRegistry, home: Home) -> None:
    shutil.rmtree(home.keys / "decisions")
    (home.keys / "decisions").write_text("in the way of the note")
    assert registry.usable(*WHO) == [1, 2]


def test_a_stranger_s_key_decides_nothing(registry: AdapterRegistry, home: Home, tmp_path: Path) -> None:
    stranger = AdapterRegistry(DirectoryStore(home.root), tmp_path / "elsewhere" / "adapters")
    shutil.copytree(home.keys, tmp_path / "elsewhere" / "keys", ignore=shutil.ignore_patterns("*.pem"))
    (tmp_path / "elsewhere" / "keys" / "adapters.pub").rename(tmp_path / "elsewhere" / "keys" / "trainer.pub")
    stranger.promote(*WHO, 2, "mine")
    with pytest.raises(PermanentError, match="signed by a key"):
        registry.incumbent(*WHO)


def test_a_person_repairs_what_is_left_and_the_withdrawn_stay_so(
    registry: AdapterRegistry, folder: Path, home: Home
) -> None:
    def ec1(*arguments: str) -> str:
        return CliRunner().invoke(app, ["--home", str(home.root), "adapters", *arguments]).output

    assert "every decision is as it was made" in ec1("repair", "fernhollow/engineering")
    edit(folder / "decisions" / "000001.json")
    shown = ec1("repair", "fernhollow/engineering")
    assert "decision 1 was changed after it was signed" in shown and "--reason" in shown
    with pytest.raises(PermanentError):
        registry.incumbent(*WHO)
    repaired = ec1("repair", "fernhollow/engineering", "--reason", "a disk")
    assert repaired.endswith("fernhollow/engineering@v2 is in use\n")
    assert [each.action for each in registry.decisions(*WHO)] == ["withdraw", "repair"]
    assert registry.verify(*WHO, 3) == [] and registry.usable(*WHO) == [1, 2]
    # It vouches for those bytes only.
    (folder / "decisions" / "000001.json").write_text("{}")
    with pytest.raises(PermanentError, match="is damaged"):
        registry.incumbent(*WHO)


def test_what_is_gone_at_the_end_is_repaired_too(registry: AdapterRegistry, folder: Path) -> None:
    (folder / "decisions" / "000002.json").unlink()
    registry.repair(*WHO, registry.faults(*WHO), "restored from a backup")
    assert [each.action for each in registry.decisions(*WHO)] == ["promote", "repair"]
    assert registry.usable(*WHO) == [1, 2], "its withdrawal lies beside the version"


def test_decisions_from_before_signatures_count_once_a_person_vouches_for_them(
    registry: AdapterRegistry, folder: Path, home: Home
) -> None:
    said = registry.decisions(*WHO)
    for number, each in enumerate(said, start=1):
        (folder / "decisions" / f"{number:06}.json").write_text(each.model_dump_json())
    (folder / "decisions" / "head.json").unlink()
    shutil.rmtree(home.keys / "decisions")
    with pytest.raises(PermanentError, match="is not signed: it is from before"):
        registry.incumbent(*WHO)
    registry.repair(*WHO, registry.faults(*WHO), "from before")
    assert registry.decisions(*WHO)[:2] == said
    incumbent = registry.incumbent(*WHO)
    assert incumbent is not None and incumbent.version == 1


def test_a_trial_is_a_decision_and_a_version_s_page_shows_what_it_came_to(registry: AdapterRegistry) -> None:
    registry.start_trial(*WHO, {"in-use": 3, "v2": 1}, "is it better?", "ann")
    assert registry.state(*WHO).arms == {"in-use": 3, "v2": 1}
    (running,) = version_page(registry, (*WHO, 2)).trials
    assert (running.arm, running.ended) == ("v2", None)
    result = {"v2": ArmResult(answers=40, good=9, bad=1, low=0.6, high=0.98)}
    assert registry.end_trial(*WHO, "v2 is better", "ann", result=result)
    assert not registry.end_trial(*WHO, "again")
    (ended,) = version_page(registry, (*WHO, 2)).trials
    assert ended.result == result and (ended.reason, ended.outcome) == ("is it better?", "v2 is better")
    (of_in_use,) = version_page(registry, (*WHO, 1)).trials
    assert of_in_use.arm == "in-use"
    assert version_page(registry, (*WHO, 3)).trials == ()
    assert [each.action for each in registry.history(*WHO)][-2:] == ["trial", "end-trial"]
