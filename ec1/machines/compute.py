"""A thin client of Google's Compute Engine API: one instance at a time, in one zone.

Belongs here: the calls, the polling of operations, and what the API's refusals mean. Does not: which zone is tried,
when a machine is stopped, and what that costs (`machine.py`, `ledger.py`).

Only the library's unary calls are used, at an address that is always given: the objects that its other calls return
poll Google's real address, whatever the client was told.
https://cloud.google.com/compute/docs/reference/rest/v1/instances
"""

import datetime as dt
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from ec1.errors import PermanentError, ServiceError
from ec1.machines.cloud import Instance, NotNowError, QuotaError, StockOutError
from ec1.storage.loopback import checked_loopback

_GOOGLE = "compute.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/compute"
_CALL_SECONDS = 30.0
_ATTEMPTS = 5
_FINGERPRINT_ATTEMPTS = 5
_OPERATION_SECONDS = 600.0
_OPERATION_POLL_SECONDS = 2.0

STOCK_OUT = ("ZONE_RESOURCE_POOL_EXHAUSTED", "STOCKOUT", "RESOURCE_POOL_EXHAUSTED")
"""Beginnings of the codes with which an operation says that the zone has no such machine now."""
_QUOTA = ("QUOTA_EXCEEDED", "QUOTAEXCEEDED")
_TRANSIENT = (
    *("rateLimitExceeded", "userRateLimitExceeded", "concurrentLimitExceeded", "operationRateExceeded"),
    *("resourceNotReady", "backendError", "internalError"),
)
"""Reasons of a refused call that pass by themselves, whatever its status."""
_NOT_NOW = (
    *("RESOURCE_NOT_READY", "RATE_LIMIT_EXCEEDED", "RESOURCE_OPERATION_RATE_EXCEEDED", "RESOURCE_IN_USE_BY"),
    *("INTERNAL", "BACKEND", "SERVICE_UNAVAILABLE"),
)
"""Beginnings of the codes with which an operation fails although it may succeed when it is asked for again."""


class _ChangedError(PermanentError):
    """Something was not as it was when it was read; of metadata: somebody wrote it between our reading and writing."""


