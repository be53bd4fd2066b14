"""The base of what the steps of a night write down: one typed record a step, which the step itself fills.

Belongs here: what all records have. Does not: the records of single steps (beside the step, or `ec1.night.records`),
and where they lie.
"""

import datetime as dt
from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """Base of all records. `step` names the step and the folder; `run` and `written` are filled in when it is written.

    Unknown keys are ignored, so that a home that a later version wrote can still be read; the tests refuse them.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    step: ClassVar[str]

    run: str = ""
    written: dt.datetime | None = Field(None, description="UTC")

    def plus(self, later: Self) -> Self:
        """This record and that of a later run of the same night, together. By default the later one stands."""
        return later


def added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The sums of two mappings of counts."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
