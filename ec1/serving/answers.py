"""What an engine's answer says of itself: its id and text, the tokens that it took, whether it refused.

Belongs here: reading OpenAI's three forms (chat, completions, responses), whole and streamed. Does not: passing them on
(`forwarding.py`), keeping them (`capture.py`).
https://platform.openai.com/docs/api-reference
"""

import json
from typing import Any

from ec1.errors import RejectedError

MAX_ANSWER_BYTES = 4 * 2**20
"""Longer answers are passed on, and not read."""
_STREAM = "text/event-stream"


def answer_of(kind: str, content: bytes) -> tuple[str, str]:
    """Id and text of a chat completion, streamed or whole, by its content type. Raises RejectedError if it is not a
    whole answer in words."""
    try:
        identifier, text, finish, called, _ = _read(kind, content)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise RejectedError("not understood") from None
    if finish != "stop" or called or not isinstance(identifier, str) or not isinstance(text, str) or not text.strip():
        raise RejectedError("not a whole answer")
    return identifier, text


def is_refusal(kind: str, content: bytes) -> bool:
    """Whether a chat completion answers nothing: the engine's filter cut it, the model refused in the field for that,
    or there is neither a text nor a call in it."""
    try:
        _, text, finish, called, refusal = _read(kind, content)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return False
    return finish == "content_filter" or refusal or not (called or (isinstance(text, str) and text.strip()))


def _read(kind: str, content: bytes) -> tuple[Any, Any, str | None, bool, bool]:
    """Id, text, finish reason, whether tools are called, whether it is a refusal. Raises what damaged JSON raises."""
    if not kind.startswith(_STREAM):
        body = json.loads(content)
        (choice,) = body["choices"]
        message = choice["message"]
        calls, refusal = bool(message.get("tool_calls")), bool(message.get("refusal"))
        return body["id"], message["content"], choice["finish_reason"], calls, refusal
    identifier, words, finish, called, refusal = "", [], None, False, False
    for line in content.splitlines():
        if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
            continue
        event = json.loads(line[5:])
        identifier = event["id"]
        for choice in event["choices"]:
            words.append(choice["delta"].get("content") or "")
            called = called or bool(choice["delta"].get("tool_calls"))
            refusal = refusal or bool(choice["delta"].get("refusal"))
            finish = choice.get("finish_reason") or finish
    return identifier, "".join(words), finish, called, refusal


class TokenCount:
    """Counts the tokens of an answer that passes through. `hide`: the client did not ask for the last event of a
    stream, the one with the usage and no choice, so it is left out.

    An answer that ends early reports nothing: then each event of a stream counts as one token.
    """

    def __init__(self, kind: str, *, hide: bool) -> None:
        self._stream, self._hide = kind.startswith(_STREAM), hide
        self._left = b""
        self._reported = self._events = 0

    @property
    def tokens(self) -> int:
        return max(self._reported, self._events)

    def passed(self, piece: bytes) -> bytes:
        """Take the next bytes; returns those to pass on, of a stream in whole events."""
        if not self._stream:
            if len(self._left) <= MAX_ANSWER_BYTES:
                self._left += piece
            return piece
        *events, self._left = (self._left + piece).split(b"\n\n")
        return b"".join(event + b"\n\n" for event in events if self._shown(event))

    def ended(self) -> bytes:
        """What is left to pass on at the end."""
        if self._stream:
            return self._left
        self._report(self._left)
        return b""

    def _shown(self, event: bytes) -> bool:
        self._events += 1
        if b'"total_tokens"' not in event:
            return True
        body = self._report(event.partition(b"data:")[2])
        return not (self._hide and body.get("choices") == [])

    def _report(self, content: bytes) -> dict[str, Any]:
        try:
            body = json.loads(content)
            # Of `/v1/responses` the last event of a stream holds the whole response.
            usage = body.get("usage") or body.get("response", {}).get("usage") or {}
            self._reported = max(self._reported, int(usage.get("total_tokens") or 0))
        except (ValueError, TypeError, AttributeError):
            return {}
        return body if isinstance(body, dict) else {}
