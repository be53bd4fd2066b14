"""One documented row of each format that public data sets come in, with what has to become of it.

Texts are ours; the keys and their nesting are those of the data sets and documents that are named.
"""

from typing import Any

HISTORY = [
    {"role": "user", "content": "Name a river."},
    {"role": "assistant", "content": "The Elbe."},
    {"role": "user", "content": "Another one."},
]
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}

# name -> (a row, what it becomes): "sft" or "pair" with the last answer that is learnt, or "refused" and part of why.
ROWS: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "TRL messages": ({"messages": [*HISTORY, {"role": "assistant", "content": "The Oder."}]}, ("sft", "The Oder.")),
    "OpenAI weight": (
        {
            "messages": [
                {"role": "user", "content": "Name a river."},
                {"role": "assistant", "content": "Rhine, I guess?", "weight": 0},
                {"role": "user", "content": "Sure?"},
                {"role": "assistant", "content": "The Rhine.", "weight": 1},
            ]
        },
        ("sft", "The Rhine."),
    ),
    "OpenAI weight, none trained": (
        {"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hm.", "weight": 0}]},
        ("refused", "no answer is to be trained"),
    ),
    "OpenAI developer role": (
        {
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": "Name a river."},
                {"role": "assistant", "content": "The Elbe."},
            ]
        },
        ("sft", "The Elbe."),
    ),
    "OpenAI content parts": (
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Name "}, {"type": "text", "text": "a river."}]},
                {"role": "assistant", "content": [{"type": "text", "text": "The Elbe."}]},
            ]
        },
        ("sft", "The Elbe."),
    ),
    "OpenAI image part": (
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file.png"}}]},
                {"role": "assistant", "content": "A river."},
            ]
        },
        ("refused", "not text"),
    ),
    "OpenAI tools": (
        {
            "messages": [
                {"role": "user", "content": "Weather in Ulm?"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "get_weather", "arguments": '{"city": "Ulm"}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "21 degrees"},
                {"role": "assistant", "content": "It is 21 degrees in Ulm."},
            ],
            "tools": [WEATHER],
        },
        ("sft", "It is 21 degrees in Ulm."),
    ),
    "reasoning_content": (
        {
            "messages": [
                {"role": "user", "content": "2 + 2?"},
                {"role": "assistant", "reasoning_content": "Two and two.", "content": "4"},
            ]
        },
        ("sft", "4"),
    ),
    "Axolotl train flag": (
        {
            "conversations": [
                {"from": "human", "value": "Name a river."},
                {"from": "gpt", "value": "The Main.", "train": False},
                {"from": "human", "value": "Another."},
                {"from": "gpt", "value": "The Lech.", "train": True},
            ]
        },
        ("sft", "The Lech."),
    ),
    "ShareGPT": (
        {"conversations": [{"from": "human", "value": "Name a river."}, {"from": "gpt", "value": "The Isar."}]},
        ("sft", "The Isar."),
    ),
    "LLaMA-Factory ShareGPT with tools": (
        {
            "conversations": [
                {"from": "human", "value": "Weather in Ulm?"},
                {"from": "function_call", "value": '{"name": "get_weather", "arguments": {"city": "Ulm"}}'},
                {"from": "observation", "value": "21 degrees"},
                {"from": "gpt", "value": "21 degrees."},
            ],
            "system": "Be brief.",
            "tools": '[{"name": "get_weather", "description": "", "parameters": {}}]',
        },
        ("sft", "21 degrees."),
    ),
    "Alpaca": (
        {
            "instruction": "Translate.",
            "input": "Fluss",
            "output": "river",
            "text": "### Instruction:\nTranslate.\n\nFluss\n\n### Response:\nriver",
        },
        ("sft", "river"),
    ),
    "Alpaca with history (LLaMA-Factory)": (
        {
            "instruction": "Another one.",
            "input": "",
            "output": "The Oder.",
            "system": "Be brief.",
            "history": [["Name a river.", "The Elbe."]],
        },
        ("sft", "The Oder."),
    ),
    "Dolly": (
        {
            "instruction": "Which river?",
            "context": "Ulm lies on the Danube.",
            "response": "The Danube.",
            "category": "qa",
        },
        ("sft", "The Danube."),
    ),
    "prompt/completion": ({"prompt": "Name a river.", "completion": "The Elbe."}, ("sft", "The Elbe.")),
    "prompt/response": ({"prompt": "Name a river.", "response": "The Elbe."}, ("sft", "The Elbe.")),
    "question/answer (GSM8K)": ({"question": "2 + 2?", "answer": "It is #### 4"}, ("sft", "It is #### 4")),
    "OpenOrca": (
        {"id": "cot.1", "system_prompt": "Be brief.", "question": "2 + 2?", "response": "4"},
        ("sft", "4"),
    ),
    "MetaMath": ({"query": "2 + 2?", "response": "4", "type": "GSM"}, ("sft", "4")),
    "plain text": ({"text": "Rivers flow."}, ("refused", "text alone")),
    "TRL preference, explicit prompt": (
        {
            "prompt": [{"role": "user", "content": "Sky?"}],
            "chosen": [{"role": "assistant", "content": "Blue."}],
            "rejected": [{"role": "assistant", "content": "Green."}],
        },
        ("pair", "Blue."),
    ),
    "TRL preference, implicit prompt": (
        {
            "chosen": [{"role": "user", "content": "Sky?"}, {"role": "assistant", "content": "Blue."}],
            "rejected": [{"role": "user", "content": "Sky?"}, {"role": "assistant", "content": "Green."}],
        },
        ("pair", "Blue."),
    ),
    "UltraFeedback": (
        {
            "prompt": "Sky?",
            "prompt_id": "0f",
            "chosen": [{"role": "user", "content": "Sky?"}, {"role": "assistant", "content": "Blue."}],
            "rejected": [{"role": "user", "content": "Sky?"}, {"role": "assistant", "content": "Green."}],
            "messages": [{"role": "user", "content": "Sky?"}, {"role": "assistant", "content": "Blue."}],
            "score_chosen": 8.5,
            "score_rejected": 7.5,
        },
        ("pair", "Blue."),
    ),
    "hh-rlhf": (
        {
            "chosen": "\n\nHuman: Sky?\n\nAssistant: Which one?\n\nHuman: Ours.\n\nAssistant: Blue.",
            "rejected": "\n\nHuman: Sky?\n\nAssistant: Which one?\n\nHuman: Ours.\n\nAssistant: Green.",
        },
        ("pair", "Blue."),
    ),
    "Orca-DPO": (
        {"system": "Be brief.", "question": "Sky?", "chosen": "Blue.", "rejected": "Green."},
        ("pair", "Blue."),
    ),
    "LLaMA-Factory ranking": (
        {
            "conversations": [{"from": "human", "value": "Sky?"}],
            "chosen": {"from": "gpt", "value": "Blue."},
            "rejected": {"from": "gpt", "value": "Green."},
        },
        ("pair", "Blue."),
    ),
    "LLaMA-Factory Alpaca ranking": (
        {"instruction": "Sky?", "input": "", "chosen": "Blue.", "rejected": "Green."},
        ("pair", "Blue."),
    ),
    "preference of two prompts": (
        {
            "prompt": "Sky?",
            "chosen": [{"role": "user", "content": "Sea?"}, {"role": "assistant", "content": "Blue."}],
            "rejected": [{"role": "user", "content": "Sea?"}, {"role": "assistant", "content": "Green."}],
        },
        ("refused", "not those of prompt"),
    ),
    "KTO, bad answer": ({"prompt": "Sky?", "completion": "Green.", "label": False}, ("refused", "KTO")),
    "KTO, good answer": ({"prompt": "Sky?", "completion": "Blue.", "label": True}, ("refused", "KTO")),
    "LLaMA-Factory KTO": (
        {
            "messages": [{"role": "user", "content": "Sky?"}, {"role": "assistant", "content": "Green."}],
            "kto_tag": False,
        },
        ("refused", "KTO"),
    ),
    "TRL stepwise": (
        {"prompt": "2 + 2?", "completions": ["Add.", "5"], "labels": [True, False]},
        ("refused", "stepwise"),
    ),
    "prompt only": ({"prompt": "Sky?"}, ("refused", "prompt without completion or response")),
    "chosen only": ({"prompt": "Sky?", "chosen": "Blue."}, ("refused", "without rejected")),
    "no answer at the end": ({"messages": HISTORY}, ("refused", "does not end with the assistant")),
    "message without role": ({"messages": [{"content": "Sky?"}]}, ("refused", "without role")),
    "unknown role": ({"messages": [{"role": "narrator", "content": "Sky?"}]}, ("refused", "unknown role")),
    "pictures": (
        {"prompt": "What is it?", "completion": "A river.", "images": ["a.png"]},
        ("refused", "images: only text"),
    ),
    "classification": ({"sentence": "Nice.", "idx": 3}, ("refused", "no known format")),
}
