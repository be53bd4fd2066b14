"""The evaluation: base, incumbent and candidate scored on the same held-out examples, in a separate process.

Run as `python -m ec1.adapters.evaluation SPEC.json`. The base is loaded once and the adapters are switched on it. It is
scored as it is served: in the precision of `ec1.models.precision_on` with the adapter unmerged, not the 4-bit weights
that were trained on. Each model writes answers to held-out prompts, which are right or not. Beside them it is asked for
the likelihood of the held-out answers, of the same answers behind other prompts, of the right and wrong answers of a
fixed general set, and for the recipe's task cases; the base once more in another batching. What training knows of the
held-out side is in no score. Extractors are not asked for any of it: they read the held-out chunks (`reading.py`);
tasks are answered, and the answers executed (`solving.py`).

Belongs here: asking and writing down. Does not: loading and answering, whether an answer is right (`ec1.answers`), the
likelihoods (`likelihood.py`), reading (`reading.py`) and the decision (`gate.py`).
"""

import functools
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from ec1.adapters.extractor import extractor_adapter
from ec1.adapters.judging import base_judge, judged_by, server_judge
from ec1.adapters.likelihood import HeldOutExample, ReadAnswer, read_answers, read_examples, shuffled
from ec1.adapters.manifest import ADAPTER_FILES
from ec1.adapters.overlap import overlap_with
from ec1.adapters.reading import (
    HeldOutChunk,
    Reading,
    ReadingSettings,
    calibrated_on,
    read_held,
    read_with_each,
    scored,
)
from ec1.adapters.remembered import Remembered, remembered
from ec1.adapters.scores import BASE, CANDIDATE, ExampleScores, Judge, Overlap, ScoredObjective, Scores, write_scores
from ec1.adapters.settings import JudgeSettings
from ec1.adapters.solving import HeldOutTask, answered, read_tasks, scored_tasks
from ec1.adapters.written import answers_to, room_for, samples_of, to_write
from ec1.answers.answering import ModelAnswer, ends_of, load_candidates, ready_to_answer, tokens_of, write_answers
from ec1.corpus.row_kinds import ROW_KINDS, TASKS
from ec1.errors import InputError
from ec1.extraction.naming.calibration import CALIBRATION
from ec1.files import sha256_file
from ec1.launch.by_spec import run_by_spec
from ec1.launch.reporting import open_reporter
from ec1.recipes.evaluation import EvaluationOptions, why_unchecked
from ec1.rewards import checks
from ec1.rewards.rewards import passes
from ec1.settings import Settings

Report = Callable[[str], None]
_Read = Callable[[Sequence[HeldOutExample]], list[list[ReadAnswer]]]

GENERAL = Path(__file__).with_name("general.jsonl")
"""The fixed general set: short questions of everyday kinds with a right and a wrong answer, written for this."""
_NOISE_EXAMPLES = 16


class EvaluationSpec(Settings):
    """What to evaluate. Paths are absolute, or relative to the process's folder."""

    model: Path = Field(description="the base model's folder")
    device: Literal["cuda", "cpu"] = "cuda"
    candidates: dict[str, Path | None] = Field(description="name -> adapter folder; `base` is null")
    heldout: Path = Field(description="a folder of Parquet files or a .jsonl file, conversational examples")
    train: Path | None = Field(
        None, description="the folder of Parquet files that was trained on: what it knows of `heldout` is not scored"
    )
    objective: ScoredObjective
    system_prompt: str | None = Field(None, description="put before examples that have none, as in training")
    max_length: int = Field(512, gt=1, description="tokens; longer examples are cut at the end, as in training")
    batch_size: int = Field(4, gt=0, description="rows of `max_length` that are read at once; of shorter ones more")
    general: Path = Field(GENERAL, description="a .jsonl file of right and wrong answers that must not be forgotten")
    trained: str = Field("", description="how the candidate was trained: its rate and steps")
    looked_at: dict[str, int] = Field({}, description="how often each held-out group was looked at before")
    options: EvaluationOptions = EvaluationOptions()
    reading: ReadingSettings | None = Field(
        None, description="of an extractor: what phase 1 reads with; the candidates are scored by F1"
    )
    judge: JudgeSettings | None = Field(
        None, description="the model that judges task cases of `check: judge`; null: the base itself"
    )
    remembered: Path | None = Field(
        None, description="folder of the role that keeps what models said for its next evaluation; null: nothing is"
    )
    output: Path = Field(description="folder for evaluation.json and examples.jsonl")

    @field_validator("candidates")
    @classmethod
    def _has_the_base(cls, value: dict[str, Path | None]) -> dict[str, Path | None]:
        if value.get(BASE, Path()) is not None or sum(path is None for path in value.values()) != 1:
            raise ValueError("needs `base: null`, and a folder for every other name")
        return value


