"""Phase 1 as assets: what changed, what it mentions, the graph, and the handover of the GPU.

Thin functions: check the inputs, call one domain function, return metadata. They are built for a partitioning because
the deployment decides on which day its nights begin.
"""

import datetime as dt
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import dagster as dg

from ec1.documents.ledger import DocumentKey, LedgerEntry
from ec1.documents.listing import Listing
from ec1.documents.unread import unread_files
from ec1.extraction.naming.trust import Trust
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.graph.exports import export_night
from ec1.graph.resolution.overrides import load_overrides
from ec1.graph.service_content_store import DeliveryRecord
from ec1.night.records import GraphRecord, Records
from ec1.night.report.growth import growth
from ec1.night.steps.extraction import extract_night, work_of
from ec1.night.steps.extractor import known_names
from ec1.night.steps.graph import apply_night, listing_to_apply, trust_of_night, waiting_documents
from ec1.night.steps.handover import hand_over
from ec1.night.steps.listing import list_documents
from ec1.night.steps.scores import scores_of
from ec1.night.steps.taught import teach
from ec1.nights import Night
from ec1.streams import Stream
from ec1_assets import checks, metadata
from resources.gpu import GPU_POOL, GpuResource
from resources.graph import GraphResource
from resources.inference import InferenceResource
from resources.project import ProjectResource

if TYPE_CHECKING:
    from ec1.extraction.reading.progress import Progress
    from ec1.graph.ladybug_store import LadybugStore
    from ec1.graph.resolution.clusters import Cluster

GROUP = "datagraph"
OWNERS = ["team:datagraph"]
LISTING = "source_documents.json"
OBSERVATION_SECONDS = 30.0


class _Mutated(NamedTuple):
    """What a night made of the graph."""

    listing: Listing
    applied: GraphRecord
    resolved: metadata.Metadata | None
    merged: "Sequence[Cluster]"
    """What is sent to service-content as one entity."""
    exported: Path | None
    ledger: Mapping[DocumentKey, LedgerEntry]


