"""A whole night in which an accepted recipe of generation has its rows made, with the real engine and sandbox."""

import json
from pathlib import Path

import dagster as dg
import pytest
from commandline import CommandLine
from light import light_project

from ec1.corpus.generation_recipe import accept, note_sample, read_recipe, save_recipe, waiting_recipes

pytestmark = [pytest.mark.soak, pytest.mark.needs("bwrap")]
NIGHTS = ("2026-06-10", "2026-06-11")
RECIPE = """\
kind: generation
role: sums
requests: 4
functions: |
  def scaled(x):
      return 3 * x

  def both(x, y):
      return x + y
"""


class RealEngine(CommandLine):
    """`ec1` on a project of its own, with the engine that is installed."""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "EC1_PROJECT": str(self.home.root.parent)}


def test_rows_of_an_accepted_recipe_are_in_the_bucket_after_the_night(
    tmp_path: Path, project: Path, small_model: Path
) -> None:
    light = light_project(tmp_path, project, small_model, train=False)
    ec1 = RealEngine(project, light.home, light.deployment)
    # A night of its own documents is tested elsewhere: one page is enough to have phase 1 before the rows.
    page = ec1.home.documents / "service-people" / "a.md"
    page.parent.mkdir(parents=True)
    page.write_text("Maria Alvarez met Tom Reyes.")
    kept = save_recipe(ec1.home.generated, "calls", RECIPE)
    note_sample(kept, "0" * 32, "m", "anna")
    accept(read_recipe(ec1.home.generated, "sums", "calls"), "anna")

    done = ec1.run("night", "--date", NIGHTS[0])
    assert done.returncode == 0, done.stdout
    (bucket,) = (ec1.home.corpus / "sums").iterdir()
    made = bucket.read_bytes()
    rows = [json.loads(line) for line in made.splitlines()]
    # Which calls a model this small proposes depends on the processor; that it proposes none does not happen.
    assert rows and {row["metadata"]["accepted_by"] for row in rows} == {"anna"}
    assert all(row["metadata"]["recipe"].startswith("calls@") for row in rows)
    assert waiting_recipes(ec1.home.generated) == []
    with dg.DagsterInstance.from_config(str(ec1.home.dagster)) as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey("generated_rows"))
        assert event is not None and event.asset_materialization is not None
        assert event.asset_materialization.metadata["rows"].value == len(rows)
        assert NIGHTS[0] in instance.get_materialized_partitions(dg.AssetKey("gpu_handover"))
    assert [each.name() for each in ec1.processes()] == []

    again = ec1.run("night", "--date", NIGHTS[1])
    assert again.returncode == 0, again.stdout
    assert bucket.read_bytes() == made, "what is made is not made again"