@dataclass(frozen=True)
class _General:
    """Of each question of the general set, in nats, the losses of its right and of its wrong answer."""

    right: tuple[float, ...]
    wrong: tuple[float, ...]

    @property
    def likely(self) -> tuple[float, ...]:
        return tuple(-loss for loss in self.right)

    @property
    def found(self) -> tuple[bool, ...]:
        return tuple(right < wrong for right, wrong in zip(self.right, self.wrong, strict=True))


@dataclass(frozen=True)
class _Told:
    """All that one model was asked, in the order of the examples, of the general set, and of the task cases."""

    losses: list[list[float]]
    shuffled: list[float | None]
    general: _General
    answers: list[ModelAnswer]
    tasks: list[ModelAnswer]


def evaluate(spec: EvaluationSpec, report: Report, environment: Mapping[str, str] | None = None) -> Scores:
    """Score all candidates, write the result to `spec.output` and return it. `report` gets a line per stage.

    `environment` is for the engine that extractors are served with. Raises InputError for held-out data of another
    shape, PermanentError for an adapter that does not fit the model.
    """
    if spec.reading is not None:
        scores = _reads(spec, spec.reading, report, environment)
    else:
        solves = ROW_KINDS.get(spec.objective) is TASKS
        scores = _solves(spec, report) if solves else _likelihoods(spec, report)
    write_scores(scores, spec.output)
    return scores


def _reads(
    spec: EvaluationSpec, settings: ReadingSettings, report: Report, environment: Mapping[str, str] | None
) -> Scores:
    """What each candidate reads out of the held-out chunks, as F1."""
    started = time.monotonic()
    held = read_held(spec.heldout, spec.options.max_examples)
    if not held:
        raise InputError(f"{spec.heldout} holds no chunk: nothing to evaluate")
    # Before they are loaded: whatever lies there afterwards is what was scored, or is refused.
    files = {name: digests(folder) for name, folder in spec.candidates.items() if folder is not None}
    found = read_with_each(
        settings,
        spec.model,
        spec.candidates,
        held,
        device=spec.device,
        environment=environment or {},
        report=report,
    )
    _write_curve(spec, settings, held, found, report)
    examples, samples = scored(held, found, spec.options.sample_generations)
    return Scores(
        objective="extraction",
        models=tuple(spec.candidates),
        examples=examples,
        samples=samples,
        looks=_looks(held, spec.looked_at),
        scored=files,
        trained=spec.trained,
        precision=f"as phase 1 reads, mode {settings.extraction.mode}, adapters unmerged",
        device=spec.device,
        seconds={"all": round(time.monotonic() - started, 2)},
    )


def _write_curve(
    spec: EvaluationSpec,
    settings: ReadingSettings,
    held: Sequence[HeldOutChunk],
    found: Mapping[str, Sequence[Reading]],
    report: Report,
) -> None:
    """Leave the candidate's curve of confidence, if one can be fitted or taken over."""
    (spec.output / CALIBRATION).unlink(missing_ok=True)
    folder = spec.candidates.get(CANDIDATE)
    if folder is None:
        return
    adapter = extractor_adapter(folder, settings.engine.model)
    curve = calibrated_on(held, found[CANDIDATE], settings, adapter.digest)
    if curve is None or not curve.judged:
        report(f"the confidences of {CANDIDATE} are not calibrated: too few names were held out")
    else:
        report(f"calibrated on {curve.judged} names of {curve.groups} documents, error {curve.error:.3f}")
    if curve is not None:
        curve.save(spec.output)


