"""The text of JSON that has no text of its own: the strings in it that read like text, and what was said, turn by turn.

Belongs here: which strings those are, and which list of records is a conversation. Does not: the records of the
contract and fields (`parse.py`, `fields.py`). Programs that record meetings and chats each name their keys otherwise;
where none of the usual ones (`_SAID`) is there, what was said is found by what it looks like.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ec1.documents import fields
from ec1.documents.captions import is_full
from ec1.documents.markup import without_markup
from ec1.documents.text import clean

_NESTED = 16
# A shorter string, or one word however long, is an id, a label or an address.
_PASSAGE = 40
_SEVERAL_WORDS = re.compile(r"\s|[^\x00-\x7f]")
_WORD = re.compile(r"[^\W\d_]+")
# From Thai on, in Unicode's order, there are writings without blanks between words; a word is rarely that long.
_WITHOUT_BLANKS, _SENTENCE = "\u0e00", 5
_SAID = ("text", "content", "message", "body", "sentence", "transcript", "said", "utterance", "words", "caption")
_PIECES = (*_SAID, "punctuatedword", "word")
_SPEAKERS = (
    *("speaker", "speakername", "from", "fromname", "author", "authorname", "sender", "sendername", "user"),
    *("username", "creator", "participant", "participantname", "name", "displayname", "nickname", "who"),
)
_NAMES = ("nickname", "displayname", "fullname", "realname", "name", "username", "user")
_LONGEST_NAME, _MOST_SPEAKERS, _COMPARED, _SAMPLE = 100, 1000, 100, 500
_NO_TURN = (fields.PROSE | fields.KNOWN) - fields.NAMES["Person"] - frozenset(_SAID)


def passages(value: object, said: str = "") -> Iterator[str]:
    """The strings of a record, also in lists and records in it, that read like text and are no field of their own; of a
    list of records that each hold what somebody said, and of one such record, `Ann Lee: Good morning.`, however short
    it is. The fields of any other record inside it are lines, but for those of the record itself, which are `said`."""
    if not is_conversation([value]):
        return _passages(value, "", 0, _Lines(said))
    # A speaker who is a field of the record has a line already.
    assert isinstance(value, Mapping)
    turn = {key: each for key, each in value.items() if fields.plain_key(key) not in fields.NAMES["Person"]}
    return _passages([turn], "", 0)


def inside(record: Mapping[str, Any], said: str) -> Iterator[str]:
    """The passages of the records in a record, and its strings that are too long for fields."""

    def is_chosen(value: object) -> bool:
        if isinstance(value, list):
            return any(map(is_chosen, value))
        return isinstance(value, Mapping) or (isinstance(value, str) and len(value) > fields.MAX_PROSE)

    return passages({key: value for key, value in record.items() if is_chosen(value)}, said)


def besides(text: str, rest: object, said: str) -> Iterator[str]:
    """The passages of what a record holds beside its own text, such as comments; not those that are the same text in
    pieces, as transcripts have it."""
    letters, others = _letters(text), 0
    for passage in passages(rest, said):
        # A speaker stands before the words.
        if others < _COMPARED and _letters(passage.partition(": ")[2] or passage) in letters:
            continue
        others += 1
        yield passage


class _Lines:
    """The lines of records inside a record: each once, but for names and facts, and none that was said before."""

    def __init__(self, said: str) -> None:
        values = (line.partition(": ")[2] for line in said.split("\n"))
        self._said = {part for value in values for part in (value, *value.split("; "))}
        self._seen: set[str] = set()

    def of(self, record: Mapping[str, Any], key: str) -> str:
        said = (value for name, value in record.items() if _plain(name) in _PIECES and isinstance(value, str))
        if not all(map(_is_text, said)):
            # A word of a text, with its time.
            return ""
        found = []
        for line in fields.lines_inside(record, key, _PASSAGE):
            name, _, value = line.partition(": ")
            if value not in self._said and (line not in self._seen or fields.plain_key(name) in fields.KNOWN):
                found.append(line)
        self._seen.update(found)
        return "\n".join(found)


def is_conversation(value: object) -> bool:
    """Whether this is a list of what was said, under a usual key and with speakers. A list of records with titles or
    facts is none: each of those is a document."""
    if not isinstance(value, list) or not all(isinstance(record, Mapping) for record in value):
        return False
    if (key := _key_of_said(value)) is None or _plain(key) not in _SAID:
        return False
    return any(map(_speaker, value)) and not any(
        fields.plain_key(name) in _NO_TURN for record in value for name in record
    )


def holds_turns(record: Mapping[str, Any]) -> bool:
    """Whether a list of what was said, with speakers, is one of a record's values: its name is that of a chat then."""
    return any(
        isinstance(value, list)
        and _plain(_key_of_said(value) or "") in _SAID
        and any(isinstance(each, Mapping) and _speaker(each) for each in value)
        for key, value in record.items()
        if fields.plain_key(key) not in fields.KNOWN
    )


