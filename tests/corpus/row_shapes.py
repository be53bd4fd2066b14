"""Rows with more in them than their format reads, as trainers, services and data sets write them, and what becomes of
each: beside `hub_formats`, whose rows carry nothing that is in doubt.

Texts are ours. Keys: https://docs.axolotl.ai/docs/dataset-formats/conversation.html, LLaMA-Factory's data/README.md and
its format of version 1, https://platform.openai.com/docs/api-reference/fine-tuning,
https://huggingface.co/docs/trl/dataset_formats, and the cards of the data sets that are named.
"""

from typing import Any

Outcome = tuple[str, str]
RIVER = {"prompt": "Name a river.", "completion": "The Elbe."}
ASK, ANSWER = {"role": "user", "content": "Name a river."}, {"role": "assistant", "content": "The Elbe."}
TALK = {"messages": [ASK, ANSWER]}
PAIR = {"prompt": "Sky?", "chosen": "Blue.", "rejected": "Green."}
SFT, DPO = ("sft", "The Elbe."), ("pair", "Blue.")


def unread(key: str) -> Outcome:
    return "refused", f"nobody reads {key}:"


def answer(**more: Any) -> dict[str, Any]:
    return {"messages": [ASK, ANSWER | more]}


def parts(*found: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [ASK, {"role": "assistant", "content": list(found)}]}


def call(**more: Any) -> dict[str, Any]:
    found = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}} | more
    return {"messages": [ASK, {"role": "assistant", "tool_calls": [found]}, {"role": "tool", "content": "1"}, ANSWER]}


TEXT = {"type": "text", "text": "The Elbe."}

