"""Finding the sentences of all documents that share words with a question.

Belongs here: an index of words beside a published graph, and asking it. Does not: which sentence answers
(`ec1.queries.answers`). SQLite's FTS5 keeps which words stand in a sentence, under which names the graph knows what it
mentions, and which words stand around it: no text. As the index of names (`search_index.py`) it belongs to one
publication, goes with it, and is made by the first question after it.
"""

import contextlib
import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ec1.documents.chunks import sentences
from ec1.documents.ledger import DocumentKey
from ec1.errors import DeferredError, RejectedError
from ec1.extraction.wordlists import word_list
from ec1.graph import tables
from ec1.graph.index_file import index_of, quoted
from ec1.graph.quotes import Quotes
from ec1.graph.reader import GraphReader

_TOKENS = "tokenize='porter unicode61 remove_diacritics 2'"
_SCHEMA = f"""
CREATE TABLE made_from(state TEXT, unread INT);
CREATE TABLE document(id INTEGER PRIMARY KEY, stream TEXT, path TEXT, content_sha256 TEXT);
CREATE TABLE sentence(id INTEGER PRIMARY KEY, document INT, start INT, finish INT, things TEXT, figures INT, asks INT);
CREATE TABLE thing(key TEXT PRIMARY KEY, names TEXT);
CREATE VIRTUAL TABLE said USING fts5(sentence, names, around, content='', {_TOKENS});
CREATE VIRTUAL TABLE word USING fts5vocab(said, col);
"""
_BEFORE, _AFTER = 2, 1
"""How many sentences on either side stand around one."""
_LONGEST = 1_000
"""Characters of a sentence that stands around another: a table without a full stop is one sentence."""
# What is left of a genitive is no word.
_WORD = re.compile(r"(?<!['’])\w+")
_FIGURE = re.compile(
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|"
    r"(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand|million|dozen|half|thirds?|quarters?|once|twice)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class FoundSentence:
    """A sentence, by its document and characters `[start, end)`. `said` are the question's words that it has, by itself
    or under the names of what it mentions; `around` those that stand beside it. `things` are the entities that it
    mentions, by key; `figures`: whether it has a number; `asks`: whether it is a question itself."""

    document: DocumentKey
    content_sha256: str
    start: int
    end: int
    said: frozenset[str]
    around: frozenset[str]
    things: tuple[str, ...]
    figures: bool
    asks: bool


class SentenceIndex:
    """The index, open."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._index = connection

    @property
    def size(self) -> int:
        """How many sentences there are."""
        return int(self._index.execute("SELECT max(id) FROM sentence").fetchone()[0] or 0)

    @property
    def unread(self) -> int:
        """How many documents could not be read again when it was made."""
        return int(self._index.execute("SELECT unread FROM made_from").fetchone()[0])

    def words_of(self, text: str) -> tuple[str, ...]:
        """The words of a text that carry its meaning, each once, as the index has them: folded, without endings."""
        return _words_of([text])[0]

    def names_of(self, things: Iterable[str]) -> dict[str, list[frozenset[str]]]:
        """The names of some things, by key, each as its words."""
        found: list[tuple[str, str]] = []
        for thing in dict.fromkeys(things):
            row = self._index.execute("SELECT names FROM thing WHERE key = ?", (thing,)).fetchone()
            found += [(thing, name) for name in (row[0].split("\n") if row else ())]
        names: dict[str, list[frozenset[str]]] = defaultdict(list)
        for (thing, _), words in zip(found, _words_of([name for _, name in found]), strict=True):
            names[thing].append(frozenset(words))
        return names

    def sentences_with(self, word: str) -> int:
        """In how many sentences a word is."""
        found = self._index.execute("SELECT doc FROM word WHERE term = ? AND col = 'sentence'", (word,)).fetchone()
        return found[0] if found else 0

    def find(self, words: Sequence[str], limit: int) -> list[FoundSentence]:
        """The sentences that share most with some words, by BM25, the best first."""
        if not words:
            return []
        ranked = self._index.execute(
            "SELECT rowid FROM said WHERE said MATCH ? AND rank MATCH 'bm25(2.0, 2.0, 0.7)' ORDER BY rank LIMIT ?",
            (" OR ".join(map(quoted, words)), limit),
        ).fetchall()
        own: dict[int, set[str]] = {row: set() for (row,) in ranked}
        beside: dict[int, set[str]] = {row: set() for (row,) in ranked}
        among = ",".join(map(str, own))
        for word in words:
            for columns, has in (("{sentence names}", own), ("around", beside)):
                for (row,) in self._index.execute(
                    f"SELECT rowid FROM said WHERE said MATCH ? AND rowid IN ({among})",
                    (f"{columns}: {quoted(word)}",),
                ):
                    has[row].add(word)
        return [self._sentence(row, frozenset(own[row]), frozenset(beside[row])) for row in own]

    def _sentence(self, row: int, own: frozenset[str], beside: frozenset[str]) -> FoundSentence:
        stream, path, content, start, end, things, figures, asks = self._index.execute(
            "SELECT d.stream, d.path, d.content_sha256, s.start, s.finish, s.things, s.figures, s.asks "
            "FROM sentence s JOIN document d ON d.id = s.document WHERE s.id = ?",
            (row,),
        ).fetchone()
        key = DocumentKey(stream, tables.original_path(path))
        held = tuple(json.loads(things))
        return FoundSentence(key, content, start, end, own, beside - own, held, bool(figures), bool(asks))


def _words_of(texts: Sequence[str]) -> list[tuple[str, ...]]:
    found: list[dict[str, None]] = [{} for _ in texts]
    with contextlib.closing(sqlite3.connect(":memory:")) as words:
        words.execute(f"CREATE VIRTUAL TABLE said USING fts5(sentence, {_TOKENS})")
        words.execute("CREATE VIRTUAL TABLE word USING fts5vocab(said, instance)")
        for number, text in enumerate(texts):
            kept = [each for each in _WORD.findall(text) if each.casefold() not in word_list("stop")]
            words.execute("INSERT INTO said(rowid, sentence) VALUES (?, ?)", (number, " ".join(kept)))
        for term, number in words.execute("SELECT term, doc FROM word ORDER BY doc, offset"):
            found[number][term] = None
    return [tuple(each) for each in found]


def sentence_index_path(graph: Path) -> Path:
    return graph.with_name(f"{graph.name}.sentences")


@contextlib.contextmanager
def opened(reader: GraphReader, quotes: Quotes) -> Iterator[SentenceIndex]:
    """The index of the published graph that `reader` reads; made, from its documents, if there is none of it."""
    with reader.reading() as connection:
        state = tables.meta(connection)["state"]
    path = sentence_index_path(reader.path)

    def fill(index: sqlite3.Connection) -> None:
        index.execute("INSERT INTO made_from VALUES (?, ?)", (state, _fill(index, reader, quotes)))

    with contextlib.closing(index_of(path, state, _SCHEMA, fill, "sentences")) as index:
        yield SentenceIndex(index)


@dataclass(frozen=True)
class _Place:
    start: int
    thing: str


def _fill(index: sqlite3.Connection, reader: GraphReader, quotes: Quotes) -> int:
    """Returns how many documents could not be read again."""
    with reader.reading() as connection:
        names, homes = _names(connection)
        documents = {row["key"]: row for row in tables.all_documents(connection) if row["applied_content"]}
        places: dict[str, list[_Place]] = defaultdict(list)
        for page in tables.mention_tables(connection, ("name", "start_char")):
            columns = (page[each].to_pylist() for each in ("document", "entity", "name", "start_char"))
            for document, entity, name, start in zip(*columns, strict=True):
                thing = homes.get(entity, entity)
                places[document].append(_Place(start, thing))
                names[thing].add(name)
    index.executemany(
        "INSERT INTO thing VALUES (?, ?)", ((key, "\n".join(sorted(each))) for key, each in names.items())
    )
    unread = 0
    for number, (key, row) in enumerate(sorted(documents.items()), 1):
        try:
            document = quotes.document(
                DocumentKey(row["stream"], tables.original_path(row["path"])), row["applied_content"]
            )
        except (DeferredError, RejectedError):
            unread += 1
            continue
        index.execute(
            "INSERT INTO document VALUES (?, ?, ?, ?)", (number, row["stream"], row["path"], row["applied_content"])
        )
        about = f"{document.title} {PurePosixPath(document.key.path).stem}"
        for start, end, said, called, around, things in _sentences(document.text, about, places[key], names):
            cursor = index.execute(
                "INSERT INTO sentence(document, start, finish, things, figures, asks) VALUES (?, ?, ?, ?, ?, ?)",
                (number, start, end, json.dumps(things), _FIGURE.search(said) is not None, said.rstrip().endswith("?")),
            )
            index.execute(
                "INSERT INTO said(rowid, sentence, names, around) VALUES (?, ?, ?, ?)",
                (cursor.lastrowid, said, called, around),
            )
    return unread


def _sentences(
    text: str, about: str, places: Iterable[_Place], names: Mapping[str, Iterable[str]]
) -> Iterator[tuple[int, int, str, str, str, list[str]]]:
    """Of each sentence: its characters, its text, the names of what it mentions, what is around it, and the keys."""
    spans = [(start, end) for start, end in sentences(text) if text[start:end].strip()]
    ordered = sorted(places, key=lambda place: place.start)
    inside: list[list[str]] = []
    at = 0
    for start, end in spans:
        while at < len(ordered) and ordered[at].start < start:
            at += 1
        held = []
        while at < len(ordered) and ordered[at].start < end:
            held.append(ordered[at].thing)
            at += 1
        inside.append(sorted(set(held)))
    called = [" ".join(name for thing in held for name in names[thing]) for held in inside]
    for number, (start, end) in enumerate(spans):
        near = [*range(max(0, number - _BEFORE), number), *range(number + 1, min(len(spans), number + 1 + _AFTER))]
        around = " ".join(f"{text[slice(*spans[each])][:_LONGEST]} {called[each]}" for each in near)
        said = text[start:end]
        first = start + len(said) - len(said.lstrip())
        yield first, start + len(said.rstrip()), said, called[number], f"{about} {around}", inside[number]


def _names(connection: object) -> tuple[dict[str, set[str]], dict[str, str]]:
    """The names of each thing, and which thing a key that is one of several belongs to."""
    homes: dict[str, str] = {}
    names: dict[str, set[str]] = defaultdict(set)
    for row in tables.rows(
        connection,
        "MATCH (e:Entity)-[:MEMBER_OF]->(c:Cluster) RETURN e.key AS entity, c.key AS cluster, c.name AS name",
    ):
        homes[row["entity"]] = row["cluster"]
        names[row["cluster"]].add(row["name"])
    for row in tables.all_entities(connection):
        names[homes.get(row["key"], row["key"])].add(row["name"])
    return names, homes
