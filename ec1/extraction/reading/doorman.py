"""Doorman, the inference gateway (docs/contracts.md), in its own words: headers, grammar, tiers, readiness.

Belongs here: its wire. Does not: retries, the circuit breaker and deadlines, which all servers share (`client`).
"""

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Unpack

import httpx

from ec1.errors import DeferredError
from ec1.extraction.reading.client import (
    AgainError,
    Completion,
    Endurance,
    HttpChatClient,
    Messages,
    ServerFaultError,
    TimedOutError,
    UncountedError,
    label_of,
    text_of,
    tokens_of,
    unreadable,
)
from ec1.extraction.schema import FINISH_UNSTATED
from ec1.extraction.settings import DoormanSettings, ExtractionSettings
from ec1.files import checked_name
from ec1.http import trusted

LABEL = "graph"
"""Which of the gateway's GPU endpoints extraction uses."""
LARGE_TIER = "yoyo"
"""What `tier_used` says when the large model answered."""
# The gateway's own default; what it really takes is learned.
_USUAL_SLOTS = 2
_SLACK = 1.2
_READY_SECONDS = 10.0
_PROGRESS_SECONDS = 60.0
_COOL_DOWN_SECONDS = 300
"""How long its circuit breaker lets nothing through to the GPU tier. After that it stays open, as it says, until
somebody's request is let through and answered (`circuit_breaker.rs` of pointsav/pointsav-monorepo)."""


class DoormanClient(HttpChatClient):
    """A client of the gateway for one tenant. Any other tier than the large one does not count on a stream that asks
    for `high`; several such answers in a row open the circuit breaker, as failures do.

    Raises InputError for a module id that the gateway would refuse.
    """

    def __init__(
        self,
        gateway: DoormanSettings,
        module_id: str,
        settings: ExtractionSettings,
        **endurance: Unpack[Endurance],
    ) -> None:
        url = f"{gateway.base_url}/v1/chat/completions"
        super().__init__(url, settings, start_in_flight=_USUAL_SLOTS, **endurance)
        self._gateway = gateway
        self._module_id = checked_name(module_id, "module id")
        self._circuit.why_unwell, self._circuit.poll_seconds = self._why_unwell, gateway.poll_seconds

    async def _why_unwell(self) -> str | None:
        """None if a request would reach the GPU tier now, else why not."""
        assert self._http is not None, "enter the client first"
        try:
            async with asyncio.timeout(_READY_SECONDS):
                return _unwell(await self._http.get(f"{self._gateway.base_url}/readyz"))
        except (httpx.HTTPError, TimeoutError) as error:
            return f"it does not answer: {type(error).__name__}"

    @property
    def _longest_seconds(self) -> float:
        # When its GPU tier does not answer it asks a smaller one: disconnecting earlier would leave its slot taken.
        return max(self._settings.request_timeout_seconds, _SLACK * self._gateway.server_deadline_seconds)

    def _body(self, messages: Messages, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "messages": list(messages),
            "max_tokens": self._settings.max_answer_tokens,
            "temperature": 0,
            "grammar": {"type": "json-schema", "value": schema},
        }

    def _headers(self, stream: str) -> Mapping[str, str]:
        return {
            "X-Foundry-Module-ID": self._module_id,
            "X-Foundry-Complexity": self._gateway.complexity_of(stream),
            "X-Foundry-Yoyo-Label": LABEL,
            "X-Foundry-Request-ID": str(uuid.uuid4()),
        }

    def _check_status(self, response: httpx.Response, data: bytes, seconds: float) -> None:
        try:
            super()._check_status(response, data, seconds)
        except AgainError as error:
            if seconds >= 0.95 * self._gateway.server_deadline_seconds:
                raise TimedOutError(f"the gateway gave up after {seconds:.0f} s: {error}", gateway=True) from None
            raise

    def _completion(self, data: bytes, stream: str) -> Completion:
        try:
            value = json.loads(data)
            choice = (value.get("choices") or [{}])[0]
            usage = value.get("usage") or {}
            # Either may be missing; `content` is the gateway's own.
            answer = Completion(
                content=text_of(value.get("content") or (choice.get("message") or {}).get("content") or ""),
                finish_reason=label_of(choice.get("finish_reason") or value.get("finish_reason") or FINISH_UNSTATED),
                model=label_of(value.get("model", "unknown")),
                tier=label_of(value["tier_used"]),
                prompt_tokens=tokens_of(usage.get("prompt_tokens")),
                completion_tokens=tokens_of(usage.get("completion_tokens")),
            )
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise ServerFaultError(f"the gateway's answer is none: {unreadable(error)}") from None
        wanted = self._gateway.complexity_of(stream)
        if wanted == "high" and answer.tier != LARGE_TIER:
            problem = f"tier {answer.tier!r} answered where the {stream} stream asks for high"
            raise UncountedError(replace(answer, problem=problem))
        return answer


