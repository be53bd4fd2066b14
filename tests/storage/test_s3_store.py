"""What only an S3 bucket can get wrong: endpoints, credentials, damage, lost answers."""

from pathlib import Path

import pytest
from loopback_server import free_port

from ec1.errors import InputError, ServiceError
from ec1.home import Home
from ec1.night.stores import open_store
from ec1.storage.s3 import S3Store
from ec1.storage.settings import S3StoreSettings
from ec1.storage.store import NotFound


def test_a_deployment_names_it(s3_server: str, s3_bucket: str, tmp_path: Path) -> None:
    store = open_store(S3StoreSettings(bucket=s3_bucket, endpoint=s3_server), Home(tmp_path))
    store.put_bytes("adapters/acme/x", b"x")
    assert S3Store(s3_bucket, s3_server).get_bytes("adapters/acme/x") == b"x"


@pytest.mark.parametrize("endpoint", ["http://10.0.0.7:9000", "http://s3.example.com", "127.0.0.1:9000", "https://"])
def test_an_endpoint_elsewhere_needs_https(endpoint: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not on this machine|not an address"):
        open_store(S3StoreSettings(bucket="b", endpoint=endpoint), Home(tmp_path))


def test_an_environment_variable_leads_nowhere(s3_server: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    store = S3Store(s3_bucket, s3_server, retry_seconds=5)
    store.put_bytes("a", b"a")
    assert store.get_bytes("a") == b"a"


def test_damage_is_seen(s3_server: str, s3_bucket: str, tmp_path: Path) -> None:
    store = S3Store(s3_bucket, s3_server)
    store.put_bytes("a", b"a" * 1000)
    _overwrite(s3_server, s3_bucket, "a", b"b" * 1000, sha256_of_others="0" * 64)
    for read in (lambda: store.get_bytes("a"), lambda: store.get_file("a", tmp_path / "copy")):
        with pytest.raises(ServiceError, match="damaged"):
            read()
    assert not (tmp_path / "copy").exists()
    _overwrite(s3_server, s3_bucket, "theirs", b"theirs")
    assert store.get_bytes("theirs") == b"theirs", "what others wrote carries no digest"


def _overwrite(server: str, bucket: str, key: str, data: bytes, sha256_of_others: str | None = None) -> None:
    """Write as another program would."""
    import boto3

    metadata = {"ec1-sha256": sha256_of_others} if sha256_of_others else {}
    client = boto3.client("s3", endpoint_url=server, region_name="us-east-1")
    client.put_object(Bucket=bucket, Key=key, Body=data, Metadata=metadata)


def test_without_credentials_it_says_so(s3_server: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    # As on a machine that is none of Amazon's: its metadata server is not there.
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ServiceError, match=r"^no credentials for the bucket .*AWS_ACCESS_KEY_ID") as error:
        S3Store(s3_bucket, s3_server, retry_seconds=5).put_bytes("a", b"1")
    assert "\n" not in str(error.value)


def test_no_server_and_no_bucket_are_one_line(s3_server: str, s3_bucket: str) -> None:
    with pytest.raises(ServiceError, match="s3://b/a cannot be reached") as error:
        S3Store("b", "http://127.0.0.1:9", retry_seconds=1).get_bytes("a")
    assert "\n" not in str(error.value)
    with pytest.raises(NotFound, match="bucket does not exist"):
        S3Store("no-such-bucket", s3_server).put_bytes("a", b"")
