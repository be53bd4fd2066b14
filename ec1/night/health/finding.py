"""One line of `ec1 doctor`."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Symptom:
    """`problem` means that a night would fail; `detail` says what was seen and, if need be, what to do."""

    subject: str
    level: Level
    detail: str
