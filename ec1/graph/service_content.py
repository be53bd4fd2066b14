"""service-content, the graph service that other systems read (docs/contracts.md): its wire and its rules.

Belongs here: its routes, and the checks that it leaves to its callers. Does not: what it makes of a name
(`service_names.py`), what we want it to hold and what we have sent (`service_content_store.py`).
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from ec1.errors import DeferredError, PermanentError, RejectedError
from ec1.extraction.reading.client import AgainError, error_message, retry_after
from ec1.extraction.results import ENTITY_CLASSES
from ec1.files import checked_name
from ec1.graph.model import clean_name
from ec1.graph.service_names import service_key
from ec1.graph.settings import ServiceContentSettings
from ec1.http import trusted

_PLACEHOLDERS = frozenset(("n/a", "na", "unknown", "tbd", "none", "null", "-", "?"))
_MAX_NAME_CHARACTERS = 256
MAX_CONTEXT = 50
"""What is asked for. An answer with fewer entities is complete: it holds up to three times as many."""
_LONGEST_PAUSE_SECONDS = 20.0
_MAX_ANSWER_BYTES = 4 * 2**20


@dataclass(frozen=True)
class ServiceEntity:
    """One entity as it is sent. `confidence` is from 0 to 1; `source_doc` is a document's id."""

    entity_name: str
    classification: str
    confidence: float
    source_doc: str

    @property
    def key(self) -> str:
        return service_key(self.entity_name)

    def check(self) -> None:
        """What the service does not check. Raises RejectedError with the reason."""
        name = self.entity_name
        if self.classification not in ENTITY_CLASSES:
            raise RejectedError("unknown class")
        if not (math.isfinite(self.confidence) and 0 <= self.confidence <= 1):
            raise RejectedError("confidence out of range")
        if not any(character.isalnum() for character in self.key):
            raise RejectedError("no name")
        if name.strip().lower() in _PLACEHOLDERS or self.key in _PLACEHOLDERS:
            raise RejectedError("placeholder")
        if len(name) > _MAX_NAME_CHARACTERS:
            raise RejectedError("name too long")


class ServiceContentClient:
    """A client of the service for one tenant. Raises InputError for a module id that is not a name."""

    def __init__(self, settings: ServiceContentSettings, module_id: str, *, backoff_seconds: float = 0.5) -> None:
        self.module_id = checked_name(module_id, "module id")
        self.batch_entities = settings.batch_entities
        self._settings = settings
        self._backoff = wait_random_exponential(multiplier=backoff_seconds, max=_LONGEST_PAUSE_SECONDS)
        # Bytes are counted as they come, so they must be what they say.
        plain = {"Accept-Encoding": "identity"}
        self._http = httpx.Client(
            base_url=settings.base_url,
            timeout=settings.request_timeout_seconds,
            trust_env=False,
            headers=plain,
            verify=trusted(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def mutate(self, entities: Sequence[ServiceEntity]) -> None:
        """Upsert a batch. Raises DeferredError if the service did not take all of it now, PermanentError if it never
        will."""
        body = {"module_id": self.module_id, "entities": [self._record(each) for each in entities]}
        answer = self._ask("POST", "/v1/graph/mutate", json=body)
        if answer.get("upserted") != len(entities):
            raise DeferredError(f"service-content upserted {answer.get('upserted')!r} of {len(entities)} entities")

    def count(self) -> int:
        """How many nodes it holds for this tenant, other writers' included. Raises DeferredError."""
        answer = self._ask("GET", "/v1/graph/cleanup", params={"module_id": self.module_id, "dry_run": "true"})
        scanned = answer.get("scanned")
        if not isinstance(scanned, int) or isinstance(scanned, bool):
            raise DeferredError("service-content's cleanup report has no count")
        return scanned

    def find(self, name: str) -> list[ServiceEntity]:
        """What it holds for this tenant that is like `name`, not all where that is `MAX_CONTEXT` or more. Raises
        DeferredError."""
        parameters = {"q": name, "module_id": self.module_id, "limit": str(MAX_CONTEXT)}
        try:
            return list(_entities_in(self._ask("GET", "/v1/graph/context", params=parameters)))
        except (RecursionError, OverflowError):
            raise DeferredError("service-content's answer about one name cannot be read") from None

    def _record(self, entity: ServiceEntity) -> dict[str, Any]:
        # A different module id would cross tenants: there is only one source for it.
        vectors = {"role_vector": None, "location_vector": None, "contact_vector": None}
        return {**asdict(entity), "module_id": self.module_id, **vectors}

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        """One request and its retries. Raises DeferredError, PermanentError."""

        def pause(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            return (error.retry_after if isinstance(error, AgainError) else 0.0) + self._backoff(state)

        def enough(state: RetryCallState) -> bool:
            patience = self._settings.request_timeout_seconds
            return stop_after_attempt(self._settings.max_attempts)(state) or state.upcoming_sleep > patience

        retrying = Retrying(retry=retry_if_exception_type(AgainError), wait=pause, stop=enough, reraise=True)
        try:
            return retrying(self._once, method, path, **request)
        except AgainError as error:
            raise DeferredError(f"service-content: {error}") from None

    def _once(self, method: str, path: str, **request: Any) -> Any:
        try:
            with self._http.stream(method, path, **request) as response:
                data = _body(response)
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise AgainError(f"{type(error).__name__}: {error}".rstrip(": ")) from None
        status = response.status_code
        if status == 429 or status == 408 or status >= 500:
            raise AgainError(f"status {status}: {error_message(data)}", retry_after(response))
        if status != 200:
            raise PermanentError(f"service-content refused {method} {path} with status {status}: {error_message(data)}")
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            raise AgainError(f"the answer to {path} is not JSON: {error_message(data)}") from None
        if path != "/v1/graph/context" and not isinstance(answer, dict):
            raise PermanentError(f"service-content's answer to {path} is not an object")
        return answer


def _body(response: httpx.Response) -> bytes:
    """What was sent, byte by byte. Raises PermanentError for more than an answer can be."""
    if response.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise PermanentError("service-content's answer is compressed, which was not asked for")
    data = bytearray()
    for part in response.iter_raw():
        data += part
        if len(data) > _MAX_ANSWER_BYTES:
            raise PermanentError(f"service-content's answer has more than {_MAX_ANSWER_BYTES:,} bytes")
    return bytes(data)


def _entities_in(value: Any) -> Iterator[ServiceEntity]:
    """Every entity of an answer, wherever it stands in it: only the records themselves are agreed upon."""
    if isinstance(value, list):
        for each in value:
            yield from _entities_in(each)
    elif isinstance(value, dict):
        if isinstance(value.get("entity_name"), str):
            confidence = value.get("confidence")
            yield ServiceEntity(
                entity_name=clean_name(value["entity_name"]),
                classification=clean_name(str(value.get("classification"))),
                confidence=float(confidence) if isinstance(confidence, int | float) else math.nan,
                source_doc=clean_name(str(value.get("source_doc"))),
            )
        else:
            for each in value.values():
                yield from _entities_in(each)