def _passages(value: object, key: str, depth: int, lines: _Lines | None = None, told: bool = True) -> Iterator[str]:
    """`told`: the short strings of this record are lines already."""
    if depth > _NESTED:
        return
    if isinstance(value, str):
        found = _cleaned(value)
        # Prose is a field of the record itself alone.
        is_field = fields.is_field(key, found) and (depth <= 1 or fields.plain_key(key) not in fields.PROSE)
        if len(found) >= _PASSAGE and _SEVERAL_WORDS.search(found) and not is_field:
            yield found
    elif isinstance(value, dict):
        if lines and not told and (paragraph := lines.of(value, key)):
            yield paragraph
        for name, each in value.items():
            yield from _passages(each, name, depth + 1, lines, told=depth > 0 and isinstance(each, dict))
    elif isinstance(value, list):
        if fields.plain_key(key) not in fields.KNOWN and (said := _key_of_said(value)):
            yield from _turns(value, said, depth)
        else:
            for each in value:
                yield from _passages(each, "" if isinstance(each, dict) else key, depth + 1, lines, told=False)


def _turns(records: Sequence[Any], key: str, depth: int) -> Iterator[str]:
    """What the records say under this key; what one speaker says in records that follow one another is one turn. What
    else reads like text in a record follows it."""
    turn, last = "", ""
    for record in records:
        rest = {name: each for name, each in record.items() if name != key} if isinstance(record, Mapping) else {}
        said, who = (_said(record.get(key)), _speaker(rest)) if isinstance(record, Mapping) else ("", "")
        if said and who and who == last and turn and not is_full(turn):
            turn += f" {said}"
        elif said:
            if turn:
                yield turn
            turn, last = (f"{who}: {said}" if who else said), who
        short = [fields.prose(rest, said).strip(), *(_said(rest[name]) for name in rest if _plain(name) in _SAID)]
        others: Collection[str] = dict.fromkeys([*filter(_is_text, short), *_passages(rest or record, "", depth + 1)])
        if others := _not_in(said, others):
            if turn:
                yield turn
            turn = ""
            yield from others
    if turn:
        yield turn


def _not_in(said: str, others: Collection[str]) -> Collection[str]:
    """Without those that what was said has in the same words: some exports write it twice."""
    if not others or len(others) > _COMPARED:
        return others
    letters = _letters(said)
    return [each for each in others if _letters(each) not in letters]


def _key_of_said(records: Sequence[Any]) -> str | None:
    """The key under which these records hold what was said; None if they do not."""
    said: defaultdict[str, list[str]] = defaultdict(list)
    some = records[:: len(records) // _SAMPLE + 1]
    mappings = [record for record in some if isinstance(record, Mapping)]
    for record in mappings:
        for key, value in record.items():
            if (_plain(key) in _SAID or not _is_other(key)) and (text := _said(value)):
                said[key].append(text)
    for name in _SAID:
        for key, found in said.items():
            if _plain(key) == name and 4 * sum(map(_is_text, found)) > len(found):
                return key
    speak = any(_speaker(record) for record in mappings)
    likely = [key for key, found in said.items() if speak and _are_texts(found, len(mappings))]
    return max(likely, key=lambda key: sum(map(len, said[key])), default=None)


def _is_other(key: str) -> bool:
    """Whether a key says that something else follows than what was said."""
    return _is_speaker(key) or fields.plain_key(key) in fields.KNOWN | fields.PROSE


def _are_texts(found: Sequence[str], records: int) -> bool:
    """Whether these values of so many records are texts: most have one, of several words, and not the same."""
    half = records / 2
    return len(found) > half and len(set(found)) > half and sum(map(_is_text, found)) > half


def _said(value: object) -> str:
    """What was said, where it stands as text, as pieces of it, or in a record of its own; else nothing."""
    if isinstance(value, str):
        return _cleaned(value)
    if isinstance(value, list):
        parts = [part for piece in value if (part := piece if isinstance(piece, str) else _piece(piece))]
        # Words have no blanks around them, parts of a text have theirs.
        between = "" if any(re.search(r"\s", part) for part in parts) else " "
        return clean(between.join(parts)).strip()
    return _cleaned(_piece(value))


def _piece(value: object) -> str:
    """The text of a record that holds no more."""
    if not isinstance(value, Mapping):
        return ""
    by_name = {_plain(key): each for key, each in value.items() if isinstance(each, str)}
    return next((by_name[name] for name in _PIECES if by_name.get(name)), "")


def _speaker(record: Mapping[str, Any]) -> str:
    by_name = {_plain(key): value for key, value in record.items() if _is_speaker(key)}
    usual = [by_name[name] for name in _SPEAKERS if name in by_name]
    return next((name for value in (*usual, *by_name.values()) if (name := _name(value))), "")


def _is_speaker(key: str) -> bool:
    return _plain(key) in _SPEAKERS or fields.plain_key(key) in fields.NAMES["Person"]


def _name(value: object) -> str:
    """A speaker's name, or number, also in a record about them; else nothing."""
    if isinstance(value, Mapping):
        by_name = {_plain(key): each for key, each in value.items()}
        return next((name for key in _NAMES if (name := _name(by_name.get(key)))), "")
    if isinstance(value, int) and not isinstance(value, bool):
        return f"Speaker {value}" if 0 <= value < _MOST_SPEAKERS else ""
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        return ""
    return " ".join(clean(value).split())


def _plain(key: str) -> str:
    return fields.plain_key(key).replace("_", "")


def _cleaned(value: str) -> str:
    return clean(without_markup(value)).strip()


def _is_text(value: str) -> bool:
    """Whether there are several words, or a sentence in writing without blanks between them."""
    words = _WORD.findall(value[:200])
    return len(words) > 1 or any(len(word) >= _SENTENCE and max(word) >= _WITHOUT_BLANKS for word in words)


def _letters(text: str) -> str:
    return "".join(_WORD.findall(text.casefold()))
