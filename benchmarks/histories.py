"""Does a split of a repository's commits pass its own check? Histories through `ec1 corpus from-git` and the dataset.

Both ways of holding out are measured: the newest commits (the shipped recipe) and a hash's choice. `known` is the share
of the held-out answers that the audit finds in what is trained on; above `max_known_share` the dataset is refused.

    python -m benchmarks.histories REPOSITORY REPOSITORY
"""

import argparse
import datetime as dt
import logging
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from transformers import AutoTokenizer

from ec1.corpus.buckets import bucket
from ec1.corpus.dataset import REWORDED, build_dataset
from ec1.corpus.from_git import capture
from ec1.corpus.options import DataOptions
from ec1.corpus.snapshots import Snapshot, take_snapshot
from ec1.deployment import load_deployment
from ec1.home import Home
from ec1.models import prepare_model

PROJECT = Path(__file__).resolve().parent.parent
TOKENS = 2_000


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repositories", nargs="+", type=Path, help="clones with their whole history")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    embedded = load_deployment("embedded", PROJECT)
    model = embedded.inference.model
    tokenizer = AutoTokenizer.from_pretrained(
        prepare_model(model, embedded.inference.revision, embedded.models, Home(PROJECT / ".ec1").models)
    )
    print("history              held out    train   held   left out   alike   known   passes   CPU s")
    for number, repository in enumerate(options.repositories):
        with tempfile.TemporaryDirectory() as folder:
            capture(repository, None, None, f"h{number}", "bench", Path(folder) / "engineering", max_tokens=TOKENS)
            home = Home(Path(folder) / "home")
            now = dt.datetime.now(dt.UTC)
            snapshot = take_snapshot(bucket(Path(folder), "engineering", "bench"), "sft", as_of=now, home=home)
            for newest in (True, False):
                print(f"{repository.parent.name:20} {_measured(snapshot, newest, tokenizer, home)}", flush=True)


def _measured(snapshot: Snapshot, newest: bool, tokenizer: object, home: Home) -> str:
    started = time.process_time()
    data = DataOptions(heldout_newest=newest, scrub=False, max_length=TOKENS + 200)
    found = build_dataset(snapshot, data, tokenizer, home=home, objective="sft")
    spent = time.process_time() - started
    assert found.audit is not None
    reworded = found.rejected.get(REWORDED, 0)
    return (
        f"{'newest' if newest else 'by hash':8} {found.train_rows:8} {found.heldout_rows:6} {reworded:10} "
        f"{found.audit.reworded:7} {found.audit.known_share:7.1%}   {'yes' if found.is_clean else 'NO':6} {spent:7.1f}"
    )


if __name__ == "__main__":
    main()
