"""Datasets: what a training reads. A snapshot, validated, scrubbed, de-duplicated, split, measured in tokens.

Belongs here: the order of these steps and the folder that they end in. Does not: each step's own rules (tuples,
cleaning, duplicates, split, rendering).

A dataset folder holds `train/` and `heldout/` as Parquet, in TRL's conversational columns with `group`, `origin`, `row`
and `tokens` beside them; of single answers also what the model reads (`input_ids`) and which of it is learnt
(`completion_mask`), and `conversation`, JSON of the rows that carry more than texts; `rejects.jsonl`; and
`manifest.json`. Texts, digests and signatures are streamed through files, so that memory holds some tens of bytes per
row, whatever the rows are.
"""

import hashlib
import itertools
import json
import logging
import math
import shutil
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ec1.corpus import cleaning
from ec1.corpus.audit import Audit, audit
from ec1.corpus.choosing import Choice
from ec1.corpus.cleaning import place_without_persons, without_persons
from ec1.corpus.dataset_tables import SIDES, DatasetTables
from ec1.corpus.duplicates import NearDuplicates, StoredSignatures, signature, survivors
from ec1.corpus.folders import CorpusFolders
from ec1.corpus.options import DataOptions
from ec1.corpus.rendering import Encoded, Rendered, encode, rendered, rendered_sides
from ec1.corpus.rewordings import across, answer_signature, rewordings
from ec1.corpus.row_kinds import ROW_KINDS
from ec1.corpus.rows import DatasetRow, Numbers, RowTable, StoredRow
from ec1.corpus.served import SERVED, Giver, giver_of
from ec1.corpus.snapshots import Snapshot, SnapshotRow
from ec1.corpus.split import HeldOutGroups, Leak, Side, clusters, leaks, newest
from ec1.corpus.tuples import (
    Example,
    Objective,
    TrainingTuple,
    TupleKind,
    example_of,
    links_of,
    parse_record,
    prompt_source,
    said_in,
    sources_of,
    texts_of,
)
from ec1.errors import DamagedError, InputError, PermanentError, RejectedError
from ec1.files import canonical_json, checked_name, digest_of, read_json, staged_directory, write_json
from ec1.seals import FILES, check_files, read_sealed, set_aside, write_sealed

log = logging.getLogger(__name__)

VERSION = 6
"""Part of a dataset's identity: raise it when the same snapshot and options would give other rows."""

REWORDED = "says in other words what a held-out tuple answers"
SHARED = "shares a session, commit, prompt or answer with a held-out tuple"
OUTDATED = "what is named in this text was answered anew later"
_BATCH = 256
_SAMPLES = 4
_ABANDONED_SECONDS = 24 * 3600
_MEND = "materialise training_dataset of that night again, and it is built from its snapshot"