def _solves(spec: EvaluationSpec, report: Report) -> Scores:
    """Which held-out tasks each candidate's answers solve, executed; and what it finds likely of the general set."""
    import torch
    from transformers import AutoTokenizer

    started = time.monotonic()
    if (why := checks.why_unchecked({"python"})) is not None:
        raise InputError(f"the held-out tasks cannot be executed: {why}")
    tokenizer = AutoTokenizer.from_pretrained(spec.model, local_files_only=True)

    def asked(messages: list[dict[str, str]]) -> list[int]:
        return tokens_of(tokenizer, _led(messages, spec.system_prompt), ask=True)

    held = read_tasks(spec.heldout, asked, spec.options.max_examples)
    if not held:
        raise InputError(f"{spec.heldout} holds no task: nothing to evaluate")
    general = _general_set(spec, tokenizer)
    files = {name: digests(folder) for name, folder in spec.candidates.items() if folder is not None}
    model, switch = load_candidates(spec.model, spec.candidates, spec.device)
    seconds = {"load": time.monotonic() - started}
    write = functools.partial(
        write_answers, model, tokenizer, device=spec.device, max_tokens=spec.options.sample_tokens
    )
    read = _reader(spec, model, tokenizer)
    answers: dict[str, list[ModelAnswer]] = {}
    generally: dict[str, _General] = {}
    asides: dict[str, list[ModelAnswer]] = {}
    for name in spec.candidates:
        started = time.monotonic()
        with torch.inference_mode(), switch(name):
            answers[name] = answered(held, write)
            generally[name] = _of_general(read(general))
            asides[name] = write([_asked(tokenizer, task.prompt, spec.system_prompt) for task in spec.options.tasks])
        seconds[name] = time.monotonic() - started
        report(f"{name} answered {len(held)} tasks in {seconds[name]:.1f} s")
    examples, samples = scored_tasks(held, answers, spec.options.sample_generations)
    with torch.inference_mode(), switch(BASE):
        passed, judge = _passed(spec, asides, model, tokenizer, report)
    return Scores(
        objective=spec.objective,
        models=tuple(spec.candidates),
        examples=examples,
        samples=samples,
        general={name: each.likely for name, each in generally.items()},
        general_right={name: each.found for name, each in generally.items()},
        tasks=passed,
        judge=judge,
        looks=_looks(held, spec.looked_at),
        scored=files,
        trained=spec.trained,
        precision=f"{_precision(model)}, adapters unmerged, no quantisation; answers executed",
        device=spec.device,
        seconds={name: round(value, 2) for name, value in seconds.items()},
    )


def _likelihoods(spec: EvaluationSpec, report: Report) -> Scores:
    """What each candidate finds likely, writes and passes."""
    import torch
    from transformers import AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    started = time.monotonic()
    if (why := why_unchecked(spec.options)) is not None:
        raise InputError(why)
    tokenizer = AutoTokenizer.from_pretrained(spec.model, local_files_only=True)
    examples, skipped = read_examples(
        spec.heldout,
        spec.objective,
        tokenizer,
        system_prompt=spec.system_prompt,
        max_length=spec.max_length,
        limit=spec.options.max_examples,
    )
    if not examples:
        raise InputError(f"{spec.heldout} holds no example that fits {spec.max_length} tokens: nothing to evaluate")
    overlap = None
    if spec.train is not None:
        examples, overlap = _unknown(spec, spec.train, examples, report)
    general = _general_set(spec, tokenizer)
    # Before they are loaded: whatever lies there afterwards is what was scored, or is refused.
    files = {name: digests(folder) for name, folder in spec.candidates.items() if folder is not None}
    model, switch = load_candidates(spec.model, spec.candidates, spec.device)
    seconds = {"load": time.monotonic() - started}
    report(f"loaded {spec.model.name} and {len(spec.candidates) - 1} adapters in {seconds['load']:.1f} s")

    write = functools.partial(write_answers, model, tokenizer, device=spec.device)
    read = _reader(spec, model, tokenizer)
    places, too_long = to_write(examples, spec.options)
    chosen = [examples[place] for place in places]
    tasks = [_asked(tokenizer, task.prompt, spec.system_prompt) for task in spec.options.tasks]
    elsewhere = shuffled(examples)
    mixed = [example for example in elsewhere if example is not None]
    told: dict[str, _Told] = {}
    torch.manual_seed(spec.options.seed)
    for name in spec.candidates:
        started = time.monotonic()
        memory = remembered(spec.remembered, spec.model, files.get(name), f"{_precision(model)} on {spec.device}")
        reads = _remembering(read, memory)
        with torch.inference_mode(), switch(name):
            # In one call: a prompt is read once for all that stands behind it.
            heard = iter(reads([*examples, *mixed, *general]))
            seen, of_mixed, of_general = ([*islice(heard, len(part))] for part in (examples, mixed, general))
            asked = time.monotonic()
            answers = _answers(
                memory,
                chosen,
                [seen[place][0] for place in places],
                spec.options,
                functools.partial(answers_to, model, tokenizer, device=spec.device),
            )
            seconds[f"answers of {name}"] = time.monotonic() - asked
            told[name] = _Told(
                losses=_losses(seen),
                shuffled=_scored_where(elsewhere, of_mixed),
                general=_of_general(of_general),
                answers=answers,
                tasks=write(tasks, max_tokens=spec.options.sample_tokens),
            )
        memory.keep()
        seconds[name] = time.monotonic() - started
        before = f"; of {memory.asked} questions {memory.found} were answered before" if memory.found else ""
        report(
            f"evaluated {name} on {len(examples)} examples in {seconds[name]:.1f} s, "
            f"{seconds[f'answers of {name}']:.1f} s of them to write what was not read of {len(chosen)} answers{before}"
        )
    with torch.inference_mode(), switch(BASE):
        few = examples[:_NOISE_EXAMPLES]
        noise = _noise(_losses(read(few, batch_tokens=1)), told[BASE].losses)
        passed, judge = _passed(spec, {name: each.tasks for name, each in told.items()}, model, tokenizer, report)

    return Scores(
        objective=spec.objective,
        models=tuple(spec.candidates),
        examples=tuple(_scored(example, index, told) for index, example in enumerate(examples)),
        skipped=skipped,
        samples=samples_of(chosen, {name: each.answers for name, each in told.items()}, spec.options),
        too_long=too_long,
        overlap=overlap,
        general={name: each.general.likely for name, each in told.items()},
        general_right={name: each.general.found for name, each in told.items()},
        tasks=passed,
        judge=judge,
        noise=noise,
        looks=_looks(examples, spec.looked_at),
        scored=files,
        trained=spec.trained,
        precision=f"{_precision(model)}, adapters unmerged, no quantisation",
        device=spec.device,
        seconds={name: round(value, 2) for name, value in seconds.items()},
    )


