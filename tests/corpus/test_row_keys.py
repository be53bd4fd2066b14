"""Nothing of a row vanishes: of rows of every format, with keys that nobody foresaw, what is not refused is rendered or
named as left out, and what is learnt is what the row says."""

import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from ec1.corpus.formats import read_row
from ec1.corpus.importing import import_rows
from ec1.corpus.keys import CONVERSATIONS, OF_CALL, OF_MESSAGE, OF_PART, OF_ROW, TEXTS
from ec1.corpus.rendering import rendered, rendered_sides
from ec1.corpus.tuples import example_of, parse_record, trainable
from ec1.errors import InputError, RejectedError

ALL_SHOWN = (
    "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}{% for m in messages %}<{{ m.role }}>"
    "{% if m.reasoning_content is defined %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ call | tojson }}{% endfor %}"
    "{{ m.tool_call_id }}{{ m.name }}</>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
"""A template that leaves nothing out: what does not show was lost before."""

UNFORESEEN = st.sampled_from(
    sorted(
        {
            *("label", "rating", "score", "train", "weight", "loss_mask", "train_detail", "value", "from", "quality"),
            *("note", "reward", "is_good", "training", "loss_weight", "thinking", "reasoning", "refusal", "x-1", "ä"),
            *("tools", "functions", "history", "images", "name", "tool_calls", "system", "documents", "kto_tag"),
            *TEXTS,
            *OF_ROW,
            *OF_MESSAGE,
            *OF_PART,
            *OF_CALL,
        }
    )
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"?": 0}, unk_token="?")))
    made.chat_template = ALL_SHOWN
    return made


@dataclass
class Made:
    """A row in the making: each text is a word that stands nowhere else. `learnt` are the words that count."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    learnt: set[str] = field(default_factory=set)
    more: set[str] = field(default_factory=set)
    """Words under keys that nobody foresaw: some are known after all, and what they mean is not decided here."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(100))

    def word(self, learnt: bool = False) -> str:
        word = f"WORD{next(self._numbers)}X"
        if learnt:
            self.learnt.add(word)
        return word

    def chance(self) -> bool:
        return bool(self.draw(st.booleans()))

    def with_more(self, values: dict[str, Any]) -> dict[str, Any]:
        """Sometimes a key that its format does not have, of any kind of value."""
        if self.draw(st.integers(0, 9)) == 0:
            key = self.draw(UNFORESEEN)
            if key in values:
                return values
            kinds: list[Callable[[], Any]] = [
                *(self.word, lambda: 0, lambda: False, lambda: 0.5, lambda: None, lambda: ""),
                *(
                    lambda: [self.word()],
                    lambda: {"text": self.word()},
                    lambda: [{"role": "user", "content": self.word()}],
                ),
                lambda: f"{self.word()} {'long ' * 60}",
            ]
            values[key] = self.draw(st.sampled_from(kinds))()
            self.more |= words(values[key])
        return values

    def content(self, learnt: bool) -> Any:
        if not self.chance():
            return self.word(learnt)
        kinds = ("text", "output_text") if learnt else ("text", "input_text")
        return [
            self.with_more(
                {
                    "type": self.draw(st.sampled_from(kinds)),
                    self.draw(st.sampled_from(["text", "value"])): self.word(learnt),
                }
            )
            for _ in range(self.draw(st.integers(1, 2)))
        ]

    def message(self, role: str, learnt: bool = False) -> dict[str, Any]:
        who, what = ("role", "content") if self.chance() else ("from", "value")
        flag = self.chance() and role == "assistant"
        learnt = learnt and not flag
        found = {who: role, what: self.content(learnt)}
        if flag:
            found[self.draw(st.sampled_from(["weight", "train", "training", "loss_weight"]))] = 0
        if role == "assistant" and self.draw(st.integers(0, 3)) == 0:
            found[self.draw(st.sampled_from(["reasoning_content", "thinking"]))] = self.content(learnt)
        if role == "assistant" and self.draw(st.integers(0, 3)) == 0:
            function = {"name": self.word(learnt), "arguments": json.dumps({"city": self.word(learnt)})}
            call = {"id": self.word(learnt), "type": "function", "function": function} if self.chance() else function
            found["tool_calls"] = [self.with_more(call)]
        return self.with_more(found)

    def talk(self, learnt: bool = True) -> list[dict[str, Any]]:
        found = [self.message("system")] if self.chance() else []
        for _ in range(self.draw(st.integers(1, 2))):
            found += [self.message("user"), self.message("assistant", learnt)]
        return found

    def answer(self, learnt: bool = True) -> Any:
        return self.word(learnt) if self.chance() else [self.message("assistant", learnt)]

    def row(self) -> dict[str, Any]:
        kind = self.draw(st.sampled_from(["talk", "question", "alpaca", "pair", "inside"]))
        row: dict[str, Any]
        if kind == "talk":
            row = {self.draw(st.sampled_from(["messages", "conversations", "conversation"])): self.talk()}
        elif kind == "question":
            keys = [("prompt", "completion"), ("prompt", "response"), ("question", "answer"), ("query", "response")]
            question, answer = self.draw(st.sampled_from(keys))
            row = {question: self.word(), answer: self.answer()}
        elif kind == "alpaca":
            row = {"instruction": self.word(), "output": self.answer()}
            row |= {key: self.word() for key in ("input", "system") if self.chance()}
            if self.chance():
                row["history"] = [[self.word(), self.word(True)]]
        elif kind == "pair":
            key = self.draw(st.sampled_from(["prompt", "question", "instruction", "input", "messages"]))
            asked = [self.message("user")] if key == "messages" or self.chance() else self.word()
            row = {key: asked, "chosen": self.answer(False), "rejected": self.answer(False)}
        else:
            turns = [{"role": "user", "content": self.word()}]
            row = {side: [*turns, self.message("assistant")] for side in ("chosen", "rejected")}
        if self.chance():
            row["tools"] = [
                {"name": self.word(), "description": self.word(), "parameters": {"a": {"enum": [self.word()]}}}
            ]
        return self.with_more(row)


