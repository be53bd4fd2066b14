"""The lines of `secret_lines.txt` with their secrets drawn, and what of them a search finds.

Belongs here: reading the file, drawing values, counting. A block is `### tool | context`, then the text; in it
`@@=text@@` is a secret as it stands and `@@kind:length@@` one that is drawn. The file was written from the
documentation of the tools before the patterns were read. Every second block, by its digest, is kept apart: patterns are
made on the others only.
"""

import base64
import hashlib
import random
import re
import string
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_FILES = Path(__file__).parent
_MARK = re.compile(r"@@(?:=(?P<text>.+?)|(?P<kind>[a-z0-9]+)(?::(?P<length>[a-z0-9]+))?)@@")
_ALPHABETS = {
    "hex": "0123456789abcdef",
    "alnum": string.ascii_letters + string.digits,
    "upper": string.ascii_uppercase + string.digits,
    "url": string.ascii_letters + string.digits + "-_",
    "pw": string.ascii_letters + string.digits + "!#%*+-.?^_~",
}


@dataclass(frozen=True)
class Line:
    """A text of a tool's documentation, and where its secrets stand, `[start, end)`."""

    tool: str
    context: str
    text: str
    secrets: tuple[tuple[int, int], ...]
    kept_apart: bool

    def found_by(self, find: Callable[[str], Iterator[tuple[int, int]]]) -> bool:
        """Whether what is found covers every secret whole."""
        covered = {place for start, end in find(self.text) for place in range(start, end)}
        return all(covered.issuperset(range(*secret)) for secret in self.secrets)


def secret_lines() -> list[Line]:
    """The blocks of the file; the same values each time."""
    blocks = re.split(r"(?m)^### ", (_FILES / "secret_lines.txt").read_text(encoding="utf-8"))[1:]
    return [_line(block) for block in blocks]


def harmless_lines() -> list[str]:
    """Lines that hold no secret, though they speak of some."""
    return (_FILES / "harmless_lines.txt").read_text(encoding="utf-8").splitlines()


def _line(block: str) -> Line:
    head, _, body = block.partition("\n")
    tool, _, context = head.partition(" | ")
    digest = hashlib.sha256(block.encode()).digest()
    rng = random.Random(digest)
    text, secrets, after = "", [], 0
    for mark in _MARK.finditer(body.rstrip("\n")):
        text += body[after : mark.start()]
        value = mark["text"] or _drawn(rng, mark["kind"], mark["length"])
        if mark["kind"] != "id":
            secrets.append((len(text), len(text) + len(value)))
        text += value
        after = mark.end()
    return Line(tool, context, text + body[after:].rstrip("\n"), tuple(secrets), digest[0] % 2 == 1)


def _drawn(rng: random.Random, kind: str, length: str | None) -> str:
    if kind in ("uuid", "id"):
        return str(uuid.UUID(int=rng.getrandbits(128), version=4))
    size = int(length or 0)
    if kind == "b64":
        return base64.b64encode(
            rng.randbytes(size * 3 // 4 - (size in (24, 28, 32, 44, 64)) - 2 * (size == 88))
        ).decode()
    return "".join(rng.choices(_ALPHABETS[kind], k=size))
