"""What a deployment sets about its documents."""

from pathlib import Path

from pydantic import Field

from ec1.settings import Settings


class DocumentSettings(Settings):
    root: Path | None = Field(
        None, description="folder of the document streams (docs/contracts.md); default `<home>/documents`"
    )
    max_vanished_share: float = Field(
        0.3,
        gt=0,
        le=1,
        description="stop if a larger share of the known documents vanished: a lost mount; typically 0.1–0.5",
    )
    max_bytes: int = Field(50 * 2**20, gt=0, description="a larger file is rejected with a reason")
    max_chunks: int = Field(
        5000,
        gt=0,
        description="a document of more chunks is rejected with a reason: it would take the night from others",
    )
    verify_every_days: int = Field(
        30, ge=0, description="read every file again, also those that look unchanged; 0: never"
    )
