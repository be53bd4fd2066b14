"""The object stores that a deployment can choose from."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny

from ec1.extensions import or_extension
from ec1.settings import Settings
from ec1.storage.store import ObjectStore


class DirectoryStoreSettings(Settings):
    """`kind: directory`: adapters and markers in a folder."""

    kind: Literal["directory"] = Field("directory", description="chooses this section")
    root: Path | None = Field(None, description="the folder; default: the home itself")

    def open(self, root: Path) -> ObjectStore:
        from ec1.storage.directory import DirectoryStore

        return DirectoryStore(self.root or root)


class GcsStoreSettings(Settings):
    """`kind: gcs`: adapters and markers in Google Cloud Storage."""

    kind: Literal["gcs"] = Field("gcs", description="chooses this section")
    bucket: str = Field(description="name of the bucket")
    endpoint: str | None = Field(None, description="address of an emulator on loopback; default: Google's")

    def open(self, root: Path) -> ObjectStore:
        from ec1.storage.gcs import GcsStore

        return GcsStore(self.bucket, self.endpoint)


class S3StoreSettings(Settings):
    """`kind: s3`: adapters and markers in a bucket that speaks S3. Credentials come from where Amazon's tools look."""

    kind: Literal["s3"] = Field("s3", description="chooses this section")
    bucket: str = Field(description="name of the bucket")
    endpoint: str | None = Field(
        None, description="address of another provider: https, or http on loopback; default: Amazon's in that region"
    )
    region: str = Field("us-east-1", pattern="^[a-z0-9-]+$", description="of the bucket")

    def open(self, root: Path) -> ObjectStore:
        from ec1.storage.s3 import S3Store

        return S3Store(self.bucket, self.endpoint, region=self.region)


StoreSettings = Annotated[
    SerializeAsAny[Annotated[DirectoryStoreSettings | GcsStoreSettings | S3StoreSettings, Field(discriminator="kind")]],
    or_extension("ec1.stores"),
]
"""The object stores that a deployment can choose from. `open` takes the home's folder, and raises InputError for an
endpoint that may not be used."""
