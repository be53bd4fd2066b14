"""An inference engine of our own, as a deployment sets it."""

from typing import Literal

from pydantic import Field

from ec1.launch.ray_jobs import RayClusterSettings
from ec1.settings import Settings

WAITING_TOO = 2
"""Requests that an engine is sent for each that it runs at once: while one is answered, the next is there already."""


class ClusterSettings(RayClusterSettings):
    """Engines on the nodes of a Ray cluster."""

    engines: int = Field(ge=1, le=256, description="how many, each on a card of its own; those that find one serve")
    cpus: float = Field(1, ge=0, description="CPUs that Ray sets aside for one engine, beside its card; typically 1–8")
    restarts: int = Field(3, ge=0, le=100, description="how often an engine is started again that was lost")
    cost_per_card_hour: float = Field(
        0.0,
        ge=0,
        description="USD of one of its cards, where trainings run on this machine; else gpu.cost_per_hour counts",
    )


class VllmSettings(Settings):
    """`kind: vllm`: an engine that is started for phase 1 and stopped before phase 2."""

    kind: Literal["vllm"] = Field(description="chooses this section")
    model: str = Field(description="model id; a key of `models`")
    revision: str = Field("main", description="of the model: branch, tag or commit")
    max_model_len: int = Field(4096, gt=0, description="tokens of prompt and answer together; typically 2048–16384")
    max_num_seqs: int = Field(
        8,
        gt=0,
        description="requests that the engine runs at once; typically 8–64, by the card's memory: an H200 answered "
        "20 times as many requests a second with 64 as with 1",
    )
    gpu_memory_utilization: float = Field(
        0.9, gt=0, le=1, description="share of the card that weights and cache may fill; typically 0.85–0.95"
    )
    kv_cache_gib: int = Field(2, gt=0, description="CPU only: GiB for the key-value cache; typically 1–8")
    enforce_eager: bool = Field(False, description="no graph capture: starts faster, runs slower")
    max_lora_rank: int = Field(
        16, description="highest rank of an adapter that the engine can serve; as in the recipes"
    )
    max_loras: int = Field(4, gt=0, description="`ec1 serve`: adapters that one batch may mix")
    reasoning_parser: str | None = Field(
        None, description="vLLM's parser for a model that thinks, such as olmo3; set together with reasoning_tokens"
    )
    tool_parser: str | None = Field(
        None,
        description="`ec1 serve`: vLLM's parser of tool calls, such as hermes; default: by the chat template",
    )
    ready_timeout_seconds: float = Field(900, gt=0, description="how long the engine may take to load the model")
    cluster: ClusterSettings | None = Field(
        None, description="serve on several cards of a Ray cluster, instead of on this machine's"
    )
    extra_args: tuple[str, ...] = Field((), description="further arguments of vLLM's server, as they are")