def imported(rows: list[dict[str, Any]]) -> tuple[dict[int, dict[str, Any]], set[str]]:
    """The records that an import leaves, by the row's number, and the keys that it says it left out."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        try:
            done = import_rows(path, Path(folder) / "corpus")
        except InputError:
            return {}, set()
        records = map(json.loads, done.path.read_text().splitlines())
        dropped = {key.rpartition(".")[2] for key in done.dropped_keys}
        return {record["metadata"]["id"]: record for record in records}, dropped


def words(value: Any) -> set[str]:
    return set(re.findall(r"WORD\d+X", json.dumps(value)))


def under(value: Any, keys: set[str]) -> set[str]:
    """The words that stand below one of these keys."""
    if isinstance(value, dict):
        return {word for key, item in value.items() for word in (words(item) if key in keys else under(item, keys))}
    return {word for item in value for word in under(item, keys)} if isinstance(value, list) else set()


def after_the_last_answer(record: dict[str, Any], read: int) -> set[str]:
    return words(record["messages"][read:]) if "messages" in record else set()


# Not made smaller when one fails: each try is an import, and the row is printed.
@settings(deadline=None, max_examples=60, phases=[Phase.generate])
@given(data=st.data())
def test_what_a_row_says_is_rendered_or_named_as_left_out(tokenizer: Any, data: st.DataObject) -> None:
    made = [Made(data.draw) for _ in range(6)]
    rows = [each.row() | {"id": number} for number, each in enumerate(made)]
    records, dropped = imported(rows)
    for number, record in records.items():
        row, item = rows[number], parse_record(record)
        note(json.dumps(row))
        # Labels that are no names are kept as such: nobody may learn from their row.
        named = {*dropped, "access_labels"}
        beside = words([record[key] for key in record.keys() - {*CONVERSATIONS, "tools"}]) | under(row, named)
        if item.completion is None:
            if trainable(item, "dpo") is None:
                shown = words(rendered_sides(tokenizer, example_of(item, "dpo"), ("chosen", "rejected")))
                assert words(row) <= shown | beside
            continue
        example = example_of(item, "sft")
        form = rendered(tokenizer, example, "all")
        # What the row itself says is not learnt at its end is left out, and an import counts it.
        after = words(record.get("messages", [])[len(item.prompt) + 1 :])
        assert words(row) <= words(form.text) | beside | after
        learnt = words([form.text[start:end] for start, end in form.answers])
        assert learnt - made[number].more == made[number].learnt - after


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from([*CONVERSATIONS, "text", "tools", "system", "history", "label", "metadata", "kto_tag"]),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-2, 2)
            | st.text(max_size=3)
            | st.sampled_from(["[]", "{}", "user"]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["role", "content", "from", "value", "type", "text", "function", "name", "tool_calls"]
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        ),
        max_size=4,
    )
)
def test_whatever_a_row_holds_it_is_read_or_refused(row: dict[str, Any]) -> None:
    try:
        example_of(parse_record(row), "sft")
    except RejectedError as error:
        assert "\n" not in str(error) and len(str(error)) < 300


def test_a_person_can_say_which_keys_are_of_no_account() -> None:
    row = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Sky?", "lang_score": 1}]},
            {"role": "assistant", "content": "Blue.", "score": 2},
        ],
        "rating": 5,
    }
    ignored = ["message.score", "part.lang_score", "rating"]
    assert read_row(row, ignored).messages[1] == {"role": "assistant", "content": "Blue."}
    as_text = row | {"messages": json.dumps(row["messages"])}
    assert read_row(as_text, ignored).messages == read_row(row, ignored).messages
    for left in ignored:
        with pytest.raises(RejectedError, match=f"nobody reads {left}"):
            read_row(row, [key for key in ignored if key != left])


def test_our_own_tuples_are_read_whole_too() -> None:
    edit = {"tuple_type": "edit", "commit_msg": "fix: it", "diff": "+a\n", "source_commit": "0" * 40}
    assert trainable(parse_record(edit), "sft") is None
    with pytest.raises(RejectedError, match="nobody reads weight"):
        parse_record(edit | {"weight": 0})
    assert trainable(parse_record(edit | {"weight": 0}, ["weight"]), "sft") is None
