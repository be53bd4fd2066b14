"""Formats of rows that others write: one row of a public data set becomes a conversation or a pair of answers.

Belongs here: which keys make a format, and what each of them becomes. Does not: our own tuples (tuples), the kinds of
files that rows come in (files), whether a base model's chat template has a place for what a row carries (rendering).

Whatever changes what is learnt is carried (tools, calls, reasoning, which answers count) or refused with a reason, as
is a key that nobody reads (keys). A reason names keys, never the row's own text.

Formats: https://huggingface.co/docs/trl/dataset_formats, https://docs.axolotl.ai/docs/dataset-formats/,
https://llamafactory.readthedocs.io/en/latest/getting_started/data_preparation.html,
https://platform.openai.com/docs/api-reference/fine-tuning.
"""

import itertools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ec1.corpus.keys import (
    LISTS,
    OF_CALL,
    OF_FORMAT,
    OF_MESSAGE,
    OF_PART,
    OF_ROW,
    TEXTS,
    Fields,
    is_empty,
    unread_keys,
    without,
)
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
_FORMATS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # Keys of the question and of the answer, of each the ones that mean the same.
    "prompt/completion": (("prompt",), ("completion", "response")),
    "question/answer": (("question", "query"), ("answer", "response")),
    "alpaca": (("instruction",), ("output", "response")),
}
_LONG = 16
"""Characters from which a text under any other key is a repetition, and not the same by chance."""
_TURN = re.compile(r"(?:\A|\n\n)(Human|Assistant): ?")
_KTO = "a KTO row ({}): not trained; keep the good answers as prompt and completion, or pair good with bad"
_REASONS = {
    **dict.fromkeys(("label", "kto_tag"), _KTO),
    **dict.fromkeys(("images", "image", "videos", "video", "audios", "audio"), "{}: only text is trained on"),
    **dict.fromkeys(("documents", "chat_template_kwargs"), "{} would have to reach the chat template: not supported"),
}
"""Why a row that carries such a key is refused, where more can be said than that nobody reads it."""


@dataclass(frozen=True)
class FormattedRow:
    """One row in one form: a conversation, or with `chosen` and `rejected` the prompt of a pair."""

    format: str
    messages: tuple[Message, ...]
    chosen: tuple[Message, ...] | None = None
    rejected: tuple[Message, ...] | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    read: frozenset[str] = frozenset()
    """The keys of the row that this was made of."""


def read_row(record: Mapping[str, Any], ignored: Collection[str] = ()) -> FormattedRow:
    """Recognise a row. Raises RejectedError with what is missing, or with what it carries that cannot be learnt.

    `ignored` are keys that a person said are of no account (see `keys`).
    """
    fields = Fields(without(record, ignored) if ignored else record, "", OF_ROW)
    for key in sorted(_REASONS.keys() & fields.values.keys()):
        if not is_empty(fields.values[key]):
            raise RejectedError(_REASONS[key].format(key))
    if "completions" in fields and "labels" in fields:
        raise RejectedError("a row of stepwise supervision (completions, labels): not trained")
    row = replace(_read(fields), read=frozenset(fields.read))
    if not (unread := fields.unread()):
        return row
    harmless = OF_FORMAT.get("pair" if row.chosen is not None else row.format, ())
    read = [*row.messages, *(row.chosen or ()), *(row.rejected or ())]
    texts = {message["content"].strip() for message in read}
    unread = [key for key in unread if key not in harmless and not _repeats(fields, key, texts)]
    if lost := [key for key in unread if key in TEXTS]:
        raise RejectedError(f"the text of {lost[0]} would not be learnt beside a {row.format} row")
    if unread:
        raise RejectedError(unread_keys(unread))
    return row


def _read(fields: Fields) -> FormattedRow:
    tools, system = _tools(fields.take("tools", "functions")), _system(fields.take("system", "system_prompt"))
    if "chosen" in fields or "rejected" in fields:
        if missing := [key for key in ("chosen", "rejected") if key not in fields]:
            raise RejectedError(f"a pair of answers without {missing[0]}")
        return _pair(fields, system, tools)
    for key in LISTS:
        if key in fields:
            value = fields.take(key)
            found = _led_by(system, messages_of(value, key))
            return FormattedRow("sharegpt" if _is_sharegpt(value) else "messages", found, tools=tools)
    for name, (questions, answers) in _FORMATS.items():
        question, answer = fields.first(*questions), fields.first(*answers)
        if question is None:
            continue
        if answer is None:
            # Some write a question as an instruction with an answer beside it; the next format may fit.
            if any(fields.first(*others) for other, (others, _) in _FORMATS.items() if other != name):
                continue
            raise RejectedError(f"{question} without {' or '.join(answers)}")
        asked = _asked(fields, questions)
        answered = _answer(fields.take(*answers), answer)
        return FormattedRow(name, (*_led_by(system, asked), *answered), tools=tools)
    if "text" in fields:
        if system or tools:
            raise RejectedError("a text beside a system prompt or tools, and nothing that is asked")
        if not isinstance(text := fields.take("text"), str):
            raise RejectedError("text is not text")
        return FormattedRow("text", _answer(text, "text"))
    for answer, question in (
        *(("completion", "prompt"), ("output", "instruction"), ("response", "prompt"), ("answer", "question")),
    ):
        if answer in fields:
            raise RejectedError(f"{answer} without {question}")
    keys = ", ".join(list(fields.values)[:8]) or "none"
    raise RejectedError(f"no known format: its keys are {keys}; ec1 corpus import --columns says what they are")


