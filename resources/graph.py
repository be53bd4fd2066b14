"""The property graph as a Dagster resource."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import dagster as dg

from resources.project import ProjectResource

if TYPE_CHECKING:
    from ec1.graph.ladybug_store import LadybugStore


class GraphResource(dg.ConfigurableResource["GraphResource"]):
    """Opens the live graph for its one writer. Open it inside the step: a fork must not inherit it."""

    project: dg.ResourceDependency[ProjectResource]
    wait_seconds: float = 600.0

    def open(self) -> "AbstractContextManager[LadybugStore]":
        from ec1.graph.ladybug_store import LadybugStore

        home = self.project.home
        return LadybugStore.open(
            home.graph,
            buffer_pool_mib=self.project.deployment().graph.buffer_pool_mib,
            wait_seconds=self.wait_seconds,
            published=home.published_graph,
        )
