"""Formats of rows that others write: one row of a public data set becomes a conversation or a pair of answers.

Belongs here: which keys make a format, and what each of them becomes. Does not: our own tuples (tuples), the kinds of
files that rows come in (files), whether a base model's chat template has a place for what a row carries (rendering).

Whatever changes what is learnt is carried (tools, calls, reasoning, which answers count) or refused with a reason; a
reason names keys, never the row's own text. Formats: https://huggingface.co/docs/trl/dataset_formats,
https://llamafactory.readthedocs.io/en/latest/getting_started/data_preparation.html,
https://docs.axolotl.ai/docs/dataset-formats/, https://platform.openai.com/docs/api-reference/fine-tuning.
"""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ec1.errors import RejectedError

Message: TypeAlias = dict[str, Any]
"""`role` and `content` are text. Where a row has them: `reasoning_content` (text), `tool_calls` (a list of
`{"type": "function", "function": {"name", "arguments"}}`), `tool_call_id`, `name`, and `train`, false for an answer
that is context only."""

_ROLES = {
    "system": "system",
    # What OpenAI calls the operator's instructions today; chat templates know the older name.
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "ipython": "tool",
    "function_response": "tool",
}
_FORMATS: dict[str, tuple[tuple[str, ...], ...]] = {
    # The first key names the format; each group must have one key present.
    "prompt/completion": (("prompt",), ("completion", "response")),
    "question/answer": (("question", "query"), ("answer", "response")),
    "alpaca": (("instruction",), ("output", "response")),
}
_MEDIA = ("images", "image", "videos", "video", "audios", "audio")
_TURN = re.compile(r"(?:\A|\n\n)(Human|Assistant): ?")


@dataclass(frozen=True)
class FormattedRow:
    """One row in one form: a conversation, or with `chosen` and `rejected` the prompt of a pair."""

    format: str
    messages: tuple[Message, ...]
    chosen: tuple[Message, ...] | None = None
    rejected: tuple[Message, ...] | None = None
    tools: tuple[dict[str, Any], ...] | None = None


def read_row(record: Mapping[str, Any]) -> FormattedRow:
    """Recognise a row. Raises RejectedError with what is missing, or with what it carries that cannot be learnt."""
    keys = {key for key, value in record.items() if value is not None}
    _refuse_what_cannot_be_learnt(record, keys)
    tools = _tools(record)
    system = _system(record)
    if "chosen" in keys or "rejected" in keys:
        if missing := sorted({"chosen", "rejected"} - keys):
            raise RejectedError(f"a pair of answers without {missing[0]}")
        return _pair(record, keys, system, tools)
    for key in ("messages", "conversations", "conversation"):
        if key in keys:
            found = messages_of(record[key], key)
            return FormattedRow(
                "sharegpt" if _is_sharegpt(record[key]) else "messages", _led_by(system, found), tools=tools
            )
    for name, groups in _FORMATS.items():
        if groups[0][0] not in keys and not (name == "question/answer" and "query" in keys):
            continue
        present = [next((key for key in group if key in keys), None) for group in groups]
        if present[1] is None:
            # Some write a question as an instruction with an answer beside it; the next format may fit.
            if any(other != name and groups_[0][0] in keys for other, groups_ in _FORMATS.items()):
                continue
            raise RejectedError(f"{present[0]} without {' or '.join(groups[1])}")
        assert present[0] is not None
        asked = _asked(record, present[0], keys)
        answer = _answer(record[present[1]], present[1])
        return FormattedRow(name, (*_led_by(system, asked), *answer), tools=tools)
    if "text" in keys:
        raise RejectedError("text alone has no answer to learn: it needs a prompt and a completion")
    for group in (("completion", "prompt"), ("output", "instruction"), ("response", "prompt"), ("answer", "question")):
        if group[0] in keys:
            raise RejectedError(f"{group[0]} without {group[1]}")
    raise RejectedError(
        "no known format: it has no messages, conversations, prompt, instruction or question, nor chosen and rejected"
    )


def messages_of(value: Any, what: str) -> tuple[Message, ...]:
    """A list of messages in any of the usual spellings. Raises RejectedError naming what is missing."""
    if isinstance(value, str):
        value = _from_json(value, what)
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise RejectedError(f"{what} is not a list of messages")
    return tuple(_message(item, what) for item in value)