def _repeats(fields: Fields, key: str, texts: set[str]) -> bool:
    """Whether an unread value says only what is read elsewhere: one of the texts, several, or all of them as one."""
    value = fields.values[key]
    if isinstance(value, str) and (key in TEXTS or len(value.strip()) >= _LONG):
        return value.strip() in texts or (key == "text" and all(text in value for text in texts))
    if key in TEXTS and isinstance(value, list | Mapping):
        try:
            return all(message["content"].strip() in texts for message in messages_of(value, key))
        except RejectedError:
            return False
    return False


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
    if len(item) == 2 and isinstance(text := item.get("content", item.get("value")), str):
        # Most messages by far: who, and what.
        plain = _ROLES.get(str(item.get("role", item.get("from"))))
        if plain is not None:
            return {"role": plain, "content": text}
    fields = Fields(item, "message.", OF_MESSAGE)
    speaker = fields.take("role", "from")
    if speaker is None:
        raise RejectedError(f"{what} holds a message without role (or from)")
    message: Message
    if speaker == "function_call":
        calls = _from_json(str(fields.take("value", "content") or ""), "function_call")
        message = {"role": "assistant", "content": "", "tool_calls": _calls(calls)}
    else:
        role = _ROLES.get(speaker.strip().lower()) if isinstance(speaker, str) else None
        if role is None:
            raise RejectedError(f"{what} holds a message of an unknown role")
        message = _said(fields, role, what)
    trained = _trained(fields, message["role"])
    fields.finish()
    return message | trained


def _said(fields: Fields, role: str, what: str) -> Message:
    content, reasoning = _content(fields.take("content", "value", "text"), what)
    message: Message = {"role": role, "content": "" if content is None else content}
    # Of anybody else a template shows neither calls nor reasoning: there, they are keys that nobody reads.
    if role == "assistant":
        thoughts = [*_content(fields.take("reasoning_content", "reasoning", "thinking"), what), reasoning]
        different = list(dict.fromkeys(text for text in thoughts if text and text.strip()))
        if len(different) > 1:
            raise RejectedError(f"{what} holds a message with two different reasonings")
        if different:
            message["reasoning_content"] = different[0]
        if calls := fields.take("tool_calls", "function_call"):
            message["tool_calls"] = _calls(calls)
    elif reasoning:
        raise RejectedError(f"{what} holds reasoning of somebody who is not the assistant")
    if content is None and "tool_calls" not in message:
        raise RejectedError(f"{what} holds a message without content (or value)")
    for key in ("tool_call_id", "name") if role == "tool" else ():
        if isinstance(value := fields.take(key), str):
            message[key] = value
    return message


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
            texts.append(part)
            continue
        if not isinstance(part, Mapping):
            raise RejectedError(f"{what} holds a part of a message that is not text")
        fields = Fields(part, "part.", OF_PART)
        kind = fields.take("type")
        thought = kind in ("thinking", "reasoning")
        said = fields.take(*(("thinking",) if thought else ()), "text", "value")
        if not isinstance(said, str) or not (thought or kind in ("text", "input_text", "output_text")):
            raise RejectedError(f"{what} holds a part of a message that is not text")
        fields.finish()
        (reasoning if thought else texts).append(said)
    return "".join(texts), "\n".join(reasoning) or None


