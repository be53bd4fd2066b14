"""The stores that workers are tried on, and a machine that ssh reaches."""

from pathlib import Path

import pytest
from gcs_emulator import bucket, gcs_server
from s3_server import s3_bucket, s3_server
from ssh_server import ssh_server

from ec1.storage.directory import DirectoryStore
from ec1.storage.gcs import GcsStore
from ec1.storage.s3 import S3Store
from ec1.storage.store import ObjectStore

__all__ = ["bucket", "gcs_server", "s3_bucket", "s3_server", "ssh_server", "store"]


@pytest.fixture(params=["directory", "gcs", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "directory":
        return DirectoryStore(tmp_path / "store")
    if request.param == "gcs":
        server = request.getfixturevalue("gcs_server")
        return GcsStore(request.getfixturevalue("bucket"), server.url, retry_seconds=20)
    return S3Store(request.getfixturevalue("s3_bucket"), request.getfixturevalue("s3_server"), retry_seconds=20)
