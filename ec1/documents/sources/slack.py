"""An export of a Slack workspace: a day of a channel becomes a document, with people's names for their ids.

Belongs here: the export's files. https://slack.com/help/articles/220556107 says what they are.
"""

import datetime as dt
import hashlib
import html
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ec1.documents.sources.source import Item
from ec1.errors import DeferredError, RejectedError

_VERSION = "2"
"""Raise it when the same export gives another text."""
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.json")
_REFERENCE = re.compile(r"<([@#!]?)([^<>|]*)(?:\|([^<>]*))?>")
_NESTED = 10
_MOST = 2**26
"""Bytes of one file of an export."""


class SlackExport:
    """A `Source`: `general/2026-06-01.md` for each day on which something was said."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def items(self) -> Iterator[Item]:
        try:
            root: Any = zipfile.Path(self._path) if self._path.is_file() else self._path
            modified_ns = self._path.stat().st_mtime_ns
            users = root / "users.json"
            if not users.is_file():
                raise DeferredError(f"{self._path} is not a Slack export: it holds no users.json")
            known = _bytes(users)
            people = _people(known)
            for folder in sorted(root.iterdir(), key=lambda each: each.name):
                for file in folder.iterdir() if folder.is_dir() else ():
                    if _DAY.fullmatch(file.name):
                        data = _bytes(file)
                        version = hashlib.sha256(b"\0".join([_VERSION.encode(), known, data])).hexdigest()
                        name = f"{folder.name}/{file.name.removesuffix('.json')}"
                        yield Item(f"{name}.md", version, modified_ns, partial(_document, name, file, people))
        except (OSError, zipfile.BadZipFile, RejectedError) as error:
            raise DeferredError(f"the Slack export {self._path} cannot be read: {error}") from None


def _bytes(file: Any) -> bytes:
    with file.open("rb") as stream:
        data: bytes = stream.read(_MOST + 1)
    if len(data) > _MOST:
        raise RejectedError(f"{file.name} has more than {_MOST:,} bytes")
    return data


def _objects(data: bytes) -> list[dict[str, Any]]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise RejectedError("not JSON") from None
    if not isinstance(found, list):
        raise RejectedError("not a JSON list")
    return _records(found)


def _people(data: bytes) -> dict[str, str]:
    """Names by id."""
    found = {}
    for each in _objects(data):
        profile = each.get("profile")
        names = [
            profile.get("real_name") if isinstance(profile, dict) else None,
            each.get("real_name"),
            each.get("name"),
        ]
        name = next((name for name in names if isinstance(name, str) and name.strip()), None)
        if isinstance(each.get("id"), str) and name:
            found[each["id"]] = name.strip()
    return found


def _document(name: str, file: Any, people: Mapping[str, str]) -> bytes:
    channel, _, day = name.rpartition("/")
    said = []
    for each in _objects(_bytes(file)):
        user = each.get("user")
        if each.get("type") != "message" or not (text := _words(each, people)):
            continue
        profile = each.get("user_profile")
        own = profile.get("real_name") if isinstance(profile, dict) else each.get("username")
        who = people.get(user, own) if isinstance(user, str) else own
        said.append(f"{who if isinstance(who, str) else 'somebody'}{_time(each.get('ts'))}: {text}")
    if not said:
        raise RejectedError("nothing was said on this day")
    return "\n\n".join([f"# {channel}, {day}", *said]).encode("utf-8", "replace") + b"\n"


def _words(message: Mapping[str, Any], people: Mapping[str, str]) -> str:
    """What a message says, with what is attached to it: forwarded messages, and most of what programs write."""
    text, blocks = message.get("text"), message.get("blocks")
    said = [_plain(text, people)] if isinstance(text, str) else []
    if any(said):
        # What a person typed stands in both; a program may say more in blocks than in its text.
        blocks = [each for each in _records(blocks) if each.get("type") != "rich_text"]
    said.append(_of_blocks({"blocks": blocks}, people))
    for each in _records(message.get("attachments")):
        strings = [each.get(key) for key in ("pretext", "author_name", "title", "text")]
        for field in _records(each.get("fields")):
            strings.append(f"{field.get('title') or ''}: {field.get('value') or ''}".strip(": "))
        found = [_plain(each, people) for each in strings if isinstance(each, str)]
        found.append(_of_blocks({"blocks": each.get("blocks")}, people))
        fallback = each.get("fallback")
        if not any(found) and isinstance(fallback, str):
            found = [_plain(fallback, people)]
        said += found
    return "\n".join(dict.fromkeys(filter(None, said)))


def _records(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _of_blocks(value: Mapping[str, Any], people: Mapping[str, str], depth: int = 0) -> str:
    """The words of a message, or of a block or an element of one. https://docs.slack.dev/reference/block-kit/blocks"""
    if value.get("type") == "user":
        return people.get(str(value.get("user_id")), "")
    if isinstance(text := value.get("text") or value.get("url"), str):
        return text if value.get("type") in ("text", "link") else _plain(text, people)
    inner = [text] if isinstance(text, dict) else []
    for key in ("blocks", "elements", "fields"):
        inner += _records(value.get(key))
    words = [_of_blocks(each, people, depth + 1) for each in inner] if depth < _NESTED else []
    # The elements of a section stand in one line.
    return ("" if str(value.get("type")).endswith("_section") else "\n").join(filter(None, words)).strip()


def _time(stamp: object) -> str:
    try:
        return f", {dt.datetime.fromtimestamp(float(str(stamp)), dt.UTC):%H:%M}"
    except (ValueError, OverflowError, OSError):
        return ""


def _plain(text: str, people: Mapping[str, str]) -> str:
    """A message without Slack's marks: names for ids, the words of a link, characters for entities."""

    def said(match: re.Match[str]) -> str:
        kind, target, label = match[1], match[2], match[3]
        return people.get(target, label or target) if kind == "@" else label or target

    return html.unescape(_REFERENCE.sub(said, text)).strip()
