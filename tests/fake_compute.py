"""A Compute Engine for tests, over real HTTP on loopback: one API, and the machines that it boots.

As strict as the real one where our code could be wrong: fingerprints of metadata, `setScheduling` of a stopped instance
only, request ids, names, templates, errors in the real shapes (an error of a call is a status with `errors[].reason`,
that of an operation comes with 200 and `error.errors[].code`). A stock-out is an operation that fails after the call
was accepted.

A machine does what `deploy/gce/machine.py` does on a real one: it reports in its guest attributes, starts and ends an
inference server as its metadata says, and powers itself off when its time is over. Nothing here has a clock of its own:
what should have happened by now (`clock`) has happened at the next request.
https://cloud.google.com/compute/docs/reference/rest/v1/instances
"""

import base64
import datetime as dt
import hashlib
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from loopback_server import serving

PROJECT = "acme-nights"
TEMPLATE = f"projects/{PROJECT}/global/instanceTemplates/ec1-gpu-1"
_NAME = re.compile("[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_PERSON = re.compile(r"\b[A-Z][a-z]+ [A-Z][a-z]+\b")


_STATUS = {"resourceNotReady": 400, "rateLimitExceeded": 403, "userRateLimitExceeded": 429, "backendError": 503}


class Refusal(Exception):
    """An error of a call, as the API words it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@dataclass
class Vm:
    """One instance, by the fake's clock. `ran` are the spans that are paid for."""

    zone: str
    name: str
    status: str = "TERMINATED"
    metadata: dict[str, str] = field(default_factory=dict)
    scheduling: dict[str, Any] = field(default_factory=dict)
    started: float | None = None
    stopped: float | None = None
    ran: list[tuple[float, float | None]] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)
    engine_id: str = ""
    engine_since: float = 0.0
    engine_end: float = 0.0
    why_stopped: list[str] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        return base64.b64encode(
            hashlib.sha256(json.dumps(self.metadata, sort_keys=True).encode()).digest()[:8]
        ).decode()