def _message(item: Any, what: str) -> Message:
    if not isinstance(item, Mapping):
        raise RejectedError(f"{what} holds something that is not a message")
    item = {key: value for key, value in item.items() if value is not None}
    speaker = item.get("role", item.get("from"))
    if speaker is None:
        raise RejectedError(f"{what} holds a message without role (or from)")
    if speaker == "function_call":
        calls = _from_json(str(item.get("value", item.get("content", ""))), "function_call")
        return {"role": "assistant", "content": "", "tool_calls": _calls(calls), **_trained(item, "assistant")}
    role = _ROLES.get(speaker.strip().lower()) if isinstance(speaker, str) else None
    if role is None:
        raise RejectedError(f"{what} holds a message of an unknown role")
    content, reasoning = _content(item.get("content", item.get("value", item.get("text"))), what)
    message: Message = {"role": role, "content": content}
    for key in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(item.get(key), str) and item[key].strip():
            reasoning = reasoning or item[key]
    if reasoning:
        message["reasoning_content"] = reasoning
    if item.get("tool_calls"):
        message["tool_calls"] = _calls(item["tool_calls"])
    elif item.get("function_call"):
        message["tool_calls"] = _calls(item["function_call"])
    if content is None:
        if "tool_calls" not in message:
            raise RejectedError(f"{what} holds a message without content (or value)")
        message["content"] = ""
    for key in ("tool_call_id", "name"):
        if role == "tool" and isinstance(item.get(key), str):
            message[key] = item[key]
    return message | _trained(item, role)


def _content(value: Any, what: str) -> tuple[str | None, str | None]:
    """The text of a message, and the reasoning among its parts."""
    if value is None or isinstance(value, str):
        return value, None
    if not isinstance(value, Sequence):
        raise RejectedError(f"{what} holds a message whose content is neither text nor a list of parts")
    texts: list[str] = []
    reasoning: list[str] = []
    for part in value:
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        if not isinstance(part, Mapping):
            raise RejectedError(f"{what} holds a part of a message that is not text")
        kind = part.get("type")
        if kind in ("text", "input_text", "output_text") and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind in ("thinking", "reasoning") and isinstance(part.get("thinking", part.get("text")), str):
            reasoning.append(part.get("thinking", part.get("text")))
        else:
            raise RejectedError(f"{what} holds a part of a message that is not text")
    return "".join(texts), "\n".join(reasoning) or None


def _trained(item: Mapping[str, Any], role: str) -> dict[str, bool]:
    """Whether the row itself says that this message counts: OpenAI's `weight`, Axolotl's `train` and `training`."""
    found = [(key, item[key]) for key in ("weight", "train", "training") if key in item]
    if not found:
        return {}
    values = {bool(value) for _, value in found if value in (0, 1)}
    if any(value not in (0, 1) for _, value in found) or len(values) != 1:
        raise RejectedError(f"the {found[0][0]} of a message is neither 0 nor 1")
    if role != "assistant":
        if values == {True}:
            raise RejectedError("a message that is not an answer is marked to be trained")
        return {}
    return {} if values == {True} else {"train": False}


def _calls(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, str):
        value = _from_json(value, "tool_calls")
    calls: list[dict[str, Any]] = []
    for item in [value] if isinstance(value, Mapping) else value if isinstance(value, list) else [None]:
        function: Any = item.get("function", item) if isinstance(item, Mapping) else None
        if (
            not isinstance(item, Mapping)
            or not isinstance(function, Mapping)
            or not isinstance(function.get("name"), str)
        ):
            raise RejectedError("tool_calls holds a call without a function's name")
        arguments = function.get("arguments", function.get("parameters", {}))
        if isinstance(arguments, str):
            # Templates write a mapping as JSON themselves; text that is not JSON stays as it is.
            try:
                loaded = json.loads(arguments) if arguments.strip() else {}
                arguments = loaded if isinstance(loaded, dict) else arguments
            except (ValueError, RecursionError):
                pass
        call = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
        calls.append({"id": item["id"], **call} if isinstance(item.get("id"), str) else call)
    return calls


def _tools(record: Mapping[str, Any]) -> tuple[dict[str, Any], ...] | None:
    value = next((record[key] for key in ("tools", "functions") if record.get(key)), None)
    if isinstance(value, str):
        value = _from_json(value, "tools") if value.strip() else None
    if not value:
        return None
    if not isinstance(value, list) or not all(isinstance(tool, Mapping) for tool in value):
        raise RejectedError("tools is not a list of definitions")
    return tuple(dict(tool) if "function" in tool else {"type": "function", "function": dict(tool)} for tool in value)


def _system(record: Mapping[str, Any]) -> str | None:
    value = next((record[key] for key in ("system", "system_prompt") if record.get(key)), None)
    if value is not None and not isinstance(value, str):
        raise RejectedError("system is not text")
    return value


