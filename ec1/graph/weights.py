"""Weights of evidence that were fitted to a graph, as a file that an operator has written and names in `graph.weights`.

Belongs here: the file. Does not: fitting them (`fitting.py`), what they mean for a pair (`scoring.py`).
"""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ec1.errors import InputError
from ec1.files import digest_of, write_atomic
from ec1.strict_yaml import load_mapping, validate

Share = Annotated[float, Field(gt=0, lt=1)]


class Shares(BaseModel):
    """How often a fact of two entities is equal, nearly equal and another: of one and the same thing, and of two."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    exact: Share
    close: Share
    different: Share
    close_of_two: Share
    different_of_two: Share


class Weights(BaseModel):
    """The shares of people by kind of evidence (`given`, `surname`, and those of `scoring.KINDS`). For a kind that is
    not there, and for all other classes, the weights that come with EC1 are used."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    person: dict[str, Shares] = {}

    @property
    def digest(self) -> str:
        """Empty if there are none."""
        return digest_of(self.model_dump(mode="json")) if self.person else ""


NO_WEIGHTS = Weights()


def load_weights(path: Path | None) -> Weights:
    """Read a file of weights; None is none. Raises InputError for what is wrong with it."""
    if path is None:
        return NO_WEIGHTS
    if not path.is_file():
        raise InputError(f"{path} does not exist: write it with `ec1 graph fit`, or remove graph.weights")
    return validate(Weights, load_mapping(path), str(path))


def save_weights(weights: Weights, path: Path) -> None:
    """Write them as YAML, in one step."""
    from io import StringIO

    from ruamel.yaml import YAML

    text = StringIO()
    YAML().dump(weights.model_dump(mode="json"), text)
    write_atomic(path, text.getvalue())
