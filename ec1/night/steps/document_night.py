"""The documents of one night: every step of phase 1, from the listing to what the graph and service-content hold.

Belongs here: what a deployment and a home add to phase 1, step by step; the twin of `RecipeNight`. Does not: how a step
works (`ec1.documents`, `ec1.extraction`, `ec1.graph`), and which server answers (the caller of `extract` says so).
"""

import datetime as dt
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ec1.deployment import Deployment
from ec1.documents.ledger import DocumentKey, Fingerprints, LedgerEntry
from ec1.documents.listing import LISTING, Listing
from ec1.documents.unread import unread_files
from ec1.documents.upgrades import note_upgrade
from ec1.errors import DamagedError
from ec1.extraction.naming.trust import Trust
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.graph.exports import export_night
from ec1.graph.resolution.overrides import load_overrides
from ec1.home import Home
from ec1.night.records import GraphRecord, Records, ScoreRecord
from ec1.night.report.growth import Growth, growth
from ec1.night.steps.early import EarlyGraph
from ec1.night.steps.extraction import extract_night, work_of
from ec1.night.steps.extractor import extractor_of, known_names
from ec1.night.steps.graph import (
    apply_finished,
    apply_night,
    listing_to_apply,
    trust_of_night,
    waiting_documents,
)
from ec1.night.steps.listing import list_documents
from ec1.night.steps.scores import scores_of
from ec1.nights import Night
from ec1.plural import counted

if TYPE_CHECKING:
    from ec1.extraction.reading.client import ChatClient
    from ec1.extraction.reading.extractor import Extractor
    from ec1.extraction.reading.outbox import Outbox
    from ec1.extraction.reading.progress import Progress
    from ec1.graph.ladybug_store import LadybugStore
    from ec1.graph.model import Rebuild
    from ec1.graph.resolution.clusters import Cluster
    from ec1.graph.resolution.tables import Counts
    from ec1.graph.service_content_store import DeliveryRecord
    from ec1.night.steps.graph import Results

    Serve = Callable[[], AbstractContextManager[ChatClient]]

T = TypeVar("T")
log = logging.getLogger(__name__)
GRAPH_WAIT_SECONDS = 600.0
"""How long a step waits for another writer of the graph."""


@dataclass(frozen=True)
class GraphOfNight:
    """What the graph is after a night's documents, and how far they can be trusted."""

    applied: GraphRecord
    """What this run did."""
    total: GraphRecord
    """What all runs of the night did."""
    resolution: "Counts | None"
    unused_overrides: tuple[str, ...]
    """Entities that the operators' file names and the graph lacks."""
    exported: Path | None
    delivery: "DeliveryRecord | None"
    scores: ScoreRecord | None
    waiting: tuple[LedgerEntry, ...]
    """Documents that are deferred or quarantined."""
    growth: Growth

    @property
    def trust(self) -> Trust:
        """How far the answers of all runs of the night can be trusted."""
        return Trust(self.total.named, self.total.kept, self.total.invented)

    @property
    def problems(self) -> list[str]:
        """What did not work and costs the night nothing."""
        found = []
        if self.delivery is not None and self.delivery.problem:
            many = counted(self.delivery.deferred, "entity", "entities")
            found.append(f"{many} put off to a later night: {self.delivery.problem}")
        if self.scores is not None and self.scores.problem:
            found.append(f"extraction was not scored: {self.scores.problem}")
        return found


@dataclass(frozen=True)
class _Written:
    """What was written while the graph was open."""

    listing: Listing
    applied: GraphRecord
    resolution: "Counts | None"
    unused: tuple[str, ...]
    clusters: "tuple[Cluster, ...]"
    exported: Path | None
    ledger: Mapping[DocumentKey, LedgerEntry]


