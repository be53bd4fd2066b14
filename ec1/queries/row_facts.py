"""What a page says of one row beyond its texts: how a model reads it, which versions learnt it, where else it is.

Belongs here: joining rows with runs and versions. Does not: reading rows (`rows`).
"""

import functools
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ec1.errors import EC1Error, InputError
from ec1.night.steps.log_book import runs
from ec1.queries.adapters import Learners, descendants, version_ids
from ec1.queries.desk import Desk
from ec1.queries.rows import DatasetRows, Row, SnapshotRows, open_source, sources

__all__ = ["Learners", "TokenPiece", "learners_of", "learners_of_question", "source_row", "tokens_of"]


@dataclass(frozen=True)
class TokenPiece:
    """A stretch of what a model reads: whether it is `learnt` (counts in the loss), and whether it is a token of the
    `template` and no text."""

    text: str
    learnt: bool
    template: bool
    tokens: int


def tokens_of(desk: Desk, key: str, number: int) -> tuple[TokenPiece, ...]:
    """A dataset's row as its model reads it. Raises InputError where that is not known: for pairs, and where no
    training of the dataset left a tokenizer here."""
    source = open_source(desk, key)
    if not isinstance(source, DatasetRows):
        raise InputError("a snapshot has no tokens yet: they are made with its dataset")
    ids, mask = source.tokens_of(number)
    tokenizer = _tokenizer(_tokenizer_file(desk, source.summary.digest))
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    found, marks = [], [(each, bool(learnt), each in special) for each, learnt in zip(ids, mask, strict=True)]
    # Together: a letter may be made of several tokens.
    for (learnt, template), members in groupby(marks, key=lambda each: each[1:]):
        these = [each for each, _, _ in members]
        found.append(TokenPiece(tokenizer.decode(these, skip_special_tokens=False), learnt, template, len(these)))
    return tuple(found)


def _tokenizer_file(desk: Desk, digest: str) -> Path:
    for run in reversed(runs(desk.home)):
        path = Path(run.spec.base_model) / "tokenizer.json"
        if run.spec.dataset_digest == digest and path.is_file():
            return path
    raise InputError("which tokens these are is known where the dataset was trained on: no such run is in this home")


@functools.lru_cache(maxsize=2)
def _tokenizer(path: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


def learners_of(desk: Desk, row: str) -> Learners:
    """The versions that were trained on the row of this digest, themselves or through what they rest on."""
    registry, own = desk.registry, {}
    unknown = []
    for version in version_ids(registry):
        try:
            manifest = registry.read(*version)
        except EC1Error:
            continue
        holds = _trains_on(desk.home.datasets / manifest.dataset.digest, row)
        if holds is None:
            unknown.append(manifest.name)
        elif holds:
            own[manifest.name] = 1
    return Learners({name: own.get(name, 0) for name in descendants(registry, set(own))}, tuple(unknown))


def learners_of_question(desk: Desk, tenant: str, role: str, question: str) -> tuple[str, ...]:
    """The usable versions of a role that were trained on this question, word for word, whatever the answer was."""
    manifests = (desk.registry.get(tenant, role, number) for number in desk.registry.usable(tenant, role))
    return tuple(each.name for each in manifests if _asks(desk.home.datasets / each.dataset.digest, question))


@functools.lru_cache(maxsize=256)
def _asks(dataset: Path, question: str) -> bool:
    """Whether a message of a prompt on a dataset's training side is this text; of a dataset that is gone it is not
    known, and so not said."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = dataset / "train" / "rows.parquet"
    if not path.is_file():
        return False
    with pq.ParquetFile(path, pre_buffer=False) as file:
        batches = (batch["prompt"].flatten().field("content") for batch in file.iter_batches(8_192, columns=["prompt"]))
        return any(pc.any(pc.equal(texts, question)).as_py() for texts in batches)


@functools.lru_cache(maxsize=4096)
def _trains_on(dataset: Path, row: str) -> bool | None:
    """Whether a dataset's training side has a row; None if the dataset is gone. Read by row groups."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = dataset / "train" / "rows.parquet"
    if not path.is_file():
        return None
    with pq.ParquetFile(path, pre_buffer=False) as file:
        return any(pc.any(pc.equal(batch["row"], row)).as_py() for batch in file.iter_batches(65_536, columns=["row"]))


def source_row(desk: Desk, row: Row, snapshot: str) -> Row | None:
    """The tuple that a dataset left out, as it stands in the dataset's snapshot; None where it is not trainable, or the
    snapshot is no longer here."""
    for each in sources(desk):
        if each.kind == "snapshot" and each.digest == snapshot and each.problem is None:
            source = open_source(desk, each.key)
            return source.find(row.digest) if isinstance(source, SnapshotRows) else None
    return None
