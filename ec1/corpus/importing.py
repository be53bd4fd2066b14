"""Importing: rows that people bring become tuples of a bucket, with everything that was left out counted by reason.

Belongs here: the one file that an import leaves in the corpus, and its report. Does not: kinds of files (containers),
formats of rows (formats), column mappings (mapping), and cleaning, which every dataset does for itself.
"""

import hashlib
import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ec1.corpus.access import KEY, access_labels
from ec1.corpus.containers import find_sources, name_of_rows
from ec1.corpus.formats import FormattedRow, read_row
from ec1.corpus.index import REMOVED
from ec1.corpus.keys import left_in_messages
from ec1.corpus.mapping import ColumnMapping
from ec1.corpus.row_kinds import ANSWERS, PAIRS, TEXTS
from ec1.corpus.tuples import ALONE, TrainingTuple, metadata_of, parse_record, sources_of, trainable
from ec1.errors import InputError, RejectedError
from ec1.files import atomic_file, canonical_json, checked_name, sha256_file

FOLDER = "imported"
"""Below a role's own folder of the corpus."""

_KEPT = ("created", "created_at", "timestamp", "tenant", "tier_used", "tier")
_LONGEST_VALUE = 200


@dataclass(frozen=True)
class Import:
    """What an import did. `formats` counts the rows written by format, `refused` those left out by reason, `unread`
    the files left out by ending, `dropped_keys` what was left out of rows that were written, by key: it is harmless,
    or a person said so. `repeated` of the written rows are equal to one before them: a dataset takes each once."""

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
    repeated: int = 0
    encodings: dict[str, str] = field(default_factory=dict)
    """Of each file that was not in UTF-8, in which encoding it was read."""
    tenants: dict[str, int] = field(default_factory=dict)
    """How many of the written rows say that they belong to a tenant, by tenant: no other one's recipes read them."""


def import_rows(
    source: Path,
    folder: Path,
    *,
    name: str | None = None,
    mapping: ColumnMapping | None = None,
    only: str | None = None,
    ignored: Sequence[str] = (),
    split: str | None = None,
    check: Callable[[Mapping[str, Any]], None] | None = None,
    labels: Collection[str] = (),
    is_removed: Callable[[TrainingTuple], bool] = lambda item: False,
) -> Import:
    """Write every row at `source` that is understood to `<folder>/imported/<name>.jsonl`, in our own form.

    `only` is a format's name: rows of others are refused, as are those that `is_removed` knows. Texts that answer
    nothing, files of them too, are taken if it is `text`: only continued pre-training reads them. `ignored` are keys
    that a person says change nothing that is learnt; each row keeps their names. `split`: see `find_sources`. `check`
    raises RejectedError for a record that a recipe's base model cannot be shown. Each row gets the access `labels`,
    beside its own. Idempotent for the same rows. Raises InputError if there is no file of rows, or no row that can be
    learnt from.
    """
    sources = find_sources(source, split, texts=only == TEXTS.name)
    slug = checked_name(name or _slug(source), "name")
    target = folder / FOLDER / f"{slug}.jsonl"
    counts = _Counts()
    before = sha256_file(target) if target.is_file() else None
    with atomic_file(target, keep_equal=True) as temporary:
        with temporary.open("wb") as output:
            for row in sources.rows():
                try:
                    if row.record is None:
                        raise RejectedError(row.problem or "unreadable")
                    mapped = (mapping or ColumnMapping()).apply(row.record)
                    found, record, dropped = _converted(mapped, slug, ignored)
                    if is_removed(parse_record(record)):
                        raise RejectedError(REMOVED)
                    if only is not None and found.format != only:
                        raise RejectedError(f"is of format {found.format}, not {only}")
                    if only is None and found.format == TEXTS.name:
                        raise RejectedError(f"{ALONE}; --format {TEXTS.name} takes it")
                    own = access_labels(row.record, metadata_of(row.record))
                    if access := sorted({*labels, *own}):
                        record[KEY] = access
                    if check is not None:
                        check(record)
                    line = canonical_json(record)
                    output.write(line + b"\n")
                    counts.formats[found.format] += 1
                    if "tenant" in record:
                        counts.tenants[record["tenant"]] += 1
                    counts.dropped += dropped
                    counts.digests.append(int.from_bytes(hashlib.blake2b(line, digest_size=8).digest(), "big"))
                except RejectedError as error:
                    counts.refused[str(error)] += 1
                    counts.examples.setdefault(str(error), f"{row.file}:{row.number}")
        if not counts.formats:
            reasons = "; ".join(
                f"{count} {reason} ({counts.examples[reason]})" for reason, count in counts.refused.most_common(3)
            )
            raise InputError(f"{source}: no row can be learnt from: {reasons or 'its files hold no row'}")
    return Import(
        path=target,
        written=sum(counts.formats.values()),
        unchanged=sha256_file(target) == before,
        files=len(sources.files),
        formats=dict(sorted(counts.formats.items())),
        refused=dict(counts.refused.most_common()),
        unread=dict(sorted(sources.other.items())),
        dropped_keys=dict(sorted(counts.dropped.items())),
        examples=counts.examples,
        repeated=len(counts.digests) - len(np.unique(np.frombuffer(counts.digests, np.uint64))),
        encodings=sources.encodings,
        tenants=dict(counts.tenants.most_common()),
    )