def _passed(
    spec: EvaluationSpec, answers: Mapping[str, Sequence[ModelAnswer]], model: Any, tokenizer: Any, report: Report
) -> tuple[dict[str, dict[str, bool | None]], Judge | None]:
    """Per model, which task cases its answers pass; and who judged those that no program checks. The base is switched
    on. None at all where the recipe has no case."""
    tasks = spec.options.tasks
    if not tasks:
        return {}, None
    found: dict[str, dict[str, bool | None]] = {
        name: {task.name: passes(task, each[place].text) for place, task in enumerate(tasks) if task.check != "judge"}
        for name, each in answers.items()
    }
    places = [place for place, task in enumerate(tasks) if task.check == "judge"]
    if not places:
        return found, None
    started = time.monotonic()
    if spec.judge is None:
        ask, judge = base_judge(model, tokenizer, spec.model, spec.device)
    else:
        ask, judge = server_judge(spec.judge)
    theirs = {name: [each[place] for place in places] for name, each in answers.items()}
    decided, judge = judged_by([tasks[place] for place in places], theirs, ask, judge)
    how = f", but {judge.problem}" if judge.problem else ""
    report(f"{judge.model} judged {len(places)} task cases in {time.monotonic() - started:.1f} s{how}")
    return {name: each | decided[name] for name, each in found.items()}, judge


def digests(adapter: Path) -> dict[str, str]:
    """The SHA-256 of each file that makes up an adapter, by name."""
    return {name: sha256_file(adapter / name) for name in ADAPTER_FILES if (adapter / name).is_file()}


def _reader(spec: EvaluationSpec, model: Any, tokenizer: Any) -> Callable[..., list[list[ReadAnswer]]]:
    return functools.partial(
        read_answers,
        model,
        # As many as may be rows of the full length: short ones share a batch with more of their kind.
        batch_tokens=spec.batch_size * spec.max_length,
        pad=tokenizer.pad_token_id or 0,
        ends=ends_of(model, tokenizer),
        device=spec.device,
    )


def _remembering(read: Callable[..., list[list[ReadAnswer]]], memory: Remembered) -> _Read:
    """`read`, of what the model has not read before."""

    def reads(examples: Sequence[HeldOutExample]) -> list[list[ReadAnswer]]:
        said = memory.said(
            [["read", example.prompt, example.answers] for example in examples],
            lambda places: [list(map(astuple, each)) for each in read([examples[place] for place in places])],
        )
        return [[ReadAnswer(*each) for each in answers] for answers in said]

    return reads


