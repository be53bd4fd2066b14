"""What faces ask of held-out rows: what each model of an evaluation made of them, by loss or by score, the worst first.

Belongs here: joining a dataset's held-out rows with evaluations. Does not: rows (`rows`), verdicts (`adapters`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ec1.adapters.scores import load_scores
from ec1.errors import InputError
from ec1.night.steps.log_book import TRAINING, Run, runs
from ec1.queries.desk import Desk
from ec1.queries.rows import DatasetRows, Row, open_source

ScoreOrder = Literal["loss", "lost", "score", "behind"]


@dataclass(frozen=True)
class ScoredRow:
    """A held-out row with each model's `values`: losses (nats per token, less is better), or what the gate weighs (of
    `RowScores.unit`, more is better); None where one was not finite."""

    row: Row
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class RowScores:
    """The rows of one evaluation. `evaluated`: all trainings of the dataset whose evaluation is here, the newest first;
    `run` is the one that is shown. `order`: the one that was asked for, or `score` where rows have no loss."""

    evaluated: tuple[str, ...]
    run: str
    order: ScoreOrder
    unit: str
    models: tuple[str, ...]
    rows: tuple[ScoredRow, ...]


def row_scores(desk: Desk, key: str, run: str | None, order: ScoreOrder, limit: int) -> RowScores:
    """The held-out rows of a dataset by the candidate's loss (`loss`) or its score (`score`), or by how much worse that
    is than the base's (`lost`, `behind`); at most `limit`. Raises InputError where nothing was evaluated on it."""
    source = open_source(desk, key)
    if not isinstance(source, DatasetRows):
        raise InputError("a snapshot has no held-out rows yet: they are made with its dataset")
    found = {each.name: each for each in reversed(runs(desk.home)) if each.spec.dataset_digest == source.summary.digest}
    found = {name: each for name, each in found.items() if (_evaluation(each) / "evaluation.json").is_file()}
    if not found:
        raise InputError("no training of this dataset was evaluated in this home")
    chosen = run or next(iter(found))
    if chosen not in found:
        raise InputError(f"{chosen!r} was not evaluated on this dataset: there are {', '.join(found)}")
    scores = load_scores(_evaluation(found[chosen]))
    if not any(each.losses for each in scores.examples):
        # Of tasks and texts that are read there is no loss.
        order = "behind" if order in ("lost", "behind") else "score"
    by_loss = order in ("loss", "lost")
    values = {each.example: each.losses if by_loss else each.scores for each in scores.examples}
    numbers = source.held_out_numbers(values)

    def worst(digest: str) -> float:
        own, base = values[digest].get("candidate"), values[digest].get("base")
        if own is None:
            return float("inf")
        far = own - (base if base is not None else own) if order in ("lost", "behind") else own
        return far if by_loss else -far

    first = sorted(numbers, key=lambda digest: (-worst(digest), numbers[digest]))[:limit]
    shown = zip(first, source.at([numbers[digest] for digest in first]), strict=True)
    rows = tuple(ScoredRow(row, values[digest]) for digest, row in shown)
    return RowScores(tuple(found), chosen, order, scores.unit, scores.models, rows)


def _evaluation(run: Run) -> Path:
    # It loads what evaluates: Studio starts without.
    from ec1.night.steps.candidate import EVALUATION_FOLDER

    return (run.folder.parent if run.folder.name == TRAINING else run.folder) / EVALUATION_FOLDER