@dataclass(frozen=True)
class Dataset:
    """A dataset on disk. `tokens` are those of the training side for one epoch (SFT: whole examples; DPO: with both
    answers); `over_length` counts rows dropped for their length; `percentiles` of the length before that, in tokens.
    `scrubbed` counts what was replaced, by kind; `samples` are a few shortened training rows to look at."""

    digest: str
    path: Path
    objective: Objective
    snapshot: str
    train_rows: int
    heldout_rows: int
    tokens: int
    heldout_tokens: int
    rejected: dict[str, int]
    scrubbed: dict[str, int]
    over_length: int
    percentiles: dict[str, int]
    heldout_groups: int
    train_groups: int
    leaks: list[Leak]
    samples: list[dict[str, Any]]
    audit: Audit | None = None
    """None of a dataset that was made before there were audits."""
    max_known_share: float = 1.0
    mixed: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of each other role that was mixed in: its `snapshot`, how many `rows` of it are trained on, and how many its
    weight `wanted`."""
    labels: tuple[str, ...] = ()
    """Access labels of the rows in it, on either side."""
    within: str | None = None
    """The dataset whose training side this one parts (`inner_split.py`): what is held out is not what the gate does."""

    @property
    def mixed_shares(self) -> list[str]:
        """Of each other role in `data.mix`, what its weight came to: `general: 40 of 150 rows (all that there are)`."""
        said = []
        for role, part in self.mixed.items():
            short = " (all that there are)" if part["rows"] < part["wanted"] else ""
            said.append(f"{role}: {part['rows']} of {part['wanted']} rows{short}")
        return said

    @property
    def is_clean(self) -> bool:
        """Whether training knows no more of the held-out side than the recipe allows."""
        return not self.leaks and (self.audit is None or self.audit.known_share <= self.max_known_share)

    @property
    def remedy(self) -> str | None:
        """What helps if training knows more than that; None if it does not."""
        if self.is_clean:
            return None
        known = self.audit.known if self.audit is not None else 0
        return (
            f"training knows {known} of {self.heldout_rows} held-out answers, and {len(self.leaks)} held-out rows: "
            "hold out the newest (data.heldout_newest), name what rows were cut from (data.group_by), or allow it "
            "(data.max_known_share)"
        )

    def rows(self, side: Side) -> Any:
        """One side as a `datasets.Dataset`, in memory. (`datasets.load_dataset("parquet")` reads the files, too.)"""
        import datasets
        import pyarrow.parquet as pq

        return datasets.Dataset(pq.read_table(self.path / side / "rows.parquet"))


def build_dataset(
    snapshot: Snapshot,
    data: DataOptions,
    tokenizer: Any,
    *,
    home: CorpusFolders,
    objective: Objective,
    mixed: Mapping[str, Snapshot] | None = None,
) -> Dataset:
    """Make the dataset of a snapshot, or return the one that was made from the same parts before.

    `mixed`: a snapshot of each role in `data.mix`; their tuples come to the training side only.

    `tokenizer` is the base model's, with the chat template that serving uses. Raises PermanentError, with what to
    change, if no example or no held-out example remains, or too many rows are longer than `max_length`.
    """
    if tokenizer.chat_template is None:
        raise PermanentError(
            "the base model's tokenizer has no chat template: train a base model that is served with one"
        )
    mixed = mixed or {}
    if mixed.keys() != data.mix.keys():
        raise PermanentError(f"data.mix names {sorted(data.mix)}, the snapshots are of {sorted(mixed)}")
    groups = HeldOutGroups(home.splits / f"{snapshot.bucket}.json")
    identity = _identity(snapshot, data, tokenizer, objective, mixed)
    if (made := _made_before(_known(identity, groups, home), home)) is not None:
        return made
    home.datasets.mkdir(parents=True, exist_ok=True)
    _sweep(home.datasets)
    with tempfile.TemporaryDirectory(dir=home.datasets, prefix=".building-") as folder:
        digest = _Builder(snapshot, mixed, data, tokenizer, identity, groups, Path(folder)).build()
        if not _is_whole(home, digest):
            with set_aside(home.datasets / digest), staged_directory(home.datasets / digest) as staging:
                for path in Path(folder).iterdir():
                    path.rename(staging / path.name)
    # Asked again: building may have held out a first group.
    write_json(_known(identity, groups, home), {"digest": digest})
    return load_dataset(home, digest)


def _identity(
    snapshot: Snapshot, data: DataOptions, tokenizer: Any, objective: Objective, mixed: Mapping[str, Snapshot]
) -> dict[str, Any]:
    """What a dataset is made of. Part of its digest, so that its figures can never be those of another tokenizer."""
    return {
        "version": [VERSION, cleaning.VERSION],
        "snapshot": snapshot.digest,
        "objective": objective,
        # Which labels may be learnt from is part of the snapshot.
        "options": data.model_dump(exclude={"threshold", "labels"}),
        "tokenizer": tokenizer_fingerprint(tokenizer),
        **({"mixed": {role: mixed[role].digest for role in sorted(mixed)}} if mixed else {}),
    }


def _known(identity: dict[str, Any], groups: HeldOutGroups, home: CorpusFolders) -> Path:
    """Where the digest of a dataset that was made of these parts is noted."""
    return home.cache / "datasets" / f"{digest_of([identity, sorted(groups.forced())])}.json"


def _made_before(known: Path, home: CorpusFolders) -> Dataset | None:
    """The dataset that a note in the cache names, if both are as they were written."""
    try:
        digest = read_json(known)["digest"]
        # Retention removes what is old.
        return load_dataset(home, digest) if (home.datasets / checked_name(digest, "digest")).exists() else None
    except FileNotFoundError:
        return None
    except (DamagedError, InputError, KeyError, TypeError) as error:
        log.warning("%s; it is built again", error)
        return None


def _is_whole(home: CorpusFolders, digest: str) -> bool:
    try:
        return load_dataset(home, digest) is not None
    except DamagedError:
        return False


def load_dataset(home: CorpusFolders, digest: str) -> Dataset:
    """The dataset of that digest, every file compared with what was written. Raises DamagedError."""
    path = home.datasets / checked_name(digest, "digest")
    manifest = read_sealed(path, _MEND)
    check_files(path, manifest.pop(FILES), _MEND)
    try:
        found = [Leak(**leak) for leak in manifest.pop("leaks")]
        seen = manifest.pop("audit", None)
        return Dataset(
            path=path,
            labels=tuple(manifest.pop("labels", ())),
            leaks=found,
            audit=None if seen is None else Audit(**{**seen, "examples": tuple(seen["examples"])}),
            **{key: manifest[key] for key in manifest if key != "options"},
        )
    except (KeyError, TypeError):
        raise DamagedError(f"{path / 'manifest.json'} is of another release: {_MEND}") from None


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """A digest of what decides how a text becomes tokens: vocabulary, merges, rules and chat template."""
    if getattr(tokenizer, "is_fast", False):
        backend = json.loads(tokenizer.backend_tokenizer.to_str())
        # State of the last call, not of the tokenizer.
        backend.pop("truncation", None)
        backend.pop("padding", None)
    else:
        backend = tokenizer.get_vocab()
    return digest_of([backend, tokenizer.chat_template])


def with_system_prompt(example: Example, prompt: str | None) -> Example:
    """The example, led by a recipe's system prompt if it has none."""
    if prompt is None or not example["prompt"] or example["prompt"][0]["role"] == "system":
        return example
    return {**example, "prompt": [{"role": "system", "content": prompt}, *example["prompt"]]}


