"""Every format of rows that the hub keeps: what it becomes, or why it is refused. Never anything in between."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hub_formats import ROWS, WEATHER
from learnt_tokens import learnt
from row_shapes import SHAPES

from ec1.corpus.cleaning import scrub_example
from ec1.corpus.formats import read_row
from ec1.corpus.rendering import render, rendered, rendered_sides
from ec1.corpus.tuples import Example, example_of, parse_record, sources_of, texts_of
from ec1.errors import RejectedError

QWEN_LIKE = (
    "{%- if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{%- set ns = namespace(last=-1) %}{%- for m in messages %}{%- if m.role == 'user' %}"
    "{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n"
    "{%- if m.reasoning_content is defined and loop.index0 > ns.last %}<think>\n{{ m.reasoning_content }}\n</think>\n"
    "{% endif %}{{ m.content | trim }}"
    "{%- for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""What many served templates do: they show tools and calls, trim, and leave the reasoning of earlier turns out."""


@pytest.fixture(scope="module")
def tokenizer(small_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(small_model)


@pytest.fixture(scope="module")
def able(small_model: Path) -> Any:
    """The same tokenizer with a template that has a place for tools, calls and reasoning."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(small_model)
    tokenizer.chat_template = QWEN_LIKE
    return tokenizer


def example(record: dict[str, Any], objective: Any = "sft") -> Example:
    return example_of(parse_record(record), objective)


def test_more_than_a_hundred_documented_shapes_are_in_the_table() -> None:
    assert len(ROWS | SHAPES) == len(ROWS) + len(SHAPES) >= 110


@pytest.mark.parametrize("name", ROWS | SHAPES)
def test_a_format_becomes_what_it_means_or_is_refused(name: str) -> None:
    row, (outcome, expected) = (ROWS | SHAPES)[name]
    if outcome == "refused":
        with pytest.raises(RejectedError, match=re.escape(expected)):
            example(row)
        return
    found = example(row, "dpo" if outcome == "pair" else "sft")
    if outcome == "pair":
        assert [found[side][-1]["content"] for side in ("chosen", "rejected")] == [expected, "Green."]
        assert [message["role"] for message in found["chosen"]] == ["assistant"]
        assert found["prompt"][-1]["content"].removeprefix("Answer.\n\n") in ("Sky?", "Ours.")
    else:
        assert found["completion"][-1]["content"] == expected
    assert found["prompt"][-1]["role"] in ("user", "tool")


def test_a_pair_whose_prompt_stands_inside_keeps_the_turns_before_it() -> None:
    found = example(ROWS["hh-rlhf"][0], "dpo")
    assert [message["content"] for message in found["prompt"]] == ["Sky?", "Which one?", "Ours."]
    assert example(ROWS["Orca-DPO"][0], "dpo")["prompt"][0] == {"role": "system", "content": "Be brief."}


def test_generic_answers_may_be_short_and_diffs_may_not() -> None:
    row = {"prompt": "Sky?", "chosen": "Blue.", "rejected": "Green."}
    assert example(row, "dpo")["chosen"][0]["content"] == "Blue."
    with pytest.raises(RejectedError, match="shorter than 80"):
        example({"tuple_type": "apprenticeship-feedback"} | row, "dpo")


def test_every_answer_is_learnt_and_nothing_else(tokenizer: Any) -> None:
    found = rendered(tokenizer, example(ROWS["TRL messages"][0]), "all")
    assert learnt(tokenizer, found) == ["The Elbe.<|im_end|>\n", "The Oder.<|im_end|>\n"]
    last = rendered(tokenizer, example(ROWS["TRL messages"][0]), "last")
    assert learnt(tokenizer, last) == ["The Oder.<|im_end|>\n"]


def test_an_answer_of_weight_zero_is_read_and_not_learnt(tokenizer: Any) -> None:
    for name, wrong, right in (
        ("OpenAI weight", "Rhine, I guess?", "The Rhine."),
        ("Axolotl train flag", "The Main.", "The Lech."),
    ):
        found = rendered(tokenizer, example(ROWS[name][0]), "all")
        assert wrong in found.text
        assert learnt(tokenizer, found) == [f"{right}<|im_end|>\n"]


def test_what_comes_after_the_last_answer_that_counts_is_left_out() -> None:
    row = {
        "messages": [
            *ROWS["TRL messages"][0]["messages"],
            {"role": "user", "content": "Thanks."},
            {"role": "assistant", "content": "Bye.", "weight": 0},
        ]
    }
    assert example(row)["completion"][0]["content"] == "The Oder."


def test_tools_calls_and_reasoning_reach_a_template_that_has_a_place_for_them(able: Any, tokenizer: Any) -> None:
    tools = example(ROWS["OpenAI tools"][0])
    found = rendered(able, tools, "all")
    assert json.dumps(WEATHER, sort_keys=True)[:20] in found.text or '"get_weather"' in found.text
    assert "21 degrees<|im_end|>" in found.text
    first, second = learnt(able, found)
    assert first.startswith("<tool_call>") and '"city": "Ulm"' in first
    assert second == "It is 21 degrees in Ulm.<|im_end|>\n"
    thought = rendered(able, example(ROWS["reasoning_content"][0]), "all")
    assert learnt(able, thought) == ["<think>\nTwo and two.\n</think>\n4<|im_end|>\n"]
    # The small model's own template has no such places: training on the rest would teach something else.
    for row, what in ((tools, "tools"), (example(ROWS["reasoning_content"][0]), "reasoning")):
        with pytest.raises(RejectedError, match=f"has no place for .*{what}"):
            rendered(tokenizer, row, "all")


def test_a_template_that_shows_earlier_turns_otherwise_still_marks_each_answer(able: Any) -> None:
    row = {
        "messages": [
            {"role": "user", "content": "2 + 2?"},
            {"role": "assistant", "reasoning_content": "Easy.", "content": " 4 "},
            {"role": "user", "content": "And 3 + 3?"},
            {"role": "assistant", "reasoning_content": "Six.", "content": "6"},
        ]
    }
    found = rendered(able, example(row), "all")
    assert learnt(able, found) == ["4<|im_end|>\n", "<think>\nSix.\n</think>\n6<|im_end|>\n"]


def test_a_template_that_drops_a_message_is_noticed(able: Any) -> None:
    able.chat_template = QWEN_LIKE.replace("{{ m.content | trim }}", "{{ m.content if m.role != 'system' }}")
    try:
        with pytest.raises(RejectedError, match="leaves out or changes a system message"):
            rendered(able, example(ROWS["OpenAI developer role"][0]), "all")
    finally:
        able.chat_template = QWEN_LIKE


def test_a_secret_in_a_call_is_found_beside_its_name() -> None:
    row = json.loads(json.dumps(ROWS["OpenAI tools"][0]))
    password = "kT7#vq9!Lm2x"
    row["messages"][1]["tool_calls"][0]["function"]["arguments"] = json.dumps({"password": password, "city": "Ulm"})
    clean, found = scrub_example(example(row))
    assert password not in " ".join(texts_of(clean))
    assert sum(found.values()) == 1
    assert clean["prompt"][1]["tool_calls"][0]["function"]["arguments"]["city"] == "Ulm"
    assert clean["prompt"][2]["tool_call_id"] == clean["prompt"][1]["tool_calls"][0]["id"] == "call_1"


def test_sources_are_found_in_metadata_and_by_a_recipes_keys() -> None:
    row = {"messages": [], "metadata": {"session_id": "S1", "run": {"id": 7}}, "topic": "rivers"}
    assert sources_of(row) == ("session_id:S1",)
    assert sources_of(row, ["metadata.run.id", "topic"]) == ("metadata.run.id:7", "topic:rivers", "session_id:S1")
    assert sources_of(row | {"metadata": json.dumps(row["metadata"])}) == ("session_id:S1",)


@pytest.mark.parametrize("spelling", ["external", "External", " EXTERNAL "])
def test_what_an_external_tier_made_is_never_trained_on(spelling: str) -> None:
    row = {"prompt": "Sky?", "completion": "Blue."}
    for record in (
        row | {"tier_used": spelling},
        row | {"metadata": {"tier_used": spelling}},
        row | {"tier": spelling},
    ):
        with pytest.raises(RejectedError, match="external"):
            example(record)


def test_the_template_alone_decides_the_text(tokenizer: Any) -> None:
    found = example(ROWS["prompt/completion"][0])
    messages = found["prompt"] + found["completion"]
    assert rendered(tokenizer, found, "all").text == tokenizer.apply_chat_template(messages, tokenize=False)
    assert render(tokenizer, messages) == rendered(tokenizer, found, "all").text
    assert read_row(ROWS["prompt/completion"][0]).format == "prompt/completion"


def test_whatever_a_template_does_with_a_row_is_that_rows_rejection(able: Any) -> None:
    opens = {"messages": [{"role": "assistant", "content": "Hello."}, *ROWS["TRL messages"][0]["messages"]]}
    with pytest.raises(RejectedError, match="opens with an answer that nothing asks for"):
        rendered(able, example(opens), "all")
    assert rendered(able, example(opens), "last").text.count("<|im_start|>assistant") == 3
    for broken in ("{{ 1 + messages[0].content }}", "{{ messages[9].content.x }}", "{{ raise_exception('no') }}"):
        able.chat_template = broken
        try:
            for attempt in (
                lambda: rendered(able, example(ROWS["TRL messages"][0]), "all"),
                lambda: rendered_sides(able, example(ROWS["Orca-DPO"][0], "dpo"), ("chosen", "rejected")),
            ):
                with pytest.raises(RejectedError, match=r"the chat template (fails on it|refuses its sequence)"):
                    attempt()
        finally:
            able.chat_template = QWEN_LIKE