class DocumentNight:
    """The steps of phase 1 on `night`, in their order. Nothing is read or written before a step is called."""

    def __init__(self, deployment: Deployment, home: Home, night: Night) -> None:
        self.deployment = deployment
        self.home = home
        self.night = night

    @property
    def folder(self) -> Path:
        """Everything that phase 1 writes down about this night lies below it."""
        return self.home.night(self.night.date)

    @property
    def records(self) -> Records:
        return Records(self.folder)

    @cached_property
    def extractor(self) -> "Extractor":
        return extractor_of(self.deployment, self.home)

    @cached_property
    def fingerprints(self) -> Fingerprints:
        """Those of the night's extractors."""
        return self.extractor.fingerprints()

    @cached_property
    def outbox(self) -> "Outbox":
        from ec1.extraction.reading.outbox import Outbox

        return Outbox(self.home.outbox)

    # --- the steps

    def list(self, now: dt.datetime) -> Listing:
        """List what changed as of the end of the night, or of `now` if that is earlier, and keep the list."""
        ledger = self._with_graph(lambda store: store.ledger())
        # Before the extractor, whose fingerprints depend on it.
        reader, limits = self.deployment.document_reader(self.home), self.deployment.documents.limits
        note_upgrade(self.home.conversions, ledger, reader, limits, self.outbox.characters)
        listing = self._listed(ledger, self.night.as_of(now), now)
        listing.save(self.folder / LISTING)
        return listing

    def unread(self) -> str:
        """What lies in the document root and no stream reads, in words; empty if there is nothing."""
        return str(
            unread_files(self.deployment.documents_root(self.home), self.deployment.documents.all_streams.values())
        )

    def listing(self) -> Listing:
        """The list that this night made. Raises InputError if it made none."""
        return Listing.load(self.folder / LISTING)

    def extract(
        self,
        run: str,
        streams: Sequence[str],
        serve: "Serve",
        *,
        deadline_of: Callable[[], float],
        progress: "Callable[[Progress], None]",
    ) -> tuple[ExtractionRecord, ExtractionRecord]:
        """Read the listed documents of `streams`; `serve` is entered only if one needs the model. Returns what this run
        did, and what all runs of the night did."""
        if self.deployment.extraction.mode != "answer":
            self.extractor.known = known_names(self.home)
        listing, every = self.listing(), self.deployment.documents.all_streams
        reader = self.deployment.document_reader(self.home)
        with EarlyGraph(lambda: self._publish_early(run, listing)) as early:

            def told(state: "Progress") -> None:
                progress(state)
                early.look()

            done = extract_night(
                work_of(listing, {name: every[name] for name in streams}, reader),
                self.extractor,
                self.outbox,
                serve,
                deadline_of=deadline_of,
                progress=told if self._keeps_mentions else progress,
            ).only(streams)
        self.records.write(run, done)
        return done, self.records.total(ExtractionRecord) or done

    def mutate(self, run: str) -> GraphOfNight:
        """Apply the night's results to the graph, say which entities are one, publish a copy, and bring service-content
        up to date. Safe to repeat: what counts already changes nothing."""
        now = dt.datetime.now(dt.UTC)
        found = self.listing()
        early = self._early(run)
        written = self._with_graph(lambda store: self._write(store, found, now, early))
        reader = self.deployment.document_reader(self.home)
        trust_of_night(written.applied, written.listing, self.outbox, self.fingerprints, reader)
        self.records.write(run, written.applied)
        delivery = self._deliver(written)
        if delivery is not None:
            self.records.write(run, delivery)
            delivery = self.records.total(type(delivery)) or delivery
        scores = scores_of(self.deployment, self.home, written.ledger, self.outbox)
        if scores is not None:
            self.records.write(run, scores)
        return GraphOfNight(
            applied=written.applied,
            total=self.total(),
            resolution=written.resolution,
            unused_overrides=written.unused,
            exported=written.exported,
            delivery=delivery,
            scores=scores,
            waiting=tuple(waiting_documents(written.ledger)),
            growth=growth(self.home.nights, self.night.date),
        )

    def total(self) -> GraphRecord:
        """What all runs of the night have done to the graph so far."""
        return self.records.total(GraphRecord) or GraphRecord()

    # --- what they share

    def _listed(self, ledger: Mapping[DocumentKey, LedgerEntry], as_of: dt.datetime, now: dt.datetime) -> Listing:
        listing, _ = list_documents(
            self.deployment, self.home, ledger, self.fingerprints, self.outbox, self.night, as_of=as_of, now=now
        )
        return listing

    @property
    def _keeps_mentions(self) -> bool:
        """Whether the live graph holds entities, or only the ledger."""
        return "ladybug" in self.deployment.graph_stores

    def _with_graph(self, work: "Callable[[LadybugStore], T]") -> T:
        """Do some work, which can be repeated, with the open graph. If the graph turns out to be damaged meanwhile, its
        published copy takes its place and the work is done once more."""
        try:
            with self._open() as store:
                return work(store)
        except DamagedError as error:
            log.warning("%s", error)
            with self._open() as store:
                return work(store)

    def _open(self, wait_seconds: float = GRAPH_WAIT_SECONDS) -> "AbstractContextManager[LadybugStore]":
        from ec1.graph.ladybug_store import LadybugStore

        return LadybugStore.open(
            self.home.graph,
            buffer_pool_mib=self.deployment.graph.buffer_pool_mib,
            wait_seconds=wait_seconds,
            published=self.home.published_graph,
        )

    def _early(self, run: str) -> GraphRecord | None:
        """What this run has applied while it read, if it has."""
        found = self.records.find(GraphRecord, run)
        return found if found is not None and found.reading_process is not None else None

    def _publish_early(self, run: str, listing: Listing) -> None:
        """Apply the documents that are finished and publish the graph, while others are still read. Which entities are
        one is decided when all are."""
        with self._open(wait_seconds=0) as store:
            record = apply_finished(store, listing, self.outbox, self.fingerprints, self._early(run))
            store.publish(self.home.published_graph)
        self.records.write(run, record)
        log.info("the graph holds %d entities of %d documents so far", record.entities_after, record.applied)

    def _write(self, store: "LadybugStore", found: Listing, now: dt.datetime, early: GraphRecord | None) -> _Written:
        settings = self.deployment.graph
        recovered = early.recovered if early is not None else None
        listing = listing_to_apply(store, found, lambda ledger: self._listed(ledger, found.as_of, now), recovered)
        applied = apply_night(
            store,
            listing,
            self.outbox,
            self.fingerprints,
            quarantine_after=self.deployment.extraction.quarantine_after,
            keep_mentions=self._keeps_mentions,
            rebuild=self._rebuilder(store),
        )
        if early is not None:
            applied.entities_before = early.entities_before
            applied.recovered = applied.recovered or recovered
        resolution, unused = None, []
        if settings.resolution:
            overrides = load_overrides(settings.overrides, self.home.overrides)
            unused = store.update_resolution(overrides, drift=settings.resolution_drift)
            resolution = store.resolution_counts()
        else:
            store.drop_resolution()
        exported = export_night(
            store, self.home.graph_exports, listing.night, store.digest_with_resolution(), settings.exports
        )
        store.publish(self.home.published_graph)
        clusters = store.clusters() if "service_content" in self.deployment.graph_stores else ()
        return _Written(listing, applied, resolution, tuple(unused), clusters, exported, store.ledger())

    def _rebuilder(self, store: "LadybugStore") -> "Callable[[Results, int], Rebuild] | None":
        """How the graph is rebuilt when the extractor changed, if the deployment wants that done all at once."""
        from ec1.graph.rebuild import rebuild_graph

        if self.deployment.extraction.fingerprint_policy != "full":
            return None
        return lambda results, documents: rebuild_graph(
            store,
            results,
            self.night.date,
            documents=documents,
            published=self.home.published_graph,
            buffer_pool_mib=self.deployment.graph.buffer_pool_mib,
            quarantine_after=self.deployment.extraction.quarantine_after,
            # A graph that is to be only the ledger is meant to lose its entities.
            max_shrink_share=self.deployment.graph.max_shrink_share if self._keeps_mentions else 1.0,
        )

    def _deliver(self, written: _Written) -> "DeliveryRecord | None":
        """Bring service-content up to date, if the deployment has it; its failures are in what is returned."""
        from ec1.graph.service_content import ServiceContentClient
        from ec1.graph.service_content_store import ServiceContentStore

        if "service_content" not in self.deployment.graph_stores:
            return None
        module_id = self.deployment.content_module_id
        with ServiceContentClient(self.deployment.service_content, module_id) as client:
            state = self.home.service_content(module_id)
            store = ServiceContentStore(state, client, self.deployment.extraction.vocabulary)
            documents, ledger, clusters = self.deployment.documents, written.ledger, written.clusters
            if documents.labelled:
                # The service knows no labels: it gets what everybody may read. What is one thing was found among all
                # documents, and so may tell of others.
                ledger, clusters = {key: row for key, row in ledger.items() if not documents.labels_of(key)}, ()
            return store.deliver(ledger, self.outbox, self.night.date, clusters)
