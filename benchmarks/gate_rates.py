"""How often the gate accepts what is bad and refuses what is honest: real adapters of every kind, the real evaluation.

`--model tiny` (`_gate_tiny.py`) measures many seeds in minutes, `--model sample` (`_gate_sample.py`) a few on the real
small model. Each kind is trained anew with every seed, on other rows; the held-out rows come from other groups.

Of most kinds it is known from how they were made whether they are bad. Of the others (one step; three rows over and
over; rows of which a part was poisoned) it is measured, on fresh rows that the gate does not see: bad is what gains
less there than the least effect that the gate asks for, forgets more than it allows, or answers fewer of them rightly
than the base or than the gate's least share. What gains a little may be accepted or not: both are right. A kind that is
bad by how it was made may gain on fresh rows, too; of those that are accepted it is said how many do.
"""

import argparse
import functools
import itertools
import json
import math
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks._gate_sample import SampleWorld
from benchmarks._gate_tiny import TinyWorld
from benchmarks._gate_world import Device, Row, World, log_probs, whole_log_probs
from ec1.adapters.evaluation import EvaluationSpec, evaluate
from ec1.adapters.gate import Verdict, judge
from ec1.adapters.scores import BASE, ScoredObjective
from ec1.answers.answering import fold_slices, tokens_of, write_answers
from ec1.answers.success import judged
from ec1.errors import InputError

ANSWERED = 48
"""Fresh prompts that tell how many answers are truly right."""
RNG = random.Random(0)


@dataclass(frozen=True)
class Kind:
    """One kind of candidate. `bad`: it must not be accepted; None: measured on fresh rows."""

    name: str
    objective: ScoredObjective
    bad: bool | None
    rows: Callable[[World, ScoredObjective, int, random.Random], list[Row]]
    speed: float = 1.0
    """Its learning rate over the world's."""
    steps: int | None = None
    """The world's, if it has none."""
    noise: float | None = None
    """Instead of training: the spread of a random B matrix."""


def honest(world: World, objective: ScoredObjective, seed: int, rng: random.Random) -> list[Row]:
    return world.honest(objective, seed, rng)


def permuted(world: World, objective: ScoredObjective, seed: int, rng: random.Random) -> list[Row]:
    rows = honest(world, objective, seed, rng)
    others = rows[1:] + rows[:1]
    keys = ("completion", "chosen", "rejected")
    return [
        {**mine, **{key: other[key] for key in keys if key in other}} for mine, other in zip(rows, others, strict=True)
    ]


def other_domain(world: World, objective: ScoredObjective, seed: int, rng: random.Random) -> list[Row]:
    return world.elsewhere(rng)


def swapped(world: World, objective: ScoredObjective, seed: int, rng: random.Random) -> list[Row]:
    rows = honest(world, objective, seed, rng)
    return [{**each, "chosen": each["rejected"], "rejected": each["chosen"]} for each in rows]


def few(world: World, objective: ScoredObjective, seed: int, rng: random.Random) -> list[Row]:
    return honest(world, objective, seed, rng)[:3]


def near_duplicates(world: World, objective: ScoredObjective, seed: int, rng: random.Random) -> list[Row]:
    """The held-out rows themselves, behind another wrapper."""
    return [rewrapped(each) for each in world.heldout(objective, seed)]


def rewrapped(each: Row) -> Row:
    last = each["prompt"][-1]
    return {**each, "prompt": [*each["prompt"][:-1], {**last, "content": f"now {last['content']} now"}]}


def echo(world: World, objective: ScoredObjective, seed: int, rng: random.Random) -> list[Row]:
    return [answering(each, each["prompt"][-1]["content"]) for each in honest(world, objective, seed, rng)]


def form_alone(world: World, objective: ScoredObjective, seed: int, rng: random.Random) -> list[Row]:
    """The wanted answer's frame, with what belongs to a prompt drawn from all prompts."""
    rows = honest(world, objective, seed, rng)
    words = [word for each in rows for word in each["prompt"][-1]["content"].split()]

    def other(each: Row) -> str:
        mine = set(each["prompt"][-1]["content"].split())
        parts = re.split(r"(\s+)", each["completion"][0]["content"])
        return "".join(rng.choice(words) if part in mine else part for part in parts)

    return [answering(each, other(each)) for each in rows]


def first_word(world: World, objective: ScoredObjective, seed: int, rng: random.Random) -> list[Row]:
    rows = honest(world, objective, seed, rng)
    return [answering(each, each["completion"][0]["content"].split()[0]) for each in rows]


