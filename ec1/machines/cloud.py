"""What the machine of a night needs of a cloud: one instance at a time, in one zone.

Belongs here: the interface, and what its callers tell apart. Does not: how a cloud's API is called (`compute.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ec1.errors import DeferredError, PermanentError, ServiceError

RUNNING, STOPPED = "RUNNING", "TERMINATED"


class StockOutError(DeferredError):
    """The zone has no such machine now. Another zone may, or a later hour."""


class NotNowError(ServiceError):
    """The cloud cannot do it now: too many calls, a resource that is not ready, an outage. It may be asked again."""


class QuotaError(PermanentError):
    """The project may not have such a machine here: a person must ask for the quota."""


@dataclass(frozen=True)
class Instance:
    """What is known of an instance. Times are seconds since the epoch, None where the API names none.

    `status` is the API's: PROVISIONING and STAGING before RUNNING, STOPPING before TERMINATED, which means stopped.
    """

    zone: str
    name: str
    status: str
    address: str | None
    """Inside its network."""
    metadata: Mapping[str, str] = field(repr=False)
    fingerprint: str
    lifetime_seconds: int | None
    """After so many seconds Google itself stops it."""
    started: float | None
    stopped: float | None


class Cloud(Protocol):
    """One project of a cloud. Every method raises PermanentError for what the API refuses for good (rights, a wrong
    argument), ServiceError if it does not answer, and its kind NotNowError if it may be asked again. Those that change
    something return when it is done."""

    def get(self, zone: str, name: str) -> Instance | None:
        """An instance as it is now, or None if the zone has none of that name."""

    def create(self, zone: str, name: str, template: str, lifetime_seconds: int) -> None:
        """Create an instance from a template (with the template's metadata), and start it. The cloud stops it after
        `lifetime_seconds`. Raises StockOutError, QuotaError."""

    def start(self, zone: str, name: str) -> None:
        """Start a stopped instance. Raises StockOutError, QuotaError."""

    def stop(self, zone: str, name: str) -> None:
        """Stop an instance: nothing more is paid for it but its disks."""

    def set_lifetime(self, zone: str, name: str, seconds: int) -> None:
        """Have the cloud stop a stopped instance that long after each start."""

    def set_metadata(self, zone: str, name: str, changes: Mapping[str, str | None]) -> None:
        """Change some keys of an instance's metadata (None removes one); all others stay."""

    def guest_attributes(self, zone: str, name: str, namespace: str) -> dict[str, str]:
        """What the machine itself wrote below `namespace`; empty if it wrote nothing."""
