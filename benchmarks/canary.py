"""How often a trial's arm is taken out that is no worse, and after how many answers one that is: simulated trials.

Each trial gives two arms an answer by turns and asks after every one, as `ec1 serve` does at most once a second. No
engine and no model: what is measured is the rule of `ec1/serving/canary.py`.
"""

import argparse
import random
import statistics
from typing import Any

from ec1.serving.canary import is_worse

CASES = ((0.02, 0.02), (0.2, 0.2), (0.02, 0.2), (0.02, 0.06), (0.2, 0.5))


def taken_out(generator: random.Random, other: float, arm: float, answers: int) -> int | None:
    """After how many of its answers the arm is taken out, None if it is not."""
    bad = other_bad = 0
    for count in range(1, answers + 1):
        bad += generator.random() < arm
        other_bad += generator.random() < other
        if is_worse(bad, count, other_bad, count):
            return count
    return None


def main(trials: int = 2000, answers: int = 2000) -> list[dict[str, Any]]:
    """Print and return the figures."""
    figures = []
    for other, arm in CASES:
        generator = random.Random(f"{other} {arm}")
        ends = [taken_out(generator, other, arm, answers) for _ in range(trials)]
        found = [end for end in ends if end is not None]
        row = {
            "bad_in_use": other,
            "bad_of_arm": arm,
            "trials": trials,
            "answers_of_each": answers,
            "taken_out": len(found) / trials,
            "median_answers": statistics.median(found) if found else None,
        }
        print(row)
        figures.append(row)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--answers", type=int, default=2000)
    main(**vars(parser.parse_args()))
