"""Which of vLLM's parsers reads a model's tool calls: the one whose marks stand in the model's own chat template.

Belongs here: the marks. Does not: reading calls, which vLLM does.
https://docs.vllm.ai/en/stable/features/tool_calling.html
"""

from pathlib import Path

from ec1.errors import InputError
from ec1.files import read_json

# The more particular ones first: several models write `<tool_call>`, with something else in it.
_MARKS = (
    ("<function=", "qwen3_coder"),
    ("<arg_key>", "glm45"),
    ("<tool_call>", "hermes"),
    ("[TOOL_CALLS]", "mistral"),
    ("<function_calls>", "olmo3"),
    ("<|python_tag|>", "llama3_json"),
)


def tool_parser_of(model: Path) -> str | None:
    """The parser for the model in a folder; None if its template shows no calls, or calls of a kind not known here:
    then `inference.tool_parser` names one."""
    template = _template(model)
    return next((parser for mark, parser in _MARKS if mark in template), None)


def _template(model: Path) -> str:
    try:
        return (model / "chat_template.jinja").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    try:
        settings = read_json(model / "tokenizer_config.json")
    except (OSError, InputError):
        return ""
    return str(settings.get("chat_template") or "") if isinstance(settings, dict) else ""