class FakeCompute:
    """What a test sets: `stock_out` and `quota` name zones; `boot_seconds` and `engine_seconds` are how long a machine
    takes to report and its server to load; `preempt_after` seconds it runs until it is taken away (one for each start,
    None: not at all); `cuda` what it says of its card; `forbidden` answers 403 to everything; `faults` are statuses for
    the next calls (0: the connection is closed after the call took effect)."""

    def __init__(self) -> None:
        self.clock: Callable[[], float] = time.time
        self.address = ""
        self.engine_port = 0
        self.lock = threading.RLock()
        self.vms: dict[tuple[str, str], Vm] = {}
        self.operations: dict[str, dict[str, Any]] = {}
        self.templates = {TEMPLATE.rpartition("/")[2]: {"startup-script": "#!/bin/sh"}}
        self.stock_out: set[str] = set()
        self.quota: set[str] = set()
        self.forbidden = False
        self.faults: list[int] = []
        self.operation_seconds = 0.0
        self.boot_seconds = 0.0
        self.engine_seconds = 0.0
        self.end_engine_seconds = 0.0
        self.engine_fails = ""
        self.engine_hangs = False
        self.preempt_after: list[float | None] = []
        self.cuda = "ok"
        self.calls: list[str] = []
        self.dead_man = True
        self.dead_man_says = "armed"
        self.transient: Callable[[str], str | None] = lambda call: None
        """For each call (its method and path), and each operation (`operation KIND`), a transient refusal: the reason
        of a call, the code of an operation; None: none."""
        self.answered: Callable[[], None] = lambda: None
        """Called for each answer of an inference server: a test lets time pass."""
        self.host_keys: list[str] = []
        self.halted: Callable[[], None] = lambda: None
        """Called when a machine stops, however: what a test runs as its work ends with it."""

    def vm(self, zone: str, name: str = "ec1-gpu") -> Vm:
        """An instance that is there already, stopped."""
        self.vms[zone, name] = Vm(zone, name)
        return self.vms[zone, name]

    def running(self) -> list[Vm]:
        """The machines that run now."""
        with self.lock:
            self.advance()
            return [vm for vm in self.vms.values() if vm.status == "RUNNING"]

    def seconds(self) -> float:
        """Machine seconds that were paid for, so far."""
        with self.lock:
            self.advance()
            now = self.clock()
            spans = [span for vm in self.vms.values() for span in vm.ran]
            return sum((now if end is None else end) - begin for begin, end in spans)

    def asked(self, what: str) -> int:
        """How many calls had `what` in their method and path."""
        return sum(what in call for call in self.calls)

    def advance(self) -> None:
        """Let everything happen that should have happened by now."""
        for vm in self.vms.values():
            if vm.status == "RUNNING":
                self._live(vm)

    def _live(self, vm: Vm) -> None:
        now = self.clock()
        assert vm.started is not None
        ends: list[tuple[float, str]] = []
        if vm.scheduling.get("_preempt_at") is not None:
            ends.append((vm.scheduling["_preempt_at"], "preempted"))
        if seconds := vm.scheduling.get("maxRunDuration", {}).get("seconds"):
            ends.append((vm.started + int(seconds), "lifetime"))
        if self.dead_man:
            # As deploy/gce/machine.py: a minute's timer, and a quarter of an hour for one that was told nothing.
            ends.append((max(float(vm.metadata.get("ec1-keep-until", 0)), vm.started + 900) + 60, "dead man"))
        at, why = min(ends, default=(float("inf"), ""))
        if now >= at:
            self.halt(vm, at, why)
            return
        if now < vm.started + self.boot_seconds:
            return
        self._report(vm, now)

    def _report(self, vm: Vm, now: float) -> None:
        wanted = json.loads(vm.metadata.get("ec1-engine", "null"))
        number = wanted["id"] if wanted else ""
        if number != vm.engine_id and not self.engine_hangs:
            if vm.engine_id:
                vm.engine_end = now + self.end_engine_seconds
            vm.engine_id, vm.engine_since = number, now
        engine = "off"
        if vm.engine_id:
            engine = "running" if now >= vm.engine_since + self.engine_seconds else "starting"
            engine = f"failed: {self.engine_fails}" if self.engine_fails else engine
        elif now < vm.engine_end:
            engine = "running"
        free = 21.5 if engine == "off" else 1.0
        state = {
            "at": now,
            "cuda": self.cuda,
            "dead_man": self.dead_man_says or ("armed" if self.dead_man else "off"),
            "engine": engine,
            "engine_id": vm.engine_id,
            "device": "NVIDIA L4",
        }
        state["dead_man"] = self.dead_man_says
        vm.attributes["state"] = json.dumps({**state, "free_gib": free, "total_gib": 22.0, "host_keys": self.host_keys})

    def halt(self, vm: Vm, at: float, why: str) -> None:
        vm.status, vm.stopped = "TERMINATED", at
        vm.ran[-1] = (vm.ran[-1][0], max(at, vm.ran[-1][0]))
        vm.engine_id, vm.engine_end = "", 0.0
        vm.why_stopped.append(why)
        self.halted()

    def boot(self, vm: Vm) -> None:
        now = self.clock()
        vm.status, vm.started, vm.attributes = "RUNNING", now, {}
        vm.ran.append((now, None))
        after = self.preempt_after.pop(0) if self.preempt_after else None
        vm.scheduling["_preempt_at"] = None if after is None else now + after

    def serves(self) -> tuple[str, str] | None:
        """The model and key of the inference server that answers now, if one does."""
        for vm in self.running():
            state = json.loads(vm.attributes.get("state", "{}"))
            if state.get("engine") == "running" and vm.engine_id:
                arguments = json.loads(vm.metadata["ec1-engine"])["arguments"]
                return arguments[arguments.index("--served-model-name") + 1], vm.metadata["ec1-engine-key"]
        return None

    # The calls.

    def instance(self, zone: str, name: str) -> Vm:
        if (zone, name) not in self.vms:
            what = f"projects/{PROJECT}/zones/{zone}/instances/{name}"
            raise Refusal(404, "notFound", f"The resource '{what}' was not found")
        return self.vms[zone, name]

    def view(self, vm: Vm) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "kind": "compute#instance",
            "name": vm.name,
            "status": vm.status,
            "zone": f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{vm.zone}",
            "metadata": {
                "kind": "compute#metadata",
                "fingerprint": vm.fingerprint,
                "items": [{"key": key, "value": value} for key, value in vm.metadata.items()],
            },
            "networkInterfaces": [{"networkIP": "127.0.0.1"}],
            "scheduling": {key: value for key, value in vm.scheduling.items() if not key.startswith("_")},
            "aFieldOfTomorrow": True,
        }
        for key, seconds in (("lastStartTimestamp", vm.started), ("lastStopTimestamp", vm.stopped)):
            if seconds is not None:
                shown[key] = dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat()
        return shown

    def insert(self, zone: str, body: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
        name = body.get("name", "")
        if not _NAME.fullmatch(name):
            raise Refusal(400, "invalid", f"Invalid value for field 'resource.name': '{name}'")
        template = query.get("sourceInstanceTemplate", "").rpartition("/")[2]
        if template not in self.templates:
            raise Refusal(404, "notFound", f"The resource 'instanceTemplates/{template}' was not found")
        if (zone, name) in self.vms:
            raise Refusal(409, "alreadyExists", f"The resource '{name}' already exists")
        _check_scheduling(body.get("scheduling", {}))
        metadata = body["metadata"]["items"] if "metadata" in body else None
        vm = Vm(zone, name, metadata=dict(self.templates[template]), scheduling=dict(body.get("scheduling", {})))
        if metadata is not None:
            vm.metadata = {item["key"]: item["value"] for item in metadata}

        def begin() -> None:
            self.vms[zone, name] = vm
            self.boot(vm)

        return self.operation(zone, "insert", query, begin, needs_room=True)

    def start(self, vm: Vm, query: dict[str, str]) -> dict[str, Any]:
        if vm.status == "RUNNING":
            return self.operation(vm.zone, "start", query, lambda: None)
        return self.operation(vm.zone, "start", query, lambda: self.boot(vm), needs_room=True)

    def stop(self, vm: Vm, query: dict[str, str]) -> dict[str, Any]:
        def end() -> None:
            if vm.status == "RUNNING":
                self.halt(vm, self.clock(), "stopped")

        return self.operation(vm.zone, "stop", query, end)

    def set_metadata(self, vm: Vm, body: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
        if not body.get("fingerprint"):
            raise Refusal(400, "required", "Required field 'resource.fingerprint' not specified")
        if body["fingerprint"] != vm.fingerprint:
            message = "Supplied fingerprint does not match current metadata fingerprint."
            raise Refusal(412, "conditionNotMet", message)
        keys = [item["key"] for item in body.get("items", [])]
        if len(keys) != len(set(keys)):
            raise Refusal(400, "invalid", "Metadata has duplicate keys")

        def change() -> None:
            vm.metadata = {item["key"]: item.get("value", "") for item in body.get("items", [])}

        return self.operation(vm.zone, "setMetadata", query, change)

    def set_scheduling(self, vm: Vm, body: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
        if vm.status != "TERMINATED":
            raise Refusal(400, "badRequest", "Instance must be stopped to set its scheduling options")
        _check_scheduling(body)

        def change() -> None:
            vm.scheduling = dict(body)

        return self.operation(vm.zone, "setScheduling", query, change)

    def operation(
        self, zone: str, kind: str, query: dict[str, str], effect: Callable[[], None], *, needs_room: bool = False
    ) -> dict[str, Any]:
        """Accept a change. It is done after `operation_seconds`; a repeated request id gets the same operation."""
        request = query.get("requestId", "")
        try:
            uuid.UUID(request)
        except ValueError:
            raise Refusal(400, "invalid", "Invalid value for field 'requestId'") from None
        for known in self.operations.values():
            if known["clientOperationId"] == request:
                return self.state_of(known)
        name = f"operation-{len(self.operations)}-{request[:8]}"
        begun: dict[str, Any] = {
            "kind": "compute#operation",
            "name": name,
            "operationType": kind,
            "clientOperationId": request,
        }
        begun |= {"zone": zone, "_done_at": self.clock() + self.operation_seconds, "_effect": effect}
        begun["_error"] = self.refusal_of(zone) if needs_room else None
        if code := self.transient(f"operation {kind}"):
            begun["_error"] = (400, code, f"The resource is not ready, or asked too often: {code}")
        self.operations[name] = begun
        return self.state_of(begun)

    def refusal_of(self, zone: str) -> tuple[int, str, str] | None:
        where = f"projects/{PROJECT}/zones/{zone}"
        if zone in self.stock_out:
            text = f"The zone '{where}' does not have enough resources available to fulfill the request."
            return 503, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", f"{text}  '(resource type:compute)'."
        if zone in self.quota:
            return (
                403,
                "QUOTA_EXCEEDED",
                f"Quota 'PREEMPTIBLE_NVIDIA_L4_GPUS' exceeded.  Limit: 0.0 in region {zone[:-2]}.",
            )
        return None

    def state_of(self, operation: dict[str, Any]) -> dict[str, Any]:
        shown = {key: value for key, value in operation.items() if not key.startswith("_")}
        if self.clock() < operation["_done_at"]:
            return {**shown, "status": "RUNNING", "progress": 0}
        if operation["_effect"] is not None:
            effect, operation["_effect"] = operation["_effect"], None
            if operation["_error"] is None:
                effect()
        shown |= {"status": "DONE", "progress": 100}
        if operation["_error"] is not None:
            status, code, message = operation["_error"]
            shown |= {"httpErrorStatusCode": status, "error": {"errors": [{"code": code, "message": message}]}}
        return shown


def _check_scheduling(scheduling: dict[str, Any]) -> None:
    seconds = int(scheduling.get("maxRunDuration", {}).get("seconds", 3600))
    if not 30 <= seconds <= 120 * 86400:
        raise Refusal(400, "invalid", "Invalid value for field 'scheduling.maxRunDuration'")
    if "maxRunDuration" in scheduling and "instanceTerminationAction" not in scheduling:
        raise Refusal(400, "invalid", "instanceTerminationAction is required with maxRunDuration")
    if scheduling.get("provisioningModel") == "SPOT" and scheduling.get("automaticRestart"):
        raise Refusal(400, "invalid", "A Spot VM cannot restart automatically")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body of an answer in two packets wait for each other.
    disable_nagle_algorithm = True
    fake: FakeCompute

    def log_message(self, format: str, *args: object) -> None:
        pass

    def send_json(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _Api(_Handler):
    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        fake = self.fake
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with fake.lock:
            fake.advance()
            fake.calls.append(f"{self.command} {self.path}")
            fault = fake.faults.pop(0) if fake.faults else None
            try:
                if reason := fake.transient(fake.calls[-1]):
                    raise Refusal(_STATUS[reason], reason, f"{reason}: try again later")
                if fault:
                    raise Refusal(fault, "backendError", "Internal error. Please try again.")
                value = self._route(json.loads(raw) if raw else {})
                status = 200
            except Refusal as error:
                detail = {"message": str(error), "domain": "global", "reason": error.reason}
                status = error.status
                value = {"error": {"code": status, "message": str(error), "errors": [detail]}}
        if fault == 0:
            self.close_connection = True
            return
        self.send_json(status, value)

    def _route(self, body: dict[str, Any]) -> Any:
        fake, parts = self.fake, urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        path = [unquote(part) for part in parts.path.split("/")][1:]
        if fake.forbidden:
            raise Refusal(403, "forbidden", f"Required 'compute.instances.get' permission for '{parts.path}'")
        match path:
            case ["compute", "v1", "projects", project, *_] if project != PROJECT:
                raise Refusal(404, "notFound", f"The resource 'projects/{project}' was not found")
            case ["compute", "v1", "projects", _, "zones", zone, "operations", name] if self.command == "GET":
                if fake.operations.get(name, {}).get("zone") != zone:
                    raise Refusal(404, "notFound", f"The operation {name} was not found")
                return fake.state_of(fake.operations[name])
            case ["compute", "v1", "projects", _, "zones", zone, "instances"] if self.command == "POST":
                return fake.insert(zone, body, query)
            case ["compute", "v1", "projects", _, "zones", zone, "instances", name] if self.command == "GET":
                return fake.view(fake.instance(zone, name))
            case ["compute", "v1", "projects", _, "zones", zone, "instances", name, what]:
                return self._change(fake.instance(zone, name), what, body, query)
        raise Refusal(404, "notFound", f"no such method: {self.command} {self.path}")

    def _change(self, vm: Vm, what: str, body: dict[str, Any], query: dict[str, str]) -> Any:
        fake = self.fake
        if what == "getGuestAttributes" and self.command == "GET":
            if vm.metadata.get("enable-guest-attributes") != "TRUE" or not vm.attributes:
                raise Refusal(
                    404, "notFound", "The resource 'guest attributes' of type 'Guest Attribute' was not found."
                )
            items = [{"namespace": "ec1", "key": key, "value": value} for key, value in vm.attributes.items()]
            return {"kind": "compute#guestAttributes", "queryPath": query["queryPath"], "queryValue": {"items": items}}
        if self.command != "POST":
            raise Refusal(404, "notFound", f"no such method: {self.command} {self.path}")
        match what:
            case "start":
                return fake.start(vm, query)
            case "stop":
                return fake.stop(vm, query)
            case "setMetadata":
                return fake.set_metadata(vm, body, query)
            case "setScheduling":
                return fake.set_scheduling(vm, body, query)
        raise Refusal(404, "notFound", f"no such method: {what}")


class _Engine(_Handler):
    """The inference server on the machine, while one runs there: every two capitalised words are a person."""

    def _serving(self) -> str | None:
        with self.fake.lock:
            found = self.fake.serves()
        if found is None:
            # Nobody listens there.
            self.close_connection = True
            return None
        if self.path != "/health" and self.headers.get("Authorization") != f"Bearer {found[1]}":
            self.send_json(401, {"error": "Unauthorized"})
            return None
        return found[0]

    def do_GET(self) -> None:
        if model := self._serving():
            self.send_json(200, {} if self.path == "/health" else {"object": "list", "data": [{"id": model}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if model := self._serving():
            names = dict.fromkeys(_PERSON.findall(body["messages"][-1]["content"]))
            content = json.dumps({"entities": [{"name": name, "class": "Person"} for name in list(names)[:24]]})
            self.fake.answered()
            message = {"role": "assistant", "content": content}
            self.send_json(
                200, {"model": model, "choices": [{"message": message, "finish_reason": "stop"}], "usage": {}}
            )


@contextmanager
def fake_compute() -> Iterator[FakeCompute]:
    """Run the API and the machines' inference server on free ports of loopback until the block ends."""
    fake = FakeCompute()
    api = type("Api", (_Api,), {"fake": fake})
    engine = type("Engine", (_Engine,), {"fake": fake})
    with serving(api) as address, serving(engine) as served:
        fake.address = address
        fake.engine_port = urlsplit(served).port or 0
        yield fake
