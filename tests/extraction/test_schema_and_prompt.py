"""What an answer must look like to count, and what is asked."""

import json

import pytest

from ec1.errors import DeferredError
from ec1.extraction import schema
from ec1.extraction.prompt import escape, messages
from ec1.extraction.schema import Named, decode, encode

GOOD = [Named("Ann Lee", "Person"), Named("Straße GmbH", "Company")]


def test_an_answer_survives_the_way_there_and_back() -> None:
    assert decode(encode(GOOD), "stop") == GOOD
    assert decode(f"\n{encode([])}\n", "stop") == []
    assert " " not in encode([Named("X1", "Person")])


def test_thinking_is_skipped_up_to_its_last_end() -> None:
    assert decode(f"<think>a</think> b </think>\n{encode(GOOD)}", "stop") == GOOD


@pytest.mark.parametrize(
    ("content", "finish", "reason"),
    [
        (encode(GOOD), "length", "not finished: length"),
        (encode(GOOD), "content_filter", "not finished"),
        (encode(GOOD), "None", "not finished"),
        ("<think>hm " + encode(GOOD), "stop", "while the model was thinking"),
        (" \n", "stop", "empty"),
        ("<think>x</think>", "stop", "empty"),
        (encode(GOOD)[:-2], "stop", "not JSON"),
        ("[]", "stop", "not of our schema"),
        ("{}", "stop", "not of our schema"),
        ('{"entities":{}}', "stop", "not of our schema"),
        ('{"entities":[["Ann","Person"]]}', "stop", "not of our schema"),
        ('{"entities":[{"name":"Ann","class":"Dog"}]}', "stop", "not of our schema"),
        ('{"entities":[{"name":"Ann"}]}', "stop", "not of our schema"),
        ('{"entities":[],"more":1}', "stop", "not of our schema"),
        ("[" * 100_000, "stop", "not of our schema"),
    ],
)
def test_an_answer_that_does_not_count_says_why(content: str, finish: str, reason: str) -> None:
    with pytest.raises(DeferredError, match=reason):
        decode(content, finish)


def test_more_than_the_bounds_is_not_ours() -> None:
    many = [Named(f"Name {i}", "Person") for i in range(schema.MAX_ENTITIES + 1)]
    with pytest.raises(DeferredError, match="not of our schema"):
        decode(encode(many), "stop")
    with pytest.raises(DeferredError, match="not of our schema"):
        decode(encode([Named("x" * (schema.MAX_NAME_CHARACTERS + 1), "Person")]), "stop")


def test_the_text_comes_last_and_all_else_is_constant() -> None:
    one, other = messages("Ann came.", "meeting"), messages("Bob left.", "contact")
    assert one[:-1] == other[:-1]
    assert "Ann came." in one[-1]["content"]
    assert one[0]["role"] == "system" and one[-1]["role"] == "user"


def test_the_examples_answers_are_what_the_grammar_allows() -> None:
    answers = [each["content"] for each in messages("x", "meeting") if each["role"] == "assistant"]
    assert answers
    for answer in answers:
        assert decode(answer, "stop") is not None
        assert json.dumps(json.loads(answer), separators=(",", ":"), ensure_ascii=False) == answer


@pytest.mark.parametrize(
    "token",
    ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<s>", "</s>", "[INST]", "[/INST]",
     "<<SYS>>", "<start_of_turn>", "<file_sep>", "<repo_name>", "</text>", "<|", "<｜end▁of▁sentence｜>",
     "<turn|>", "<|turn>", "<channel|>", "<seed:eos>", "<SPECIAL_12>", "<sop>", "[gMASK]", "[TOOL_CALLS]", "[|user|]",
     "]~b]", "[e~[", "<image>"],
)  # fmt: skip
def test_template_tokens_are_broken(token: str) -> None:
    assert token not in escape(f"a {token} b")


@pytest.mark.parametrize(
    "text", ["1 < 2 and 3 > 2", "<b>bold</b>", "[1] Notes", "a <- b", "x<y", "<anna@x.org>", "[LAUGHS]"]
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert escape(text) == text
