"""Resolving 10,000, 30,000 and 100,000 entities: the time for each of them should stay about the same.

The names are made: three in four are persons, from surnames and given names of which some are common, as forms of one
another, with slips of the pen and shared documents; the others are firms.

Run: python -m benchmarks.resolve_entities [--sizes 10000,30000,100000]
"""

import argparse
import random
import resource
import time

from ec1.graph.model import entity_key
from ec1.graph.resolution.clusters import Band, resolve
from ec1.graph.resolution.profile import Profile
from ec1.graph.resolution.resolver import without_garbage_collection

SYLLABLES = ("ba", "ver", "lin", "dor", "mi", "ka", "sto", "ren", "al", "qui", "ham", "tor", "ny", "fel", "gra", "us")


def made_names(rng: random.Random, count: int) -> list[str]:
    return ["".join(rng.choices(SYLLABLES, k=rng.randint(2, 4))).capitalize() for _ in range(count)]


def slip(rng: random.Random, name: str) -> str:
    at = rng.randrange(1, len(name))
    return name[:at] + name[at + 1 :] if rng.random() < 0.5 else name[:at] + rng.choice("aeionrst") + name[at:]


def graph(size: int) -> list[Profile]:
    rng = random.Random(size)
    surnames, givens = made_names(rng, size // 8 + 50), made_names(rng, 400)
    # Some surnames are a hundred times as common as others, as in life.
    weights = [1 / (rank + 20) for rank in range(len(surnames))]
    found: dict[str, Profile] = {}
    while len(found) < size:
        document = f"d{rng.randrange(size // 4)}"
        if rng.random() < 0.25:
            name = " ".join(made_names(rng, 2))
            forms, entity_class = [name, f"{name} Co Ltd", slip(rng, name)], "Company"
        else:
            given, surname = rng.choice(givens), rng.choices(surnames, weights)[0]
            initial = rng.choice("ABCDEFGHJKLMNPRSTW")
            name = f"{given} {surname}"
            forms, entity_class = [name, f"{surname}, {given}", f"{given} {initial}. {surname}"], "Person"
            forms += [f"{given[0]}. {surname}", slip(rng, name)]
        for form in forms[: 1 + (rng.random() < 0.4) + (rng.random() < 0.2)] + rng.choices(forms, k=1):
            key = entity_key(form, entity_class)
            found.setdefault(key, Profile(key, entity_class, frozenset([form]), {}, frozenset([document])))
    return list(found.values())[:size]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,30000,100000")
    parser.add_argument("--cpu", action="store_true", help="count CPU time, for a machine that is busy otherwise")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu else time.perf_counter
    print(f"{'entities':>9} {'seconds':>8} {'ms each':>8} {'merged':>8} {'review':>8} {'clusters':>9} {'peak MiB':>9}")
    each = []
    for size in (int(part) for part in arguments.sizes.split(",")):
        profiles = graph(size)
        began = clock()
        # As a night does.
        with without_garbage_collection():
            resolution = resolve(profiles)
        seconds = clock() - began
        each.append(seconds / size)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{size:>9,} {seconds:>8.1f} {1000 * seconds / size:>8.3f} {len(resolution.band(Band.MERGE)):>8,} "
            f"{len(resolution.band(Band.REVIEW)):>8,} {len(resolution.clusters):>9,} {peak:>9.0f}",
            flush=True,
        )
    print(f"time for each entity: slowest / fastest = {max(each) / min(each):.2f}")


if __name__ == "__main__":
    main()
