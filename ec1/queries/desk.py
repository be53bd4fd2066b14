"""What a page looks at: one home as a deployment has it, with the access labels of whoever looks."""

from dataclasses import dataclass
from pathlib import Path

from ec1.adapters.registry import AdapterRegistry
from ec1.deployment import Deployment, load_deployment
from ec1.home import Home
from ec1.night.steps.recipes import nightly_recipes
from ec1.night.stores import open_registry
from ec1.queries.graph import Labels, labels_of
from ec1.recipes.resolution import ResolvedRecipe


@dataclass(frozen=True)
class Desk:
    """A deployment, its home and its project. `labels` are those of the reader; None: all there are."""

    deployment: Deployment
    home: Home
    project: Path
    labels: Labels

    @property
    def registry(self) -> AdapterRegistry:
        return open_registry(self.deployment, self.home)

    def recipes(self) -> list[ResolvedRecipe]:
        return nightly_recipes(self.deployment, self.project)

    def may_see(self, labels: tuple[str, ...]) -> bool:
        """Whether the reader has all of these labels."""
        return self.labels is None or self.labels.issuperset(labels)


def open_desk(deployment: str, home: Path, project: Path, labels: str | None = None) -> Desk:
    """The desk of a deployment's name. `labels` as `--as` says them. Raises InputError."""
    return Desk(load_deployment(deployment, project), Home(home), project, labels_of(labels))