@dataclass
class _Counts:
    """What is known of the rows so far; of each written one a number that equal rows share."""

    formats: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    tenants: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    digests: "array[int]" = field(default_factory=lambda: array("Q"))


def _converted(
    record: Mapping[str, Any], slug: str, ignored: Sequence[str]
) -> tuple[FormattedRow, dict[str, Any], Counter[str]]:
    """A row in our own form, and what is left out of it by key. Raises RejectedError as `read_row` does, or if nothing
    could ever be learnt from it."""
    if "tuple_type" in record:
        raise RejectedError("is a tuple of our own: put its file into the corpus as it is")
    row = read_row(record, ignored)
    dropped = Counter(left_in_messages(record))
    dropped.update(name for name in ignored if name.startswith(("message.", "part.")))
    made: dict[str, Any]
    if row.format == TEXTS.name:
        own, made = TEXTS, {"text": row.messages[0]["content"]}
    elif row.chosen is None:
        own, made = ANSWERS, {"messages": list(row.messages)}
    else:
        own = PAIRS
        made = {"prompt": list(row.messages), "chosen": list(row.chosen), "rejected": list(row.rejected or ())}
    if row.tools:
        made["tools"] = list(row.tools)
    made |= {key: record[key] for key in _KEPT if isinstance(record.get(key), str)}
    # At the top, then in the metadata: the first counts, and the other one stays where it is.
    made |= dict(source.split(":", 1) for source in reversed(sources_of(record)))
    beside = metadata_of(record)
    metadata = _plain(beside, dropped, "metadata.")
    # Only one of the two is its metadata, and none if it is neither an object nor JSON.
    place = {"metadata" if record.get("metadata") else "meta"} if beside else set()
    rest = {key: value for key, value in record.items() if key not in {*place, *row.read, *made, KEY}}
    rest |= {key: record[key] for key in ignored if key in record}
    for key, value in _plain(rest, dropped, "").items():
        if key in metadata:
            dropped[key] += 1
        else:
            metadata[key] = value
    made["metadata"] = {**metadata, "import": slug} | ({"ignored": ", ".join(ignored)} if ignored else {})
    item = parse_record(made)
    reasons = {kind: trainable(item, kind.name) for kind in (ANSWERS, PAIRS, TEXTS)}
    if all(reasons.values()):
        raise RejectedError(str(reasons[own]))
    if item.completion is not None and (after := len(row.messages) - len(item.prompt) - 1):
        dropped["messages after the last answer that counts"] += after
    return row, made, dropped


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
    slug = re.sub(r"[^a-z0-9]+", "-", name_of_rows(path).lower()).strip("-")
    # Names of files are kept in manifests: one that could hold a person's address becomes a digest.
    if not slug or "@" in path.name:
        return "rows-" + hashlib.sha256(path.name.encode()).hexdigest()[:12]
    return slug[:64]