def _led_by(system: str | None, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    if system is None or (messages and messages[0]["role"] == "system"):
        return messages
    return ({"role": "system", "content": system}, *messages)


def _asked(record: Mapping[str, Any], key: str, keys: set[str]) -> tuple[Message, ...]:
    """The turns before an answer: a text with Alpaca's input and history, or messages."""
    value = record[key]
    if not isinstance(value, str):
        return messages_of(value, key)
    extra = next((record[name] for name in ("input", "context") if name in keys), "") if key != "prompt" else ""
    if not isinstance(extra, str):
        raise RejectedError("input is not text")
    earlier: list[Message] = []
    for turn in record.get("history") or []:
        if not isinstance(turn, Sequence) or len(turn) != 2 or not all(isinstance(text, str) for text in turn):
            raise RejectedError("history is not a list of a question and its answer each")
        earlier += [{"role": "user", "content": turn[0]}, {"role": "assistant", "content": turn[1]}]
    asked = "\n\n".join(text for text in (value, extra) if text.strip())
    return (*earlier, {"role": "user", "content": asked})


def _answer(value: Any, what: str) -> tuple[Message, ...]:
    if isinstance(value, str):
        return ({"role": "assistant", "content": value},)
    return messages_of(value, what)


def _pair(
    record: Mapping[str, Any], keys: set[str], system: str | None, tools: tuple[dict[str, Any], ...] | None
) -> FormattedRow:
    """Every shape in which the hub keeps preferences: the prompt apart, inside both answers, or both."""
    chosen, rejected = (_side(record[key], key) for key in ("chosen", "rejected"))
    key = next(
        (
            key
            for key in ("prompt", "messages", "conversations", "instruction", "question", "query", "input")
            if key in keys and record[key]
        ),
        None,
    )
    shared = sum(1 for _ in itertools.takewhile(lambda both: both[0] == both[1], zip(chosen, rejected, strict=False)))
    inside = chosen[: min(shared, len(chosen) - 1, len(rejected) - 1)]
    while inside and inside[-1]["role"] == "assistant":
        inside = inside[:-1]
    chosen, rejected = chosen[len(inside) :], rejected[len(inside) :]
    for name, side in (("chosen", chosen), ("rejected", rejected)):
        if not side or side[0]["role"] != "assistant":
            raise RejectedError("chosen and rejected do not answer one prompt")
        if any(message["role"] == "user" for message in side):
            raise RejectedError(f"{name} goes on over several turns after it parts from the other answer")
    prompt = () if key is None else messages_of(record[key], key) if _is_list(record[key]) else ()
    if key is not None and not prompt:
        prompt = _asked(record, key, keys)
    shape = "prompt/chosen/rejected" if key and not inside else "chosen/rejected"
    if inside:
        if prompt and prompt[-1]["content"].strip() != inside[-1]["content"].strip():
            raise RejectedError(f"the turns inside chosen are not those of {key}")
        prompt = inside if len(inside) >= len(prompt) else prompt
    if not prompt:
        raise RejectedError("a pair of answers without prompt (or turns inside chosen and rejected)")
    return FormattedRow(shape, _led_by(system, prompt), chosen, rejected, tools)


def _side(value: Any, what: str) -> tuple[Message, ...]:
    if not isinstance(value, str):
        return messages_of(value, what)
    if not re.match(r"\s*Human: ?", value):
        return ({"role": "assistant", "content": value},)
    # Anthropic's hh-rlhf: a whole conversation as one text.
    pieces = _TURN.split("\n\n" + value.lstrip("\n"))
    roles = {"Human": "user", "Assistant": "assistant"}
    return tuple(
        {"role": roles[name], "content": text.strip()} for name, text in zip(pieces[1::2], pieces[2::2], strict=True)
    )


def _refuse_what_cannot_be_learnt(record: Mapping[str, Any], keys: set[str]) -> None:
    if ("label" in keys and isinstance(record["label"], bool)) or "kto_tag" in keys:
        raise RejectedError(
            "a KTO row (label): not trained; keep the good answers as prompt and completion, or pair good with bad"
        )
    if "completions" in keys and "labels" in keys:
        raise RejectedError("a row of stepwise supervision (completions, labels): not trained")
    for key in _MEDIA:
        if record.get(key):
            raise RejectedError(f"{key}: only text is trained on")
    for key in ("documents", "chat_template_kwargs"):
        if record.get(key):
            raise RejectedError(f"{key} would have to reach the chat template: not supported")


def _is_sharegpt(value: Any) -> bool:
    return isinstance(value, Sequence) and bool(value) and isinstance(value[0], Mapping) and "from" in value[0]


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _from_json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise RejectedError(f"{what} is text that is not JSON") from None