def datagraph_assets(nights: dg.DailyPartitionsDefinition, streams: Mapping[str, Stream]) -> list[dg.AssetsDefinition]:
    """The assets of group `datagraph`, one partition per night."""
    entities = [f"{stream}_entities" for stream in streams]

    @dg.asset(
        partitions_def=nights,
        group_name=GROUP,
        owners=OWNERS,
        kinds={"file"},
        code_version="1",
        description="What changed in the document streams since the ledger, as of the end of this night.",
    )
    def source_documents(
        context: dg.AssetExecutionContext, project: ProjectResource, graph: GraphResource, inference: InferenceResource
    ) -> dg.MaterializeResult:
        deployment, home = project.deployment(), project.home
        night, now = deployment.night(context.partition_key), dt.datetime.now(dt.UTC)
        ledger = graph.use(lambda store: store.ledger())
        listing = _list_documents(ledger, night, night.as_of(now), project, inference)
        listing.save(home.night(night.date) / LISTING)
        unread = unread_files(deployment.documents_root(home), deployment.documents.all_streams.values())
        return dg.MaterializeResult(
            metadata=metadata.of_listing(
                listing, str(unread), Records(home.night(night.date)).total(GraphRecord) or GraphRecord()
            ),
            data_version=dg.DataVersion(listing.digest),
        )

    @dg.multi_asset(
        name="extract_entities",
        partitions_def=nights,
        # The longest step of phase 1: it must not queue behind steps that have time until the handover.
        op_tags={"dagster/priority": "10"},
        can_subset=True,
        pool=GPU_POOL,
        specs=[
            dg.AssetSpec(
                f"{stream.name}_entities",
                deps=["source_documents"],
                group_name=GROUP,
                owners=[stream.owner] if stream.owner else OWNERS,
                kinds={"vllm"},
                code_version="1",
                description=f"Named entities in the {stream.name} documents of this night, in the outbox.",
            )
            for stream in streams.values()
        ],
    )
    def extract_entities(
        context: dg.AssetExecutionContext, project: ProjectResource, inference: InferenceResource
    ) -> Iterator[dg.MaterializeResult]:
        deployment, home = project.deployment(), project.home
        listing = Listing.load(home.night(context.partition_key) / LISTING)
        chosen = [key.path[-1].removesuffix("_entities") for key in context.selected_asset_keys]
        extractor = inference.extractor()
        if deployment.extraction.mode != "answer":
            extractor.known = known_names(home)
        with inference.serve(context) as serve:
            report = extract_night(
                work_of(listing, chosen, deployment.document_reader(home)),
                extractor,
                inference.outbox(),
                serve,
                deadline_of=inference.deadline,
                progress=_progress_to(context),
                serve_second=lambda: serve(second=True),
            )
        if report.stopped:
            context.log.warning(f"work is put off to a later night: {report.stopped}")
        records = Records(home.night(context.partition_key))
        records.write(context.run.run_id, report.only(chosen))
        total = records.total(ExtractionRecord) or report
        for stream in sorted(chosen):
            yield dg.MaterializeResult(
                asset_key=f"{stream}_entities",
                metadata=metadata.of_extraction(total, stream, listing, records.folder),
            )

    @dg.asset(
        partitions_def=nights,
        deps=entities,
        group_name=GROUP,
        owners=OWNERS,
        kinds={"ladybug"},
        code_version="1",
        description="Mentions and entities applied to the property graph, and a published read-only copy of it.",
        check_specs=checks.specs_of_graph(),
    )
    def graph_mutations(
        context: dg.AssetExecutionContext, project: ProjectResource, graph: GraphResource, inference: InferenceResource
    ) -> dg.MaterializeResult:
        deployment, home = project.deployment(), project.home
        folder = home.night(context.partition_key)
        found = Listing.load(folder / LISTING)
        outbox, fingerprints = inference.outbox(), inference.fingerprints()
        overrides = load_overrides(deployment.graph.overrides)

        taught = teach(deployment, home, found, inference.extractor(), outbox, dt.datetime.now(dt.UTC))

        def brought_up_to_date(store: "LadybugStore") -> "_Mutated":
            listing = listing_to_apply(
                store,
                found,
                lambda ledger: _list_documents(ledger, deployment.night(found.night), found.as_of, project, inference),
            )
            applied = apply_night(
                store,
                listing,
                outbox,
                fingerprints,
                quarantine_after=deployment.extraction.quarantine_after,
                keep_mentions=graph.keeps_mentions,
                rebuild=graph.rebuilder(store, listing.night),
            )
            resolved = None
            if deployment.graph.resolution:
                unused = store.update_resolution(overrides, drift=deployment.graph.resolution_drift)
                resolved = metadata.of_resolution(store, unused)
            else:
                store.drop_resolution()
            exported = export_night(
                store,
                home.graph_exports,
                listing.night,
                store.digest_with_resolution(),
                deployment.graph.exports,
            )
            store.publish(home.published_graph)
            merged = store.clusters() if "service_content" in deployment.graph_stores else ()
            return _Mutated(listing, applied, resolved, merged, exported, store.ledger())

        listing, applied, resolved, merged, exported, ledger = graph.use(brought_up_to_date)
        trust_of_night(applied, listing, outbox, fingerprints, deployment.document_reader(home))
        records = Records(folder)
        records.write(context.run.run_id, applied)
        night = records.total(GraphRecord) or applied
        delivery = graph.deliver(ledger, outbox, listing.night, merged)
        if delivery is not None:
            records.write(context.run.run_id, delivery)
            if delivery.problem:
                context.log.warning(f"{delivery.deferred} entities wait for a later night: {delivery.problem}")
        scores = scores_of(deployment, home, ledger, outbox)
        if scores is not None:
            records.write(context.run.run_id, scores)
            if scores.problem:
                context.log.warning(f"extraction was not scored: {scores.problem}")
        return dg.MaterializeResult(
            metadata={
                **metadata.of_graph(
                    night,
                    home,
                    folder,
                    exported,
                    growth(home.nights, listing.night),
                ),
                **(resolved or {}),
                **metadata.of_trust(Trust(night.named, night.kept, night.invented), waiting_documents(ledger), scores),
                **{f"tuples_{source}": count for source, count in taught.items()},
                **(metadata.of_delivery(records.total(DeliveryRecord) or delivery) if delivery is not None else {}),
            },
            data_version=dg.DataVersion(applied.digest),
            check_results=checks.of_graph(night, deployment),
        )

    @dg.asset(
        partitions_def=nights,
        deps=entities,
        group_name=GROUP,
        owners=OWNERS,
        kinds={"gpu"},
        code_version="1",
        pool=GPU_POOL,
        description="Proof that the inference server is gone and the GPU free. Training waits for it.",
    )
    def gpu_handover(
        context: dg.AssetExecutionContext, project: ProjectResource, gpu: GpuResource
    ) -> dg.MaterializeResult:
        machine = project.machine()
        with gpu.hold(context, "handover") as grant:
            memory = grant.memory if machine is None else machine.handover(context.log.info)
            handover = hand_over(memory, len(grant.swept), project.home, context.partition_key, context.run.run_id)
        gpu.stop_if_done(context)
        return dg.MaterializeResult(metadata=metadata.of_handover(handover))

    return [source_documents, extract_entities, graph_mutations, gpu_handover]


def _progress_to(context: dg.AssetExecutionContext) -> "Callable[[Progress], None]":
    """Tell the log where an extraction stands, and from time to time the assets' history, where it becomes a curve."""
    observed = time.monotonic()

    def tell(state: "Progress") -> None:
        nonlocal observed
        context.log.info(str(state))
        if time.monotonic() - observed >= OBSERVATION_SECONDS:
            observed = time.monotonic()
            for key in context.selected_asset_keys:
                context.log_event(
                    dg.AssetObservation(key, partition=context.partition_key, metadata=metadata.of_progress(state))
                )

    return tell


def _list_documents(
    ledger: Mapping[DocumentKey, LedgerEntry],
    night: Night,
    as_of: dt.datetime,
    project: ProjectResource,
    inference: InferenceResource,
) -> Listing:
    extractors, outbox = inference.fingerprints(), inference.outbox()
    listing, _ = list_documents(
        project.deployment(),
        project.home,
        ledger,
        extractors,
        outbox,
        night,
        as_of=as_of,
        now=dt.datetime.now(dt.UTC),
    )
    return listing
