"""Importing: rows that people bring become tuples of a bucket, with everything that was left out counted by reason.

Belongs here: the one file that an import leaves in the corpus, and its report. Does not: kinds of files (containers),
formats of rows (formats), column mappings (mapping), and cleaning, which every dataset does for itself.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.corpus.access import KEY, access_labels
from ec1.corpus.containers import find_sources
from ec1.corpus.formats import FormattedRow, read_row
from ec1.corpus.index import REMOVED
from ec1.corpus.mapping import ColumnMapping
from ec1.corpus.row_kinds import ANSWERS, PAIRS
from ec1.corpus.tuples import TrainingTuple, metadata_of, parse_record, sources_of, trainable
from ec1.errors import InputError, RejectedError
from ec1.files import atomic_file, canonical_json, checked_name, sha256_file

FOLDER = "imported"
"""Below a role's own folder of the corpus."""

# What the formats read: the rest of a row is metadata, or is left out and counted.
_READ = frozenset(
    {
        *(
            "messages",
            "conversations",
            "conversation",
            "prompt",
            "completion",
            "response",
            "question",
            "query",
            "answer",
        ),
        *("instruction", "input", "context", "output", "history", "system", "system_prompt", "chosen", "rejected"),
        *("tools", "functions", "text", "label", "metadata", "meta"),
    }
)
_OWN = frozenset({KEY})
_KEPT = ("created", "created_at", "timestamp", "tenant", "tier_used", "tier")
_LONGEST_VALUE = 200


@dataclass(frozen=True)
class Import:
    """What an import did. `formats` counts the rows written by format, `refused` those left out by reason, `unread`
    the files left out by ending, `dropped_keys` the keys whose values were too large to keep as metadata."""

    path: Path
    written: int
    unchanged: bool
    files: int
    formats: dict[str, int]
    refused: dict[str, int]
    unread: dict[str, int]
    dropped_keys: dict[str, int]
    examples: dict[str, str]
    """For each reason the first row that it was about, as `file:row`."""


def import_rows(
    source: Path,
    folder: Path,
    *,
    name: str | None = None,
    mapping: ColumnMapping | None = None,
    only: str | None = None,
    labels: Collection[str] = (),
    is_removed: Callable[[TrainingTuple], bool] = lambda item: False,
) -> Import:
    """Write every row at `source` that is understood to `<folder>/imported/<name>.jsonl`, in our own form.

    `only` is a format's name: rows of others are refused, as are those that `is_removed` knows. Each row gets the
    access `labels`, beside its own. Idempotent for the same rows. Raises InputError if there is no file of rows, or no
    row that can be learnt from.
    """
    sources = find_sources(source)
    slug = checked_name(name or _slug(source), "name")
    target = folder / FOLDER / f"{slug}.jsonl"
    formats: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    examples: dict[str, str] = {}
    before = sha256_file(target) if target.is_file() else None
    with atomic_file(target, keep_equal=True) as temporary:
        with temporary.open("wb") as output:
            for row in sources.rows():
                try:
                    if row.record is None:
                        raise RejectedError(row.problem or "unreadable")
                    found, record = _converted((mapping or ColumnMapping()).apply(row.record), slug, dropped)
                    if is_removed(parse_record(record)):
                        raise RejectedError(REMOVED)
                    if only is not None and found.format != only:
                        raise RejectedError(f"is of format {found.format}, not {only}")
                    own = access_labels(row.record, metadata_of(row.record))
                    if access := sorted({*labels, *own}):
                        record[KEY] = access
                    output.write(canonical_json(record) + b"\n")
                    formats[found.format] += 1
                except RejectedError as error:
                    refused[str(error)] += 1
                    examples.setdefault(str(error), f"{row.file}:{row.number}")
        if not formats:
            reasons = "; ".join(f"{count} {reason} ({examples[reason]})" for reason, count in refused.most_common(3))
            raise InputError(f"{source}: no row can be learnt from: {reasons or 'its files hold no row'}")
    return Import(
        path=target,
        written=sum(formats.values()),
        unchanged=sha256_file(target) == before,
        files=len(sources.files),
        formats=dict(sorted(formats.items())),
        refused=dict(refused.most_common()),
        unread=dict(sorted(sources.other.items())),
        dropped_keys=dict(sorted(dropped.items())),
        examples=examples,
    )


def _converted(record: Mapping[str, Any], slug: str, dropped: Counter[str]) -> tuple[FormattedRow, dict[str, Any]]:
    """A row in our own form. Raises RejectedError as `read_row` does, or if nothing could ever be learnt from it."""
    if "tuple_type" in record:
        raise RejectedError("is a tuple of our own: put its file into the corpus as it is")
    row = read_row(record)
    made: dict[str, Any] = (
        {"messages": list(row.messages)}
        if row.chosen is None
        else {"prompt": list(row.messages), "chosen": list(row.chosen), "rejected": list(row.rejected or ())}
    )
    if row.tools:
        made["tools"] = list(row.tools)
    for key in _KEPT:
        if isinstance(record.get(key), str):
            made[key] = record[key]
    sources = dict(source.split(":", 1) for source in sources_of(record))
    rest = {key: value for key, value in record.items() if key not in {*_READ, *_KEPT, *_OWN, *sources}}
    metadata = {**_plain(metadata_of(record), dropped, "metadata."), **_plain(rest, dropped, "")}
    made |= sources
    made["metadata"] = {**metadata, "import": slug}
    try:
        item = parse_record(made)
    except (TypeError, ValueError):
        raise RejectedError("holds something that JSON has no form for") from None
    reasons = [trainable(item, objective) for objective in (ANSWERS.name, PAIRS.name)]
    if all(reasons):
        raise RejectedError(str(reasons[0 if row.chosen is None else 1]))
    return row, made


def _plain(values: Mapping[str, Any], dropped: Counter[str], prefix: str) -> dict[str, Any]:
    """What is small enough to stay beside a row; the rest is counted by its key."""
    kept: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, bool | int | str) and len(str(value)) <= _LONGEST_VALUE:
            kept[key] = value
        elif isinstance(value, dict) and not prefix and len(json.dumps(value, default=str)) <= _LONGEST_VALUE:
            kept[key] = _plain(value, dropped, f"{key}.")
        elif value is not None and value != "" and value != []:
            dropped[f"{prefix}{key}"] += 1
    return kept


def _slug(path: Path) -> str:
    stem = path.resolve().name.split(".")[0].lower()
    slug = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")
    # Names of files are kept in manifests: one that could hold a person's address becomes a digest.
    if not slug or "@" in path.name:
        return "rows-" + hashlib.sha256(path.name.encode()).hexdigest()[:12]
    return slug[:64]
