"""The real world: the embedded deployment's model on the bundled sample, as its two recipes read it.

Every seed holds other groups out, for the gate and for the truth, and trains on the rest, as long and as fast as the
recipe says, and is judged by the recipe's own `evaluation`. The general set is the shipped one; another domain are the
shipped extractor's tuples, which ask the same model for lists of names.
"""

import datetime as dt
import json
import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks._gate_world import Device, Row, Teaching, World, row
from ec1.adapters.evaluation import GENERAL
from ec1.adapters.likelihood import rows_of
from ec1.adapters.scores import ScoredObjective
from ec1.home import CHECKOUT, Home
from ec1.models import precision_on, weight_bytes_in
from ec1.recipes.evaluation import EvaluationOptions

ROLES: dict[ScoredObjective, str] = {"sft": "engineering", "dpo": "apprenticeship"}
HELD_OUT = 32
"""Rows that the gate sees, and as many that tell the truth; whole groups, so rather more."""
COLUMNS = ("prompt", "completion", "chosen", "rejected", "group")
LISTED = 400
"""Characters of a tuple of the other domain: as long as the sample's own rows."""


ROWS, MODEL = "rows.json", "model"
TAUGHT = ("learning_rate", "epochs", "batch_size", "warmup_share")


def read_sample(folder: Path) -> None:
    """Leave the base, both recipes' rows and what they say of training and evaluation in `folder`: a machine with
    a card may have nothing else of EC1."""
    from ec1.deployment import load_deployment
    from ec1.night.operations.sample import install_sample
    from ec1.night.steps.recipe_night import RecipeNight
    from ec1.night.steps.recipes import recipe_folders
    from ec1.recipes.resolution import find_recipe

    deployment, home = load_deployment("embedded", CHECKOUT), Home(folder / "home")
    assert deployment.sample is not None
    install_sample(deployment.sample, home)
    now, read = dt.datetime.now(dt.UTC), {}
    for objective, role in ROLES.items():
        found = find_recipe(
            str(CHECKOUT / "examples" / "recipes" / f"{role}.yaml"),
            recipe_folders(deployment, CHECKOUT),
            {"data": {"max_rows": None}},
        )
        step = RecipeNight(found, deployment, home, deployment.current_night(now))
        dataset = step.dataset(step.snapshot(now))
        rows = [
            {key: each[key] for key in COLUMNS if key in each}
            for side in ("train", "heldout")
            for each in rows_of(dataset.path / side)
        ]
        taught = found.recipe.optimisation.model_dump(mode="json", include=set(TAUGHT))
        taught["beta"] = found.recipe.dpo.beta if found.recipe.dpo is not None else None
        judged = found.recipe.evaluation.model_dump(mode="json")
        read[objective] = {"rows": rows, "taught": taught, "judged": judged}
        base = step.base_model
    (folder / ROWS).write_text(json.dumps(read))
    (folder / MODEL).symlink_to(base)


class SampleWorld(World):
    """`folder` may be one that `read_sample` left; else it does so now."""

    def __init__(self, folder: Path, device: Device = "cpu") -> None:
        if not (folder / ROWS).is_file():
            read_sample(folder)
        read = json.loads((folder / ROWS).read_text())
        self._rows: dict[ScoredObjective, list[Row]] = {objective: read[objective]["rows"] for objective in ROLES}
        self.base = folder / MODEL
        answered = self._rows["sft"]
        for each, other in zip(answered, answered[1:] + answered[:1], strict=True):
            # What is not wanted there: the right answer to another question.
            each["rejected"] = other["completion"]
        self.general = GENERAL
        self.options = {objective: EvaluationOptions(**read[objective]["judged"]) for objective in ROLES}
        self.taught = {objective: Teaching(**read[objective]["taught"]) for objective in ROLES}
        self.rank = 16
        self.dtype, self.max_length = precision_on(device, weight_bytes_in(self.base)), 256

    def honest(self, objective: ScoredObjective, seed: int, rng: random.Random) -> list[Row]:
        return self._sides(objective, seed)[2]

    def elsewhere(self, rng: random.Random) -> list[Row]:
        return rng.sample(list(_listed()), 64)

    def heldout(self, objective: ScoredObjective, seed: int) -> list[Row]:
        return self._sides(objective, seed)[0]

    def fresh(self, objective: ScoredObjective, seed: int) -> tuple[list[Row], list[Row]]:
        general = [{**each, "completion": each["chosen"]} for each in rows_of(self.general)]
        return self._sides(objective, seed)[1], general

    def _sides(self, objective: ScoredObjective, seed: int) -> tuple[list[Row], list[Row], list[Row]]:
        """What the gate sees, what tells the truth, and what is left to train on."""
        rows = self._rows[objective]
        groups = sorted({str(each["group"]) for each in rows})
        random.Random(f"split {objective} {seed}").shuffle(groups)
        sides: tuple[list[Row], list[Row], list[Row]] = ([], [], [])
        for group in groups:
            side = next(each for each in sides if len(each) < HELD_OUT or each is sides[2])
            side += [each for each in rows if str(each["group"]) == group]
        return sides


def _listed() -> Iterator[Row]:
    for line in (CHECKOUT / "examples" / "extractor" / "tuples.jsonl").read_text(encoding="utf-8").splitlines():
        each = json.loads(line)
        names = json.dumps([entity["name"] for entity in each["entities"]], ensure_ascii=False)
        if len(each["text"]) + len(names) < LISTED:
            yield row(f"List the names in this text as JSON.\n\n{each['text']}", names)