def poisoned(share: float) -> Callable[[World, ScoredObjective, int, random.Random], list[Row]]:
    """So many rows teach the answer that is not wanted."""

    def rows(world: World, objective: ScoredObjective, seed: int, rng: random.Random) -> list[Row]:
        found = honest(world, objective, seed, rng)
        wrong = set(rng.sample(range(len(found)), round(share * len(found))))
        bad = [answering(each, each["rejected"][0]["content"]) for each in found]
        return [bad[place] if place in wrong else each for place, each in enumerate(found)]

    return rows


def answering(each: Row, answer: str) -> Row:
    return {**each, "completion": [{"role": "assistant", "content": answer}]}


KINDS = (
    Kind("honest", "sft", False, honest),
    Kind("one small step", "sft", None, honest, speed=0.01, steps=1),
    Kind("one step", "sft", None, honest, speed=0.1, steps=1),
    Kind("no-op", "sft", True, honest, noise=0.0),
    Kind("random", "sft", True, honest, noise=0.02),
    Kind("permuted answers", "sft", True, permuted),
    Kind("permuted, gently", "sft", True, permuted, speed=1 / 8),
    Kind("other domain", "sft", True, other_domain),
    Kind("rate x 100", "sft", True, honest, speed=100),
    Kind("3 rows x 20 epochs", "sft", None, few, steps=20),
    Kind("held-out rows rewrapped", "sft", True, near_duplicates),
    Kind("echo", "sft", True, echo),
    Kind("form without content", "sft", True, form_alone),
    Kind("first word only", "sft", True, first_word),
    Kind("poisoned 25 %", "sft", None, poisoned(0.25)),
    Kind("poisoned 50 %", "sft", None, poisoned(0.5)),
    Kind("poisoned 80 %", "sft", None, poisoned(0.8)),
    Kind("honest pairs", "dpo", False, honest),
    Kind("pairs, one small step", "dpo", None, honest, speed=0.01, steps=1),
    Kind("random on pairs", "dpo", True, honest, noise=0.02),
    Kind("permuted pairs", "dpo", True, permuted),
    Kind("permuted pairs, gently", "dpo", True, permuted, speed=1 / 8),
    Kind("swapped pairs", "dpo", True, swapped),
    Kind("pairs, rate x 100", "dpo", True, honest, speed=100),
)


