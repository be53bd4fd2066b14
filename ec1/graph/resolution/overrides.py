"""What operators decided about entities, in a YAML file that the deployment names: same and different, with a reason.

same:
  - entities: ["Person:jane smith", "Person:smith, jane"]
    reason: both sign for Northwind
different:
  - entities: ["Company:acme", "Company:acme foods"]
    reason: two firms, see the register
"""

from itertools import combinations
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from ec1.errors import InputError
from ec1.strict_yaml import load_mapping, validate

Pair = tuple[str, str]


class Decision(BaseModel):
    """One decision about entities, by their keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    entities: tuple[str, ...] = Field(min_length=2)
    reason: str = Field(min_length=1)

    def pairs(self) -> list[Pair]:
        """Every two of the entities, each pair in order."""
        return list(combinations(sorted(set(self.entities)), 2))


class Overrides(BaseModel):
    """All decisions: entities that are one, whatever speaks against it, and entities that never are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    same: tuple[Decision, ...] = ()
    different: tuple[Decision, ...] = ()

    def same_pairs(self) -> dict[Pair, str]:
        return {pair: decision.reason for decision in self.same for pair in decision.pairs()}

    def different_pairs(self) -> dict[Pair, str]:
        return {pair: decision.reason for decision in self.different for pair in decision.pairs()}

    def groups(self) -> list[frozenset[str]]:
        """The entities that are one by `same`, what follows from several decisions included.

        Raises InputError if a `different` decision says otherwise.
        """
        home: dict[str, frozenset[str]] = {}
        for decision in self.same:
            joined = frozenset(decision.entities).union(*(home.get(key, frozenset()) for key in decision.entities))
            home.update(dict.fromkeys(joined, joined))
        for (one, other), reason in sorted(self.different_pairs().items()):
            if other in home.get(one, ()):
                raise InputError(
                    f"overrides: {one!r} and {other!r} are different ({reason}), but `same` makes them one: remove "
                    "one of the two decisions"
                )
        return sorted(set(home.values()), key=sorted)


NO_OVERRIDES = Overrides()


def load_overrides(path: Path | None, default: Path | None = None) -> Overrides:
    """Read a file of decisions, or without one the `default`, which need not be there. Raises InputError for what is
    wrong with it."""
    if path is None:
        if default is None or not default.is_file():
            return NO_OVERRIDES
        path = default
    if not path.is_file():
        raise InputError(f"{path} does not exist: create it, or remove graph.overrides from the deployment")
    overrides = validate(Overrides, load_mapping(path), str(path))
    overrides.groups()
    return overrides
