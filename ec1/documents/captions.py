"""What was said in a meeting, out of the captions of its recording: WebVTT (https://www.w3.org/TR/webvtt1/) and SubRip.

Belongs here: captions to turns of a conversation. webvtt-py reads the two formats.
"""

import html
import io
import re
from collections.abc import Iterable, Iterator

from ec1.documents.text import decode
from ec1.errors import RejectedError

_LONG_TURN = 300
_LONGEST_NAME = 60
_BY_VOICE = re.compile(r"(?=<v[. ])")
_ENDS = tuple(".?!…。？！")


def turns(data: bytes, kind: str) -> list[list[str]]:
    """[time, text] of each turn of a file of captions (`kind`: vtt or srt), such as `["00:01:02", "Ann Lee: …"]`.

    A turn is what one speaker says in captions that follow one another; a long one is parted where a sentence ends.
    The speaker stands before it if the file says who it is. Raises RejectedError if it is no such file.
    """
    import webvtt

    text = decode(data).lstrip("\ufeff \t\r\n")
    try:
        captions = webvtt.WebVTT.from_buffer(io.StringIO(text), kind).captions
    except webvtt.errors.MalformedFileError:
        beginning = "WEBVTT" if kind == "vtt" else "1"
        raise RejectedError(f"not captions: a .{kind} file begins with {beginning!r} and has times with -->") from None
    spoken = [
        webvtt.Caption(caption.start, caption.end, words)
        for caption in captions
        for words in _BY_VOICE.split(caption.raw_text)
        if words.strip()
    ]
    voiced = any(caption.voice for caption in spoken)
    found: list[list[str]] = []
    speaker = ""
    for caption, said in zip(spoken, _without_repeats(caption.text for caption in spoken), strict=True):
        if not said:
            continue
        name, words = (caption.voice or "", said) if voiced else _named(said)
        goes_on = name == speaker or not (name or voiced)
        if found and goes_on and not is_full(found[-1][1]):
            found[-1][1] += f" {words}"
        else:
            found.append([str(caption.start).partition(".")[0], f"{name}: {words}" if name else words])
        if name or voiced:
            speaker = name
    return found


def _without_repeats(texts: Iterable[str]) -> Iterator[str]:
    """Each text in one line, without the line that rolling captions show again while the next one is said."""
    last = ""
    for text in texts:
        lines = [line.strip() for line in html.unescape(text).split("\n")]
        yield " ".join(filter(None, lines[1:] if len(lines) > 1 and lines[0] == last else lines))
        last = next(filter(None, reversed(lines)), last)


def is_full(turn: str) -> bool:
    """Whether what one speaker says after this is a turn of its own."""
    # What a machine wrote down has no full stops at all.
    return len(turn) > _LONG_TURN and (turn.endswith(_ENDS) or len(turn) > 10 * _LONG_TURN)


def _named(said: str) -> tuple[str, str]:
    """The speaker whom a program without another way to say it writes in front: `Ann Lee: Good morning.`"""
    name, colon, rest = said.partition(": ")
    is_name = colon and len(name) <= _LONGEST_NAME and not any(end in name for end in _ENDS[1:])
    return (name, rest) if is_name else ("", said)