class _Builder:
    """The steps from a snapshot to a folder; used once."""

    def __init__(
        self,
        snapshot: Snapshot,
        mixed: Mapping[str, Snapshot],
        data: DataOptions,
        tokenizer: Any,
        identity: dict[str, Any],
        groups: HeldOutGroups,
        folder: Path,
    ) -> None:
        self._snapshot, self._data, self._tokenizer, self._identity = snapshot, data, tokenizer, identity
        self._mixed = mixed
        self._objective: Objective = identity["objective"]
        self._kind = ROW_KINDS[self._objective]
        self._groups, self._folder = groups, folder
        self._cases = frozenset(map(without_persons, groups.cases()))
        self._givers: dict[int, Giver] = {}
        self._rejected: Counter[str] = Counter()
        self._scrubbed: Counter[str] = Counter()
        self._written: dict[Side, array[int]] = {side: array("q") for side in SIDES}
        """Numbers of rows in the order of the tables; what is repeated comes more than once."""
        self._labels: dict[str, tuple[str, ...]] = {}
        """Of the rows that have any, by digest."""

    def build(self) -> str:
        """Write the dataset into the folder; returns its digest."""
        with (
            (self._folder / "rejects.jsonl").open("wb") as self._rejects,
            RowTable(self._folder / "rows.sqlite") as self._rows,
        ):
            self._clean_rows()
            twins = NearDuplicates(self._signatures("signatures"), self._data.near_duplicate_similarity)
            if not len(self._rows):
                raise PermanentError(f"{self._where}: no usable tuple; see the reasons: {dict(self._rejected)}")
            reworded = rewordings(self._signatures("answers"))
            pairs, first = (twins.pairs(), reworded.tolist()), self._groups.forced()
            self._rows.cluster(clusters(self._rows, *pairs, first, self._cases))
            self._rows.hold_out(self._heldout())
            self._heldout_rows = self._rows.sides()
            outdated = self._rows.outdated()
            self._reject_all(outdated, OUTDATED)
            self._rows.drop(outdated)
            kept = self._without_duplicates(twins)
            self._reject_all(known := across(reworded, kept, self._heldout_rows), REWORDED)
            choice = Choice(self._rows, self._data, self._givers, self._where, self._reject_all)
            kept = choice.of(kept[~np.isin(kept, known)])
            statistics, hasher = self._write(kept)
            self._require_both_sides()
            manifest = {
                **{key: self._identity[key] for key in ("objective", "snapshot", "options")},
                **self._counts(choice.wanted),
                "rejected": dict(sorted(self._rejected.items())),
                "scrubbed": dict(sorted(self._scrubbed.items())),
                "leaks": [asdict(leak) for leak in leaks(self._rows, twins)],
                **statistics,
                "max_known_share": self._data.max_known_share,
                **({"labels": labels} if (labels := self._labels_written()) else {}),
            }
        for name in ("examples.jsonl", "signatures", "answers", "rows.sqlite"):
            (self._folder / name).unlink()
        digest = hasher.hexdigest()
        write_sealed(self._folder, manifest | {"audit": asdict(audit(self._folder)), "digest": digest})
        return digest

    def _counts(self, wanted: Mapping[str, int]) -> dict[str, Any]:
        sides = {side: np.array(self._written[side], np.int64) for side in SIDES}
        return {
            **{f"{side}_rows": len(numbers) for side, numbers in sides.items()},
            **{f"{side}_groups": self._rows.count_groups(written_heldout=side == "heldout") for side in SIDES},
            "mixed": {
                role: {
                    "snapshot": snapshot.digest,
                    "rows": int(self._rows.of_role(role)[sides["train"]].sum()),
                    "wanted": wanted[role],
                }
                for role, snapshot in self._mixed.items()
            },
        }

    def _labels_written(self) -> list[str]:
        written = np.concatenate([self._rows.written(heldout=side == "heldout") for side in SIDES])
        rows = self._rows.rows(written) if self._labels else ()
        return sorted({label for row in rows for label in self._labels.get(row.digest, ())})

    def _heldout(self) -> Iterator[str]:
        """The clusters that are held out, by the group that stands for each."""
        if self._data.heldout_newest:
            return itertools.chain(newest(self._rows, self._data.heldout_share), self._cases)
        return self._groups.complete(self._rows.clusters(), self._data.heldout_share, self._data.seed)

    @property
    def _where(self) -> str:
        return f"dataset of {self._snapshot.bucket}"

    def _reject_all(self, numbers: Numbers, reason: str) -> None:
        for row in self._rows.rows(numbers):
            self._reject(row.digest, row.origin, reason)

    def _reject(self, digest: str, origin: str, reason: str) -> None:
        self._rejected[reason] += 1
        self._rejects.write(canonical_json({"row": digest, "origin": origin, "reason": reason}) + b"\n")

    def _signatures(self, name: str) -> StoredSignatures:
        return StoredSignatures(self._folder / name)

    def _clean_rows(self) -> None:
        """Validate and scrub every tuple; the examples and their signatures go to files, in the order of the rows."""
        started = time.monotonic()
        with (
            (self._folder / "examples.jsonl").open("wb") as examples,
            (self._folder / "signatures").open("wb") as output,
            (self._folder / "answers").open("wb") as answers,
        ):
            for number, (role, source) in enumerate(self._all_rows(), start=1):
                if number % 10_000 == 0:
                    log.info(
                        "%s: %d tuples cleaned, %.0f a second",
                        self._where,
                        number,
                        number / (time.monotonic() - started),
                    )
                try:
                    item = parse_record(source.record, self._data.known_keys)
                    example = example_of(item, self._objective)
                    if self._data.scrub:
                        example, found = cleaning.scrub_example(example, self._data.recognizers)
                        self._scrubbed.update(found)
                except RejectedError as error:
                    self._reject(source.digest, place_without_persons(source.origin), str(error))
                    continue
                if item.labels:
                    self._labels[source.digest] = item.labels
                text = "\n".join(texts_of(example))
                offset = examples.tell()
                examples.write(canonical_json(with_system_prompt(example, self._data.system_prompt)) + b"\n")
                output.write(signature(text).tobytes())
                answers.write(answer_signature(example, source.digest).tobytes())
                created = -math.inf if item.created is None else item.created.timestamp()
                origin, digest = place_without_persons(source.origin), bytes.fromhex(digest_of(text))
                # A text's names are corrected, not collected: of two answers one is wrong.
                question = prompt_source(item) if item.kind == TupleKind.EXTRACTION else None
                sources = self._sources(source, item)
                links = links_of(item)
                if (giver := giver_of(source.record)) is not None:
                    # Like rows of another role: to the training side only, and no link between groups.
                    role, self._givers[len(self._rows)] = SERVED, giver
                self._rows.add(
                    DatasetRow(source.digest, sources, digest, origin, offset, created, role, question, links)
                )
        self._rows.flush()

    def _all_rows(self) -> Iterator[tuple[str | None, SnapshotRow]]:
        """The tuples of the bucket, then those of the roles that are mixed in."""
        for row in self._snapshot.rows():
            yield None, row
        for role in sorted(self._mixed):
            for row in self._mixed[role].rows():
                yield role, row

    def _sources(self, source: SnapshotRow, item: TrainingTuple) -> tuple[str, ...]:
        """What a row shares with others, what it is grouped by first."""
        named = dict.fromkeys((*sources_of(source.record, self._data.group_by), *item.sources))
        # A case is one by its own name, whatever a recipe groups by.
        names = sorted(map(without_persons, named), key=lambda name: name not in self._cases)
        return (*names, prompt_source(item), *said_in(item))

    def _without_duplicates(self, twins: NearDuplicates) -> Numbers:
        """The numbers of the rows that stay: each text once, and nothing to learn that the held-out side knows.

        Held-out rows win over training rows: what is evaluated on tonight was not trained on because of a twin. Among
        held-out rows evaluation cases win.
        """
        found = array("q")
        for number, digest, origin, shares, known in self._rows.examined(SERVED, self._cases):
            if shares or known:
                self._reject(digest, origin, SHARED if shares else "duplicate")
            else:
                found.append(number)
        candidates = np.array(found, dtype=np.int64)
        # Until no pair is left: among many rows that are alike, one round finds only some pairs.
        while dropped := survivors(twins.pairs(candidates)):
            places = np.array(sorted(dropped), dtype=np.int64)
            self._reject_all(candidates[places], "near duplicate")
            candidates = np.delete(candidates, places)
        return candidates

    def _write(self, kept: Numbers) -> tuple[dict[str, Any], "hashlib._Hash"]:
        """Measure the rows and write those that are short enough; returns figures and the digest."""
        hasher = hashlib.sha256(canonical_json(self._identity))
        lengths = array("q")
        tokens: Counter[Side] = Counter()
        samples: list[dict[str, Any]] = []
        over = 0
        with DatasetTables(self._folder, self._kind) as tables:
            for start in range(0, len(kept), _BATCH):
                rows = list(self._rows.rows(kept[start : start + _BATCH]))
                lines = list(self._lines(rows))
                examples = [json.loads(line) for line in lines]
                written: list[int] = []
                rejects: dict[int, tuple[StoredRow, str]] = {}
                for row, line, example, measure in zip(rows, lines, examples, self._measure(examples), strict=True):
                    if isinstance(measure, str):
                        rejects[row.number] = row, measure
                        continue
                    parts = self._parts(example, measure)
                    lengths.extend(part.longest for _, part in parts)
                    if parts[0][1].longest > self._data.max_length:
                        over += 1
                        rejects[row.number] = row, "longer than max_length"
                        continue
                    side: Side = "heldout" if row.heldout else "train"
                    names = {"group": row.group, "origin": row.origin, "row": row.digest}
                    for shown, part in parts:
                        record = {**shown, **names, "tokens": part.longest}
                        tables.write(side, record, part.encoded)
                        tokens[side] += part.total
                        self._written[side].append(row.number)
                    # Not the place: the same tuples elsewhere are the same dataset.
                    place = canonical_json([row.group, row.digest]).removeprefix(b"[")
                    hasher.update(b'["%s",%s,%s\n' % (side.encode(), line, place))
                    written.append(row.number)
                    if side == "train" and len(samples) < _SAMPLES:
                        samples.append(_shortened(record))
                for row, reason in rejects.values():
                    self._reject(row.digest, row.origin, reason)
                self._rows.write_down(written)
        if not lengths:
            raise PermanentError(f"{self._where}: no usable example; see the reasons: {dict(self._rejected)}")
        if over > self._data.max_over_length_share * len(kept):
            ninety = int(np.percentile(lengths, 90))
            raise PermanentError(
                f"{self._where}: {over} of {len(kept)} examples are longer than data.max_length = "
                f"{self._data.max_length} tokens, a larger share than data.max_over_length_share = "
                f"{self._data.max_over_length_share}; nine in ten would fit into {ninety}"
            )
        statistics = {
            "tokens": tokens["train"],
            "heldout_tokens": tokens["heldout"],
            "over_length": over,
            "percentiles": {f"p{share}": int(np.percentile(lengths, share)) for share in (50, 90, 95, 99, 100)},
            "samples": samples,
        }
        return statistics, hasher

    def _lines(self, rows: list[StoredRow]) -> Iterator[bytes]:
        """The examples of rows as they were written: canonical JSON."""
        with (self._folder / "examples.jsonl").open("rb") as stream:
            for row in rows:
                stream.seek(row.offset)
                yield stream.readline().removesuffix(b"\n")

    def _measure(self, examples: list[Example]) -> "list[_Measure | str]":
        """Tokens of each example, or why the base model's chat template cannot show it."""
        if not self._kind.tokens:
            return [self._measured_sides(example) for example in examples]
        forms: list[Rendered | str] = []
        for example in examples:
            try:
                forms.append(rendered(self._tokenizer, example, self._data.train_on))
            except RejectedError as error:
                forms.append(str(error))
        encoded = iter(encode(self._tokenizer, [form for form in forms if isinstance(form, Rendered)]))
        measured: list[_Measure | str] = []
        for form in forms:
            if isinstance(form, str):
                measured.append(form)
                continue
            item = next(encoded)
            learns = any(item.mask)
            measured.append(_Measure(len(item.input_ids), len(item.input_ids), item) if learns else "nothing to learn")
        return measured

    def _parts(self, example: Example, measure: "_Measure") -> "list[tuple[Example, _Measure]]":
        """The example as rows of the dataset: itself, or a text that is too long in parts that fit."""
        most, whole = self._data.max_length, measure.encoded
        if not self._kind.cut or whole is None or measure.longest <= most:
            return [(example, measure)]
        parts: list[tuple[Example, _Measure]] = []
        # A token alone predicts nothing: the end of a text may be lost, its last word is not.
        for start in range(0, len(whole.input_ids) - 1, most):
            ids = whole.input_ids[start : start + most]
            text = self._tokenizer.decode(ids).removesuffix(self._tokenizer.eos_token or "")
            shown = {**example, "completion": [{**example["completion"][0], "content": text}]}
            parts.append((shown, _Measure(len(ids), len(ids), Encoded(ids, [1] * len(ids)))))
        return parts

    def _measured_sides(self, example: Example) -> "_Measure | str":
        try:
            texts = rendered_sides(self._tokenizer, example, self._kind.sides)
        except RejectedError as error:
            return str(error)
        lengths = [len(ids) for ids in self._tokenizer(texts, add_special_tokens=False)["input_ids"]]
        return _Measure(max(lengths), sum(lengths), None)

    def _require_both_sides(self) -> None:
        purposes: dict[Side, str] = {"heldout": "to evaluate on", "train": "to train on"}
        for side, what in purposes.items():
            if not len(self._rows.written(heldout=side == "heldout")):
                raise PermanentError(
                    f"{self._where}: nothing {what} is left of {len(self._rows)} tuples in {self._rows.count_groups()} "
                    "groups (sessions, commits, briefs): gather tuples of more groups, or change data.heldout_share or "
                    "data.seed"
                )


@dataclass(frozen=True)
class _Measure:
    """Tokens of an example's longest form, and of all forms together; and the tokens themselves of a single answer."""

    longest: int
    total: int
    encoded: Encoded | None


def _shortened(record: dict[str, Any]) -> dict[str, Any]:
    texts = {key: "\n".join(texts_of({key: value[-1:]})) for key, value in record.items() if isinstance(value, list)}
    return {key: text if len(text) <= 400 else text[:400] + " […]" for key, text in texts.items()} | {
        "origin": record["origin"],
        "tokens": record["tokens"],
    }


def _sweep(folder: Path) -> None:
    """Remove what a killed process left behind; one that is running has touched its folder recently."""
    for path in folder.glob(".*"):
        if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
