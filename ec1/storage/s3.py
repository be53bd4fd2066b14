"""An object store in a bucket that speaks S3: Amazon's, MinIO, Cloudflare R2, Ceph and others.

"Only if there is nothing" is a conditional write (`If-None-Match: *`), which the service must know. Each object carries
the SHA-256 of its bytes; what is read is held against it. https://developmentseed.org/obstore/ and
https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
"""

import contextlib
import datetime as dt
import hashlib
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ec1.errors import InputError, ServiceError
from ec1.files import atomic_file, sha256_file
from ec1.storage.claimed_folder import put_claimed_folder
from ec1.storage.loopback import checked_loopback
from ec1.storage.store import TEMPORARY, AlreadyExists, NotFound, ObjectInfo, checked_key

_LOOKED_FOR_CREDENTIALS = ("169.254.169.254", "169.254.170.2", "latest/api/token", "security-credentials")
"""In the library's errors where it found none, and asked the machine's metadata server last."""
_TOKEN, _SHA256 = "ec1-write", "ec1-sha256"


class S3Store:
    """`ObjectStore` in `bucket`. Without `endpoint` it is Amazon's in `region`; one elsewhere needs https, one on this
    machine may do without.

    Credentials come from where Amazon's tools look for them: the environment, a web identity, the machine's role.
    `retry_seconds` is how long one call is tried again after transient errors. A file that is written only if there is
    nothing may have 5 GB. Raises InputError for an endpoint elsewhere that is not https.
    """

    def __init__(
        self, bucket: str, endpoint: str | None = None, *, region: str = "us-east-1", retry_seconds: float = 120
    ) -> None:
        from obstore.store import S3Store as Client

        address = endpoint or f"https://s3.{region}.amazonaws.com"
        if urlsplit(address).scheme != "https":
            checked_loopback(address)
        elif not urlsplit(address).hostname:
            raise InputError(f"{address!r} is not an address: use https://HOST")
        self.name = bucket
        # The endpoint is always given: otherwise an environment variable could point the library elsewhere.
        self._client: Any = Client(
            bucket,
            endpoint=address,
            aws_endpoint_url_s3=address,
            region=region,
            virtual_hosted_style_request=False,
            checksum_algorithm="sha256",
            disable_bulk_delete=True,
            client_options={"allow_http": address.startswith("http://"), "timeout": dt.timedelta(minutes=10)},
            retry_config={"max_retries": 10, "retry_timeout": dt.timedelta(seconds=retry_seconds)},
        )

    def put_file(self, key: str, path: Path, *, if_absent: bool = False) -> None:
        self._put(key, path, sha256_file(path), if_absent)

    def put_bytes(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        self._put(key, data, hashlib.sha256(data).hexdigest(), if_absent)

    def put_folder(self, prefix: str, files: Mapping[str, Path], *, seal: str, claim: str) -> None:
        put_claimed_folder(self, prefix, files, seal=seal, claim=claim, holds=self._holds)

    def get_bytes(self, key: str) -> bytes:
        with self._errors(key):
            answer = self._get(key)
            data = bytes(answer.bytes())
        self._check(key, answer, hashlib.sha256(data).hexdigest())
        return data

    def get_file(self, key: str, path: Path) -> None:
        with atomic_file(path, prefix=TEMPORARY) as temporary:
            with self._errors(key), temporary.open("wb") as target:
                answer = self._get(key)
                for piece in answer.stream():
                    target.write(piece)
            self._check(key, answer, sha256_file(temporary))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        import obstore

        if prefix:
            checked_key(prefix.removesuffix("/"))
        # The library lists folders; the rest of a prefix is compared here.
        with self._errors(prefix):
            for page in obstore.list(self._client, prefix=prefix.rpartition("/")[0] or None):
                for item in page:
                    if item["path"].startswith(prefix):
                        yield ObjectInfo(item["path"], item["size"], item["last_modified"], item["e_tag"] or "")

    def exists(self, key: str) -> bool:
        import obstore

        with contextlib.suppress(NotFound), self._errors(key):
            obstore.head(self._client, checked_key(key))
            return True
        return False

    def delete(self, key: str) -> None:
        import obstore

        with contextlib.suppress(NotFound), self._errors(key):
            obstore.delete(self._client, checked_key(key))

    def rename(self, source: str, destination: str) -> None:
        """As the interface says: the call that creates the destination succeeds, and then removes the source."""
        data = self.get_bytes(source)
        self.put_bytes(destination, data, if_absent=True)
        self.delete(source)

    def _get(self, key: str) -> Any:
        import obstore

        return obstore.get(self._client, checked_key(key))

    def _put(self, key: str, data: Path | bytes, digest: str, if_absent: bool) -> None:
        import obstore

        token = uuid.uuid4().hex
        options: dict[str, Any] = {"mode": "create", "use_multipart": False} if if_absent else {"mode": "overwrite"}
        try:
            with self._errors(key):
                attributes = {_TOKEN: token, _SHA256: digest}
                obstore.put(self._client, checked_key(key), data, attributes=attributes, **options)
        except AlreadyExists:
            # A retry after a lost answer meets what its own first attempt wrote: that is a success.
            with self._errors(key):
                if self._get(key).attributes.get(_TOKEN) != token:
                    raise

    def _holds(self, key: str, path: Path) -> bool:
        with self._errors(key):
            answer = self._get(key)
        return bool(answer.attributes.get(_SHA256) == sha256_file(path))

    def _check(self, key: str, answer: Any, digest: str) -> None:
        # What others wrote carries no digest.
        if answer.attributes.get(_SHA256, digest) != digest:
            raise ServiceError(f"s3://{self.name}/{key} was damaged on its way (SHA-256 differs): try again")

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Turn the library's errors into the store's."""
        from obstore.exceptions import (
            AlreadyExistsError,
            BaseError,
            PermissionDeniedError,
            PreconditionError,
            UnauthenticatedError,
        )

        where = f"s3://{self.name}/{key}"
        try:
            yield
        except (AlreadyExistsError, PreconditionError):
            raise AlreadyExists(f"{where} already exists") from None
        except FileNotFoundError:
            raise NotFound(f"nothing is stored as {where} (or the bucket does not exist)") from None
        except (PermissionDeniedError, UnauthenticatedError):
            raise ServiceError(
                f"{where}: access denied; give the machine a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ) from None
        except BaseError as error:
            if any(word in str(error) for word in _LOOKED_FOR_CREDENTIALS):
                raise ServiceError(
                    f"no credentials for the bucket {self.name}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                    "give the machine a role (looked for in the environment and in the machine's metadata)"
                ) from None
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ServiceError(f"{where} cannot be reached: {reason}") from None
