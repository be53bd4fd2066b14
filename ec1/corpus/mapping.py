"""Column mappings: which key of foreign rows is which of ours, from LLaMA-Factory, Axolotl, or the command line.

Belongs here: reading a mapping and applying it to a row. Does not: what the keys mean afterwards (formats).

https://llamafactory.readthedocs.io/en/latest/getting_started/data_preparation.html (`dataset_info.json`),
https://docs.axolotl.ai/docs/dataset-formats/conversation.html (`field_messages`, `message_property_mappings`, `roles`)
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ec1.errors import InputError, RejectedError
from ec1.strict_yaml import load_mapping

# LLaMA-Factory's name of a column -> ours.
_LLAMA_COLUMNS = {
    "prompt": "instruction",
    "query": "input",
    "response": "output",
    "history": "history",
    "messages": "conversations",
    "system": "system",
    "tools": "tools",
    "chosen": "chosen",
    "rejected": "rejected",
    "kto_tag": "kto_tag",
    "images": "images",
    "videos": "videos",
    "audios": "audios",
}
_LLAMA_ROLES = {
    "user_tag": "user",
    "assistant_tag": "assistant",
    "observation_tag": "tool",
    "function_tag": "function_call",
    "system_tag": "system",
}
_OPTIONAL = frozenset({"input", "history", "system", "tools", "kto_tag", "images", "videos", "audios"})
_OURS = frozenset(
    {*_LLAMA_COLUMNS.values(), "messages", "prompt", "completion", "response", "question", "answer", "text", "label"}
)


@dataclass(frozen=True)
class ColumnMapping:
    """`columns`: our key -> theirs. `message`: our key of a message -> theirs. `roles`: their role -> ours."""

    columns: Mapping[str, str] = field(default_factory=dict)
    message: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)

    def apply(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The row under our keys. Raises RejectedError naming a column that it lacks."""
        if not (self.columns or self.message or self.roles):
            return dict(record)
        taken = set(self.columns.values())
        row = {key: value for key, value in record.items() if key not in taken}
        for ours, theirs in self.columns.items():
            _make_room(row, ours)
            if record.get(theirs) is not None:
                row[ours] = record[theirs]
            elif ours not in _OPTIONAL:
                raise RejectedError(f"no column {theirs!r}, which is mapped to {ours}")
        for key in ("messages", "conversations", "conversation", "prompt", "chosen", "rejected"):
            if isinstance(row.get(key), list):
                row[key] = [self._message(item) for item in row[key]]
            elif isinstance(row.get(key), dict):
                row[key] = self._message(row[key])
        return row

    def _message(self, item: Any) -> Any:
        if not isinstance(item, Mapping):
            return item
        message = dict(item)
        for theirs in self.message.values():
            message.pop(theirs, None)
        for ours, theirs in self.message.items():
            _make_room(message, ours)
            if theirs in item:
                message[ours] = item[theirs]
        for key in ("role", "from"):
            if message.get(key) in self.roles:
                message[key] = self.roles[message[key]]
        return message


def _make_room(values: dict[str, Any], ours: str) -> None:
    """What stands under a name that a mapping gives to another key is not lost: nobody reads it, which is said."""
    if values.get(ours) is not None:
        values[f"unmapped_{ours}"] = values.pop(ours)


def mapping_of(columns: str | None, file: Path | None, name: str | None) -> ColumnMapping:
    """A mapping as `ours=theirs,…`, or from a LLaMA-Factory or Axolotl file; `name` is the data set's name in it."""
    if columns is not None:
        return _by_hand(columns)
    return ColumnMapping() if file is None else _from_file(file, name)


def _by_hand(text: str) -> ColumnMapping:
    columns: dict[str, str] = {}
    for pair in text.split(","):
        ours, equals, theirs = (part.strip() for part in pair.partition("="))
        if not (ours and equals and theirs):
            raise InputError(f"--columns {text!r}: write pairs such as prompt=question,response=answer")
        if ours not in _OURS:
            raise InputError(f"--columns: {ours!r} is none of our keys: {', '.join(sorted(_OURS))}")
        columns[ours] = theirs
    return ColumnMapping(columns)


