"""How well extractors read: F1 of base, versions and candidate on held-out chunks, through the very code of phase 1.

One engine serves the base with all adapters beside it; each of them in turn reads every chunk as a document of its own:
the same prompt, grammar, mode, grounding and filters as in phase 1. What it finds is held against what should be found.

Belongs here: reading held-out chunks, counting, each chunk's share of F1, and the judged names for a curve. Does not:
the likelihood of answers (`evaluation.py`) and the verdict (`gate.py`).
"""

import hashlib
import logging
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ec1.adapters.extractor import extractor_adapter
from ec1.adapters.likelihood import name_of, rows_of
from ec1.adapters.scores import ExampleScores, Sample
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import Document
from ec1.errors import DeferredError, InputError, ServiceError
from ec1.extraction.folding import normalised
from ec1.extraction.naming import trained
from ec1.extraction.naming.calibration import Calibration, JudgedName, own_calibration
from ec1.extraction.naming.confidence import Curve
from ec1.extraction.reading.extractor import Extractor, WorkItem
from ec1.extraction.reading.loop import extract
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.results import Mention
from ec1.extraction.settings import ExtractionSettings
from ec1.gpu.engine import GRACE_SECONDS, ServedAdapter, VllmEngine
from ec1.gpu.settings import VllmSettings
from ec1.launch.process import SupervisedProcess
from ec1.settings import Settings

Entities = frozenset[tuple[str, str]]
"""(normalised name, class)."""

_STREAM = "research"
# What a process that trains or scores is given for its own memory; a server knows better.
_NOT_FOR_SERVERS = ("GLIBC_TUNABLES", "PYTORCH_ALLOC_CONF")


class ReadingSettings(Settings):
    """What phase 1 reads with: the deployment's own settings."""

    engine: VllmSettings = Field(description="the deployment's inference")
    extraction: ExtractionSettings = Field(description="the deployment's extraction")
    curve: Calibration | None = Field(
        None, description="of the adapter that training began with: what speaks for a name, and how much"
    )


@dataclass(frozen=True)
class Reading:
    """What was found in one chunk: what phase 1 would keep of it, and all of it with the raw confidence."""

    entities: Entities
    sure: Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class HeldOutChunk:
    """One held-out chunk, and what should be found in it."""

    name: str
    group: str
    text: str
    gold: Entities

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


class _InThisLease:
    """Starts processes as a grant does. This process was started under the lease, and what it starts inherits that."""

    cards = ("those of the lease",)

    def start(
        self, command: Sequence[str], *, env: Mapping[str, str], log: Path, grace_seconds: float = GRACE_SECONDS
    ) -> SupervisedProcess:
        return SupervisedProcess(command, env=env, log=log, grace_seconds=grace_seconds)


def read_with_each(
    settings: ReadingSettings,
    model: Path,
    candidates: Mapping[str, Path | None],
    held: Sequence[HeldOutChunk],
    *,
    device: Literal["cuda", "cpu"],
    environment: Mapping[str, str],
    report: Callable[[str], None],
) -> dict[str, list[Reading]]:
    """What each candidate (name -> adapter folder; None is the base alone) finds in each chunk.

    All adapters are read with the same curve, `settings.curve`: none has one of its own from these chunks yet. Raises
    InputError for an adapter that cannot be served with the model, ServiceError if the engine does not start or dies.
    """
    # A line for each of thousands of requests would bury everything else in the evaluation's log.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    base = settings.engine.model
    served = {
        name: extractor_adapter(folder, base, f"reads-{number}")
        for number, (name, folder) in enumerate(candidates.items())
        if folder is not None
    }
    engine = VllmEngine(settings.engine, model, base, device, others=list(served.values()))
    found: dict[str, list[Reading]] = {}
    with tempfile.TemporaryDirectory(prefix="ec1-reading-") as scratch:
        folder = Path(scratch)
        plain = {name: value for name, value in environment.items() if name not in _NOT_FOR_SERVERS}
        with engine.serve(_InThisLease(), log=folder / "engine.log", progress=report, environment=plain) as endpoint:
            for name in candidates:
                started = time.monotonic()
                adapter = served.get(name)
                client = OpenAIClient(
                    endpoint.base_url,
                    base if adapter is None else adapter.name,
                    settings.extraction,
                    died=endpoint.died,
                    answers_as=(),
                    ends_repetition=adapter is not None,
                )
                found[name] = _read(_extractor(settings, model, adapter), client, held, folder / f"outbox-{len(found)}")
                report(f"{name} read {len(held)} held-out chunks in {time.monotonic() - started:.1f} s")
    return found


def scored(
    held: Sequence[HeldOutChunk], found: Mapping[str, Sequence[Reading]], limit: int
) -> tuple[tuple[ExampleScores, ...], tuple[Sample, ...]]:
    """Each chunk's share of each model's F1, and the first `limit` chunks with what was found, for people to read."""
    counts = {
        model: [
            (len(each.entities), len(chunk.gold), len(each.entities & chunk.gold))
            for each, chunk in zip(every, held, strict=True)
        ]
        for model, every in found.items()
    }
    shares = {model: shares_of_f1(every) for model, every in counts.items()}
    examples = tuple(
        ExampleScores(
            example=chunk.name,
            group=chunk.group,
            tokens=max(1, len(chunk.text.split())),
            scores={model: every[place] for model, every in shares.items()},
            counts={model: every[place] for model, every in counts.items()},
        )
        for place, chunk in enumerate(held)
    )
    samples = tuple(
        Sample(
            prompt=chunk.text,
            expected=_listed(chunk.gold),
            answers={model: _listed(every[place].entities) for model, every in found.items()},
        )
        for place, chunk in enumerate(held[:limit])
    )
    return examples, samples


