"""What the served model said of pairs that may be one: a file with a line for each, and what of it counts.

Belongs here: the file. Does not: how the model is asked (`judge.py`), what a judgement does to a pair
(`resolution.judge`).
"""

import datetime as dt
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field, ValidationError

from ec1.errors import InputError
from ec1.files import write_atomic
from ec1.graph.overrides import Judged, Pair
from ec1.settings import Settings

SAYS = "judged by"
"""How a judgement begins in the reasons of a link."""


class Judgement(Settings):
    """One line: what one model said of two entities, `one` < `other` by key, on what it was shown."""

    one: str
    other: str
    model: str = Field(description="the model's name, for people")
    judge: str = Field(description="digest of the model and of the question, as in `Judge`")
    night: str
    at: dt.datetime = Field(description="UTC")
    forward: float = Field(ge=0, le=1, description="probability that they are the same, `one` named first")
    backward: float = Field(ge=0, le=1, description="the same with `other` named first")
    sentences: tuple[tuple[str, ...], tuple[str, ...]] = Field(description="digests of each side's sentences")

    @property
    def pair(self) -> Pair:
        return self.one, self.other

    @property
    def probability(self) -> float:
        """That they are the same. The mean of both orders: small models prefer one of them, whatever is asked."""
        return (self.forward + self.backward) / 2

    def same(self, bound: float) -> bool | None:
        """Whether they are the same; None where the model is not as sure as `bound` of either."""
        if self.probability >= bound:
            return True
        return False if 1 - self.probability >= bound else None

    def __str__(self) -> str:
        same = self.probability >= 0.5
        sure = self.probability if same else 1 - self.probability
        return f"{self.model} of {self.night}: {'same' if same else 'different'} {sure:.3f}"


def read_judgements(path: Path) -> list[Judgement]:
    """The lines of the file; none if there is no file. Raises InputError if it is damaged."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [Judgement.model_validate_json(line) for line in lines]
    except FileNotFoundError:
        return []
    except (ValidationError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        raise InputError(
            f"{path} is damaged ({first}): restore it from a backup, or remove it to ask the model again"
        ) from None


def save_judgements(path: Path, judgements: Iterable[Judgement]) -> None:
    """Write the file in one step; the last line of a judge about a pair takes the place of its earlier ones."""
    last = {(each.pair, each.judge): each for each in judgements}
    write_atomic(path, "".join(f"{each.model_dump_json()}\n" for each in last.values()))


def by_judge(judgements: Iterable[Judgement], judge: str) -> dict[Pair, Judgement]:
    """What one judge said last of each pair."""
    return {each.pair: each for each in judgements if each.judge == judge}


def latest(judgements: Iterable[Judgement]) -> dict[Pair, Judgement]:
    """What was said last of each pair, by whatever model."""
    return {each.pair: each for each in sorted(judgements, key=lambda each: each.at)}


def sure(judgements: Iterable[Judgement], bound: float) -> list[Judged]:
    """Those that are as sure as `bound`, for resolution."""
    return [
        Judged(one=each.one, other=each.other, same=same, says=f"{SAYS} {each}")
        for each in judgements
        if (same := each.same(bound)) is not None
    ]
