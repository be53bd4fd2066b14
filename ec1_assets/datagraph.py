"""Phase 1 as assets: what changed, what it mentions, the graph, and the handover of the GPU.

Thin functions: check the inputs, call one domain function, return metadata. They are built for a partitioning because
the deployment decides on which day its nights begin.
"""

import datetime as dt
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from ec1.night.steps.document_night import DocumentNight
from ec1.night.steps.handover import hand_over
from ec1.streams import Stream
from ec1_assets import checks, metadata
from resources.gpu import GPU_POOL, GpuResource
from resources.inference import InferenceResource
from resources.project import ProjectResource

if TYPE_CHECKING:
    from ec1.extraction.reading.progress import Progress

GROUP = "datagraph"
OWNERS = ["team:datagraph"]
OBSERVATION_SECONDS = 30.0


def entities_of(streams: Mapping[str, Stream]) -> list[str]:
    """The assets that hold what was found in the streams."""
    return [f"{stream}_entities" for stream in streams]


def datagraph_assets(
    nights: dg.DailyPartitionsDefinition, streams: Mapping[str, Stream], before_handover: Sequence[str] = ()
) -> list[dg.AssetsDefinition]:
    """The assets of group `datagraph`, one partition per night; those of `before_handover` use the GPU before it is
    handed over."""
    entities = entities_of(streams)

    # What phase 1 does first, and its longest step, must not queue behind steps that have time until the handover.
    first = {"dagster/priority": "10"}

    @dg.asset(
        partitions_def=nights,
        op_tags=first,
        group_name=GROUP,
        owners=OWNERS,
        kinds={"file"},
        code_version="1",
        description="What changed in the document streams since the ledger, as of the end of this night.",
    )
    def source_documents(context: dg.AssetExecutionContext, project: ProjectResource) -> dg.MaterializeResult:
        night = _night(context, project)
        listing = night.list(dt.datetime.now(dt.UTC))
        return dg.MaterializeResult(
            metadata=metadata.of_listing(listing, night.unread(), night.total()),
            data_version=dg.DataVersion(listing.digest),
        )

    @dg.multi_asset(
        name="extract_entities",
        partitions_def=nights,
        op_tags=first,
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
        night = _night(context, project)
        chosen = [key.path[-1].removesuffix("_entities") for key in context.selected_asset_keys]
        done, total = night.extract(
            context.run.run_id,
            chosen,
            lambda: inference.serve(context),
            deadline_of=inference.deadline,
            progress=_progress_to(context),
        )
        if done.stopped:
            context.log.warning(f"work is put off to a later night: {done.stopped}")
        for stream in sorted(chosen):
            yield dg.MaterializeResult(
                asset_key=f"{stream}_entities",
                metadata=metadata.of_extraction(total, stream, night.folder),
            )

    @dg.asset(
        partitions_def=nights,
        deps=entities,
        group_name=GROUP,
        owners=OWNERS,
        kinds={"ladybug"},
        code_version="1",
        description="Mentions and entities applied to the property graph, and a published read-only copy of it.",
        check_specs=checks.specs_of_graph(nights),
    )
    def graph_mutations(context: dg.AssetExecutionContext, project: ProjectResource) -> dg.MaterializeResult:
        night = _night(context, project)
        graph = night.mutate(context.run.run_id)
        for problem in graph.problems:
            context.log.warning(problem)
        return dg.MaterializeResult(
            metadata=metadata.of_graph(graph, night.home, night.folder),
            data_version=dg.DataVersion(graph.applied.digest),
            check_results=checks.of_graph(graph, night.deployment),
        )

    @dg.asset(
        partitions_def=nights,
        deps=[*entities, *before_handover],
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


def _night(context: dg.AssetExecutionContext, project: ProjectResource) -> DocumentNight:
    deployment = project.deployment()
    return DocumentNight(deployment, project.home, deployment.night(context.partition_key))