def shares_of_f1(counts: Sequence[tuple[int, int, int]]) -> list[float]:
    """For each text, given as (found, gold, right), what it adds to the F1 of all together.

    Their mean is that F1, and how they differ is how far F1 would move if other texts had been held out (the pseudo-
    values of the infinitesimal jackknife: Efron, The Jackknife, the Bootstrap and Other Resampling Plans, 1982, ch. 6).
    So F1 is compared in pairs like any mean. Texts in which nothing is to be found and nothing was: F1 is 1.
    """
    size = sum(found + gold for found, gold, _ in counts)
    if not size:
        return [1.0] * len(counts)
    f1 = 2 * sum(right for _, _, right in counts) / size
    mean = size / len(counts)
    return [f1 + (2 * right - f1 * (found + gold)) / mean for found, gold, right in counts]


def read_held(path: Path, limit: int) -> list[HeldOutChunk]:
    """At most `limit` held-out chunks of a dataset of kind extraction. Raises InputError for rows of another kind."""
    rows = list(enumerate(rows_of(path)))
    # A stable choice that does not depend on the order of rows, so that nights stay comparable.
    rows.sort(key=lambda item: hashlib.sha256(name_of(*item).encode()).digest())
    return [_held(path, name_of(index, row), row) for index, row in sorted(rows[:limit], key=lambda item: item[0])]


def _held(path: Path, name: str, row: Mapping[str, Any]) -> HeldOutChunk:
    try:
        text, answer = row["prompt"][-1]["content"], row["completion"][-1]["content"]
        named, _ = trained.decode(answer, "stop")
    except (KeyError, IndexError, TypeError, DeferredError) as error:
        raise InputError(f"{path}: row {name} is not a chunk with what is named in it: {error}") from None
    gold = frozenset((normalised(each.name), each.entity_class) for each in named)
    return HeldOutChunk(name, str(row.get("group") or name), text, gold)


def calibrated_on(
    held: Sequence[HeldOutChunk], found: Sequence[Reading], settings: ReadingSettings, adapter_digest: str
) -> Calibration | None:
    """The curve of an adapter that read these chunks, by documents (`calibration.own_calibration`)."""
    judged = [
        JudgedName(confidence, entity in chunk.gold, chunk.group)
        for chunk, each in zip(held, found, strict=True)
        for entity, confidence in sorted(each.sure.items())
    ]
    return own_calibration(
        settings.curve.curve if settings.curve is not None else None,
        judged,
        sum(len(chunk.gold) for chunk in held),
        adapter_digest=adapter_digest,
        mode=settings.extraction.mode,
    )


def _extractor(settings: ReadingSettings, model: Path, adapter: ServedAdapter | None) -> Extractor:
    extractor = Extractor(settings.extraction, settings.engine.model, settings.engine.revision, model, adapter)
    if adapter is not None:
        extractor.fitted = settings.curve.curve if settings.curve is not None else None
    return extractor


def _read(extractor: Extractor, client: OpenAIClient, held: Sequence[HeldOutChunk], folder: Path) -> list[Reading]:
    """What an extractor finds in each chunk; nothing where it gave no answer that counts."""
    outbox = Outbox(folder)
    work = [
        WorkItem(_STREAM, each.sha256, partial(Document, DocumentKey(_STREAM, each.name), each.name, each.text))
        for each in held
    ]
    # Nothing is dropped or calibrated yet: that is the last step, and done here.
    least, curve = extractor.min_confidence, extractor.fitted
    extractor.settings = extractor.settings.model_copy(update={"min_confidence": 0.0})
    extractor.fitted = curve.raw if curve is not None else None
    done = extract(extractor, work, client, outbox, deadline=None, progress=lambda _: None)
    if done.stopped:
        raise ServiceError(f"the held-out chunks were not read to the end: {done.stopped}")
    fingerprint = extractor.fingerprint(_STREAM)
    results = [outbox.get(fingerprint, each.sha256) for each in held]
    return [_reading(result.mentions if result is not None else (), curve, least) for result in results]


def _reading(mentions: Sequence[Mention], curve: Curve | None, least: float) -> Reading:
    sure: dict[tuple[str, str], float] = {}
    for each in mentions:
        entity = (normalised(each.name), str(each.entity_class))
        sure[entity] = max(sure.get(entity, 0.0), each.confidence)
    kept = {entity for entity, raw in sure.items() if (raw if curve is None else curve.calibrated(raw)) >= least}
    return Reading(frozenset(kept), sure)


def _listed(entities: Entities) -> str:
    return "\n".join(f"{entity_class}: {name}" for name, entity_class in sorted(entities, key=lambda each: each[::-1]))
