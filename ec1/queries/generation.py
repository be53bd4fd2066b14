"""What a page asks of `ec1 serve`: which models answer there, and an answer, piece by piece or whole.

Belongs here: OpenAI's form of question and stream, as the gateway passes it on. Does not: what becomes of an answer.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ec1.errors import ServiceError
from ec1.http import authorization

_SECONDS = 600.0


@dataclass(frozen=True)
class Piece:
    """A part of an answer. `logprob`: of its tokens together, in nats; None where the engine does not say. `end`: why
    the answer ends here, such as `stop` or `length`."""

    text: str
    logprob: float | None = None
    end: str | None = None


@dataclass(frozen=True)
class WholeAnswer:
    """An answer, why it ended, and the mean log-probability of its pieces in nats (None: the engine does not say)."""

    text: str
    end: str
    nats: float | None


def models(url: str, api_key: str | None) -> list[str]:
    """The names that the gateway answers for: the base, roles and versions. Raises ServiceError."""
    import httpx

    try:
        reply = httpx.get(f"{url}/v1/models", headers=authorization(api_key), timeout=5, trust_env=False)
        if reply.status_code in (401, 403):
            raise ServiceError(f"{url} needs an API key: set EC1_API_KEY (`ec1 serve key add NAME`)")
        return [str(each["id"]) for each in reply.raise_for_status().json()["data"]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        raise ServiceError(f"nothing answers at {url}: start `ec1 serve`, or say where with --gateway") from None


async def answer(
    url: str,
    api_key: str | None,
    model: str,
    messages: Sequence[Mapping[str, str]],
    *,
    temperature: float,
    max_tokens: int,
    seed: int,
) -> AsyncIterator[Piece]:
    """The answer of a model, as it is written. Raises ServiceError if there is none, or it breaks off."""
    import httpx

    question = {"model": model, "messages": [dict(each) for each in messages], "max_tokens": max_tokens}
    question |= {"temperature": temperature, "seed": seed, "stream": True, "logprobs": True, "store": False}
    try:
        async with (
            httpx.AsyncClient(timeout=_SECONDS, trust_env=False) as client,
            client.stream("POST", f"{url}/v1/chat/completions", json=question, headers=authorization(api_key)) as reply,
        ):
            if not reply.is_success:
                raise ServiceError(f"{model}: {_problem(await reply.aread(), reply.status_code)}")
            async for line in reply.aiter_lines():
                if line.startswith("data:") and line[5:].strip() != "[DONE]":
                    for choice in json.loads(line[5:]).get("choices", ()):
                        yield _piece(choice)
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise ServiceError(
            f"{model} gave no whole answer: {type(error).__name__}, look at the log of ec1 serve"
        ) from None


async def whole_answer(
    url: str,
    api_key: str | None,
    model: str,
    messages: Sequence[Mapping[str, str]],
    *,
    max_tokens: int,
) -> WholeAnswer:
    """The likeliest answer of a model. Raises ServiceError as `answer`, and if it broke off."""
    pieces = [
        each async for each in answer(url, api_key, model, messages, temperature=0, max_tokens=max_tokens, seed=0)
    ]
    end = next((each.end for each in reversed(pieces) if each.end), None)
    if end is None:
        raise ServiceError(f"{model} gave no whole answer: it broke off, look at the log of ec1 serve")
    logprobs = [each.logprob for each in pieces if each.logprob is not None]
    return WholeAnswer("".join(each.text for each in pieces), end, sum(logprobs) / len(logprobs) if logprobs else None)


def _piece(choice: dict[str, Any]) -> Piece:
    tokens = (choice.get("logprobs") or {}).get("content") or ()
    logprob = sum(float(each["logprob"]) for each in tokens) if tokens else None
    return Piece(str((choice.get("delta") or {}).get("content") or ""), logprob, choice.get("finish_reason"))


def _problem(content: bytes, status: int) -> str:
    try:
        return str(json.loads(content)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the gateway answered {status}"
