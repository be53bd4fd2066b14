"""A part of the training side is held out to choose settings on: whole sources, and always the same."""

from pathlib import Path
from typing import Any

import pytest
from corpus_builder import NIGHT, apprenticeship, edit, write_lines

from ec1.corpus.buckets import bucket
from ec1.corpus.dataset import Dataset, build_dataset
from ec1.corpus.inner_split import inner_split
from ec1.corpus.options import DataOptions
from ec1.corpus.snapshots import take_snapshot
from ec1.corpus.tuples import Objective
from ec1.errors import PermanentError
from ec1.home import Home


def dataset_of(records: list[Any], objective: Objective, root: Path, home: Home, small_model: Path) -> Dataset:
    from transformers import AutoTokenizer

    role = {"sft": "engineering", "dpo": "apprenticeship"}[objective]
    write_lines(root / role / "demo" / "all.jsonl", records)
    snapshot = take_snapshot(bucket(root, role, "acme"), objective, as_of=NIGHT, home=home)
    tokenizer = AutoTokenizer.from_pretrained(small_model)
    return build_dataset(snapshot, DataOptions(), tokenizer, home=home, objective=objective)


@pytest.mark.parametrize(("objective", "make"), [("sft", edit), ("dpo", apprenticeship)])
def test_whole_sources_are_held_out_of_the_training_side(
    tmp_path: Path, home: Home, small_model: Path, objective: Objective, make: Any
) -> None:
    # Two rows of each session, which stay together.
    records = [make(n, session_id=f"s{n // 2}") for n in range(60)]
    dataset = dataset_of(records, objective, tmp_path, home, small_model)
    inner = inner_split(dataset, 0.25, home=home)
    train, heldout = ({row["row"] for row in inner.rows(side)} for side in ("train", "heldout"))
    assert train | heldout == {row["row"] for row in dataset.rows("train")} and not train & heldout
    groups = [{row["group"] for row in inner.rows(side)} for side in ("train", "heldout")]
    assert not groups[0] & groups[1] and (inner.train_groups, inner.heldout_groups) == tuple(map(len, groups))
    assert (inner.train_rows, inner.heldout_rows) == (len(train), len(heldout))
    assert 0.15 < len(heldout) / dataset.train_rows <= 0.25
    assert 0.95 < (inner.tokens + inner.heldout_tokens) / dataset.tokens < 1.05
    assert inner.audit is not None and inner.audit.checked == len(heldout)
    assert inner_split(dataset, 0.25, home=home) == inner != inner_split(dataset, 0.5, home=home)


def test_a_damaged_one_is_made_again(tmp_path: Path, home: Home, small_model: Path) -> None:
    dataset = dataset_of([edit(n) for n in range(40)], "sft", tmp_path, home, small_model)
    inner = inner_split(dataset, 0.25, home=home)
    (inner.path / "train" / "rows.parquet").write_bytes(b"PAR1")
    assert inner_split(dataset, 0.25, home=home) == inner and len(inner.rows("train")) == inner.train_rows


def test_one_source_cannot_be_parted(tmp_path: Path, home: Home, small_model: Path) -> None:
    records = [edit(n, session_id="a" if n < 20 else "b") for n in range(32)]
    dataset = dataset_of(records, "sft", tmp_path, home, small_model)
    assert dataset.train_groups == 1
    with pytest.raises(PermanentError, match=r"one source only.*--on-held-out"):
        inner_split(dataset, 0.25, home=home)
