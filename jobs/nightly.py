"""The nightly job and its parts, as selections over the asset graph."""

import dagster as dg

from ec1.deployment import Deployment
from ec1_assets.partitions import nights_of

NIGHT_TAG = "ec1/night-run"
"""On every run that is a whole night; the instance lets one such run go at a time (configs/dagster.yaml)."""

NIGHTLY_JOB = "nightly_job"


def night_jobs(deployment: Deployment) -> list[dg.UnresolvedAssetJobDefinition]:
    """The whole night, phase 1 alone, and phase 2 alone (which needs the night's handover)."""
    nights = nights_of(deployment)
    phase_1 = dg.AssetSelection.groups("datagraph")
    everything = dg.AssetSelection.all()
    return [
        dg.define_asset_job(
            NIGHTLY_JOB,
            everything,
            description="One whole night: documents to graph, then tuples to adapters.",
            partitions_def=nights,
            tags={NIGHT_TAG: "yes"},
        ),
        dg.define_asset_job(
            "datagraph_job",
            phase_1,
            description="Phase 1 of a night: new documents to the graph, then the GPU is handed over.",
            partitions_def=nights,
        ),
        dg.define_asset_job(
            "training_job",
            everything - phase_1,
            description="Phase 2 of a night: every recipe whose corpus has gathered enough.",
            partitions_def=nights,
        ),
    ]
