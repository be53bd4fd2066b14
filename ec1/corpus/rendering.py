"""Rendering: an example as the tokens that a model reads, and which of them it learns from.

Belongs here: the base model's own chat template, the place of each answer in its text, and the proof that the template
shows what a row carries. Does not: formats (formats), what a training does with the tokens (`ec1.training`).
"""

import contextlib
import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ec1.corpus.formats import Message
from ec1.corpus.tuples import Example
from ec1.errors import RejectedError

TrainOn = Literal["all", "last"]

PROBE = "EC1PROBE{}X"
"""Stands for a text when a template is asked whether it shows it: no template changes letters and digits."""


@dataclass(frozen=True)
class Rendered:
    """A conversation as text, and the parts of it that are learnt, as `[start, end)` in characters."""

    text: str
    answers: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Answer:
    """Where one stands, and what of the question for it the text lacks there."""

    start: int
    end: int
    opened: str = ""


@dataclass(frozen=True)
class Encoded:
    """The same as tokens: `mask` is 1 for each token that is learnt."""

    input_ids: list[int]
    mask: list[int]


def render(
    tokenizer: Any, messages: Sequence[Message], tools: Sequence[Any] | None = None, *, ask: bool = False
) -> str:
    """The text that serving and training see, by the tokenizer's own template. `ask`: up to where an answer goes."""
    plain = [{key: value for key, value in message.items() if key != "train"} for message in messages]
    for message in plain:
        # Each family's template reads one of these.
        if (thought := message.get("reasoning_content")) is not None:
            message |= {"reasoning": thought, "thinking": thought}
    return str(
        tokenizer.apply_chat_template(
            plain, tools=list(tools) if tools else None, tokenize=False, add_generation_prompt=ask
        )
    )


def rendered(tokenizer: Any, example: Example, train_on: TrainOn) -> Rendered:
    """An SFT example as text, with the answers that count; of one without a prompt the text alone, all of which counts.
    Raises RejectedError if the template loses part of it."""
    if not example["prompt"]:
        opening = tokenizer.decode(tokenizer("")["input_ids"])
        text = f"{opening}{example['completion'][0]['content']}{tokenizer.eos_token or ''}"
        return Rendered(text, ((0, len(text)),))
    messages, tools = [*example["prompt"], *example["completion"]], example.get("tools")
    with rejecting():
        text = render(tokenizer, messages, tools)
        _require_all_shown(tokenizer, messages, tools, text)
        found = [_answer(tokenizer, messages, tools, text, place) for place in _trained(messages, train_on)]
    if not found or found[-1].end < len(text):
        return Rendered(text, tuple((each.start, each.end) for each in found))
    *earlier, last = found
    added = _closed(last.opened)
    text = f"{text[: last.start]}{added}{text[last.start :]}"
    if (said := messages[-1]["content"].strip()) and text.rstrip().endswith(said):
        # Without a mark behind it nothing would teach where to end.
        text += tokenizer.eos_token or ""
    start = last.start + (len(last.opened) if added else 0)
    return Rendered(text, (*((each.start, each.end) for each in earlier), (start, len(text))))


def rendered_sides(tokenizer: Any, example: Example, names: Sequence[str]) -> list[str]:
    """The prompt with each of its answers, as text; without any, as a model is asked. Raises RejectedError as
    `rendered` does."""
    with rejecting():
        if not names:
            _require_all_shown(
                tokenizer, example["prompt"], None, asked := render(tokenizer, example["prompt"], ask=True)
            )
            return [asked]
        texts, asked = [], render(tokenizer, example["prompt"], ask=True)
        for name in names:
            messages = [*example["prompt"], *example[name]]
            texts.append(render(tokenizer, messages))
            _require_all_shown(tokenizer, messages, None, texts[-1])
            if asked[_common_prefix(asked, texts[-1]) :].strip():
                # TRL would take what the question has more for the beginning of the answer.
                raise RejectedError("the chat template opens a thought with each question, and shows none of the pair")
        return texts


@contextlib.contextmanager
def rejecting() -> Iterator[None]:
    """Whatever a template does with a row is that row's rejection: templates are programs that others wrote."""
    from jinja2.exceptions import TemplateError

    try:
        yield
    except (RejectedError, MemoryError):
        raise
    except TemplateError:
        raise RejectedError("the chat template refuses its sequence of roles") from None
    except Exception as error:  # noqa: BLE001
        raise RejectedError(f"the chat template fails on it ({type(error).__name__})") from None


def encode(tokenizer: Any, items: Sequence[Rendered]) -> list[Encoded]:
    """Texts as tokens. A token counts if it lies inside an answer."""
    if not items:
        return []
    batch = tokenizer([item.text for item in items], add_special_tokens=False, return_offsets_mapping=True)
    encoded = []
    for item, ids, offsets in zip(items, batch["input_ids"], batch["offset_mapping"], strict=True):
        mask = [0] * len(ids)
        answers = iter(item.answers)
        start, end = next(answers, (len(item.text), len(item.text)))
        for place, (first, last) in enumerate(offsets):
            while first >= end and end < len(item.text):
                start, end = next(answers, (len(item.text), len(item.text)))
            mask[place] = int(start <= first < last <= end)
        encoded.append(Encoded(ids, mask))
    return encoded


