"""What a deployment sets about its training corpora."""

from pathlib import Path

from pydantic import Field

from ec1.settings import Settings


class CorpusSettings(Settings):
    root: Path | None = Field(
        None, description="folder of the training corpora (docs/contracts.md); default `<home>/training-corpus`"
    )
