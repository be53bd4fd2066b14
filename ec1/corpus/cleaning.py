"""Cleaning: secrets and personal data are replaced in a tuple's texts, before anything is cut to length.

Belongs here: what is put in their place, and the second look that fails closed. Does not: how they are found (secrets,
pii). A token that was cut no longer matches its pattern, so cleaning always sees whole texts.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ec1.corpus.pii import find_pii
from ec1.corpus.secrets import Finding, find_secrets
from ec1.corpus.tuples import Example
from ec1.errors import RejectedError

PLACEHOLDERS = {
    "card": "<CARD>",
    "email": "<EMAIL>",
    "iban": "<IBAN>",
    "ip": "<IP>",
    "person": "<PERSON>",
    "phone": "<PHONE>",
    "ssn": "<SSN>",
}
SECRET = "<SECRET>"
VERSION = 1
"""Part of a dataset's identity: raise it when the same text would be cleaned differently."""


def scrub(text: str) -> tuple[str, Counter[str]]:
    """Replace secrets and personal data by placeholders; returns the text and what was replaced, by kind.

    Raises RejectedError if the scrubbed text still holds something that looks like either.
    """
    counts: Counter[str] = Counter()
    # Secrets first: the password of a URL would else be taken for the name in an e-mail address.
    for find in (find_secrets, find_pii):
        text = _replace(text, find(text), counts)
    if counts:
        left = {item.kind for find in (find_secrets, find_pii) for item in find(text) if not _is_replaced(text, item)}
        if left:
            raise RejectedError(f"still holds what looks like {', '.join(sorted(left))} after scrubbing")
    return text, counts


_ADDRESS = re.compile(r"[^\s/@]@[^\s/@]+\.\w")
_NUMBER = re.compile(r"\d[\d ().\-]{6,}\d")


def without_persons(name: str) -> str:
    """The name of a session or a file; if it contains personal data, a digest replaces it."""
    if not _ADDRESS.search(name) and (not _NUMBER.search(name) or not find_pii(name)):
        return name
    return "scrubbed:" + hashlib.sha256(name.encode()).hexdigest()[:24]


def scrub_example(example: Example) -> tuple[Example, Counter[str]]:
    """`scrub` every text of an example, those of calls and tools too. Raises RejectedError as `scrub` does."""
    counts: Counter[str] = Counter()
    clean: Example = {}
    for column, items in example.items():
        clean[column] = [_scrubbed(item, counts) for item in items]
    return clean, counts


# What names and pairs things, and is no text that anybody wrote.
_NAMES = frozenset({"role", "type", "id", "tool_call_id", "name", "train", "required", "enum"})


def _scrubbed(value: Any, counts: Counter[str]) -> Any:
    """A message or a tool with every text in it scrubbed, however deep it stands."""
    if isinstance(value, str):
        text, found = scrub(value)
        counts.update(found)
        return text
    if isinstance(value, list):
        return [_scrubbed(item, counts) for item in value]
    if isinstance(value, dict):
        return {key: _scrubbed_field(key, item, counts) for key, item in value.items()}
    return value


def _scrubbed_field(key: str, value: Any, counts: Counter[str]) -> Any:
    if key == "arguments" and not isinstance(value, str):
        # As text, so that a value is seen together with the name before it.
        try:
            return json.loads(_scrubbed(json.dumps(value, ensure_ascii=False), counts))
        except ValueError:
            raise RejectedError("arguments of a call are no JSON any more after scrubbing") from None
    return value if key in _NAMES else _scrubbed(value, counts)


def _replace(text: str, findings: Iterable[Finding], counts: Counter[str]) -> str:
    pieces: list[str] = []
    position = 0
    for start, end, kind in _merged(findings):
        pieces += [text[position:start], PLACEHOLDERS.get(kind, SECRET)]
        counts[kind] += 1
        position = end
    return "".join([*pieces, text[position:]])


def _merged(findings: Iterable[Finding]) -> list[tuple[int, int, str]]:
    """Overlapping findings as one; the longest of them names it."""
    merged: list[tuple[int, int, str, int]] = []
    for item in sorted(findings):
        length = item.end - item.start
        if merged and item.start < merged[-1][1]:
            start, end, kind, longest = merged[-1]
            kind = item.kind if length > longest else kind
            merged[-1] = (start, max(end, item.end), kind, max(length, longest))
        else:
            merged.append((item.start, item.end, item.kind, length))
    return [(start, end, kind) for start, end, kind, _ in merged]


def _is_replaced(text: str, item: Finding) -> bool:
    """True if a finding consists of placeholders: `https://user:<SECRET>@host` still looks like a login."""
    rest = text[item.start : item.end]
    for placeholder in (SECRET, *PLACEHOLDERS.values()):
        rest = rest.replace(placeholder, "")
    return not any(map(str.isalnum, rest))