def _trained(messages: Sequence[Message], train_on: TrainOn) -> list[int]:
    places = [
        place for place, message in enumerate(messages) if message["role"] == "assistant" and message.get("train", True)
    ]
    return places if train_on == "all" else places[-1:]


def _answer(tokenizer: Any, messages: Sequence[Message], tools: Sequence[Any] | None, text: str, place: int) -> _Answer:
    """Where an answer stands in the whole text: from where the model is asked for it to the end of its turn."""
    if place == 0:
        raise RejectedError("opens with an answer that nothing asks for")
    last = place == len(messages) - 1
    after = text if last else render(tokenizer, messages[: place + 1], tools)
    before = render(tokenizer, messages[:place], tools, ask=True)
    if text.startswith(after):
        shared = _common_prefix(before, after)
        # What asks for an answer may open a thought that this answer does not have: it begins where the two part.
        if shared == len(before) or shared > len(render(tokenizer, messages[:place], tools)):
            return _Answer(shared, len(after), before[shared:])
    return _Answer(*_found_by_exchange(tokenizer, messages, tools, text, place))


def _closed(opened: str) -> str:
    """The opening of a thought with its end: of a template that opens one whenever it asks, and shows none of an answer
    without a thought (DeepSeek R1), served answers have to end it first. Nothing if it is none."""
    tag = re.fullmatch(r"\s*<(\w+)>\s*", opened)
    return f"{opened}</{tag[1]}>\n\n" if tag else ""


def _found_by_exchange(
    tokenizer: Any, messages: Sequence[Message], tools: Sequence[Any] | None, text: str, place: int
) -> tuple[int, int]:
    """For templates that show a turn otherwise once others follow: where the text changes if the answer does."""
    probe = PROBE.format(place)
    changed = [dict(message) for message in messages]
    changed[place] = {"role": "assistant", "content": probe}
    other = render(tokenizer, changed, tools)
    found = other.find(probe)
    if found < 0 or other.count(probe) > 1:
        raise RejectedError("the chat template does not show where an answer begins and ends")
    tail = other[found + len(probe) :]
    start = _common_prefix(text, other[:found])
    if start < found or not text.endswith(tail) or len(text) - len(tail) < start:
        raise RejectedError("the chat template does not show where an answer begins and ends")
    # The marks that end a turn are learnt too: up to what the next message begins with.
    end = len(text) - len(tail)
    alone = render(tokenizer, changed[: place + 1], tools)
    closing = alone[alone.find(probe) + len(probe) :]
    return start, end + _common_prefix(tail, closing)


def _require_all_shown(tokenizer: Any, messages: list[Message], tools: Sequence[Any] | None, text: str) -> None:
    """Raises RejectedError, naming what is missing, if the template leaves out something that the row carries."""
    for message in messages:
        # Of earlier answers many templates leave out the thought, as serving will.
        if message["role"] != "tool" and message["content"].rpartition("</think>")[2].strip() not in text:
            raise RejectedError(f"the chat template leaves out or changes a {message['role']} message")
    if not tools and not any(
        {"tool_calls", "reasoning_content"} & message.keys() or message["role"] == "tool" for message in messages
    ):
        return
    probed, wanted = copy.deepcopy(messages), {}
    for place, message in enumerate(probed):
        if message["role"] == "tool":
            wanted[f"{place}t"] = "answers of tools"
            message["content"] = PROBE.format(f"{place}t")
        for number, call in enumerate(message.get("tool_calls", ())):
            wanted[f"{place}c{number}"] = "calls of tools"
            call["function"]["name"] = PROBE.format(f"{place}c{number}")
    if "reasoning_content" in probed[-1]:
        # Of earlier turns many templates leave the reasoning out, as serving will.
        wanted["r"] = "reasoning"
        probed[-1]["reasoning_content"] = PROBE.format("r")
    named = copy.deepcopy(list(tools or ()))
    for number, tool in enumerate(named):
        wanted[f"d{number}"] = "tools"
        tool.setdefault("function", {})["name"] = PROBE.format(f"d{number}")
    other = render(tokenizer, probed, named)
    for key, what in wanted.items():
        if PROBE.format(key) not in other:
            raise RejectedError(f"the base model's chat template has no place for {what}")


def _common_prefix(left: str, right: str) -> int:
    """How many characters two texts have in common at their beginning."""
    if left.startswith(right) or right.startswith(left):
        return min(len(left), len(right))
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[:middle] == right[:middle] else (low, middle - 1)
    return low
