"""Keys of rows that others write: each is read, or is known to change nothing that is learnt, or the row is refused.

Belongs here: noting what was read of a row, and the lists of keys that may be left. Does not: what a key means
(formats). A key that is in no list refuses its row: whoever knows better names it (`ec1 corpus import --ignore-keys`,
`data.ignore_keys`), as `key` of a row, `message.key` or `part.key`.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ec1.errors import RejectedError

LISTS = ("messages", "conversations", "conversation")
"""Keys of a row that hold messages and never a text."""

CONVERSATIONS = (
    *LISTS,
    *(
        "prompt",
        "completion",
        "chosen",
        "rejected",
        "response",
        "answer",
        "question",
        "query",
        "instruction",
        "input",
        "output",
    ),
)
"""Keys of a row under which messages can stand."""

TEXTS = frozenset({*CONVERSATIONS, "text", "context", "system", "system_prompt", "history"})
"""Keys that hold what some format reads: beside another format they repeat what is read there, or text would be lost.
"""

OF_ROW = frozenset(
    {
        *("id", "_id", "idx", "index", "uid", "uuid", "guid", "row_id", "prompt_id", "question_id", "message_id"),
        *("conversation_id", "conversation_hash", "dialog_id", "session_id", "brief_id", "attempt_id", "document_id"),
        *(
            "task_id",
            "user_id",
            "group",
            "hash",
            "sha256",
            "metadata",
            "meta",
            "access_labels",
            "version",
            "doctrine_version",
        ),
        *("source", "source_commit", "source_url", "url", "origin", "dataset", "dataset_name", "subset", "split"),
        *("file", "filename", "file_name", "path", "license", "licence", "author", "tenant", "tier", "tier_used"),
        *("created", "created_at", "updated_at", "timestamp", "triggered_at", "date", "language", "lang", "locale"),
        *(
            "category",
            "subcategory",
            "topic",
            "domain",
            "task",
            "task_type",
            "tags",
            "tuple_type",
            "model",
            "model_name",
            "generator",
        ),
        *("num_turns", "n_turns", "turns_count", "num_tokens", "token_count", "length"),
    }
)
"""What any row may carry unread: names, places, times, and what it is about or how long."""

OF_FORMAT: dict[str, frozenset[str]] = {
    # How OpenAI's service may call tools: it does not stand in the text.
    "messages": frozenset({"parallel_tool_calls"}),
    # MetaMath and MATH say which problem a question was made of, and how hard it is.
    "question/answer": frozenset({"type", "level", "subject", "original_question"}),
    "pair": frozenset(
        {
            f"{first}{separator}{second}"
            for side in ("chosen", "rejected")
            for what in ("score", "rating", "model")
            for separator in ("_", "-")
            for first, second in ((side, what), (what, side))
        }
    ),
}
OF_MESSAGE = frozenset(
    {"id", "message_id", "parent_id", "created", "created_at", "timestamp", "language", "lang", "model", "metadata"}
)
OF_PART = frozenset({"id", "cache_control", "signature"})
OF_CALL = frozenset({"index"})

_WORD = re.compile(r"[A-Za-z_][\w.-]{0,39}", re.ASCII)
_NAMED = 6


OF_OWN: dict[str, frozenset[str]] = {
    "edit": frozenset({"cluster", "scope", "commit_msg", "description", "before", "diff", "diff_truncated"}),
    "apprenticeship": frozenset(
        {
            *("brief", "attempt", "actual_diff", "final_diff", "verdict", "cluster", "scope", "stage_at_capture"),
            *("redaction_class", "evidence_class", "promoted_at"),
        }
    ),
    "apprenticeship-feedback": frozenset({"prompt", "chosen", "rejected", "format"}),
    "extraction": frozenset({"text", "entities"}),
    "task": frozenset({"prompt", "checks"}),
}
"""Of our own tuples: what is read, and what docs/contracts.md says stands beside it."""


class Fields:
    """One object of a row. Null says nothing, nor does what is empty if nobody asks for it."""

    def __init__(self, values: Mapping[str, Any], place: str, harmless: Collection[str]) -> None:
        """`place` leads the names of its keys in a reason, such as `message.`."""
        self.values = {key: value for key, value in values.items() if value is not None}
        self._place, self._harmless = place, harmless
        self.read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def first(self, *keys: str) -> str | None:
        """The first of some keys that says something, else the first that is there; None if none is."""
        found = [key for key in keys if key in self.values]
        return next((key for key in found if not is_empty(self.values[key])), found[0] if found else None)

    def take(self, *keys: str) -> Any:
        """The value of some keys that mean the same. Raises RejectedError if two of them differ."""
        found = [key for key in keys if key in self.values]
        if not found:
            return None
        self.read.update(found)
        key = found[0] if len(found) == 1 else self.first(*found) or found[0]
        value = self.values[key]
        for other in found:
            if other != key and not is_empty(self.values[other]) and self.values[other] != value:
                raise RejectedError(f"{self._place}{key} and {self._place}{other} say different things")
        return value

    def unread(self) -> list[str]:
        """Keys that say something, that nobody took and that are in no list."""
        return [
            key
            for key, value in self.values.items()
            if key not in self.read and key not in self._harmless and not is_empty(value)
        ]

    def finish(self) -> None:
        """Raises RejectedError, naming them, if there are unread keys."""
        if unread := self.unread():
            raise RejectedError(unread_keys(f"{self._place}{key}" for key in unread))


def unread_keys(names: Iterable[str]) -> str:
    """Why a row with such keys is refused. Keys are text from outside, too: only those that look like names appear."""
    found = sorted({name if _WORD.fullmatch(name) else "one that is not a word" for name in names})
    shown = ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
    return f"nobody reads {shown}: name it in --ignore-keys (data.ignore_keys) if it changes nothing that is learnt"


def is_empty(value: Any) -> bool:
    """True of null and of what is empty; not of 0 and false, which say something."""
    return value is None or (isinstance(value, str | list | tuple | dict) and not value)


def without(record: Mapping[str, Any], ignored: Collection[str]) -> dict[str, Any]:
    """A row without the keys that a person named."""
    row = {key: value for key, value in record.items() if key not in ignored}
    inner = {name for name in ignored if name.startswith(("message.", "part."))}
    if not inner:
        return row
    for key in CONVERSATIONS:
        value = _from_text(row, key)
        if isinstance(value, Mapping):
            row[key] = _inner_without(value, "message.", inner)
        elif isinstance(value, list):
            row[key] = [_inner_without(item, "message.", inner) for item in value]
    return row


def _inner_without(item: Any, place: str, ignored: Collection[str]) -> Any:
    if not isinstance(item, Mapping):
        return item
    kept = {key: value for key, value in item.items() if place + key not in ignored}
    if place == "message.":
        for key, value in kept.items():
            if isinstance(value, list):
                kept[key] = [_inner_without(part, "part.", ignored) for part in value]
    return kept


def left_in_messages(record: Mapping[str, Any]) -> Iterator[str]:
    """The harmless keys inside the messages of a row, such as `message.key`, once for each time."""
    for key in CONVERSATIONS:
        for message in _objects(_from_text(record, key)) if key in record else ():
            if not OF_MESSAGE.isdisjoint(message):
                yield from (f"message.{name}" for name in OF_MESSAGE & message.keys() if not is_empty(message[name]))
            for value in message.values():
                for part in _objects(value) if isinstance(value, list) else ():
                    place, keys = ("part", OF_PART) if "type" in part and "function" not in part else ("call", OF_CALL)
                    yield from (f"{place}.{name}" for name in keys & part.keys())


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    items = [value] if isinstance(value, Mapping) else value if isinstance(value, list) else []
    return (item for item in items if isinstance(item, Mapping))


def _from_text(record: Mapping[str, Any], key: str) -> Any:
    """What stands under a key; messages that are JSON in a text, as objects."""
    value = record.get(key)
    if isinstance(value, str) and key in LISTS:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            pass
    return value
