"""The adapter registry as a Dagster resource, on whichever object store the deployment names."""

from typing import TYPE_CHECKING

import dagster as dg

from resources.project import ProjectResource

if TYPE_CHECKING:
    from ec1.adapters.registry import AdapterRegistry


class RegistryResource(dg.ConfigurableResource["RegistryResource"]):
    """Opens the registry; with a bucket, `local` is where this machine keeps its copies."""

    project: dg.ResourceDependency[ProjectResource]

    def open(self) -> "AdapterRegistry":
        from ec1.night.stores import open_registry

        return open_registry(self.project.deployment(), self.project.home)
