"""An OpenAI-compatible server, such as vLLM, in its own words.

https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import httpx

from ec1.extraction.reading.client import (
    Completion,
    Endurance,
    HttpChatClient,
    Messages,
    ServerFaultError,
    UncountedError,
    label_of,
    text_of,
    tokens_of,
    unreadable,
)
from ec1.extraction.settings import ExtractionSettings
from ec1.http import authorization, trusted

_LIST_SECONDS = 5.0


class OpenAIClient(HttpChatClient):
    """A client of the server at `base_url` (without `/v1`); `model` is the id under which it serves the model.

    `api_key` is what the server asks for. With `answers_as`, an answer of any other model than `model` and those does
    not count: the server was set up otherwise, or something in between sent the request elsewhere.

    `ends_repetition` is for a trained extractor on a vLLM: small models list the same names again and again.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        settings: ExtractionSettings,
        *,
        ends_repetition: bool = False,
        api_key: str | None = None,
        answers_as: Collection[str] | None = None,
        **endurance: Unpack[Endurance],
    ) -> None:
        super().__init__(f"{base_url.rstrip('/')}/v1/chat/completions", settings, **endurance)
        self._models = f"{base_url.rstrip('/')}/v1/models"
        self._model = model
        self._names = None if answers_as is None else {model, *answers_as}
        self._ends_repetition = ends_repetition
        self._key = authorization(api_key)
        self._decider = Decider(base_url, model, settings, api_key=api_key, answers_as=answers_as, **endurance)

    def decider(self) -> "Decider":
        return self._decider

    async def why_not_served(self) -> str | None:
        """None if the server answers and lists the model, or has no list; else why it serves nobody, or another."""
        try:
            async with httpx.AsyncClient(
                timeout=_LIST_SECONDS, trust_env=False, headers=self._key, verify=trusted()
            ) as http:
                return unserved(await http.get(self._models), self._names)
        except httpx.HTTPError as error:
            return unanswered(error)

    def _body(self, messages: Messages, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": list(messages),
            "max_tokens": self._settings.max_answer_tokens,
            "temperature": 0,
            "seed": 0,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "entities", "strict": True, "schema": schema},
            },
        }
        if self._ends_repetition:
            # vLLM's own: an answer that goes round in circles ends there, with this as its finish reason.
            body["repetition_detection"] = {"min_pattern_size": 5, "max_pattern_size": 64, "min_count": 2}
        if self._settings.reasoning_tokens:
            # vLLM's own: without it the thoughts may take what the answer needs.
            body["thinking_token_budget"] = self._settings.reasoning_tokens
        return body

    def _varied(self, variation: int) -> Mapping[str, Any]:
        return {**super()._varied(variation), "seed": variation}

    def _headers(self, stream: str) -> Mapping[str, str]:
        return self._key

    def _completion(self, data: bytes, stream: str) -> Completion:
        try:
            value = json.loads(data)
            choice = value["choices"][0]
            usage = value.get("usage") or {}
            answer = Completion(
                content=text_of(choice["message"].get("content") or ""),
                finish_reason=label_of(choice.get("finish_reason") or "none"),
                model=label_of(value.get("model", self._model)),
                prompt_tokens=tokens_of(usage.get("prompt_tokens")),
                completion_tokens=tokens_of(usage.get("completion_tokens")),
            )
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise ServerFaultError(f"the server's answer is not a chat completion: {unreadable(error)}") from None
        return _own(answer, self._names)


