"""An object store in a Google Cloud Storage bucket.

Every write carries a generation precondition or may be repeated, so that the library's retries are safe; every byte
that travels is checked by CRC32C; files over 8 MiB go up as resumable uploads.
https://cloud.google.com/storage/docs/request-preconditions
"""

import base64
import contextlib
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ec1.errors import ServiceError
from ec1.files import atomic_file
from ec1.storage.claimed_folder import put_claimed_folder
from ec1.storage.loopback import checked_loopback
from ec1.storage.store import TEMPORARY, AlreadyExists, NotFound, ObjectInfo, checked_key

_GOOGLE = "https://storage.googleapis.com"
_TOKEN = "ec1-write"


class GcsStore:
    """`ObjectStore` in `bucket`. `endpoint` is for an emulator, and only for one on this machine.

    Credentials are the application-default ones; an emulator gets none. `retry_seconds` is how long one call is
    tried again after transient errors. Raises InputError for an endpoint elsewhere, ServiceError without credentials.
    """

    def __init__(self, bucket: str, endpoint: str | None = None, *, retry_seconds: float = 120) -> None:
        import google.auth
        from google.auth.exceptions import DefaultCredentialsError
        from google.cloud import storage
        from google.cloud.storage.retry import DEFAULT_RETRY

        credentials = None
        if endpoint is not None:
            checked_loopback(endpoint)
        else:
            try:
                credentials, _ = google.auth.default(scopes=storage.Client.SCOPE)
            except DefaultCredentialsError:
                raise ServiceError(
                    f"no Google credentials for the bucket {bucket}: give the machine a service account, or run "
                    "'gcloud auth application-default login'"
                ) from None
        # The endpoint is always given: otherwise an environment variable could point the library elsewhere.
        client = storage.Client(
            project=None,
            credentials=credentials,
            client_options={"api_endpoint": endpoint or _GOOGLE},
            use_auth_w_custom_endpoint=endpoint is None,
        )
        self.name = bucket
        self._bucket = client.bucket(bucket)
        self._retry = DEFAULT_RETRY.with_timeout(retry_seconds)

    def put_file(self, key: str, path: Path, *, if_absent: bool = False) -> None:
        blob = self._blob(key)
        self._upload(blob, if_absent, lambda options: blob.upload_from_filename(path, **options))

    def put_bytes(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        blob = self._blob(key)
        self._upload(blob, if_absent, lambda options: blob.upload_from_string(data, **options))

    def put_folder(self, prefix: str, files: Mapping[str, Path], *, seal: str, claim: str) -> None:
        put_claimed_folder(self, prefix, files, seal=seal, claim=claim, holds=self._holds)

    def get_bytes(self, key: str) -> bytes:
        blob = self._blob(key)
        with self._errors(key):
            data: bytes = blob.download_as_bytes(checksum="crc32c", retry=self._retry)
        return data

    def get_file(self, key: str, path: Path) -> None:
        blob = self._blob(key)
        with atomic_file(path, prefix=TEMPORARY) as temporary:
            with temporary.open("wb") as target, self._errors(key):
                blob.download_to_file(target, checksum="crc32c", retry=self._retry)
            # The library only logs when an answer carries no checksum; this comparison always happens.
            with self._errors(key):
                blob.reload(retry=self._retry)
            if _crc32c(temporary) != blob.crc32c:
                raise ServiceError(f"gs://{self.name}/{key} was damaged or replaced while it was read: try again")

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        if prefix:
            checked_key(prefix.removesuffix("/"))
        with self._errors(prefix):
            for blob in self._bucket.client.list_blobs(self._bucket, prefix=prefix, retry=self._retry):
                yield ObjectInfo(blob.name, blob.size, blob.updated, str(blob.generation))

    def exists(self, key: str) -> bool:
        blob = self._blob(key)
        with self._errors(key):
            return bool(blob.exists(retry=self._retry))

    def delete(self, key: str) -> None:
        blob = self._blob(key)
        with contextlib.suppress(NotFound), self._errors(key):
            blob.delete(retry=self._retry)

    def rename(self, source: str, destination: str) -> None:
        """As the interface says: the call that creates the destination succeeds, and then removes the source."""
        blob, target = self._blob(source), self._blob(destination)
        with self._errors(source):
            blob.reload(retry=self._retry)
            data = blob.download_as_bytes(if_generation_match=blob.generation, checksum="crc32c", retry=self._retry)
        self._upload(target, True, lambda options: target.upload_from_string(data, **options))
        with contextlib.suppress(NotFound), self._errors(source):
            blob.delete(if_generation_match=blob.generation, retry=self._retry)

    def _blob(self, key: str) -> Any:
        return self._bucket.blob(checked_key(key))

    def _holds(self, key: str, path: Path) -> bool:
        blob = self._blob(key)
        with self._errors(key):
            blob.reload(retry=self._retry)
        return bool(blob.size == path.stat().st_size and blob.crc32c == _crc32c(path))

    def _upload(self, blob: Any, if_absent: bool, send: Any) -> None:
        token = uuid.uuid4().hex
        blob.metadata = {_TOKEN: token}
        options: dict[str, Any] = {"checksum": "crc32c", "retry": self._retry}
        if if_absent:
            options["if_generation_match"] = 0
        try:
            with self._errors(blob.name):
                send(options)
        except AlreadyExists:
            # A retry after a lost answer meets what its own first attempt wrote: that is a success.
            with self._errors(blob.name):
                blob.reload(retry=self._retry)
            if (blob.metadata or {}).get(_TOKEN) != token:
                raise

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Turn the library's errors into the store's."""
        import requests
        from google.api_core import exceptions as api
        from google.auth.exceptions import GoogleAuthError
        from google.cloud.storage.exceptions import DataCorruption, InvalidResponse

        where = f"gs://{self.name}/{key}"
        try:
            yield
        except api.PreconditionFailed:
            raise AlreadyExists(f"{where} already exists") from None
        except api.NotFound:
            raise NotFound(f"nothing is stored as {where} (or the bucket does not exist)") from None
        except api.Forbidden as error:
            raise ServiceError(f"{where}: access denied; grant the machine's service account access: {error}") from None
        except DataCorruption as error:
            raise ServiceError(f"{where} was damaged on its way (CRC32C differs): try again") from error
        except (api.GoogleAPIError, InvalidResponse, GoogleAuthError, requests.RequestException) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ServiceError(f"{where} cannot be reached: {reason}") from error


def _crc32c(path: Path) -> str:
    """A file's CRC32C as the service writes it: base64 of four big-endian bytes."""
    import google_crc32c

    checksum = 0
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            checksum = google_crc32c.extend(checksum, piece)
    return base64.b64encode(checksum.to_bytes(4, "big")).decode()
