"""How well resolution finds what is one thing: precision and recall over pairs, on gold data, by what it was fitted on.

Names of GUM (people, organisations, places; two names are one thing where coreference says so) in three parts: `gum`,
which the rules were written on; of `gum-more`, the documents that may be looked at and those that nobody looked at
(int(sha1(stem), 16) % 3 == 0). Names of people in novels (LitBank), in two parts.
Contact records of FEBRL 1 and 3. A pair is two names of one document, or two records. Beside that, of the bundled
sample: how many mentions of people are left with somebody of whom only one word is known, and how many short names
found the person whom the gold says.

Run: python -m benchmarks.resolution_quality [--show PART] [--litbank FOLDER]
"""

import argparse
import csv
import itertools
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import litbank, sample
from benchmarks.gum import CLASSES, DATA, is_unseen, marked, parsed
from ec1.graph.model import entity_key
from ec1.graph.reader import GraphReader
from ec1.graph.resolution.clusters import resolve
from ec1.graph.resolution.names import TITLES
from ec1.graph.resolution.owners import owners
from ec1.graph.resolution.profile import Profile

_NAME_TAGS = {"PROPN", "ADP", "CCONJ", "PUNCT", "NUM", "DET"}
Pairs = set[tuple[str, str]]


def parts(data: Path) -> dict[str, list[Path]]:
    """The documents by what they were used for."""
    more = sorted((data / "gum-more").glob("*.conllu"))
    return {
        "gum (fitted on)": sorted((data / "gum").glob("*.conllu")),
        "gum-more (seen)": [path for path in more if not is_unseen(path.stem)],
        "gum-more (unseen)": [path for path in more if is_unseen(path.stem)],
    }


def named(path: Path) -> Iterator[tuple[str, str, str]]:
    """The names of a document: key of the entity, name, and what it refers to."""
    for _, tokens in parsed(path):
        for mark in marked(tokens):
            words = tokens[mark.first : mark.last + 1]
            words = list(itertools.dropwhile(lambda word: word.tag in ("DET", "PUNCT"), words))
            tags = {word.tag for word in words}
            if mark.kind not in CLASSES or not words or words[0].tag != "PROPN" or tags - _NAME_TAGS:
                continue
            name = re.sub(r" (?=[,.]|'s)", "", " ".join(each.form for each in words))
            yield entity_key(name, CLASSES[mark.kind]), name, mark.identity


Documents = Mapping[str, Sequence[tuple[str, str, str]]]
"""The names of each document: key of the entity, name, and what it refers to."""


def entities(documents: Documents) -> tuple[list[Profile], dict[tuple[str, str], str]]:
    """As the graph has them before it compares them, a short name with the one whom it fits in its document; and which
    of them each document's keys belong to."""
    names: dict[str, set[str]] = defaultdict(set)
    called: dict[str, set[str]] = defaultdict(set)
    where = defaultdict(set)
    homes = {}
    for document, rows in documents.items():
        owned = owners(name for key, name, _ in rows if key.startswith("Person:"))
        for key, name, _ in rows:
            home = owned.get(name, key) if key.startswith("Person:") else key
            (names if home == key else called)[home].add(name)
            where[home].add(document)
            homes[document, key] = home
    profiles = [
        Profile(key, key.partition(":")[0], frozenset(names[key]), {}, frozenset(where[key]), frozenset(called[key]))
        for key in sorted(names)
    ]
    return profiles, homes


def found_and_true(documents: Documents) -> tuple[int, Pairs, Pairs, Pairs]:
    """What resolution makes of the names: the number of entities; the pairs of names in a document that are one, and
    those of a review as well; those that should be."""
    profiles, homes = entities(documents)
    identities = defaultdict(set)
    for document, rows in documents.items():
        for key, _, identity in rows:
            identities[document, key].add(identity)
    resolution = resolve(profiles)
    cluster = {member: each.key for each in resolution.clusters for member in each.members}
    review = {(link.one, link.other) for link in resolution.links if link.veto is None}
    found, linked, true = set(), set(), set()
    for (document, one), (same, other) in itertools.combinations(sorted(homes), 2):
        if document != same or one.partition(":")[0] != other.partition(":")[0]:
            continue
        pair = (f"{document} {one}", other)
        ends = tuple(sorted((homes[document, one], homes[document, other])))
        if ends[0] == ends[1] or cluster.get(ends[0], ends[0]) == cluster.get(ends[1], ends[1]):
            found.add(pair)
        if pair in found or ends in review:
            linked.add(pair)
        if identities[document, one] & identities[document, other]:
            true.add(pair)
    return len(profiles), found, linked, true


