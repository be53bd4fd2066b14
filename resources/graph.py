"""The property graph as a Dagster resource."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

import dagster as dg

from ec1.documents.ledger import DocumentKey, LedgerEntry
from ec1.errors import DamagedError
from resources.project import ProjectResource

if TYPE_CHECKING:
    from ec1.extraction.reading.outbox import Outbox
    from ec1.graph.ladybug_store import LadybugStore
    from ec1.graph.rebuild import Rebuild
    from ec1.graph.resolution.clusters import Cluster
    from ec1.graph.service_content_store import DeliveryRecord
    from ec1.night.steps.graph import Results

T = TypeVar("T")


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

    def use(self, work: "Callable[[LadybugStore], T]") -> "T":
        """Do some work, which can be repeated, with the open graph. If the graph turns out to be damaged meanwhile, its
        published copy takes its place and the work is done once more."""
        try:
            with self.open() as store:
                return work(store)
        except DamagedError as error:
            dg.get_dagster_logger().warning(str(error))
            with self.open() as store:
                return work(store)

    @property
    def keeps_mentions(self) -> bool:
        """Whether the live graph holds entities, or only the ledger."""
        return "ladybug" in self.project.deployment().graph_stores

    def rebuilder(self, store: "LadybugStore", night: str) -> "Callable[[Results, int], Rebuild] | None":
        """How the graph is rebuilt when the extractor changed, if the deployment wants that done all at once."""
        from ec1.graph.rebuild import rebuild_graph

        deployment = self.project.deployment()
        if deployment.extraction.fingerprint_policy != "full":
            return None
        return lambda results, documents: rebuild_graph(
            store,
            results,
            night,
            documents=documents,
            published=self.project.home.published_graph,
            buffer_pool_mib=deployment.graph.buffer_pool_mib,
            quarantine_after=deployment.extraction.quarantine_after,
            # A graph that is to be only the ledger is meant to lose its entities.
            max_shrink_share=deployment.graph.max_shrink_share if self.keeps_mentions else 1.0,
        )

    def deliver(
        self,
        ledger: Mapping[DocumentKey, LedgerEntry],
        outbox: "Outbox",
        night: str,
        clusters: "Iterable[Cluster]" = (),
    ) -> "DeliveryRecord | None":
        """Bring service-content up to date, if the deployment has it; its failures are in what is returned. What
        resolution made one of (`clusters`) is sent as one."""
        from ec1.graph.service_content import ServiceContentClient
        from ec1.graph.service_content_store import ServiceContentStore

        deployment = self.project.deployment()
        if "service_content" not in deployment.graph_stores:
            return None
        module_id = deployment.content_module_id
        with ServiceContentClient(deployment.service_content, module_id) as client:
            state = self.project.home.service_content(module_id)
            store = ServiceContentStore(state, client, deployment.extraction.vocabulary)
            return store.deliver(ledger, outbox, night, clusters)