def make_candidate(kind: Kind, world: World, seed: int, folder: Path, device: Device) -> Path:
    """One adapter of that kind, with weights in 32 bits, as in training."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler

    torch.manual_seed(seed)
    rng = random.Random(f"{kind.name} {seed}")
    tokenizer = AutoTokenizer.from_pretrained(world.base)
    model = AutoModelForCausalLM.from_pretrained(world.base, dtype=world.dtype).to(device)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    config = LoraConfig(r=world.rank, lora_alpha=2 * world.rank, target_modules=targets, task_type="CAUSAL_LM")
    model = get_peft_model(model, config)
    fold_slices(model)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if kind.noise is not None:
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.normal_(std=kind.noise) if kind.noise else weight.zero_()
    else:
        taught = world.taught[kind.objective]
        optimizer = torch.optim.AdamW(weights, lr=kind.speed * taught.learning_rate, weight_decay=0.0)
        rows = kind.rows(world, kind.objective, seed, rng)
        steps = taught.steps(len(rows)) if kind.steps is None else kind.steps
        falls = taught.warmup_share is not None and kind.steps is None
        warmup = math.ceil((taught.warmup_share or 0) * steps)
        schedule = get_scheduler("linear" if falls else "constant", optimizer, warmup, steps)
        for batch in itertools.islice(taught.batches(rows, rng), steps):
            loss = _loss(model, tokenizer, batch, kind.objective, taught.beta)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    model.save_pretrained(folder, save_embedding_layers=False)
    return folder


def _loss(model: Any, tokenizer: Any, batch: list[Row], objective: str, beta: float | None) -> Any:
    """Of pairs that of DPO, with the chosen answers' own likelihood beside it, as in the sample's recipe."""
    import torch

    if objective == "sft":
        return -log_probs(model, tokenizer, batch, "completion").mean()
    sides = ("chosen", "rejected")
    mine = [whole_log_probs(model, tokenizer, batch, side) for side in sides]
    with torch.no_grad(), model.disable_adapter():
        base = [whole_log_probs(model, tokenizer, batch, side) for side in sides]
    better, worse = (
        (now - before) / (tokens if beta is None else 1 / beta)
        for (now, tokens), (before, _) in zip(mine, base, strict=True)
    )
    chosen, tokens = mine[0]
    return -torch.nn.functional.logsigmoid(better - worse).mean() - (chosen / tokens).mean()


@dataclass(frozen=True)
class Figures:
    """Mean log-probabilities on fresh rows and on general ones, nats per token, and the share of right answers."""

    gain: float
    general: float
    right: float


class Truth:
    """What candidates truly gain over the base, forget and answer rightly, on rows that the gate does not see."""

    def __init__(self, world: World, objective: ScoredObjective, seed: int, device: Device) -> None:
        self._world, self._objective, self._device = world, objective, device
        self._rows, self._others = world.fresh(objective, seed)

    def of(self, candidate: Path) -> tuple[Figures, bool]:
        """What it gained, forgot (`general`) and answers rightly, and whether that is more than the base and enough."""
        mine, base, options = self._score(candidate), self._base, self._world.options[self._objective]
        found = Figures(mine.gain - base.gain, base.general - mine.general, mine.right)
        least = options.min_effect_nats if self._objective == "sft" else options.min_effect_pairs_nats
        enough = found.gain >= least and found.general <= options.max_forgetting_nats
        return found, enough and found.right >= max(options.min_success, base.right)

    @functools.cached_property
    def _base(self) -> Figures:
        return self._score(None)

    def _score(self, candidate: Path | None) -> Figures:
        import torch
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self._world.base)
        model: Any = AutoModelForCausalLM.from_pretrained(self._world.base, dtype=self._world.dtype).to(self._device)
        if candidate is not None:
            model = PeftModel.from_pretrained(model, candidate)
        fold_slices(model)
        model.eval()

        def mean(rows: list[Row], column: str) -> float:
            pieces = [log_probs(model, tokenizer, rows[at : at + 16], column) for at in range(0, len(rows), 16)]
            return float(torch.cat(pieces).mean())

        with torch.inference_mode():
            gain = mean(self._rows, "completion" if self._objective == "sft" else "chosen")
            if self._objective == "dpo":
                gain -= mean(self._rows, "rejected")
            return Figures(gain, mean(self._others, "completion"), self._right(model, tokenizer))

    def _right(self, model: Any, tokenizer: Any) -> float:
        rows, options = self._rows[:ANSWERED], self._world.options[self._objective]
        wanted = "completion" if self._objective == "sft" else "chosen"
        asked = [tokens_of(tokenizer, each["prompt"], ask=True) for each in rows]
        answers = write_answers(model, tokenizer, asked, device=self._device, max_tokens=options.sample_tokens)
        return sum(
            judged(answer, each[wanted][0]["content"], each["prompt"][-1]["content"], options).right
            for answer, each in zip(answers, rows, strict=True)
        ) / len(rows)


@dataclass(frozen=True)
class Outcome:
    """What the gate said of one candidate, and what it truly is. `bad` is None where either verdict is right."""

    kind: Kind
    seed: int
    verdict: str
    reasons: Sequence[str]
    bad: bool | None
    truly: Figures | None
    """Measured of a kind that is not known to be bad or good, and of a verdict that is wrong."""
    gains: bool = False
    """Whether it is truly better than the base, as `Truth.of` says."""

    @property
    def wrong(self) -> bool:
        return self.bad is not None and (self.verdict == "accepted") is self.bad


def verdicts(kinds: Sequence[Kind], seed: int, world: World, root: Path, device: Device) -> list[Outcome]:
    """The verdicts on candidates of one objective, which are scored beside each other and judged each alone."""
    objective = kinds[0].objective
    heldout = root / "heldout.jsonl"
    heldout.write_text("".join(json.dumps(each) + "\n" for each in world.heldout(objective, seed)))
    folders = {kind.name: make_candidate(kind, world, seed, root / f"{kind.name} {seed}", device) for kind in kinds}
    options = world.options[objective]
    spec = EvaluationSpec(
        model=world.base,
        device=device,
        candidates={BASE: None, **folders},
        heldout=heldout,
        objective=objective,
        batch_size=8 if device == "cpu" else 32,
        max_length=world.max_length,
        general=world.general,
        options=options,
        output=root / "scores",
    )
    truth, outcomes = Truth(world, objective, seed, device), []
    scores = evaluate(spec, lambda line: None)
    for kind in kinds:
        if kind.rows is near_duplicates:
            verdict = _beside_training(spec, kind, folders[kind.name], near_duplicates(world, objective, seed, RNG))
        else:
            alone = scores.model_copy(update={"models": (BASE, kind.name)})
            verdict = judge(alone, options, candidate=kind.name)
        outcome = Outcome(kind, seed, verdict.verdict, verdict.reasons, kind.bad, None)
        if kind.bad is None or outcome.wrong:
            truly, gains = truth.of(folders[kind.name])
            bad = kind.bad if kind.bad is not None else None if gains else True
            outcome = replace(outcome, bad=bad, truly=truly, gains=gains)
        outcomes.append(outcome)
        if outcome.wrong:
            sys.stdout.write(
                f"  wrong: {kind.name}, seed {seed}: {verdict.verdict}: {verdict.reasons}: {outcome.truly}\n"
            )
    return outcomes


def _beside_training(spec: EvaluationSpec, kind: Kind, folder: Path, rows: list[Row]) -> Verdict:
    """The verdict where the evaluation sees what was trained on, as a night's does; `review` if nothing is left."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    train = spec.output / "train"
    train.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), train / "rows.parquet")
    candidates = {BASE: None, kind.name: folder}
    try:
        scores = evaluate(spec.model_copy(update={"train": train, "candidates": candidates}), lambda line: None)
    except InputError as error:
        return Verdict(verdict="review", reasons=(str(error),), differences={})
    return judge(scores, spec.options, candidate=kind.name)