class ComputeClient:
    """Calls the API for one project. `endpoint` is for an emulator, and only for one on this machine.

    Credentials are the application-default ones; an emulator gets none. Every method raises PermanentError for what
    the API refuses for good (rights, a wrong argument), and NotNowError if it does not answer or says that it cannot
    now. Those that change something return when the operation is done. Raises ServiceError without credentials.
    """

    def __init__(
        self, project: str, endpoint: str | None = None, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.project = project
        self._sleep = sleep
        host, scheme = _GOOGLE, "https"
        if endpoint is not None:
            scheme, _, host = checked_loopback(endpoint).rstrip("/").partition("://")
        options: dict[str, Any] = {"host": host, "url_scheme": scheme, "credentials": self._credentials(endpoint)}
        from google.cloud import compute_v1
        from google.cloud.compute_v1.services.instances.transports import InstancesRestTransport
        from google.cloud.compute_v1.services.zone_operations.transports import ZoneOperationsRestTransport

        self._api = compute_v1
        self._instances = compute_v1.InstancesClient(transport=InstancesRestTransport(**options))
        self._operations = compute_v1.ZoneOperationsClient(transport=ZoneOperationsRestTransport(**options))

    @staticmethod
    def _credentials(endpoint: str | None) -> Any:
        import google.auth
        from google.auth.credentials import AnonymousCredentials
        from google.auth.exceptions import DefaultCredentialsError

        if endpoint is not None:
            return AnonymousCredentials()
        try:
            credentials, _ = google.auth.default(scopes=[_SCOPE])
        except DefaultCredentialsError:
            raise ServiceError(
                "no Google credentials for Compute Engine: give this machine a service account, or run 'gcloud auth "
                "application-default login'"
            ) from None
        return credentials

    def get(self, zone: str, name: str) -> Instance | None:
        """An instance as it is now, or None if the zone has none of that name."""
        request = self._api.GetInstanceRequest(project=self.project, zone=zone, instance=name)
        found = self._call(lambda: self._instances.get(request, retry=None, timeout=_CALL_SECONDS), absent_is_none=True)
        return None if found is None else _instance(found, zone)

    def create(self, zone: str, name: str, template: str, lifetime_seconds: int) -> None:
        """Create an instance from an instance template (with the template's metadata), and start it. Google stops it
        after `lifetime_seconds`. Raises StockOutError, QuotaError.
        """
        api = self._api
        request = api.InsertInstanceRequest(
            project=self.project,
            zone=zone,
            source_instance_template=template,
            request_id=str(uuid.uuid4()),
            instance_resource=api.Instance(name=name, scheduling=self._scheduling(lifetime_seconds)),
        )
        self._operate(zone, lambda: self._instances.insert_unary(request, retry=None, timeout=_CALL_SECONDS))

    def start(self, zone: str, name: str) -> None:
        """Start a stopped instance. Raises StockOutError, QuotaError."""
        request = self._api.StartInstanceRequest(
            project=self.project, zone=zone, instance=name, request_id=str(uuid.uuid4())
        )
        self._operate(zone, lambda: self._instances.start_unary(request, retry=None, timeout=_CALL_SECONDS))

    def stop(self, zone: str, name: str) -> None:
        """Stop an instance: nothing more is paid for it but its disks."""
        request = self._api.StopInstanceRequest(
            project=self.project, zone=zone, instance=name, request_id=str(uuid.uuid4())
        )
        self._operate(zone, lambda: self._instances.stop_unary(request, retry=None, timeout=_CALL_SECONDS))

    def set_lifetime(self, zone: str, name: str, seconds: int) -> None:
        """Have Google stop the instance that long after each start. The API takes this of a stopped instance only."""
        request = self._api.SetSchedulingInstanceRequest(
            project=self.project,
            zone=zone,
            instance=name,
            request_id=str(uuid.uuid4()),
            scheduling_resource=self._scheduling(seconds),
        )
        self._operate(zone, lambda: self._instances.set_scheduling_unary(request, retry=None, timeout=_CALL_SECONDS))

    def set_metadata(self, zone: str, name: str, changes: Mapping[str, str | None]) -> None:
        """Change some keys of an instance's metadata (None removes one); all others stay. Somebody else may change it
        at the same time: what was read is then read again."""
        for _ in range(_FINGERPRINT_ATTEMPTS):
            found = self.get(zone, name)
            if found is None:
                raise ServiceError(f"the instance {name} in {zone} is gone")
            merged = {**found.metadata, **changes}
            kept = {key: value for key, value in merged.items() if value is not None}
            if kept == found.metadata:
                return
            request = self._api.SetMetadataInstanceRequest(
                project=self.project,
                zone=zone,
                instance=name,
                request_id=str(uuid.uuid4()),
                metadata_resource=_items(self._api, kept, found.fingerprint),
            )
            try:
                self._operate(zone, self._setting(request))
                return
            except _ChangedError:
                self._sleep(0.5)
        raise ServiceError(f"the metadata of {name} in {zone} is changed by somebody else all the time")

    def guest_attributes(self, zone: str, name: str, namespace: str) -> dict[str, str]:
        """What the machine itself wrote below `namespace`; empty if it wrote nothing."""
        request = self._api.GetGuestAttributesInstanceRequest(
            project=self.project, zone=zone, instance=name, query_path=f"{namespace}/"
        )
        found = self._call(
            lambda: self._instances.get_guest_attributes(request, retry=None, timeout=_CALL_SECONDS),
            absent_is_none=True,
        )
        return {} if found is None else {item.key: item.value for item in found.query_value.items}

    def _setting(self, request: Any) -> Callable[[], Any]:
        return lambda: self._instances.set_metadata_unary(request, retry=None, timeout=_CALL_SECONDS)

    def _scheduling(self, seconds: int) -> Any:
        return self._api.Scheduling(
            provisioning_model="SPOT",
            preemptible=True,
            automatic_restart=False,
            on_host_maintenance="TERMINATE",
            instance_termination_action="STOP",
            max_run_duration=self._api.Duration(seconds=seconds),
        )

    def _operate(self, zone: str, call: Callable[[], Any]) -> None:
        """Ask for a change and wait until it is done."""
        operation = self._call(call)
        waited = 0.0
        while operation.status != self._api.Operation.Status.DONE:
            if waited >= _OPERATION_SECONDS:
                raise ServiceError(
                    f"Compute Engine has not finished {operation.name} in {zone} after {waited:.0f} s: look at it in "
                    "the console"
                )
            self._sleep(_OPERATION_POLL_SECONDS)
            waited += _OPERATION_POLL_SECONDS
            request = self._api.GetZoneOperationRequest(project=self.project, zone=zone, operation=operation.name)
            operation = self._call(self._getting(request))
        problems = [(each.code, each.message) for each in operation.error.errors]
        if problems:
            raise _meaning(problems[0][0], problems[0][1], zone)

    def _getting(self, request: Any) -> Callable[[], Any]:
        return lambda: self._operations.get(request, retry=None, timeout=_CALL_SECONDS)

    def _call(self, call: Callable[[], Any], *, absent_is_none: bool = False) -> Any:
        """One call, again for what is transient: a request id makes that safe."""
        import requests
        from google.api_core import exceptions as api
        from google.auth.exceptions import GoogleAuthError

        problem = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._sleep(min(30.0, 2.0**attempt))
            try:
                return call()
            except api.GoogleAPICallError as error:
                code = int(error.code or 0)
                reasons = [str(each.get("reason", "")) for each in error.errors if isinstance(each, dict)]
                text = _first_line(error.message)
                if code == 404 and absent_is_none:
                    return None
                if code == 412:
                    raise _ChangedError(f"Compute Engine refuses (412): {text}; {_advice(code)}") from None
                if any(reason.upper().startswith(_QUOTA) for reason in reasons):
                    raise QuotaError(f"{text}; ask for the quota, or name other zones in machine.zones") from None
                if "insufficientCapacity" in reasons or any(code_ in text for code_ in STOCK_OUT):
                    raise StockOutError(text) from None
                if code != 429 and code < 500 and not any(reason in _TRANSIENT for reason in reasons):
                    raise PermanentError(f"Compute Engine refuses ({code}): {text}; {_advice(code)}") from None
                problem = f"it answers {code}: {text}"
            except GoogleAuthError as error:
                raise ServiceError(f"Google's credentials are refused: {_first_line(str(error))}") from None
            except (api.GoogleAPIError, requests.RequestException) as error:
                problem = f"{type(error).__name__}: {_first_line(str(error))}"
        raise NotNowError(f"Compute Engine cannot be asked, {_ATTEMPTS} attempts: {problem}")


def _meaning(code: str, message: str, zone: str) -> Exception:
    """What the error of an operation means."""
    text = f"{zone}: {code}: {_first_line(message)}"
    if code.upper().startswith(STOCK_OUT):
        return StockOutError(text)
    if code.upper().startswith(_QUOTA):
        return QuotaError(f"{text}; ask for the quota, or name other zones in machine.zones")
    if code == "CONDITION_NOT_MET":
        return _ChangedError(f"Compute Engine refuses in {text}")
    if code.upper().startswith(_NOT_NOW):
        return NotNowError(f"Compute Engine cannot do it now in {text}")
    return PermanentError(f"Compute Engine refuses in {text}")


def _advice(code: int) -> str:
    if code in (401, 403):
        return "grant this machine's service account compute.instanceAdmin.v1, and serviceAccountUser on the VM's"
    return "correct the deployment's `machine` section"


def _first_line(text: str) -> str:
    return " ".join((text or "no message").split())[:300]


def _items(api: Any, metadata: Mapping[str, str], fingerprint: str) -> Any:
    items = [api.Items(key=key, value=value) for key, value in sorted(metadata.items())]
    return api.Metadata(items=items, fingerprint=fingerprint)


def _instance(found: Any, zone: str) -> Instance:
    addresses = [each.network_i_p for each in found.network_interfaces]
    return Instance(
        zone=zone,
        name=found.name,
        status=found.status,
        address=addresses[0] if addresses else None,
        metadata={item.key: item.value for item in found.metadata.items},
        fingerprint=found.metadata.fingerprint,
        lifetime_seconds=int(found.scheduling.max_run_duration.seconds) or None,
        started=_epoch(found.last_start_timestamp),
        stopped=_epoch(found.last_stop_timestamp),
    )


def _epoch(text: str) -> float | None:
    return dt.datetime.fromisoformat(text).timestamp() if text else None
