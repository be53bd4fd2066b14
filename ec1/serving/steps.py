"""Copies of an adapter that a training kept on its way, as names that can be asked: `tenant/role@2026-06-01:20` is the
adapter of that night's training after 20 steps.

No gate has judged them: they are served only where the deployment says so (`serving.training_steps`), for people who
look through a training. Belongs here: names, and the folder of one. Does not: what a training keeps
(`ec1.training.copies`).
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ec1.errors import InputError
from ec1.files import read_json
from ec1.night.steps.log_book import TRAINING
from ec1.serving.versions import ServedVersion
from ec1.training.copies import STEPS, step_folder, steps_of

_TRAININGS = 3
"""Of a role those that are listed, the newest."""
_NAME = re.compile(
    r"(?P<tenant>[a-z0-9-]{1,64})/(?P<role>[a-z0-9-]{1,64})@"
    r"(?P<run>[0-9]{4}-[0-9]{2}-[0-9]{2}(?:/[A-Za-z0-9-]{1,64}){0,2}):(?P<step>[1-9][0-9]{0,8})"
)


@dataclass(frozen=True)
class ServedStep(ServedVersion):
    """A copy after `step` steps of a training. `run` is what its name in the log book has behind the role; `number` is
    0, since it is not a version."""

    run: str = ""
    step: int = 0

    @property
    def name(self) -> str:
        return f"{self.tenant}/{self.role}@{self.run}:{self.step}"


def parse_step(name: str) -> ServedStep | None:
    """The copy that a name means; None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return ServedStep(match["tenant"], match["role"], 0, match["run"], int(match["step"]))


def folder_of(runs: Path, base_model: str, copy: ServedStep) -> Path:
    """The folder of a copy below the log book. Raises InputError if there is no whole one, or it is of another base."""
    folder = step_folder(_training(runs, copy), copy.step)
    if (base := _base_of(folder)) != base_model:
        raise InputError(f"{copy.name} belongs to {base}, this server has {base_model}")
    return folder.resolve()


def kept_steps(runs: Path, base_model: str) -> list[str]:
    """The names of all copies of each role's newest trainings, by their steps."""
    names = []
    for role in sorted(path for path in runs.glob("*/*") if path.is_dir()):
        trainings = sorted((path.parent for path in role.glob(f"**/{STEPS}")), key=lambda path: path.stat().st_mtime)
        for training in trainings[-_TRAININGS:]:
            place = training.parent if training.name == TRAINING else training
            run = place.relative_to(role).as_posix()
            found = [ServedStep(role.parent.name, role.name, 0, run, step) for step in steps_of(training)]
            if (
                found
                and parse_step(found[0].name)
                and _base_of(training / STEPS / f"step-{found[0].step}") == base_model
            ):
                names += [each.name for each in found]
    return names


def _training(runs: Path, copy: ServedStep) -> Path:
    place = runs / copy.tenant / copy.role / copy.run
    return place if "/" in copy.run else place / TRAINING


def _base_of(folder: Path) -> str:
    return str(read_json(folder / "adapter_config.json")["base_model_name_or_path"])
