"""Cleaning: secrets and personal data are replaced in a tuple's texts, before anything is cut to length.

Belongs here: what is put in their place, and the second look that fails closed. Does not: how they are found (secrets,
pii). A token that was cut no longer matches its pattern, so cleaning always sees whole texts.
"""

import functools
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ec1.corpus.pii import find_pii
from ec1.corpus.secrets import SecretMatch, find_secrets
from ec1.corpus.tuples import Example
from ec1.errors import RejectedError

PLACEHOLDERS = {
    "card": "CARD",
    "email": "EMAIL",
    "iban": "IBAN",
    "ip": "IP",
    "person": "PERSON",
    "phone": "PHONE",
    "ssn": "SSN",
}
# What a secret is called by a part of its kind's name; in this order.
_SECRETS = {
    "private-key": "PRIVATE_KEY",
    "password": "PASSWORD",
    "basic-auth": "PASSWORD",
    "login": "PASSWORD",
    "webhook": "WEBHOOK",
    "token": "TOKEN",
    "jwt": "TOKEN",
    "authorization": "TOKEN",
    "key": "KEY",
    "recognized-": "ID",
}
_NAME = re.compile(r"<[A-Z]+(?:_[A-Z]+)*(?:_\d+)?>")
VERSION = 3
"""Part of a dataset's identity: raise it when the same text would be cleaned differently."""


class Placeholders:
    """What stands for each thing that was taken out of one row: the same value has the same name throughout.

    The first of a kind is `<EMAIL>`, another one `<EMAIL_2>`, so that who wrote to whom stays readable.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._counts: Counter[str] = Counter()

    def of(self, kind: str, value: str) -> str:
        name = PLACEHOLDERS.get(kind) or next((name for part, name in _SECRETS.items() if part in kind), "SECRET")
        if (name, value) not in self._names:
            self._counts[name] += 1
            number = self._counts[name]
            self._names[name, value] = f"<{name}>" if number == 1 else f"<{name}_{number}>"
        return self._names[name, value]


def scrub(
    text: str, recognizers: Sequence[str] = (), placeholders: Placeholders | None = None
) -> tuple[str, Counter[str]]:
    """Replace secrets and personal data by placeholders; returns the text and what was replaced, by kind.

    `recognizers` are Presidio's, by name, beside those that always look. Raises RejectedError if the scrubbed text
    still holds something that looks like a secret or personal data.
    """
    counts: Counter[str] = Counter()
    names = placeholders or Placeholders()

    def persons(of: str) -> list[SecretMatch]:
        return find_pii(of, recognizers)

    # Secrets first: the password of a URL would else be taken for the name in an e-mail address.
    for find in (find_secrets, persons):
        text = _replace(text, find(text), counts, names)
    if counts:
        left = {item.kind for find in (find_secrets, persons) for item in find(text) if not _is_replaced(text, item)}
        if left:
            raise RejectedError(f"still holds what looks like {', '.join(sorted(left))} after scrubbing")
    return text, counts


_ADDRESS = re.compile(r"[^\s/@]@[^\s/@]+\.\w")
_NUMBER = re.compile(r"\d[\d ().\-]{6,}\d")


_COMMIT = re.compile(r"\w+:[0-9a-f]{40}")


def without_persons(name: str) -> str:
    """The name of a session or a file; if it contains personal data, a digest replaces it."""
    return "scrubbed:" + hashlib.sha256(name.encode()).hexdigest()[:24] if _names_a_person(name) else name


def place_without_persons(origin: str) -> str:
    """The same for `file:line`."""
    file = origin.rpartition(":")[0]
    # Of many lines in one file the file is looked at once.
    return without_persons(origin) if ":" in file or _names_a_person(file) else origin


@functools.lru_cache(4096)
def _names_a_person(name: str) -> bool:
    if _ADDRESS.search(name):
        return True
    return bool(_NUMBER.search(name)) and not _COMMIT.fullmatch(name) and bool(find_pii(name))


def scrub_example(example: Example, recognizers: Sequence[str] = ()) -> tuple[Example, Counter[str]]:
    """`scrub` every text of an example, those of calls and tools too. Raises RejectedError as `scrub` does, and for a
    check that would no longer be the same."""
    scrubber = _Scrubber(recognizers)
    clean = {column: [scrubber.clean(item) for item in items] for column, items in example.items()}
    if clean.get("checks") != example.get("checks"):
        raise RejectedError("a check holds what looks like a secret or personal data")
    return clean, scrubber.counts


# What names and pairs things, and is not text that anybody wrote.
_NAMES = frozenset({"role", "type", "id", "tool_call_id", "name", "train", "required", "enum"})


class _Scrubber:
    """One row's texts, scrubbed with one set of placeholders."""

    def __init__(self, recognizers: Sequence[str]) -> None:
        self._recognizers, self._names = recognizers, Placeholders()
        self.counts: Counter[str] = Counter()

    def clean(self, value: Any) -> Any:
        """A message or a tool with every text in it scrubbed, however deep it stands."""
        if isinstance(value, str):
            text, found = scrub(value, self._recognizers, self._names)
            self.counts.update(found)
            return text
        if isinstance(value, list):
            return [self.clean(item) for item in value]
        if isinstance(value, dict):
            return {key: self._field(key, item) for key, item in value.items()}
        return value

    def _field(self, key: str, value: Any) -> Any:
        if key == "arguments" and not isinstance(value, str):
            # As text, so that a value is seen together with the name before it.
            try:
                return json.loads(self.clean(json.dumps(value, ensure_ascii=False)))
            except ValueError:
                raise RejectedError("arguments of a call are not JSON any more after scrubbing") from None
        return value if key in _NAMES else self.clean(value)


def _replace(text: str, findings: Iterable[SecretMatch], counts: Counter[str], names: Placeholders) -> str:
    pieces: list[str] = []
    position = 0
    for start, end, kind in _merged(findings):
        pieces += [text[position:start], names.of(kind, text[start:end])]
        counts[kind] += 1
        position = end
    return "".join([*pieces, text[position:]])


def _merged(findings: Iterable[SecretMatch]) -> list[tuple[int, int, str]]:
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


def _is_replaced(text: str, item: SecretMatch) -> bool:
    """True if a finding consists of placeholders: `https://user:<PASSWORD>@host` still looks like a login."""
    return not any(map(str.isalnum, _NAME.sub("", text[item.start : item.end])))
