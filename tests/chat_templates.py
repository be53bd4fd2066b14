"""Chat templates of other families than the sample's, as TRL ships them, and a tokenizer that knows their marks."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

TEMPLATES = {
    name.removesuffix(".jinja"): entry.read_text()
    for entry in (files("trl") / "chat_templates").iterdir()
    if (name := entry.name).endswith(".jinja") and not name.endswith("_training.jinja")
}
FOR_PARTS_ONLY = {"idefics3", "llava_next", "smolvlm"}
"""They take a content of parts, not of text."""
_MARK = re.compile(r"<\|\w+\|?>|<\w+\|>|<｜[^｜]+｜>|<(?:start|end)_of_turn>|\[/?INST\]|</s>")


def tokenizer_with_marks(model: Path) -> Any:
    """The model's, to which what templates write between texts is one token each, as it is to their own."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    marks = sorted({mark for template in TEMPLATES.values() for mark in _MARK.findall(template)})
    tokenizer.add_tokens(marks, special_tokens=True)
    # Text to these families, too.
    tokenizer.add_tokens(["<think>", "</think>"])
    return tokenizer