def too_long_an_answer(gateway: DoormanSettings, settings: ExtractionSettings) -> str | None:
    """None if the longest answer is there before the gateway lets a smaller model answer, else what to change."""
    seconds = settings.max_answer_tokens / gateway.answer_tokens_per_second
    if seconds <= gateway.server_deadline_seconds:
        return None
    return (
        f"{settings.max_answer_tokens} tokens at {gateway.answer_tokens_per_second:g} tokens/s take {seconds:.0f} s, "
        f"and after {gateway.server_deadline_seconds:.0f} s a smaller model answers: lower "
        "extraction.max_answer_tokens, or correct inference.answer_tokens_per_second"
    )


def wait_until_ready(gateway: DoormanSettings, progress: Callable[[str], None]) -> None:
    """Wait until the gateway's GPU endpoint for extraction is up, at most `ready_timeout_seconds`.

    Raises DeferredError if it is not up by then: a machine that cannot be had tonight is not a failure of ours.
    """
    begin = reported = time.monotonic()
    with httpx.Client(timeout=_READY_SECONDS, trust_env=False, verify=trusted()) as http:
        while (problem := why_not_ready(gateway.base_url, http)) is not None:
            now = time.monotonic()
            if now - begin >= gateway.ready_timeout_seconds:
                raise DeferredError(
                    f"{gateway.base_url} was not ready within inference.ready_timeout_seconds "
                    f"({gateway.ready_timeout_seconds:.0f} s): {problem}"
                )
            if now - reported >= _PROGRESS_SECONDS or reported == begin:
                reported = now
                progress(f"waiting for {gateway.base_url}, {now - begin:.0f} s: {problem}")
            time.sleep(min(gateway.poll_seconds, max(0.0, begin + gateway.ready_timeout_seconds - now)))


def why_not_ready(base_url: str, http: httpx.Client) -> str | None:
    """None if the gateway can extract now, else why not. A status of 200 alone only says that a tier is configured."""
    try:
        return _unwell(http.get(f"{base_url}/readyz"))
    except httpx.HTTPError as error:
        return f"it does not answer: {type(error).__name__}"


def _unwell(response: httpx.Response) -> str | None:
    try:
        tier = response.json()["tier_b"][LABEL]
        up, circuit, seconds = tier["health_up"], tier["circuit"], tier.get("opened_for_secs")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"status {response.status_code}, and it says nothing about tier_b.{LABEL}"
    if up is not True:
        return f"tier_b.{LABEL} is not up"
    if circuit not in ("closed", "half_open", "open"):
        return f"the circuit of tier_b.{LABEL} is {circuit!r:.40}"
    if circuit == "open" and isinstance(seconds, int | float) and seconds < _COOL_DOWN_SECONDS:
        return (
            f"the circuit of tier_b.{LABEL} opened {seconds:.0f} s ago and lets nothing through for "
            f"{_COOL_DOWN_SECONDS} s"
        )
    return None