def _answers(
    memory: Remembered,
    chosen: Sequence[HeldOutExample],
    seen: Sequence[ReadAnswer],
    options: EvaluationOptions,
    answer: Callable[..., list[ModelAnswer]],
) -> list[ModelAnswer]:
    """The answers to these examples, of which the model has read the wanted ones as `seen`."""
    room = room_for(chosen, options)
    limits = options.model_dump(mode="json", exclude={"tasks"})
    said = memory.said(
        [["answer", each.prompt, each.answers[0], each.prompt_text, each.expected, room, limits] for each in chosen],
        lambda places: [
            astuple(each)
            for each in answer(
                [chosen[place] for place in places],
                [seen[place] for place in places],
                max_tokens=room,
                options=options,
            )
        ],
    )
    return [ModelAnswer(*each) for each in said]


def _general_set(spec: EvaluationSpec, tokenizer: Any) -> list[HeldOutExample]:
    """Its questions, each with a right and a wrong answer."""
    general, _ = read_examples(
        spec.general, "dpo", tokenizer, system_prompt=spec.system_prompt, max_length=spec.max_length, limit=sys.maxsize
    )
    return general


def _of_general(read: Sequence[Sequence[ReadAnswer]]) -> _General:
    losses = _losses(read)
    return _General(tuple(right for right, _ in losses), tuple(wrong for _, wrong in losses))


def _losses(read: Sequence[Sequence[ReadAnswer]]) -> list[list[float]]:
    return [[each.loss for each in answers] for answers in read]


def _scored_where(
    examples: Sequence[HeldOutExample | None], read: Sequence[Sequence[ReadAnswer]]
) -> list[float | None]:
    """The loss of each example's answer; None where there is no example."""
    losses = iter(_losses(read))
    return [None if example is None else next(losses)[0] for example in examples]


def _noise(alone: Sequence[Sequence[float]], batched: Sequence[Sequence[float]]) -> float:
    """How far two batchings of the same rows lie apart on average: what 16-bit arithmetic makes of nothing."""
    gaps = [abs(one - other) for a, b in zip(alone, batched, strict=False) for one, other in zip(a, b, strict=True)]
    return math.fsum(gaps) / len(gaps)


def _looks(examples: Sequence[HeldOutExample | HeldOutChunk | HeldOutTask], looked_at: Mapping[str, int]) -> float:
    groups = {example.group for example in examples}
    return sum(looked_at.get(group, 0) for group in groups) / len(groups)


def _precision(model: Any) -> str:
    return str(model.dtype).removeprefix("torch.")


def _asked(tokenizer: Any, prompt: str, system_prompt: str | None) -> list[int]:
    return tokens_of(tokenizer, _led([{"role": "user", "content": prompt}], system_prompt), ask=True)


def _led(messages: list[dict[str, str]], system_prompt: str | None) -> list[dict[str, str]]:
    """A conversation, led by the system prompt if it has none."""
    if not system_prompt or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system_prompt}, *messages]


def _unknown(
    spec: EvaluationSpec, train: Path, examples: list[HeldOutExample], report: Report
) -> tuple[list[HeldOutExample], Overlap]:
    """The examples that training does not know, and what it knows. Raises InputError if it knows all of them."""
    overlap, known = overlap_with(train, examples, ROW_KINDS[spec.objective])
    if known:
        report(f"{len(known)} of {len(examples)} held-out examples stand in training, too: they are not scored")
    if len(known) == len(examples):
        raise InputError(
            f"all {len(examples)} held-out examples of {spec.heldout} stand in {train}, too: nothing to evaluate; "
            "remove the copies from the corpus"
        )
    return [example for place, example in enumerate(examples) if place not in known], overlap


def _scored(example: HeldOutExample, index: int, told: Mapping[str, _Told]) -> ExampleScores:
    """One answer: its log-probability is the score. Two: the first one's minus the second one's."""
    losses = {name: each.losses[index] for name, each in told.items()}
    elsewhere = {name: each.shuffled[index] for name, each in told.items()}
    return ExampleScores(
        example=example.name,
        group=example.group,
        tokens=len(example.answers[0]),
        scores={n: _finite((loss[1] - loss[0]) if len(loss) == 2 else -loss[0]) for n, loss in losses.items()},
        losses={name: _finite(value[0]) for name, value in losses.items()},
        shuffled={name: None if value is None else _finite(-value) for name, value in elsewhere.items()},
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0 done, 1 failed, 2 usage."""
    return run_by_spec("ec1.adapters.evaluation", EvaluationSpec, arguments, _reported)


def _reported(spec: EvaluationSpec) -> None:
    with ready_to_answer(spec.model), open_reporter(os.environ) as reporter:
        scores = evaluate(spec, reporter.progress, os.environ)
        reporter.result({"evaluated": list(scores.models), "examples": len(scores.examples)})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
