"""Chat templates of other families than the sample's, as TRL ships them: learnt is what serving will ask for."""

from pathlib import Path
from typing import Any

import pytest
from chat_templates import FOR_PARTS_ONLY, TEMPLATES, tokenizer_with_marks
from learnt_tokens import learnt

from ec1.corpus.rendering import render, rendered, rendered_sides
from ec1.errors import RejectedError

ASKED = [
    {"role": "user", "content": "Question one?"},
    {"role": "assistant", "content": "Answer one."},
    {"role": "user", "content": "Question two?"},
]
SAID = {"role": "assistant", "content": "Answer two."}


@pytest.fixture(scope="module")
def tokenizer(small_model: Path) -> Any:
    return tokenizer_with_marks(small_model)


def learnt_of_two(tokenizer: Any, family: str, **answer: str) -> list[str]:
    """What is learnt of a conversation of two answers; `answer`: keys of the last one."""
    tokenizer.chat_template = TEMPLATES[family]
    return learnt(tokenizer, rendered(tokenizer, {"prompt": ASKED, "completion": [SAID | answer]}, "all"))


def test_there_are_families() -> None:
    assert len(TEMPLATES) >= 30


@pytest.mark.parametrize("family", sorted(TEMPLATES))
def test_an_answer_begins_where_serving_asks_for_it_and_ends_with_a_mark(tokenizer: Any, family: str) -> None:
    tokenizer.chat_template = TEMPLATES[family]
    if family in FOR_PARTS_ONLY:
        with pytest.raises(RejectedError, match="the chat template"):
            rendered(tokenizer, {"prompt": ASKED, "completion": [SAID]}, "all")
        return
    found = rendered(tokenizer, {"prompt": ASKED, "completion": [SAID]}, "all")
    asked = render(tokenizer, ASKED, ask=True)
    (start, end) = found.answers[-1]
    assert asked.startswith(found.text[:start])
    assert not asked[start:].strip()
    assert end == len(found.text)
    assert found.text.rpartition(SAID["content"])[2].strip(), "nothing would teach where to end"


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("qwen3", ["Answer one.<|im_end|>\n", "<think>\n\n</think>\n\nAnswer two.<|im_end|>\n"]),
        # It opens a thought whenever it asks.
        (
            "deepseek_r1_distill",
            ["Answer one.<｜end▁of▁sentence｜>", "</think>\n\nAnswer two.<｜end▁of▁sentence｜>"],
        ),
        # It ends no answer.
        ("glm4moe", ["\n<think></think>\nAnswer one.", "\n<think></think>\nAnswer two.<|im_end|>"]),
        # The next turn's mark begins as the end's does.
        ("phi3", ["Answer one.<|end|>\n", "Answer two.<|end|>\n<|im_end|>"]),
        ("gptoss", ["Answer one.", "<|channel|>final<|message|>Answer two.<|return|>"]),
    ],
)
def test_what_is_learnt_of_two_turns(tokenizer: Any, family: str, expected: list[str]) -> None:
    assert learnt_of_two(tokenizer, family) == expected


@pytest.mark.parametrize("family", ["qwen3", "qwen3_5_think", "gemma3", "deepseek_r1_distill"])
def test_a_pair_is_refused_if_the_question_opens_a_thought_that_it_lacks(tokenizer: Any, family: str) -> None:
    tokenizer.chat_template = TEMPLATES[family]
    example: Any = {"prompt": ASKED, "chosen": [SAID], "rejected": [SAID | {"content": "No."}]}
    if family == "deepseek_r1_distill":
        with pytest.raises(RejectedError, match="opens a thought with each question"):
            rendered_sides(tokenizer, example, ("chosen", "rejected"))
    else:
        chosen, rejected = rendered_sides(tokenizer, example, ("chosen", "rejected"))
        assert "Answer two." in chosen and "No." in rejected


@pytest.mark.parametrize("family", ["qwen3", "gptoss", "gemma4_v5", "lfm2_2_5_v2"])
def test_a_thought_is_learnt_under_whatever_name_the_template_has_for_it(tokenizer: Any, family: str) -> None:
    last = learnt_of_two(tokenizer, family, reasoning_content="Let me see.")[-1]
    assert "Let me see." in last
    assert last.index("Let me see.") < last.index("Answer two.")