def _from_file(path: Path, name: str | None) -> ColumnMapping:
    values = load_mapping(path) if path.suffix in (".yml", ".yaml") else _json(path)
    where = str(path)
    if isinstance(values.get("datasets"), list):
        entries = {str(entry.get("path", number)): entry for number, entry in enumerate(values["datasets"])}
        return _axolotl(_chosen(entries, name, where), where)
    if any(
        isinstance(value, Mapping) and {"columns", "tags", "formatting", "ranking"} & value.keys()
        for value in values.values()
    ):
        return _llama_factory(_chosen(values, name, where), where)
    if {"columns", "tags", "formatting"} & values.keys():
        return _llama_factory(values, where)
    if any(key.startswith(("field_", "message_")) or key == "roles" for key in values):
        return _axolotl(values, where)
    raise InputError(f"{path} is neither LLaMA-Factory's dataset_info.json nor an Axolotl configuration with datasets")


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected an object at the top level")
    return values


def _chosen(entries: Mapping[str, Any], name: str | None, where: str) -> Mapping[str, Any]:
    if name is None and len(entries) == 1:
        return dict(next(iter(entries.values())))
    if name is None or name not in entries:
        raise InputError(f"{where}: name one of its data sets with --dataset: {', '.join(entries)}")
    return dict(entries[name])


def _llama_factory(entry: Mapping[str, Any], where: str) -> ColumnMapping:
    theirs, tags = entry.get("columns") or {}, entry.get("tags") or {}
    unknown = [key for key in theirs if key not in _LLAMA_COLUMNS]
    unknown += [key for key in tags if key not in (*_LLAMA_ROLES, "role_tag", "content_tag")]
    if unknown:
        raise InputError(f"{where}: columns or tags that are not LLaMA-Factory's: {', '.join(sorted(unknown))}")
    columns = {_LLAMA_COLUMNS[key]: str(value) for key, value in theirs.items()}
    if entry.get("formatting") == "sharegpt":
        columns.setdefault("conversations", "conversations")
    elif entry.get("ranking"):
        # A pair's question stands in the prompt's column, and there is no response.
        columns.pop("output", None)
    return ColumnMapping(
        columns,
        {"role": str(tags.get("role_tag", "from")), "content": str(tags.get("content_tag", "value"))},
        {str(value): _LLAMA_ROLES[key] for key, value in tags.items() if key in _LLAMA_ROLES},
    )


def _axolotl(entry: Mapping[str, Any], where: str) -> ColumnMapping:
    kind = entry.get("type")
    fields = {**entry, **(kind if isinstance(kind, Mapping) else {})}
    if any(fields.get(key) for key in ("format", "no_input_format", "system_format")):
        raise InputError(f"{where}: its own prompt format would not be applied: the base model's template is used")
    if fields.get("roles_to_train") not in (None, ["assistant"], ["gpt"]):
        raise InputError(f"{where}: roles_to_train: only the assistant's answers are trained")
    names = {
        "field_messages": "messages",
        "field_tools": "tools",
        "field_chosen": "chosen",
        "field_rejected": "rejected",
        "field_system": "system",
        "field_instruction": "instruction",
        "field_input": "input",
        "field_output": "output",
        "field_prompt": "prompt",
    }
    columns = {ours: str(fields[key]) for key, ours in names.items() if fields.get(key)}
    properties = dict(fields.get("message_property_mappings") or {})
    for key, ours in (("message_field_role", "role"), ("message_field_content", "content")):
        if fields.get(key):
            properties[ours] = fields[key]
    if fields.get("message_field_training"):
        properties["train"] = fields["message_field_training"]
    roles = {
        str(theirs): str(ours)
        for ours, several in (fields.get("roles") or {}).items()
        for theirs in (several if isinstance(several, list) else [several])
    }
    return ColumnMapping(columns, {str(key): str(value) for key, value in properties.items()}, roles)
