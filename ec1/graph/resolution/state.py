"""What resolution remembers beside the graph, so that a night's news need not be compared with all of it.

Belongs here: the SQLite file and its look-ups. Does not: what follows from them (`incremental.py`), and when the file
counts (`ladybug_store.py`: it is of the graph whose record has the same `token`, else it is made again).

Entities, documents and what these say are kept as numbers and rows; each block (`blocking.py`) as an ordered index, so
that the next few of an entity are found without reading the block. An entity's row also holds its names and traits as
JSON, since most comparisons need no more, and an entity may be in thousands of documents. Nothing here is the only copy
of anything, but for `statistics`: losing them means newer ones.
"""

import contextlib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from ec1.files import canonical_json, digest_of
from ec1.graph.resolution.blocking import block_keys, place
from ec1.graph.resolution.clusters import VERSION, Band, Cluster, Finding, Link, operator_links
from ec1.graph.resolution.overrides import NO_OVERRIDES, Overrides, Pair
from ec1.graph.resolution.owners import is_own_name
from ec1.graph.resolution.profile import Profile
from ec1.graph.resolution.scoring import Statistics

_SCHEMA = """
CREATE TABLE kept(name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE entity(id INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, names TEXT, traits TEXT, documents INT);
CREATE TABLE document(id INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL);
CREATE TABLE said(entity INT, document INT, name TEXT, PRIMARY KEY(entity, document, name)) WITHOUT ROWID;
CREATE TABLE trait(entity INT, document INT, kind TEXT, value TEXT, PRIMARY KEY(entity, document, kind, value))
    WITHOUT ROWID;
CREATE TABLE block(name TEXT, place TEXT, PRIMARY KEY(name, place)) WITHOUT ROWID;
CREATE TABLE link(one TEXT, other TEXT, band TEXT, score REAL, reasons TEXT, veto TEXT, contested INT,
    final_band TEXT, final_veto TEXT, PRIMARY KEY(one, other)) WITHOUT ROWID;
CREATE TABLE decided(one TEXT, other TEXT, band TEXT, reasons TEXT, PRIMARY KEY(one, other)) WITHOUT ROWID;
CREATE TABLE member(entity TEXT PRIMARY KEY, cluster TEXT) WITHOUT ROWID;
CREATE TABLE cluster(key TEXT PRIMARY KEY, name TEXT, entity_class TEXT) WITHOUT ROWID;
"""
# Made when all rows are there, which takes half the time.
_INDEXES = """
CREATE INDEX said_document ON said(document);
CREATE INDEX trait_document ON trait(document);
CREATE INDEX link_other ON link(other);
CREATE INDEX member_cluster ON member(cluster);
"""
_LINK = "one, other, band, score, reasons, veto"
_AT_ONCE = 500
# A night reads and writes all over the file. SQLite's own 2 MiB hold too little of it, and pages that do not fit are
# written early.
_CACHE_KIB = 65_536
AT_ONE, AT_OTHER = 1, 2
"""At which end a link is contested."""


@dataclass(frozen=True)
class Statements:
    """What one document says: names as (entity, name), traits as (entity, kind, value)."""

    names: frozenset[tuple[str, str]] = frozenset()
    traits: frozenset[tuple[str, str, str]] = frozenset()


@dataclass(frozen=True)
class KeptLink:
    """A link as the comparison said it, at which ends it is contested, and what became of it."""

    found: Link
    contested: int
    final: Link