# name -> (a row, what it becomes), as in `hub_formats`.
SHAPES: dict[str, tuple[dict[str, Any], Outcome]] = {
    # --- labels and scores of a row
    "KTO, label as text": (RIVER | {"label": "false"}, ("refused", "KTO")),
    "KTO, label as an integer": (RIVER | {"label": 0}, ("refused", "KTO")),
    "KTO, messages and label": (TALK | {"label": True}, ("refused", "KTO")),
    "KTO, label says nothing": (RIVER | {"label": None}, SFT),
    "rating": (RIVER | {"rating": 1}, unread("rating")),
    "score of an answer": (RIVER | {"score": 0.1}, unread("score")),
    "Label": (RIVER | {"Label": "bad"}, unread("Label")),
    "reward": (TALK | {"reward": -1.0}, unread("reward")),
    "HelpSteer": (RIVER | {"helpfulness": 0, "correctness": 0}, unread("correctness, helpfulness")),
    "upvotes": ({"question": "2 + 2?", "answer": "5"} | {"upvotes": -3}, unread("upvotes")),
    "is_correct": ({"question": "2 + 2?", "answer": "5", "is_correct": False}, unread("is_correct")),
    "loss_mask": (TALK | {"loss_mask": [0, 1]}, unread("loss_mask")),
    "sample_weight": (RIVER | {"sample_weight": 0.0}, unread("sample_weight")),
    "train of a row": (TALK | {"train": False}, unread("train")),
    "weight of a row": (TALK | {"weight": 0}, unread("weight")),
    "completion_mask": (RIVER | {"completion_mask": [0]}, unread("completion_mask")),
    "toxic (WildChat)": ({"conversation": [ASK, ANSWER], "toxic": True}, unread("toxic")),
    "openai_moderation (LMSYS)": (
        {"conversation": [ASK, ANSWER], "openai_moderation": [{"flagged": True}]},
        unread("openai_moderation"),
    ),
    "redacted (LMSYS)": ({"conversation": [ASK, ANSWER], "redacted": False}, unread("redacted")),
    "TRL reward margin": (PAIR | {"margin": 0.5}, unread("margin")),
    "skip_prompt_formatting (OpenHermes)": (
        {"conversations": [ASK, ANSWER], "skip_prompt_formatting": True},
        unread("skip_prompt_formatting"),
    ),
    "several unread keys": (RIVER | {"b": 1, "a": 2}, unread("a, b")),
    "a key with a name in it": (RIVER | {"Ana Ruiz <ana@fern.example>": 1}, unread("one that is not a word")),
    # --- flags and other keys of a message
    "Axolotl train_detail": (
        answer(train_detail=[{"begin_offset": 0, "end_offset": 2, "train": False}]),
        unread("message.train_detail"),
    ),
    "LLaMA-Factory v1 loss_weight 0": (answer(loss_weight=0.0), ("refused", "no answer is to be trained")),
    "LLaMA-Factory v1 loss_weight 1": (answer(loss_weight=1.0), SFT),
    "LLaMA-Factory v1 loss_weight between": (answer(loss_weight=0.5), ("refused", "neither 0 nor 1")),
    "LLaMA-Factory v1 parts": (
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "value": "Name a river."}], "loss_weight": 0.0},
                {"role": "assistant", "content": [{"type": "text", "value": "The Elbe."}], "loss_weight": 1.0},
            ]
        },
        SFT,
    ),
    "SlimOrca weight": (
        {
            "conversations": [
                {"from": "system", "value": "Be brief.", "weight": None},
                {"from": "human", "value": "Name a river.", "weight": 0.0},
                {"from": "gpt", "value": "The Elbe.", "weight": 1.0},
            ]
        },
        SFT,
    ),
    "weight and train differ": (answer(weight=1, train=False), ("refused", "say different things")),
    "weight as text": (answer(weight="0"), ("refused", "neither 0 nor 1")),
    "a question that is trained": (
        {"messages": [ASK | {"train": True}, ANSWER]},
        ("refused", "not an answer is marked"),
    ),
    "score of a message": (answer(score=3), unread("message.score")),
    "feedback of a message": (answer(feedback={"rating": "bad"}), unread("message.feedback")),
    "mask of a message": (answer(mask=True), unread("message.mask")),
    "refusal of a message": (answer(refusal="I cannot."), unread("message.refusal")),
    "refusal that is null": (answer(refusal=None, annotations=[], audio=None), SFT),
    "name of a speaker": ({"messages": [ASK | {"name": "Ana"}, ANSWER]}, unread("message.name")),
    "ids and times of messages": (answer(id="m2", timestamp=5, model="m"), SFT),
    "images of a message": ({"messages": [ASK | {"images": ["a.png"]}, ANSWER]}, unread("message.images")),
    "tools of a message": ({"messages": [ASK | {"tool_calls": [{"name": "x"}]}, ANSWER]}, unread("message.tool_calls")),
    "reasoning of a user": ({"messages": [ASK | {"reasoning": "Hm."}, ANSWER]}, unread("message.reasoning")),
    "content and value": (answer(value="The Oder."), ("refused", "message.content and message.value say different")),
    "content and value alike": (answer(value="The Elbe."), SFT),
    "content empty, value not": ({"messages": [ASK, {"role": "assistant", "content": "", "value": "The Elbe."}]}, SFT),
    "role and from": (answer(**{"from": "human"}), ("refused", "message.role and message.from say different")),
    "Axolotl reasoning_content as parts": (
        answer(reasoning_content=[{"type": "text", "text": "Long."}, {"type": "text", "text": "Wet."}]),
        SFT,
    ),
    "reasoning_content of another kind": (answer(reasoning_content={"text": "Long."}), ("refused", "neither text nor")),
    "two reasonings": (answer(reasoning="A.", thinking="B."), ("refused", "say different things")),
    "reasoning twice alike": (answer(reasoning="A.", reasoning_content="A."), SFT),
    "reasoning beside a thinking part": (
        {
            "messages": [
                ASK,
                {"role": "assistant", "reasoning": "A.", "content": [TEXT, {"type": "thinking", "thinking": "B."}]},
            ]
        },
        ("refused", "two different reasonings"),
    ),
    # --- parts of a message
    "Axolotl part that is not trained": (parts(TEXT | {"train": False}), unread("part.train")),
    "Axolotl part of weight 0": (parts(TEXT | {"weight": 0}), unread("part.weight")),
    "Anthropic cache_control": (parts(TEXT | {"cache_control": {"type": "ephemeral"}}), SFT),
    "Anthropic thinking": (parts({"type": "thinking", "thinking": "Wet.", "signature": "x"}, TEXT), SFT),
    "Anthropic tool_use": (parts({"type": "tool_use", "id": "1", "name": "x", "input": {}}), ("refused", "not text")),
    "a part with text and value": (parts(TEXT | {"value": "Other."}), ("refused", "part.text and part.value")),
    "a part without type (Bedrock)": (parts({"text": "The Elbe."}), ("refused", "not text")),
    "annotations of a part": (parts(TEXT | {"annotations": [{"url": "x"}]}), unread("part.annotations")),
    "refusal part": (parts({"type": "refusal", "refusal": "No."}), ("refused", "not text")),
    "audio part": (parts({"type": "input_audio", "input_audio": {"data": ""}}), ("refused", "not text")),
    "file part": (parts({"type": "file", "file": {"file_id": "f"}}), ("refused", "not text")),
    # --- calls
    "index of a call": (call(index=0), SFT),
    "a flat call": (call(function=None, name="look", arguments={}), SFT),
    "weight of a call": (call(weight=0), unread("call.weight")),
    "output in a call": (call(output="1"), unread("call.output")),
    "custom call": (call(type="custom"), ("refused", "not a function")),
    "arguments and parameters": (
        call(function={"name": "look", "arguments": {"a": 1}, "parameters": {"a": 2}}),
        ("refused", "call.arguments and call.parameters say different"),
    ),
    "function_call and tool_calls": (
        {"messages": [ASK, {"role": "assistant", "tool_calls": [{"name": "a"}], "function_call": {"name": "b"}}]},
        ("refused", "say different things"),
    ),
    # --- texts beside a format
    "context beside prompt": (RIVER | {"context": "Ulm lies on the Danube."}, ("refused", "the text of context would")),
    "input beside prompt": (RIVER | {"input": "Ulm."}, ("refused", "the text of input would")),
    "history beside messages": (TALK | {"history": [["a", "b"]]}, ("refused", "the text of history would")),
    "text beside messages": (TALK | {"text": "Something else."}, ("refused", "the text of text would")),
    "text that is the whole row": (TALK | {"text": "<s>Name a river.</s><s>The Elbe.</s>"}, SFT),
    "UltraChat": (TALK | {"prompt": "Name a river.", "prompt_id": "0f"}, SFT),
    "prompt that is no turn": (TALK | {"prompt": "Another question."}, ("refused", "the text of prompt would")),
    "completion and response": (
        RIVER | {"response": "The Oder."},
        ("refused", "completion and response say different"),
    ),
    "answer beside completion": (RIVER | {"answer": "The Oder."}, ("refused", "the text of answer would")),
    "solution beside messages (NuminaMath)": (TALK | {"solution": "The Elbe."}, unread("solution")),
    "problem that is the question": (
        {"messages": [{"role": "user", "content": "Which river is long?"}, ANSWER], "problem": "Which river is long?"},
        SFT,
    ),
    "two systems": (
        {"system": "Be brief.", "messages": [{"role": "system", "content": "Be long."}, ASK, ANSWER]},
        ("refused", "system and the first message say different"),
    ),
    "system twice alike": (
        {"system": "Be brief.", "messages": [{"role": "system", "content": "Be brief."}, ASK, ANSWER]},
        SFT,
    ),
    "system and system_prompt": (TALK | {"system": "A.", "system_prompt": "B."}, ("refused", "say different things")),
    "tools and functions": (
        TALK | {"tools": [{"name": "a"}], "functions": [{"name": "b"}]},
        ("refused", "tools and functions say different"),
    ),
    "parallel_tool_calls": (TALK | {"parallel_tool_calls": False}, SFT),
    "response_format": (TALK | {"response_format": {"type": "json_object"}}, unread("response_format")),
    "documents": (TALK | {"documents": [{"text": "x"}]}, ("refused", "chat template: not supported")),
    "messages and conversations": (
        TALK | {"conversations": [{"from": "human", "value": "Other?"}, {"from": "gpt", "value": "No."}]},
        ("refused", "the text of conversations would"),
    ),
    # --- pairs
    "input, chosen, rejected": ({"input": "Sky?", "chosen": "Blue.", "rejected": "Green."}, DPO),
    "input beside the prompt of a pair": (PAIR | {"input": "Ulm."}, ("refused", "the text of input would")),
    "instruction and input of a pair": (
        {"instruction": "Answer.", "input": "Sky?", "chosen": "Blue.", "rejected": "Green."},
        ("pair", "Blue."),
    ),
    "scores of a pair": (PAIR | {"chosen-rating": 5, "rejected_score": 1.5}, DPO),
    "a pair that is not trained": (
        PAIR | {"chosen": [{"role": "assistant", "content": "Blue.", "weight": 0}]},
        ("refused", "chosen is marked not to be trained"),
    ),
    "score of one pair": (PAIR | {"score": 5}, unread("score")),
    "a pair with a completion": (PAIR | {"completion": "Red."}, ("refused", "the text of completion would")),
    "a pair of other turns": (
        {
            "prompt": [
                {"role": "user", "content": "Sea?"},
                {"role": "assistant", "content": "?"},
                {"role": "user", "content": "Sky?"},
            ],
            "chosen": [{"role": "user", "content": "Sky?"}, {"role": "assistant", "content": "Blue."}],
            "rejected": [{"role": "user", "content": "Sky?"}, {"role": "assistant", "content": "Green."}],
        },
        DPO,
    ),
    "a pair whose earlier turns differ": (
        {
            "prompt": [{"role": "user", "content": "Sea?"}, {"role": "user", "content": "Sky?"}],
            **{
                side: [
                    {"role": "user", "content": "Land?"},
                    {"role": "user", "content": "Sky?"},
                    {"role": "assistant", "content": text},
                ]
                for side, text in (("chosen", "Blue."), ("rejected", "Green."))
            },
        },
        ("refused", "not those of prompt"),
    ),
    "OpenAI preference": (
        {"input": {"messages": [ASK]}, "preferred_output": [ANSWER], "non_preferred_output": [ANSWER]},
        ("refused", "no known format"),
    ),
    # --- what names and places a row
    "names and places": (
        RIVER | {"id": 1, "source": "x", "language": "en", "license": "mit", "created_at": "2026-01-01", "tags": ["a"]},
        SFT,
    ),
    "metadata of any kind": (RIVER | {"metadata": {"label": "anything", "deep": {"er": 1}}}, SFT),
    "meta as JSON": (RIVER | {"meta": '{"session_id": "S1"}'}, SFT),
    "MetaMath with its problem": (
        {"query": "Name a river.", "response": "The Elbe.", "type": "GSM", "original_question": "Which?"},
        SFT,
    ),
    "type of another format": (RIVER | {"type": "bad"}, unread("type")),
    # --- not rows at all
    "Gemini contents": ({"contents": [{"role": "user", "parts": [{"text": "Sky?"}]}]}, ("refused", "no known format")),
    "glaive chat": ({"system": "S", "chat": "USER: a ASSISTANT: b"}, ("refused", "no known format")),
    "LIMA": ({"conversations": ["Sky?", "Blue."]}, ("refused", "not a message")),
    "xlam": ({"query": "Weather?", "answers": "[]", "tools": "[]"}, ("refused", "query without answer or response")),
    "UltraFeedback, raw": ({"instruction": "Sky?", "completions": [{}]}, ("refused", "instruction without output")),
    "Capybara": ({"conversation": [{"input": "Sky?", "output": "Blue."}]}, ("refused", "without role")),
    "OASST": ({"text": "Sky?", "role": "prompter", "rank": 0}, unread("rank, role")),
}
