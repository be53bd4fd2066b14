"""The object stores that a deployment can choose from."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ec1.settings import Settings


class DirectoryStoreSettings(Settings):
    """`kind: directory`: adapters and markers in a folder."""

    kind: Literal["directory"] = Field("directory", description="chooses this section")
    root: Path | None = Field(None, description="the folder; default: the home itself")


class GcsStoreSettings(Settings):
    """`kind: gcs`: adapters and markers in Google Cloud Storage."""

    kind: Literal["gcs"] = Field("gcs", description="chooses this section")
    bucket: str = Field(description="name of the bucket")
    endpoint: str | None = Field(None, description="address of an emulator on loopback; default: Google's")


class S3StoreSettings(Settings):
    """`kind: s3`: adapters and markers in a bucket that speaks S3. Credentials come from where Amazon's tools look."""

    kind: Literal["s3"] = Field("s3", description="chooses this section")
    bucket: str = Field(description="name of the bucket")
    endpoint: str | None = Field(
        None, description="address of another provider: https, or http on loopback; default: Amazon's in that region"
    )
    region: str = Field("us-east-1", pattern="^[a-z0-9-]+$", description="of the bucket")


StoreSettings = Annotated[DirectoryStoreSettings | GcsStoreSettings | S3StoreSettings, Field(discriminator="kind")]
"""The object stores that a deployment can choose from."""
