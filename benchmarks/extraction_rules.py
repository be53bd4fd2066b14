"""What each group of rules is worth: strict F1 without it, less F1 with all groups, at the oracle and the small model.

On GUM's `unseen` documents and on those of invented organisations, which no rule was written on, and on the bundled
sample, beside each other. A figure above zero means that the extraction is better without the group. The small model is
asked with `--record`, a folder that keeps its answers; what `extraction_quality --record` put there is not asked again.
Without it only the oracle is measured.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks import gum, oracle, organisations, sample
from benchmarks._engine import embedded, model_of, serving
from benchmarks._recorded import Recorded
from benchmarks.extraction_quality import MODES, Mode, extract, extractor_of, recorded_name, shipped
from benchmarks.gum import Text
from ec1.extraction.openai import OpenAIClient
from ec1.extraction.rules import ALL_ON, RULE_GROUPS
from ec1.extraction.scoring import ScoreTable
from ec1.gpu.engine import ServedAdapter
from ec1.vocabulary import RuleGroup

Measure = Callable[[frozenset[RuleGroup]], ScoreTable]


def _recorded(
    texts: Sequence[Text],
    mode: Mode,
    model: Path,
    adapter: ServedAdapter | None,
    client: Callable[[], Recorded],
    off: frozenset[RuleGroup],
) -> ScoreTable:
    return extract(texts, extractor_of(mode, model, off, adapter), client()).table


def main(record: Path | None = None, mode: Mode = "decide", trained: bool = False) -> dict[str, dict[str, float]]:
    """Print and return, for each group, what F1 gains without it."""
    texts = {"GUM unseen": gum.unseen(), "organisations": organisations.unseen(), "sample": sample.read()}
    if not trained:
        # The shipped adapter learnt them; the model itself did not, and no rule was written on them.
        texts["organisations, learnt"] = organisations.learnt()
    texts = {title: each for title, each in texts.items() if each}
    measures: dict[str, Measure] = {}
    deployment, settings = embedded()
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        for title, each in texts.items():
            answered = [(text, oracle.perfect(text)) for text in each]
            measures[f"{title}, oracle"] = partial(oracle.grounded, answered)
        if record is not None:
            record.mkdir(parents=True, exist_ok=True)
            model, adapter = model_of(deployment, Path(scratch)), shipped() if trained else None
            endpoint = stack.enter_context(serving(deployment, settings, model, adapter))

            def client(file: Path) -> Recorded:
                asked = OpenAIClient(endpoint.base_url, endpoint.model, deployment.extraction, ends_repetition=trained)
                return Recorded(file, asked)

            for title, each in texts.items():
                answers = partial(client, record / f"{title}.{recorded_name(mode, trained)}")
                measures[f"{title}, {mode}"] = partial(_recorded, each, mode, model, adapter, answers)
        whole = {title: measure(ALL_ON)["all"].f1 for title, measure in measures.items()}
        print(f"{'':<32}" + "".join(f"{title:>32}" for title in measures))
        print(f"{'all groups':<32}" + "".join(f"{f1:>32.3f}" for f1 in whole.values()), flush=True)
        gains: dict[str, dict[str, float]] = {"all groups": whole}
        for group in RULE_GROUPS:
            off = frozenset({group})
            gains[group] = {title: measure(off)["all"].f1 - whole[title] for title, measure in measures.items()}
            print(
                f"{'without ' + group:<32}" + "".join(f"{gain:>+32.3f}" for gain in gains[group].values()), flush=True
            )
    return gains


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, help="folder that keeps what the model said")
    parser.add_argument("--mode", choices=MODES, default="decide")
    parser.add_argument("--trained", action="store_true", help="what was recorded with the shipped adapter")
    arguments = parser.parse_args()
    main(arguments.record, arguments.mode, arguments.trained)