def gum(paths: list[Path]) -> tuple[list[Profile], Pairs]:
    """The entities of documents, and which two are one thing."""
    documents = {path.name: list(named(path)) for path in paths}
    profiles, homes = entities(documents)
    identities = defaultdict(set)
    for document, rows in documents.items():
        for key, _, identity in rows:
            identities[homes[document, key]].add((document, identity))
    true = {
        (one, other)
        for one, other in itertools.combinations(sorted(identities), 2)
        if identities[one] & identities[other] and one.partition(":")[0] == other.partition(":")[0]
    }
    return profiles, true


def febrl(path: Path) -> tuple[list[Profile], Pairs]:
    """Contact records as entities with evidence, and which two are one person."""
    with path.open(encoding="utf-8", newline="") as stream:
        return febrl_rows(csv.DictReader(stream, skipinitialspace=True))


def febrl_rows(rows: Iterable[Mapping[str, str]]) -> tuple[list[Profile], Pairs]:
    """As `febrl`, of rows that are read already."""
    profiles, groups = [], defaultdict(list)
    for row in rows:
        evidence = {
            "house_number": [row["street_number"]],
            "street": [row["address_1"], row["address_2"]],
            "city": [row["suburb"]],
            "postcode": [row["postcode"]],
            "region": [row["state"]],
            "birth_date": [row["date_of_birth"]],
            "identifier": [row["soc_sec_id"]],
        }
        attributes = {kind: frozenset(filter(None, values)) for kind, values in evidence.items()}
        name = f"{row['given_name']} {row['surname']}".strip() or "unknown"
        kept = {kind: values for kind, values in attributes.items() if values}
        profiles.append(Profile(row["rec_id"], "Person", frozenset([name]), kept))
        groups[row["rec_id"].split("-")[1]].append(row["rec_id"])
    return profiles, {pair for keys in groups.values() for pair in itertools.combinations(sorted(keys), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--litbank", type=Path, help="the folder coref/brat of a checkout of dbamman/litbank")
    parser.add_argument("--show", help="list what is wrong in this part; never of the unseen one")
    arguments = parser.parse_args()
    print(
        f"{'data':<20} {'entities':>8} {'true':>6} {'merged':>6} {'right':>6} {'precision':>9} "
        f"{'recall':>7} {'review':>7}"
    )
    for name, (size, found, linked, true) in _measured(arguments.data, arguments.litbank):
        right = len(found & true)
        print(
            f"{name:<20} {size:>8} {len(true):>6} {len(found):>6} {right:>6} "
            f"{right / max(len(found), 1):>9.3f} {right / max(len(true), 1):>7.3f} "
            f"{len(linked & true) / max(len(true), 1):>7.3f}",
            flush=True,
        )
        if arguments.show and arguments.show in name and "unseen" not in name:
            for label, pairs in (("wrong", found - true), ("missed", true - found)):
                for one, other in sorted(pairs):
                    print(f"    {label}: {one} | {other}{'  (review)' if (one, other) in linked else ''}")

    _print_short_names()


def _print_short_names() -> None:
    """Of the sample, with the gold's names as mentions: whose the names of one word, and those with a title, became."""
    said: dict[tuple[str, str], str] = {}
    for row in map(json.loads, sample.GOLD.read_text().splitlines()):
        people = {each["name"]: each for each in row["entities"] if each["class"] == "Person"}
        for name, each in people.items():
            owner = each.get("same_as", name)
            said[row["path"], name.casefold()] = people.get(owner, {}).get("same_as", owner)
    total = alone = right = wrong = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        GraphReader(sample.publish(Path(folder))) as reader,
    ):
        for entity in reader.entities(limit=None, entity_class="Person"):
            short = len(_plain(entity.name)) == 1
            for mention in reader.mentions_of(*(entity.members or (entity.key,))):
                total += 1
                alone += short
                if not short and len(_plain(mention.name)) == 1:
                    is_right = said[mention.path, mention.name.casefold()] == entity.name
                    right, wrong = right + is_right, wrong + (not is_right)
    print(
        f"sample: {alone} of {total} mentions of people are left with a name of one word; "
        f"of {right + wrong} short names that found their owner {right} are right"
    )


def _plain(name: str) -> list[str]:
    return [word for word in name.split() if word.casefold().rstrip(".") not in TITLES]


def _measured(data: Path, novels: Path | None) -> Iterator[tuple[str, tuple[int, Pairs, Pairs, Pairs]]]:
    for name, paths in parts(data).items():
        if paths:
            yield name, found_and_true({path.name: list(named(path)) for path in paths})
    for name, paths in litbank.parts(novels).items() if novels else ():
        yield name, found_and_true({path.name: list(litbank.named(path)) for path in paths})
    for path in sorted((data / "febrl").glob("*.csv")):
        profiles, true = febrl(path)
        resolution = resolve(profiles)
        found = {pair for each in resolution.clusters for pair in itertools.combinations(each.members, 2)}
        linked = found | {(link.one, link.other) for link in resolution.links if link.veto is None}
        yield f"febrl {path.stem}", (len(profiles), found, linked, true)


if __name__ == "__main__":
    main()
