"""What a model wrote is read alike, whatever its chat template writes around answers and thoughts."""

from pathlib import Path
from typing import Any

import pytest
from chat_templates import FOR_PARTS_ONLY, TEMPLATES, tokenizer_with_marks

from ec1.answers.answering import _in_thought
from ec1.answers.wording import Wording
from ec1.corpus.rendering import render, rendered
from ec1.errors import RejectedError

ASKED = [{"role": "user", "content": "Which river?"}]
SAID, THOUGHT = "The Elbe.", "It flows to Hamburg."


@pytest.fixture(scope="module")
def tokenizer(small_model: Path) -> Any:
    return tokenizer_with_marks(small_model)


def learnt(tokenizer: Any, **more: str) -> str:
    """What a model that was trained on an answer writes after the question."""
    found = rendered(
        tokenizer, {"prompt": ASKED, "completion": [{"role": "assistant", "content": SAID, **more}]}, "last"
    )
    start, end = found.answers[-1]
    return found.text[start:end]


@pytest.mark.parametrize("family", sorted(TEMPLATES.keys() - FOR_PARTS_ONLY))
def test_an_answer_is_what_stands_behind_the_thought(tokenizer: Any, family: str) -> None:
    tokenizer.chat_template = TEMPLATES[family]
    wording = Wording.of(tokenizer)

    def read(text: str) -> str:
        return wording.text(tokenizer.encode(text, add_special_tokens=False))

    assert read(learnt(tokenizer)).rpartition("</think>")[2].strip() == SAID
    try:
        thought = learnt(tokenizer, reasoning_content=THOUGHT)
    except RejectedError:
        assert read(SAID) == SAID, "it shows no thoughts"
        return
    before, _, said = read(thought).rpartition("</think>")
    assert said.strip() == SAID and THOUGHT in before
    cut = thought[: thought.index(THOUGHT) + 8]
    asked = render(tokenizer, ASKED, ask=True)
    prompt = tokenizer.encode(asked, add_special_tokens=False)
    # One asks with a thought that is over.
    assert _in_thought(tokenizer, prompt, read(cut)) != asked.rstrip().endswith("</think>")
    assert not _in_thought(tokenizer, prompt, read(thought))


def test_a_channel_is_no_word_of_the_answer(tokenizer: Any) -> None:
    """gpt-oss names one before each answer, between tokens that no text shows."""
    tokenizer.chat_template = TEMPLATES["gptoss"]
    tokens = tokenizer.encode("<|channel|>final<|message|>42<|return|>", add_special_tokens=False)
    assert tokenizer.decode(tokens, skip_special_tokens=True) == "final42"
    assert Wording.of(tokenizer).text(tokens) == "42"


def test_a_tokenizer_without_a_template_shows_what_was_written(tokenizer: Any) -> None:
    tokenizer.chat_template = None
    assert Wording.of(tokenizer).text(tokenizer.encode(" The Elbe.\n")) == SAID