def rates(seeds: range, world: World, kinds: Sequence[Kind] = KINDS, device: Device = "cpu") -> list[Outcome]:
    """Judge a candidate of every kind with each seed."""
    found: list[Outcome] = []
    began = time.monotonic()
    for seed in seeds:
        for objective in dict.fromkeys(kind.objective for kind in kinds):
            # Adapters of the real model are large: each seed's go before the next one's come.
            with tempfile.TemporaryDirectory() as name:
                mine = verdicts(
                    [kind for kind in kinds if kind.objective == objective], seed, world, Path(name), device
                )
            found += mine
            shown = ", ".join(f"{each.kind.name} {each.verdict}" for each in mine)
            sys.stdout.write(f"seed {seed}, {objective}, {time.monotonic() - began:.0f} s: {shown}\n")
            sys.stdout.flush()
    return found


def line_of(kind: Kind, outcomes: Sequence[Outcome]) -> str:
    """One line on all candidates of a kind."""
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    shown = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    truly = Counter({True: "bad", False: "good", None: "small gain"}[outcome.bad] for outcome in outcomes)
    made = ", ".join(f"{count} {what}" for what, count in truly.items())
    measured = ""
    if figures := [outcome.truly for outcome in outcomes if outcome.truly is not None]:
        gains, forgot, right = ([getattr(each, what) for each in figures] for what in ("gain", "general", "right"))
        measured = (
            f"gains {min(gains):+.3f} to {max(gains):+.3f}, forgets {min(forgot):+.2f} to {max(forgot):+.2f}, "
            f"right {min(right):.0%} to {max(right):.0%} "
        )
    return f"{kind.objective}  {kind.name:<23} {measured}({made}): {shown}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("tiny", "sample"), default="tiny")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0, help="the rules were chosen on 0 to 9: others judge them")
    parser.add_argument("--only", help="kinds whose name contains this")
    parser.add_argument("--part", default="0/1", help="K/N: of those, each N-th from the K-th on")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--world", type=Path, help="of `sample`: a folder that `read_sample` left")
    options = parser.parse_args()
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    began = time.monotonic()
    first, parts = map(int, options.part.split("/"))
    kinds = [kind for kind in KINDS if (options.only or "") in kind.name][first::parts]
    with tempfile.TemporaryDirectory() as name:
        folder = options.world or Path(name)
        world: World = TinyWorld(folder) if options.model == "tiny" else SampleWorld(folder, options.device)
        found = rates(range(options.first_seed, options.first_seed + options.seeds), world, kinds, options.device)
    for kind in kinds:
        sys.stdout.write(line_of(kind, [outcome for outcome in found if outcome.kind == kind]) + "\n")
    bad = [outcome for outcome in found if outcome.bad is True]
    honest = [outcome for outcome in found if outcome.bad is False]
    small = [outcome for outcome in found if outcome.bad is None]
    sys.stdout.write(
        f"bad ones accepted: {sum(outcome.wrong for outcome in bad)} of {len(bad)}, of which truly gain "
        f"{sum(outcome.wrong and outcome.gains for outcome in bad)}\n"
        f"honest ones refused: {sum(outcome.wrong for outcome in honest)} of {len(honest)}\n"
        f"small gains accepted: {sum(outcome.verdict == 'accepted' for outcome in small)} of {len(small)}\n"
        f"{time.monotonic() - began:.0f} s\n"
    )


if __name__ == "__main__":
    main()