def _trained(fields: Fields, role: str) -> dict[str, bool]:
    """Whether the row itself says that this message counts: OpenAI's `weight`, Axolotl's `train` and `training`,
    LLaMA-Factory's `loss_weight`."""
    keys = ("weight", "train", "training", "loss_weight")
    found = [(key, fields.take(key)) for key in keys if key in fields]
    if not found:
        return {}
    if any(not isinstance(value, int | float) or value not in (0, 1) for _, value in found):
        raise RejectedError(f"the {found[0][0]} of a message is neither 0 nor 1")
    values = {bool(value) for _, value in found}
    if len(values) > 1:
        raise RejectedError(f"the {found[0][0]} and the {found[1][0]} of a message say different things")
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
        call = Fields(item, "call.", OF_CALL) if isinstance(item, Mapping) else None
        # Some write what is called beside the call's id, most below `function`.
        inner = None if call is None else call.take("function")
        function = call if inner is None else Fields(inner, "call.", ()) if isinstance(inner, Mapping) else None
        name = None if function is None else function.take("name")
        if call is None or function is None or not isinstance(name, str):
            raise RejectedError("tool_calls holds a call without a function's name")
        if call.take("type") not in (None, "function"):
            raise RejectedError("tool_calls holds a call of something that is not a function")
        arguments = function.take("arguments", "parameters")
        arguments = {} if arguments is None else arguments
        if isinstance(arguments, str):
            # Templates write a mapping as JSON themselves; text that is not JSON stays as it is.
            try:
                loaded = json.loads(arguments) if arguments.strip() else {}
                arguments = loaded if isinstance(loaded, dict) else arguments
            except (ValueError, RecursionError):
                pass
        made = {"type": "function", "function": {"name": name, "arguments": arguments}}
        identifier = call.take("id")
        calls.append({"id": identifier, **made} if isinstance(identifier, str) else made)
        call.finish()
        function.finish()
    return calls


def _tools(value: Any) -> tuple[dict[str, Any], ...] | None:
    if isinstance(value, str):
        value = _from_json(value, "tools") if value.strip() else None
    if not value:
        return None
    if not isinstance(value, list) or not all(isinstance(tool, Mapping) for tool in value):
        raise RejectedError("tools is not a list of definitions")
    return tuple(dict(tool) if "function" in tool else {"type": "function", "function": dict(tool)} for tool in value)


def _system(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise RejectedError("system is not text")
    return value or None


def _led_by(system: str | None, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    if system is None:
        return messages
    if messages and messages[0]["role"] == "system":
        if messages[0]["content"].strip() != system.strip():
            raise RejectedError("system and the first message say different things")
        return messages
    return ({"role": "system", "content": system}, *messages)


def _asked(fields: Fields, keys: Sequence[str]) -> tuple[Message, ...]:
    """The turns before an answer: a text with Alpaca's input and history, or messages."""
    value, key = fields.take(*keys), fields.first(*keys) or keys[0]
    if not isinstance(value, str):
        return messages_of(value, key)
    # Text beside a prompt is not part of it: nothing says where it would go.
    extra = "" if key in ("prompt", "input") else fields.take("input", "context") or ""
    if not isinstance(extra, str):
        raise RejectedError("input is not text")
    earlier: list[Message] = []
    history = fields.take("history") or []
    for turn in history if isinstance(history, list) else [None]:
        if not isinstance(turn, Sequence) or len(turn) != 2 or not all(isinstance(text, str) for text in turn):
            raise RejectedError("history is not a list of a question and its answer each")
        earlier += [{"role": "user", "content": turn[0]}, {"role": "assistant", "content": turn[1]}]
    asked = "\n\n".join(text for text in (value, extra) if text.strip())
    return (*earlier, {"role": "user", "content": asked})


def _answer(value: Any, what: str) -> tuple[Message, ...]:
    if isinstance(value, str):
        return ({"role": "assistant", "content": value},)
    return messages_of(value, what)


def _pair(fields: Fields, system: str | None, tools: tuple[dict[str, Any], ...] | None) -> FormattedRow:
    """Every shape in which the hub keeps preferences: the prompt apart, inside both answers, or both."""
    chosen, rejected = (_side(fields.take(key), key) for key in ("chosen", "rejected"))
    key = fields.first("prompt", "messages", "conversations", "instruction", "question", "query", "input")
    if key is not None and is_empty(fields.values[key]):
        key = None
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
        if not all(message.get("train", True) for message in side):
            raise RejectedError(f"{name} is marked not to be trained")
    prompt = () if key is None else _asked(fields, (key,))
    shape = "prompt/chosen/rejected" if key and not inside else "chosen/rejected"
    if inside:
        # One of the two may leave out what stands before the last turns.
        longer, shorter = (inside, prompt) if len(inside) >= len(prompt) else (prompt, inside)
        if [_turn(message) for message in longer[len(longer) - len(shorter) :]] != [_turn(each) for each in shorter]:
            raise RejectedError(f"the turns inside chosen are not those of {key}")
        prompt = longer
    if not prompt:
        raise RejectedError("a pair of answers without prompt (or turns inside chosen and rejected)")
    return FormattedRow(shape, _led_by(system, prompt), chosen, rejected, tools)


def _turn(message: Message) -> tuple[str, str]:
    return message["role"], message["content"].strip()


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


def _is_sharegpt(value: Any) -> bool:
    return isinstance(value, Sequence) and bool(value) and isinstance(value[0], Mapping) and "from" in value[0]


def _from_json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise RejectedError(f"{what} is text that is not JSON") from None
