"""Resolution on gold coreference: names of one person, firm or place in real interviews, news and court papers."""

import itertools
import re
from collections import defaultdict
from pathlib import Path

from benchmarks.gum import CLASSES
from benchmarks.resolution_quality import NAME_TAGS, spans
from ec1.graph.model import entity_key
from ec1.graph.resolution import resolve
from ec1.graph.scoring import Profile


def test_merges_on_gold_coreference_are_right(shared_data: Path) -> None:
    names, documents, identities = defaultdict(set), defaultdict(set), defaultdict(set)
    for path in sorted((shared_data / "gum").glob("*.conllu")):
        for identity, kind, words in spans(path):
            named = list(itertools.dropwhile(lambda word: word[1] in ("DET", "PUNCT"), words))
            if kind not in CLASSES or not named or named[0][1] != "PROPN" or {tag for _, tag in named} - NAME_TAGS:
                continue
            name = re.sub(r" (?=[,.]|'s)", "", " ".join(word for word, _ in named))
            key = entity_key(name, CLASSES[kind])
            names[key].add(name)
            documents[key].add(path.name)
            identities[key].add((path.name, identity))
    resolution = resolve(
        Profile(key, key.split(":")[0], frozenset(names[key]), {}, frozenset(documents[key])) for key in names
    )
    found = {pair for cluster in resolution.clusters for pair in itertools.combinations(cluster.members, 2)}
    true = {
        (one, other)
        for one, other in itertools.combinations(sorted(names), 2)
        if identities[one] & identities[other] and one.split(":")[0] == other.split(":")[0]
    }
    linked = {(link.one, link.other) for link in resolution.links if link.veto is None}
    precision, recall = len(found & true) / len(found), len(found & true) / len(true)
    print(
        f"{len(names)} names, {len(true)} true pairs: merged {len(found)}, precision {precision:.2f}, recall "
        f"{recall:.2f}; with the review band recall {len((found | linked) & true) / len(true):.2f}"
    )
    assert precision >= 0.95
    assert recall >= 0.4
