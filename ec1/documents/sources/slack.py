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

_VERSION = "1"
"""Raise it when the same export gives another text."""
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.json")
_REFERENCE = re.compile(r"<([@#!]?)([^<>|]*)(?:\|([^<>]*))?>")
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


def _objects(data: bytes) -> list[Mapping[str, Any]]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise RejectedError("not JSON") from None
    if not isinstance(found, list):
        raise RejectedError("not a JSON list")
    return [each for each in found if isinstance(each, dict)]


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
        text, user = each.get("text"), each.get("user")
        if each.get("type") != "message" or not isinstance(text, str) or not text.strip():
            continue
        profile = each.get("user_profile")
        own = profile.get("real_name") if isinstance(profile, dict) else each.get("username")
        who = people.get(user, own) if isinstance(user, str) else own
        said.append(f"{who if isinstance(who, str) else 'somebody'}{_time(each.get('ts'))}: {_plain(text, people)}")
    if not said:
        raise RejectedError("nothing was said on this day")
    return "\n\n".join([f"# {channel}, {day}", *said]).encode("utf-8", "replace") + b"\n"


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
