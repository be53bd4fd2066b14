"""What each group of rules is worth: strict F1 without it, less F1 with all groups, at the oracle and the small model.

On GUM's `unseen` documents, which no rule was written on, and on the bundled sample, beside each other. A figure above
zero means that the extraction is better without the group. With `--record` (a folder that `extraction_quality --record`
filled) the small model's own decisions are read again; without it only the oracle is measured.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks import gum, oracle, sample
from benchmarks._engine import embedded, model_of
from benchmarks._recorded import Recorded
from benchmarks.extraction_quality import MODES, Mode, extract, extractor_of, recorded_name, shipped
from benchmarks.gum import Text
from ec1.extraction.rules import ALL_ON, RULE_GROUPS, RuleGroup
from ec1.extraction.scoring import ScoreTable
from ec1.gpu.engine import ServedAdapter

Measure = Callable[[frozenset[RuleGroup]], ScoreTable]


def _recorded(
    texts: Sequence[Text],
    mode: Mode,
    model: Path,
    adapter: ServedAdapter | None,
    file: Path,
    off: frozenset[RuleGroup],
) -> ScoreTable:
    return extract(texts, extractor_of(mode, model, off, adapter), Recorded(file, None)).table


def main(record: Path | None = None, mode: Mode = "decide", trained: bool = False) -> dict[str, dict[str, float]]:
    """Print and return, for each group, what F1 gains without it."""
    texts = {"GUM unseen": gum.unseen(), "sample": sample.read()}
    texts = {title: each for title, each in texts.items() if each}
    measures: dict[str, Measure] = {}
    deployment, _ = embedded()
    with tempfile.TemporaryDirectory() as scratch:
        for title, each in texts.items():
            answered = [(text, oracle.perfect(text)) for text in each]
            measures[f"{title}, oracle"] = partial(oracle.grounded, answered)
        if record is not None:
            model = model_of(deployment, Path(scratch))
            for title, each in texts.items():
                file = record / f"{title}.{recorded_name(mode, trained)}"
                adapter = shipped() if trained else None
                measures[f"{title}, {mode}"] = partial(_recorded, each, mode, model, adapter, file)
        whole = {title: measure(ALL_ON)["all"].f1 for title, measure in measures.items()}
        print(f"{'':<24}" + "".join(f"{title:>22}" for title in measures))
        print(f"{'all groups':<24}" + "".join(f"{f1:>22.3f}" for f1 in whole.values()), flush=True)
        gains: dict[str, dict[str, float]] = {"all groups": whole}
        for group in RULE_GROUPS:
            off = frozenset({group})
            gains[group] = {title: measure(off)["all"].f1 - whole[title] for title, measure in measures.items()}
            print(
                f"{'without ' + group:<24}" + "".join(f"{gain:>+22.3f}" for gain in gains[group].values()), flush=True
            )
    return gains


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--mode", choices=MODES, default="decide")
    parser.add_argument("--trained", action="store_true", help="what was recorded with the shipped adapter")
    arguments = parser.parse_args()
    main(arguments.record, arguments.mode, arguments.trained)