class Decider(HttpChatClient):
    """Asks the same server for the log-probabilities of a few words after each of many prompts, in one request.

    The messages are the prompts; the schema is `{"labels": {token id: word}, "add_special_tokens": whether the prompts
    lack those that a text of this model begins with}`. The answer's content is JSON: for each prompt, the
    log-probabilities in the order of the labels. What a server leaves out is given the least that it named.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        settings: ExtractionSettings,
        *,
        api_key: str | None = None,
        answers_as: Collection[str] | None = None,
        **endurance: Unpack[Endurance],
    ) -> None:
        super().__init__(f"{base_url.rstrip('/')}/v1/completions", settings, **endurance)
        self._names = None if answers_as is None else {model, *answers_as}
        self._key = authorization(api_key)
        self._model = model
        self._labels: Collection[int] = ()

    def _body(self, messages: Messages, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        # The same for all requests of a run.
        self._labels = tokens = list(schema["labels"])
        return {
            "model": self._model,
            "prompt": [message["content"] for message in messages],
            "max_tokens": 1,
            "temperature": 0,
            "seed": 0,
            "add_special_tokens": schema.get("add_special_tokens", True),
            # vLLM's own: the choice is constrained to the labels, and all of them are reported, however unlikely.
            "allowed_token_ids": tokens,
            "logprob_token_ids": tokens,
            "return_tokens_as_token_ids": True,
            "logprobs": min(len(tokens), 20),
        }

    def _headers(self, stream: str) -> Mapping[str, str]:
        return self._key

    def _completion(self, data: bytes, stream: str) -> Completion:
        try:
            value = json.loads(data)
            usage = value.get("usage") or {}
            choices = sorted(value["choices"], key=lambda choice: tokens_of(choice["index"]))
            rows = [_scores(choice["logprobs"]["top_logprobs"][0], self._labels) for choice in choices]
            answer = Completion(
                content=json.dumps(rows),
                finish_reason="stop",
                model=label_of(value.get("model", self._model)),
                prompt_tokens=tokens_of(usage.get("prompt_tokens")),
                completion_tokens=tokens_of(usage.get("completion_tokens")),
            )
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise ServerFaultError(
                "the server does not give log-probabilities as vLLM does: set extraction.mode to answer "
                f"({unreadable(error)})"
            ) from None
        return _own(answer, self._names)


def unanswered(error: httpx.HTTPError) -> str:
    """What is said of a server that this came of."""
    return f"it does not answer: {type(error).__name__} {error}".rstrip()[:200]


def unserved(response: httpx.Response, names: Collection[str] | None) -> str | None:
    """Why a server that gives this answer to `/v1/models` serves none of `names` (None: any); None if it does, or has
    no list."""
    if response.status_code in (404, 405, 501):
        # Not every gateway has a list. What it answers is looked at all the same.
        return None
    try:
        listed = {label_of(each["id"]) for each in response.json()["data"]} if response.is_success else None
    except (ValueError, KeyError, TypeError, RecursionError):
        listed = None
    if listed is None:
        return f"it does not list its models (status {response.status_code})"
    if names is not None and listed.isdisjoint(names):
        return f"it serves {', '.join(sorted(listed))[:200] or 'nothing'}, not {', '.join(sorted(names))}"
    return None


def _own(answer: Completion, names: Collection[str] | None) -> Completion:
    """The answer, if it is of our model. Raises UncountedError otherwise."""
    if names is None or answer.model in names:
        return answer
    wanted = ", ".join(sorted(names))
    problem = f"{answer.model!r} answered, not {wanted}; if it is the same model, name it in inference.answers_as"
    raise UncountedError(replace(answer, problem=problem))


def _scores(top: Mapping[str, Any], labels: Collection[int]) -> Sequence[float]:
    """The log-probability of each label. Raises TypeError, ValueError for what is not a number, or if none is there."""
    known = {str(token): float(score) for token, score in top.items()}
    if not all(math.isfinite(score) and score <= 1e-3 for score in known.values()):
        raise ValueError("log-probabilities that are none")
    # A server that names them by words has not understood that the choice is constrained, either.
    found = [known.get(f"token_id:{token}") for token in labels]
    if all(score is None for score in found):
        raise ValueError("none of the labels has one")
    least = min(known.values())
    return [least if score is None else score for score in found]
