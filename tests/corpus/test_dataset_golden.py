"""Which rows a dataset has, on which side, and why the others have not: fixed for ever, whatever the steps become.

The corpora are random and awkward: equal and nearly equal tuples, shared sessions, other roles mixed in. A digest here
changes only with `VERSION` in `ec1/corpus/dataset.py`: yesterday's held-out rows must not be trained on tomorrow.
"""

import random
from pathlib import Path
from typing import Any

import pytest
from corpus_builder import NIGHT, write_lines

from ec1.corpus.buckets import bucket
from ec1.corpus.dataset import Dataset, build_dataset
from ec1.corpus.options import DataOptions
from ec1.corpus.snapshots import take_snapshot
from ec1.files import digest_of
from ec1.home import Home

WORDS = [f"{first}{second}" for first in ("load", "send", "drop", "sort") for second in ("_order", "_slot", "_claim")]


def awkward(seed: int, count: int) -> list[dict[str, Any]]:
    """Records of chosen sessions and dates, of which many say the same as others or nearly."""
    rng = random.Random(seed)
    records: list[dict[str, Any]] = []
    for number in range(count):
        kind = rng.random()
        if records and kind < 0.1:
            record = dict(rng.choice(records)) | {"idx": number}
        elif records and kind < 0.35:
            record = dict(rng.choice(records))
            words = record["completion"].split()
            words[rng.randrange(len(words))] = rng.choice(WORDS)
            record["completion"] = " ".join(words)
        else:
            words = [f"{rng.choice(WORDS)}_{rng.randrange(40)}" for _ in range(60)]
            record = {"prompt": f"{rng.choice(WORDS)} {rng.randrange(3 * count)}?", "completion": " ".join(words)}
        record |= {"metadata": {"session_id": f"S{rng.randrange(count)}", "thread": f"T{rng.randrange(count)}"}}
        if rng.random() < 0.7:
            record["created"] = f"2026-05-{rng.randrange(1, 29):02}T00:00:00Z"
        records.append(record)
    return records


def built(folder: Path, corpus: int, tokenizer: Any, **options: Any) -> Dataset:
    home = Home(folder / "home")
    snapshots = {}
    for role, other, count in (("texts", 0, 150), ("general", 1000, 60)):
        # A few tuples stand in both buckets.
        records = awkward(corpus + other, count) + (awkward(corpus, 20) if other else [])
        write_lines(folder / role / "all.jsonl", records)
        snapshots[role] = take_snapshot(bucket(folder, role, "acme"), "sft", as_of=NIGHT, home=home)
    # Nothing here is a secret, and looking for some takes most of the time.
    data = DataOptions(**{"scrub": False} | options)
    mixed = {role: snapshots[role] for role in data.mix}
    return build_dataset(snapshots["texts"], data, tokenizer, home=home, objective="sft", mixed=mixed)


def content(dataset: Dataset) -> str:
    """A digest of all that the steps decide, and of nothing that the tokenizer's release does."""
    rows = {side: [[row["row"], row["group"]] for row in dataset.rows(side)] for side in ("train", "heldout")}  # type: ignore[arg-type]
    rejects = (dataset.path / "rejects.jsonl").read_text().splitlines()
    return digest_of([rows, rejects, dataset.rejected, dataset.train_groups, dataset.heldout_groups, dataset.mixed])


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"scrub": True},
    "half": {"heldout_share": 0.5, "seed": 3},
    "tiny share": {"heldout_share": 0.0001},
    "newest": {"heldout_newest": True},
    "by thread": {"group_by": ("metadata.thread",), "near_duplicate_similarity": 0.8},
    "mixed": {"mix": {"general": 0.5}},
    "limited": {"max_rows": 40, "mix": {"general": 2.0}},
    "only equal": {"near_duplicate_similarity": 1},
}
GOLDEN: dict[tuple[str, int], str] = {
    ("plain", 1): "fcae85fb123e2938",
    ("half", 1): "b680046fcb91543b",
    ("tiny share", 1): "beb026d419941fd5",
    ("newest", 1): "fc8bd23e8afbfb10",
    ("by thread", 1): "05ae079a236d9784",
    ("mixed", 1): "24f51a627ec1fbf3",
    ("limited", 1): "fde17c31f3068cd0",
    ("only equal", 1): "671d288988418e69",
}


@pytest.mark.parametrize(("name", "seed"), GOLDEN)
def test_the_steps_choose_the_rows_that_they_always_chose(
    name: str, seed: int, tmp_path: Path, small_model: Path
) -> None:
    from transformers import AutoTokenizer

    dataset = built(tmp_path, seed, AutoTokenizer.from_pretrained(small_model), **OPTIONS[name])
    assert dataset.leaks == []
    assert content(dataset)[:16] == GOLDEN[name, seed]
