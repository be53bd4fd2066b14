"""What faces ask of training data: buckets, rows as they stand and as a model reads them, where a tuple went.

Belongs here: which rows, and what a list says of each bucket. Does not: how a row is cleaned and rendered
(`ec1.corpus`), removing any (`ec1.night.forgetting`). A bucket is read through its snapshot as of now; one that
nobody took yet is taken, which changes nothing but the copies below `snapshots/`.
"""

import datetime as dt
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ec1.corpus.containers import SourceRow, find_sources
from ec1.corpus.mapping import ColumnMapping
from ec1.corpus.preview import Measured, PreviewRow, checker, measure, preview_rows
from ec1.corpus.snapshots import Snapshot, SnapshotRow
from ec1.deployment import Deployment
from ec1.errors import InputError, RejectedError
from ec1.home import Home
from ec1.night.forgetting.tuples import Trace, trace_row
from ec1.night.steps.recipe_night import RecipeNight
from ec1.night.stores import open_registry
from ec1.queries.adapters import version_ids
from ec1.queries.page import Page, cut, start_of
from ec1.recipes.resolution import ResolvedRecipe


@dataclass(frozen=True)
class BucketCount:
    """A recipe's bucket as of now. `rejected` counts lines by reason, `new` what no training has counted yet; `tokens`
    is None if nobody asked, or if no row is trainable."""

    recipe: str
    bucket: str
    files: int
    bytes: int
    lines: int
    trainable: int
    new: int
    threshold: int
    rejected: dict[str, int]
    tokens: Measured | None = None


def buckets(
    deployment: Deployment, home: Home, recipes: Iterable[ResolvedRecipe], now: dt.datetime, *, tokens: bool = False
) -> tuple[BucketCount, ...]:
    """Count each recipe's bucket; with `tokens`, measure its rows with the base model's tokenizer too."""
    found = []
    for resolved in recipes:
        step = RecipeNight(resolved, deployment, home, deployment.current_night(now))
        snapshot = step.snapshot(now)
        decision = step.decision(snapshot)
        measured = tokens and snapshot.trainable
        found.append(
            BucketCount(
                recipe=resolved.recipe.name,
                bucket=snapshot.bucket,
                files=snapshot.files,
                bytes=snapshot.bytes,
                lines=snapshot.lines,
                trainable=snapshot.trainable,
                new=decision.new,
                threshold=decision.threshold,
                rejected=snapshot.rejected,
                tokens=measure(snapshot, resolved.recipe.data, step.base_model) if measured else None,
            )
        )
    return tuple(found)


def rows(snapshot: Snapshot, limit: int, cursor: str | None = None) -> Page[SnapshotRow]:
    """A page of the trainable tuples, in the order of their digests; only the pieces that hold it are read."""
    start = start_of(cursor)
    return cut(list(snapshot.rows(start, start + limit + 1)), start, limit)


def preview(
    deployment: Deployment,
    home: Home,
    resolved: ResolvedRecipe,
    now: dt.datetime,
    path: Path | None = None,
    limit: int = 3,
    cursor: str | None = None,
    mapping: ColumnMapping | None = None,
) -> Page[PreviewRow]:
    """`limit` rows of the recipe's bucket as its model reads them, or of a file or folder that was not imported yet,
    whose columns `mapping` names.

    Each side of a preference is a row of its own here.
    """
    recipe = resolved.recipe
    step = RecipeNight(resolved, deployment, home, deployment.current_night(now))
    found: list[tuple[str, Mapping[str, Any] | RejectedError]]
    if path is None:
        stored = rows(step.snapshot(now), limit, cursor)
        after, found = stored.next, [(row.origin, row.record) for row in stored.items]
    else:
        start = start_of(cursor)
        page = cut(list(itertools.islice(find_sources(path).rows(), start, start + limit + 1)), start, limit)
        after, found = page.next, [(f"{row.file}:{row.number}", _mapped(row, mapping)) for row in page.items]
    return Page(tuple(preview_rows(found, recipe.data, recipe.rows, step.base_model)), after)


def _mapped(row: SourceRow, mapping: ColumnMapping | None) -> RejectedError | dict[str, Any]:
    if row.record is None:
        return RejectedError(row.problem or "unreadable")
    try:
        return (mapping or ColumnMapping()).apply(row.record)
    except RejectedError as error:
        return error


def row_check(
    deployment: Deployment, home: Home, resolved: ResolvedRecipe, now: dt.datetime
) -> Callable[[Mapping[str, Any]], None]:
    """What raises RejectedError for a record that the recipe's base model cannot be shown."""
    recipe, step = resolved.recipe, RecipeNight(resolved, deployment, home, deployment.current_night(now))
    return checker(recipe.data, recipe.rows, step.base_model)


def trace(deployment: Deployment, home: Home, row: str) -> Trace:
    """Where the tuples stand whose digests begin with `row`, and which snapshots, datasets and versions hold them.

    Raises InputError for less than six hexadecimal digits.
    """
    if not re.fullmatch(r"[0-9a-f]{6,64}", row):
        raise InputError(f"{row!r} is not the beginning of a digest: give at least six hexadecimal digits")
    found = trace_row(row, deployment.corpus_root(home), home)
    registry = open_registry(deployment, home)
    manifests = (registry.read(*each) for each in version_ids(registry))
    return replace(found, versions=[each.name for each in manifests if each.dataset.digest in found.datasets])
