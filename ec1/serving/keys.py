"""API keys of the gateway: who may ask, and for which tenants. Only digests are kept.

Belongs here: the file of keys and the check of a request's key. Does not: what a request without one is told
(`gateway.py`).
"""

import datetime as dt
import hashlib
import secrets
from pathlib import Path

from pydantic import Field

from ec1.errors import InputError
from ec1.files import read_json, write_json
from ec1.settings import Name, Settings
from ec1.strict_yaml import validate


class KeyLimits(Settings):
    """What one key may use; None: as much as it wants."""

    at_once: int | None = Field(None, ge=1, description="requests without a whole answer yet")
    requests_per_minute: int | None = Field(None, ge=1)
    tokens_per_day: int | None = Field(None, ge=1, description="of prompts and answers; a day is UTC's")


class Key(Settings):
    """One key. `tenants` empty: all of them."""

    name: Name
    sha256: str = Field(pattern=r"[0-9a-f]{64}")
    tenants: tuple[Name, ...] = ()
    limits: KeyLimits = KeyLimits()
    created: dt.datetime

    def allows(self, tenant: str) -> bool:
        return not self.tenants or tenant in self.tenants


class Keys:
    """The keys in a file, read again when it changes. With an empty or missing file there are none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int] | None = None
        self._by_digest: dict[str, Key] = {}

    def __len__(self) -> int:
        return len(self._load())

    def names(self) -> list[str]:
        return [key.name for key in self.all()]

    def all(self) -> list[Key]:
        """Every key, by name."""
        return sorted(self._load().values(), key=lambda key: key.name)

    def find(self, authorization: str | None) -> Key | None:
        """The key that an `Authorization` header carries (`Bearer …`), if it is one of ours."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        # By digest: the time that the look-up takes says nothing about the key.
        return self._load().get(hashlib.sha256(token.strip().encode()).hexdigest())

    def add(self, name: str, tenants: tuple[str, ...], limits: KeyLimits | None = None) -> str:
        """Make a key and return it; it is not kept. Raises InputError for a name that is taken or no name."""
        keys = list(self._load().values())
        if name in self.names():
            raise InputError(f"there is a key {name!r} already: remove it first, or choose another name")
        token = f"ec1-{secrets.token_urlsafe(32)}"
        digest = hashlib.sha256(token.encode()).hexdigest()
        entry = {"name": name, "sha256": digest, "tenants": tenants, "created": dt.datetime.now(dt.UTC)}
        entry["limits"] = (limits or KeyLimits()).model_dump()
        self._write([*keys, validate(Key, entry, f"key {name!r}")])
        return token

    def remove(self, name: str) -> None:
        """Raises InputError if there is no such key."""
        left = [key for key in self._load().values() if key.name != name]
        if len(left) == len(self):
            raise InputError(f"there is no key {name!r}: there are {', '.join(self.names()) or 'none'}")
        self._write(left)

    def _write(self, keys: list[Key]) -> None:
        write_json(self.path, [key.model_dump(mode="json") for key in keys])
        self.path.chmod(0o600)

    def _load(self) -> dict[str, Key]:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._stamp, self._by_digest = None, {}
            return self._by_digest
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._stamp:
            keys = [validate(Key, entry, str(self.path)) for entry in read_json(self.path)]
            self._by_digest = {key.sha256: key for key in keys}
            self._stamp = stamp
        return self._by_digest
