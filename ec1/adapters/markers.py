"""Training-pending markers (docs/contracts.md): a small file that asks for a training, claimed by one worker.

`<adapter>-<YYYY-MM-DD>.json` waits, `….claimed` is being worked on, `….completed` is done. Every step is one rename, so
workers in other languages can take part.
"""

import datetime as dt
import logging
import re
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer, field_validator

from ec1.files import canonical_json
from ec1.nights import Night
from ec1.settings import Name
from ec1.storage.store import AlreadyExists, NotFound, ObjectStore

log = logging.getLogger(__name__)

PREFIX = "training-pending/"
CLAIMED, COMPLETED = ".claimed", ".completed"

_FILE = re.compile(r"([a-z0-9-]{1,64})-(\d{4}-\d{2}-\d{2})\.json")


class Marker(BaseModel):
    """What a marker says. Others write them too, so fields that we do not know are ignored."""

    model_config = ConfigDict(frozen=True)

    adapter: Name = Field(description="the bucket, such as engineering-pointsav")
    tenant: Name
    role: Name
    corpus_path: str
    method: str
    version: int = Field(1, description="of the marker's format")
    tuple_count: int = Field(ge=0)
    triggered_at: dt.datetime
    sample_files: tuple[str, ...] = ()

    @field_validator("triggered_at")
    @classmethod
    def _aware(cls, value: dt.datetime) -> dt.datetime:
        if value.tzinfo is None:
            raise ValueError("needs a time zone")
        return value

    @field_serializer("triggered_at")
    def _with_offset(self, value: dt.datetime) -> str:
        # `+00:00` as in the contract: not every reader knows `Z`.
        return value.isoformat()


@dataclass(frozen=True)
class Claim:
    """A marker that is ours: `file` is its name without the `.claimed`."""

    file: str
    night: str
    marker: Marker


class PendingMarkers:
    """The markers in a store, under `training-pending/`."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    def write(self, marker: Marker, night: str) -> bool:
        """Ask for a training; False if that adapter has a marker for that night already, in any state.

        Raises InputError for something that is not a night.
        """
        key = f"{PREFIX}{marker.adapter}-{Night.of(night).date}.json"
        if self.store.exists(key + CLAIMED) or self.store.exists(key + COMPLETED):
            return False
        try:
            self.store.put_bytes(key, canonical_json(marker.model_dump(mode="json")) + b"\n", if_absent=True)
        except AlreadyExists:
            return False
        return True

    def pending(self) -> list[Claim]:
        """What waits to be claimed, the oldest first. A file that is no marker is left alone and logged."""
        return self._read("")

    def claimed(self) -> list[Claim]:
        """What is being worked on, or was when its worker died."""
        return self._read(CLAIMED)

    def claim(self) -> Claim | None:
        """Claim the oldest free marker; None if there is none."""
        for waiting in self.pending():
            key = PREFIX + waiting.file
            try:
                self.store.rename(key, key + CLAIMED)
                return waiting
            except (NotFound, AlreadyExists):
                log.info("%s was claimed by another worker", waiting.file)
        return None

    def complete(self, claim: Claim) -> None:
        """Every step has succeeded. Raises NotFound if the claim is not held any more."""
        self.store.rename(PREFIX + claim.file + CLAIMED, PREFIX + claim.file + COMPLETED)

    def release(self, claim: Claim) -> None:
        """Give a marker back, to be claimed again. Raises NotFound if the claim is not held any more."""
        self.store.rename(PREFIX + claim.file + CLAIMED, PREFIX + claim.file)

    def _read(self, suffix: str) -> list[Claim]:
        found = []
        for item in self.store.list(PREFIX):
            name = item.key.removeprefix(PREFIX)
            match = _FILE.fullmatch(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if not match:
                continue
            try:
                marker = Marker.model_validate_json(self.store.get_bytes(item.key))
            except NotFound:
                continue
            except ValidationError as error:
                log.warning("%s is not a marker (%s errors): correct or remove it", item.key, error.error_count())
                continue
            found.append(Claim(match[0], match[2], marker))
        return sorted(found, key=lambda claim: (claim.marker.triggered_at, claim.file))
