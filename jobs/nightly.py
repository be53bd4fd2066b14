"""The nightly job and its parts, as selections over the asset graph."""

from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from resources.dagster_private import UnresolvedAssetJobDefinition

NIGHT_TAG = "ec1/night-run"
"""On every run that is a whole night; the instance lets one such run go at a time (configs/dagster.yaml)."""

NIGHTLY_JOB = "nightly_job"


def night_jobs() -> "list[UnresolvedAssetJobDefinition]":
    """The whole night, phase 1 alone, and phase 2 alone (which needs the night's handover)."""
    phase_1 = dg.AssetSelection.groups("datagraph")
    everything = dg.AssetSelection.all()
    return [
        dg.define_asset_job(
            NIGHTLY_JOB,
            everything,
            description="One whole night: documents to graph, then tuples to adapters.",
            tags={NIGHT_TAG: "yes"},
        ),
        dg.define_asset_job(
            "datagraph_job",
            phase_1,
            description="Phase 1 of a night: new documents to the graph, then the GPU is handed over.",
        ),
        dg.define_asset_job(
            "training_job",
            everything - phase_1,
            description="Phase 2 of a night: every recipe whose corpus has gathered enough.",
        ),
    ]
