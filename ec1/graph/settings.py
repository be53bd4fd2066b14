"""What a deployment sets about the graph and the service that others read it from."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from ec1.settings import HttpAddress, Name, Settings


class LadybugSettings(Settings):
    kind: Literal["ladybug"] = Field("ladybug", description="the embedded graph store")
    buffer_pool_mib: int = Field(256, ge=64, description="memory of the database, in MiB; typically 256–4096")
    exports: int = Field(
        0,
        ge=0,
        description="nights whose Parquet export of the whole graph is kept; 0: a night writes none. An export takes "
        "0.05 CPU seconds for 3,000 mentions, 8 for a million",
    )
    resolution: bool = Field(True, description="decide after each night which entities are one; a separate layer")
    resolution_drift: float = Field(
        0.1,
        ge=0,
        description="share of the entities that may come or go before all are compared again, with frequencies of "
        "then; until then a night compares only what its documents touch; typically 0.05–0.3",
    )
    overrides: Path | None = Field(
        None, description="YAML file of operators' decisions: entities that are one, or not; default: in the home"
    )
    max_shrink_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="the check fails if a night loses a larger share of the entities; typically 0.05–0.3",
    )


class ServiceContentSettings(Settings):
    """The graph service that other systems read (docs/contracts.md)."""

    base_url: HttpAddress = Field("http://127.0.0.1:9081", description="address of the service")
    module_id: Name | None = Field(None, description="scope of what is sent; default: the tenant")
    batch_entities: int = Field(200, gt=0, description="entities per request")
    request_timeout_seconds: float = Field(60, gt=0, description="of one request")
    max_attempts: int = Field(4, gt=0, description="of one request, for transient errors")