class ResolutionState:
    """One open file. Raises sqlite3.DatabaseError where the file is damaged."""

    def __init__(self, path: Path | None) -> None:
        """None keeps it in memory."""
        self.database = sqlite3.connect(path if path is not None else ":memory:", isolation_level=None)
        self._run = self.database.execute

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path) -> Iterator["ResolutionState"]:
        """Open a file that exists."""
        state = cls(path)
        try:
            state._run(f"PRAGMA cache_size=-{_CACHE_KIB}")
            yield state
        finally:
            state.database.close()

    # --- the file's own record

    def kept(self) -> dict[str, str]:
        """`token`, `version`, `overrides` and `statistics`."""
        return dict(self._run("SELECT name, value FROM kept"))

    def keep(self, **values: str) -> None:
        self.database.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", values.items())

    def overrides(self) -> Overrides:
        return Overrides.model_validate_json(self.kept().get("overrides") or NO_OVERRIDES.model_dump_json())

    def statistics(self) -> dict[str, Statistics]:
        """The statistics by class that all weights come from."""
        return {name: Statistics(**value) for name, value in json.loads(self.kept()["statistics"]).items()}

    # --- made at once

    def create(
        self,
        names: Iterable[tuple[str, str, str]],
        traits: Iterable[tuple[str, str, str, str]],
    ) -> list[Profile]:
        """Fill an empty file with what documents say, as (entity, document, name) and (entity, document, kind, value);
        returns the profiles of all entities. Memory grows with the graph: about 100 bytes a mention."""
        self.database.executescript(_SCHEMA)
        self._run("PRAGMA synchronous=OFF")
        self._run("BEGIN")
        entities: dict[str, int] = defaultdict(lambda: len(entities) + 1)
        documents: dict[str, int] = defaultdict(lambda: len(documents) + 1)
        spelt: dict[int, set[str]] = defaultdict(set)
        places: dict[int, set[int]] = defaultdict(set)
        said = set()
        for entity, document, name in names:
            row = (entities[entity], documents[document], name)
            said.add(row)
            spelt[row[0]].add(name)
            places[row[0]].add(row[1])
        evidence: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        shown = set()
        for entity, document, kind, value in traits:
            shown.add((entities[entity], documents[document], kind, value))
            evidence[entities[entity]][kind].add(value)
        self.database.executemany(
            "INSERT INTO entity VALUES (?, ?, ?, ?, ?)",
            (
                (number, key, _names_text(spelt[number]), _traits_text(evidence.get(number, {})), len(places[number]))
                for key, number in entities.items()
            ),
        )
        self.database.executemany("INSERT INTO document(key, id) VALUES (?, ?)", documents.items())
        self.database.executemany("INSERT INTO said VALUES (?, ?, ?)", sorted(said))
        self.database.executemany("INSERT INTO trait VALUES (?, ?, ?, ?)", sorted(shown))
        return [
            _profile(key, spelt[number], evidence.get(number, {}), frozenset(map(str, places[number])))
            for key, number in entities.items()
        ]

    def finish(
        self,
        profiles: Iterable[Profile],
        finding: Finding,
        overrides: Overrides,
        statistics: Mapping[str, Statistics],
        token: str,
    ) -> None:
        """Write what was found, and end the transaction of `create`."""
        blocks = sorted((name, place(profile)) for profile in profiles for name in block_keys(profile))
        self.database.executemany("INSERT INTO block VALUES (?, ?)", blocks)
        final = {(link.one, link.other): link for link in finding.resolution.links}
        self.put_links(
            KeptLink(link, _ends(pair, finding.contested.get(pair, frozenset())), final[pair])
            for pair, link in sorted(finding.found.items())
        )
        self.put_decided(operator_links(overrides, {profile.key for profile in profiles}))
        self.put_clusters(finding.resolution.clusters)
        self.keep(
            token=token,
            version=str(VERSION),
            overrides=overrides.model_dump_json(),
            statistics=json.dumps(_plain(statistics)),
        )
        self.database.executescript(_INDEXES)
        if self.database.in_transaction:
            self._run("COMMIT")
        self._run("PRAGMA synchronous=FULL")

    # --- entities and what is said of them

    def has(self, key: str) -> bool:
        return self._run("SELECT 1 FROM entity WHERE key = ?", (key,)).fetchone() is not None

    def profiles(self, keys: Iterable[str]) -> dict[str, Profile]:
        """Entities as their documents show them, without those that the file does not have. Documents go by their
        number, and are read when somebody asks for one: do that before the next `apply`."""
        found = {}
        waiting = iter(keys)
        while some := tuple(islice(waiting, _AT_ONCE)):
            query = f"SELECT id, key, names, traits, documents FROM entity WHERE key IN ({', '.join('?' * len(some))})"
            for number, key, names, traits, count in self._run(query, some):
                documents = _Documents(self, number, count)
                found[key] = _profile(key, json.loads(names), json.loads(traits) if traits else {}, documents)
        return found

    def documents_of(self, entity: int) -> frozenset[str]:
        """The numbers of the documents that name an entity."""
        found = self._run("SELECT DISTINCT document FROM said WHERE entity = ?", (entity,))
        return frozenset(str(number) for (number,) in found)

    def statements(self, document: str) -> Statements:
        names = self._run(
            "SELECT e.key, s.name FROM document d JOIN said s ON s.document = d.id JOIN entity e ON e.id = s.entity "
            "WHERE d.key = ?",
            (document,),
        )
        traits = self._run(
            "SELECT e.key, t.kind, t.value FROM document d JOIN trait t ON t.document = d.id "
            "JOIN entity e ON e.id = t.entity WHERE d.key = ?",
            (document,),
        )
        return Statements(frozenset(names), frozenset(traits))

    def apply(self, changes: Mapping[str, tuple[Statements, Statements]]) -> None:
        """Let documents, by key, say something else than they did. Entities that nothing names any more are still
        there: see `forget`."""
        for document, (was, now) in changes.items():
            self._apply(document, was, now)
        self._sum_up(
            {
                each[0]
                for was, now in changes.values()
                for each in (*(was.names ^ now.names), *(was.traits ^ now.traits))
            }
        )

    def _apply(self, document: str, was: Statements, now: Statements) -> None:
        self._run("INSERT OR IGNORE INTO document(key) VALUES (?)", (document,))
        (number,) = self._run("SELECT id FROM document WHERE key = ?", (document,)).fetchone()
        self.database.executemany(
            "INSERT OR IGNORE INTO entity(key, names) VALUES (?, '[]')",
            [(key,) for key, _ in sorted(now.names - was.names)],
        )
        whose = f"(SELECT id FROM entity WHERE key = ?), {number}"
        where = f"entity = (SELECT id FROM entity WHERE key = ?) AND document = {number}"
        for query, rows in (
            (f"DELETE FROM said WHERE {where} AND name = ?", was.names - now.names),
            (f"DELETE FROM trait WHERE {where} AND kind = ? AND value = ?", was.traits - now.traits),
            (f"INSERT INTO said VALUES ({whose}, ?)", now.names - was.names),
            (f"INSERT INTO trait VALUES ({whose}, ?, ?)", now.traits - was.traits),
        ):
            self.database.executemany(query, sorted(rows))

    def _sum_up(self, keys: Iterable[str]) -> None:
        """Bring the rows of entities up to what their documents say."""
        for key in sorted(keys):
            row = self._run("SELECT id FROM entity WHERE key = ?", (key,)).fetchone()
            if row is None:
                continue
            names = [name for (name,) in self._run("SELECT DISTINCT name FROM said WHERE entity = ?", row)]
            (count,) = self._run("SELECT count(DISTINCT document) FROM said WHERE entity = ?", row).fetchone()
            evidence: dict[str, set[str]] = defaultdict(set)
            for kind, value in self._run("SELECT kind, value FROM trait WHERE entity = ?", row):
                evidence[kind].add(value)
            self._run(
                "UPDATE entity SET names = ?, traits = ?, documents = ? WHERE id = ?",
                (_names_text(names), _traits_text(evidence), count, *row),
            )

    def forget(self, key: str) -> None:
        """Remove an entity that nothing names."""
        self._run("DELETE FROM entity WHERE key = ?", (key,))

    def only_in(self, key: str, documents: frozenset[str]) -> bool:
        """Whether all documents that name an entity are among these; True if none does."""
        found = self._run(
            "SELECT DISTINCT d.key FROM entity e JOIN said s ON s.entity = e.id JOIN document d ON d.id = s.document "
            "WHERE e.key = ? LIMIT ?",
            (key, len(documents) + 1),
        )
        return all(document in documents for (document,) in found)

    # --- blocks

    def members(self, name: str, limit: int = -1) -> list[str]:
        """The places in a block, in order."""
        found = self._run("SELECT place FROM block WHERE name = ? ORDER BY place LIMIT ?", (name, limit))
        return [each for (each,) in found]

    def size(self, name: str) -> int:
        return int(self._run("SELECT count(*) FROM block WHERE name = ?", (name,)).fetchone()[0])

    def below(self, name: str, at: str, count: int) -> list[str]:
        """The places before one, the nearest first."""
        query = "SELECT place FROM block WHERE name = ? AND place < ? ORDER BY place DESC LIMIT ?"
        return [each for (each,) in self._run(query, (name, at, count))]

    def from_here(self, name: str, at: str, count: int) -> list[str]:
        """The place itself, if it is taken, and those after it, in order."""
        query = "SELECT place FROM block WHERE name = ? AND place >= ? ORDER BY place LIMIT ?"
        return [each for (each,) in self._run(query, (name, at, count))]

    def move(self, gone: Mapping[str, set[str]], come: Mapping[str, set[str]]) -> None:
        for query, changes in (
            ("DELETE FROM block WHERE name = ? AND place = ?", gone),
            ("INSERT INTO block VALUES (?, ?)", come),
        ):
            rows = sorted((name, each) for name, places in changes.items() for each in places)
            self.database.executemany(query, rows)

    # --- links

    def link(self, pair: Pair) -> KeptLink | None:
        row = self._run(
            f"SELECT {_LINK}, contested, final_band, final_veto FROM link WHERE one = ? AND other = ?", pair
        ).fetchone()
        return _kept(row) if row else None

    def links(self, pairs: Collection[Pair]) -> dict[Pair, KeptLink]:
        """Those of some pairs that are links."""
        found = {}
        ends = iter(sorted({one for one, _ in pairs}))
        while some := tuple(islice(ends, _AT_ONCE)):
            marks = ", ".join("?" * len(some))
            query = f"SELECT {_LINK}, contested, final_band, final_veto FROM link WHERE one IN ({marks})"
            for row in self._run(query, some):
                if row[:2] in pairs:
                    found[row[:2]] = _kept(row)
        return found

    def links_of(self, key: str) -> list[KeptLink]:
        columns = f"SELECT {_LINK}, contested, final_band, final_veto FROM link WHERE"
        return [_kept(row) for row in self._run(f"{columns} one = ? UNION ALL {columns} other = ?", (key, key))]

    def put_links(self, links: Iterable[KeptLink]) -> None:
        self.database.executemany(
            "INSERT OR REPLACE INTO link VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    each.found.one, each.found.other, each.found.band.value, each.found.score, each.found.reasons,
                    each.found.veto, each.contested, each.final.band.value, each.final.veto,
                )
                for each in links
            ),
        )  # fmt: skip

    def drop_links(self, pairs: Iterable[Pair]) -> None:
        self.database.executemany("DELETE FROM link WHERE one = ? AND other = ?", pairs)

    def decided(self) -> list[Link]:
        """The links that operators made or forbade."""
        found = self._run("SELECT one, other, band, reasons FROM decided")
        return [Link(one, other, Band(band), 0.0, reasons) for one, other, band, reasons in found]

    def put_decided(self, links: Iterable[Link]) -> None:
        self._run("DELETE FROM decided")
        rows = [(each.one, each.other, each.band.value, each.reasons) for each in links]
        self.database.executemany("INSERT INTO decided VALUES (?, ?, ?, ?)", rows)

    # --- clusters

    def cluster_key(self, member: str) -> str | None:
        found = self._run("SELECT cluster FROM member WHERE entity = ?", (member,)).fetchone()
        return str(found[0]) if found else None

    def cluster(self, key: str) -> Cluster:
        name, entity_class = self._run("SELECT name, entity_class FROM cluster WHERE key = ?", (key,)).fetchone()
        members = self._run("SELECT entity FROM member WHERE cluster = ? ORDER BY entity", (key,))
        return Cluster(key, name, entity_class, tuple(member for (member,) in members))

    def put_clusters(self, clusters: Iterable[Cluster]) -> None:
        for each in clusters:
            self._run("INSERT INTO cluster VALUES (?, ?, ?)", (each.key, each.name, each.entity_class))
            rows = [(member, each.key) for member in each.members]
            self.database.executemany("INSERT INTO member VALUES (?, ?)", rows)

    def drop_clusters(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._run("DELETE FROM cluster WHERE key = ?", (key,))
            self._run("DELETE FROM member WHERE cluster = ?", (key,))

    def resolution(self) -> tuple[tuple[Link, ...], tuple[Cluster, ...]]:
        """All links and clusters, sorted, as they stand."""
        columns = f"SELECT {_LINK}, contested, final_band, final_veto FROM link"
        links = [_kept(row).final for row in self._run(columns)]
        keys = [key for (key,) in self._run("SELECT key FROM cluster ORDER BY key")]
        return tuple(sorted([*links, *self.decided()])), tuple(self.cluster(key) for key in keys)


def statistics_digest(statistics: Mapping[str, Statistics]) -> str:
    return digest_of(_plain(statistics))


def _plain(statistics: Mapping[str, Statistics]) -> dict[str, object]:
    return {name: {"size": each.size, "counts": each.counts} for name, each in sorted(statistics.items())}


class _Documents(Set[str]):
    """The documents of one entity, by number; read once, and only if somebody looks at one."""

    def __init__(self, state: ResolutionState, entity: int, count: int) -> None:
        self._state, self._entity, self._count = state, entity, count

    @cached_property
    def _read(self) -> frozenset[str]:
        return self._state.documents_of(self._entity)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __contains__(self, document: object) -> bool:
        return document in self._read

    def isdisjoint(self, other: Iterable[object]) -> bool:
        # The built-in one walks through the smaller of two built-in sets.
        return self._read.isdisjoint(other._read if isinstance(other, _Documents) else other)


def _names_text(names: Iterable[str]) -> str:
    return json.dumps(sorted(names), ensure_ascii=False)


def _traits_text(evidence: Mapping[str, Iterable[str]]) -> str | None:
    return canonical_json({kind: sorted(values) for kind, values in evidence.items()}).decode() if evidence else None


def _profile(key: str, names: Iterable[str], evidence: Mapping[str, Iterable[str]], documents: Set[str]) -> Profile:
    names = frozenset(names)
    # Nearly all have one name, which is their own.
    own = frozenset(name for name in names if is_own_name(key, name)) if len(names) > 1 else names
    kinds = {kind: frozenset(values) for kind, values in evidence.items()}
    return Profile(key, key.partition(":")[0], own or names, kinds, documents, names - own if own else frozenset())


def _ends(pair: Pair, ends: frozenset[str]) -> int:
    return AT_ONE * (pair[0] in ends) | AT_OTHER * (pair[1] in ends)


def _kept(row: tuple[str, str, str, float, str, str | None, int, str, str | None]) -> KeptLink:
    one, other, band, score, reasons, veto, contested, final_band, final_veto = row
    found = Link(one, other, Band(band), score, reasons, veto)
    return KeptLink(found, contested, Link(one, other, Band(final_band), score, reasons, final_veto))
