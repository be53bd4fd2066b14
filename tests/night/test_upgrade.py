"""A home of release 0.4 (`home_of_0_4`, without weights, documents and tuples): this release goes on with it."""

import datetime as dt
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ec1.adapters.registry import AdapterRegistry
from ec1.cli import app
from ec1.corpus.threshold import HighWaterMark
from ec1.errors import InputError, PermanentError
from ec1.extraction.reading.outbox import Outbox
from ec1.home import Home
from ec1.night.steps.log_book import find_run, replay_of, runs
from ec1.night.steps.marks import marked_as
from ec1.queries.adapters import parents_of
from ec1.recipes.resolution import ResolvedRecipe
from ec1.storage.directory import DirectoryStore

LEFT = Path(__file__).parent / "home_of_0_4"
NIGHT, ROLE = "2026-11-29", ("fernhollow", "engineering")
RUN = f"fernhollow/engineering/{NIGHT}"
MANIFEST = Path("adapters/fernhollow/engineering/v1/manifest.json")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    shutil.copytree(LEFT, tmp_path / "home")
    return Home(tmp_path / "home")


def registry(home: Home) -> AdapterRegistry:
    return AdapterRegistry(DirectoryStore(home.root), home.adapters)


def test_its_versions_are_used_and_what_people_decided_is_vouched_for_once(home: Home) -> None:
    assert registry(home).get(*ROLE, 1).snapshot.tuples == 88
    with pytest.raises(PermanentError, match=r"from before decisions were; .*`ec1 adapters repair"):
        registry(home).incumbent(*ROLE)
    repaired = CliRunner().invoke(
        app, ["--home", str(home.root), "adapters", "repair", "/".join(ROLE), "--reason", "before the upgrade"]
    )
    assert repaired.exit_code == 0, repaired.output
    current = registry(home).incumbent(*ROLE)
    assert current is not None and current.version == 1


def test_what_a_version_added_up_is_what_it_rests_on(home: Home) -> None:
    """Release 0.4 could add versions up; who asks for a tuple's learners is told of them, too."""
    added = registry(home).get(*ROLE, 1).model_copy(update={"composed_of": {"fernhollow/engineering@v3": 0.5}})
    assert parents_of(added) == [(*ROLE, 3)]


def test_a_manifest_of_a_release_to_come_is_not_taken_for_damaged(home: Home) -> None:
    """It may say who must not see the version: it is refused, and the release is to blame."""
    file = home.root / MANIFEST
    file.write_text(json.dumps(json.loads(file.read_text()) | {"embargo": "2027-01-01"}))
    with pytest.raises(PermanentError, match="of another release of EC1: this one does not know embargo"):
        registry(home).read(*ROLE, 1)


def test_its_trainings_are_in_the_log_book_and_are_not_repeated_as_something_else(home: Home) -> None:
    (run,) = runs(home)
    assert (run.name, run.status, run.verdict) == (RUN, "finished", "review")
    # It could filter by toxicity, and a replay would not.
    with pytest.raises(InputError, match="of another release of EC1; check out commit 6894069"):
        replay_of(find_run(home, RUN), dt.datetime.now(dt.UTC))


def test_the_night_is_reported(home: Home) -> None:
    # As a process: here records refuse the keys that were dropped since.
    command = [sys.executable, "-m", "ec1.cli", "--home", str(home.root), "report", "--date", NIGHT]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert "fernhollow/engineering/evaluation" in shown.stdout and "52 LLM calls" in shown.stdout


def test_what_was_read_is_not_read_again(home: Home) -> None:
    (kept,) = home.outbox.glob("*/*/*.json")
    found = Outbox(home.outbox).get(kept.parents[1].name, kept.stem)
    assert found is not None and found.content_sha256 == kept.stem


def test_the_same_recipe_is_not_trained_again_for_the_keys_that_came(home: Home) -> None:
    run = find_run(home, RUN)
    recipe = run.spec.recipe
    today = ResolvedRecipe(recipe, {}, recipe.digest(), home.root / "engineering.yaml", ())
    assert today.digest != run.spec.recipe_digest
    assert marked_as(home, today) == run.spec.recipe_digest
    assert HighWaterMark(home, *ROLE).trained_by(run_snapshot(home), marked_as(home, today)) == NIGHT
    other = recipe.model_copy(update={"data": recipe.data.model_copy(update={"max_rows": 8})})
    assert marked_as(home, ResolvedRecipe(other, {}, other.digest(), today.path, ())) == other.digest()


def run_snapshot(home: Home) -> str:
    return registry(home).read(*ROLE, 1).snapshot.digest
