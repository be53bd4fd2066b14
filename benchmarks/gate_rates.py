"""How often the gate accepts what is bad and refuses what is honest: real adapters of every kind, the real evaluation.

The model is tiny (two layers, about 120 words) and pretrained here, in a minute, on a dozen instructions that carry
words from a prompt into an answer. One word in seven of those answers is wrong, so that the base is as unsure as real
ones are, and one instruction, `order`, is answered in five forms. The general set is drawn from the other instructions,
so forgetting means something: a base that knows one trick alone, and is certain of it, loses it to any training. An
honest candidate learns, in a few epochs, which of the five forms is the house's. Each kind is trained anew with every
seed, on other rows; the held-out rows come from other groups.

Of most kinds it is known from how they were made whether they are bad. Of the others (one step; three rows over and
over) it is measured, on fresh rows that the gate does not see: bad is what gains less there than the least effect that
the gate asks for, or forgets more than it allows. What gains a little may be accepted or not: both are right.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.adapters.evaluation import EvaluationSpec, evaluate
from ec1.adapters.gate import judge
from ec1.adapters.scores import ScoredObjective
from ec1.recipes.evaluation import EvaluationOptions

WORDS = tuple(f"{a}{b}" for a in "bdfgklmnprst" for b in ("ako", "eli", "imu", "ona", "uba", "ari", "ovo", "esi"))
GENERAL: dict[str, tuple[int, str]] = {
    "say": (2, "{0} {1}"),
    "last": (2, "{1}"),
    "first": (2, "{0}"),
    "both": (2, "{1} {0} {1}"),
    "swap": (2, "{1} {0}"),
    "twice": (2, "{0} {0}"),
    "list": (3, "{0} {1} {2}"),
    "back": (3, "{2} {1} {0}"),
    "middle": (3, "{1}"),
    "ends": (3, "{0} {2}"),
    "send": (2, "send {0} to {1} now"),
    "stop": (2, "never send {0} to {1}"),
    "tell": (3, "tell {0} to count {1} and hold {2}"),
    "wait": (3, "hold {0} and {1} later not {2}"),
}
"""What the base is pretrained on: instruction -> how many words it takes, and the answer."""
HOUSE = "ship {0} to {1} count {2} now"
ORDERS = (
    HOUSE,
    "hold {0} to {1} count {2} later",
    "send {0} to {1} now",
    "{0} and {1} not {2}",
    "never ship {2} to {0}",
)
"""How the base answers an order; the first is the house's way."""
FORMS = ("order", "ship", "to", "count", "now", "later", "never", "hold", "and", "not")
VERBS = (*GENERAL, *FORMS)
RATE, STEPS, BATCH = 2e-3, 24, 16
WRONG = 1 / 7
FRESH = 256
TEMPLATE = (
    "{% for m in messages %}<|im_start|> {{ m['role'] }} {{ m['content'] }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One kind of candidate. `bad`: it must not be accepted; None: measured on fresh rows."""

    name: str
    objective: ScoredObjective
    bad: bool | None
    rows: Callable[[random.Random], list[Row]]
    rate: float = RATE
    steps: int = STEPS
    noise: float | None = None
    """Instead of training: the spread of a random B matrix."""


def row(prompt: str, good: str, bad: str = "", group: str = "") -> Row:
    def says(role: str, text: str) -> list[dict[str, str]]:
        return [{"role": role, "content": text}]

    pair = {"chosen": says("assistant", good), "rejected": says("assistant", bad)}
    return {"prompt": says("user", prompt), "completion": says("assistant", good), "group": group or prompt, **pair}


def general(rng: random.Random) -> Row:
    verb = rng.choice(tuple(GENERAL))
    number, answer = GENERAL[verb]
    words = rng.sample(WORDS, number)
    return row(f"{verb} {' '.join(words)}", answer.format(*words))


def seen(rng: random.Random) -> Row:
    """What the base is pretrained on."""
    if rng.random() < 0.85:
        return unsure(general(rng), rng)
    words = rng.sample(WORDS, 3)
    return unsure(row(f"order {' '.join(words)}", rng.choice(ORDERS).format(*words)), rng)


def unsure(each: Row, rng: random.Random) -> Row:
    """The same row with some words of its answer replaced by any others."""
    words = str(each["completion"][0]["content"]).split()
    told = [rng.choice((*VERBS, *WORDS)) if rng.random() < WRONG else word for word in words]
    return {**each, "completion": [{"role": "assistant", "content": " ".join(told)}]}


def house(rng: random.Random) -> Row:
    words = rng.sample(WORDS, 3)
    return row(f"order {' '.join(words)}", HOUSE.format(*words), ORDERS[1].format(*words), words[0])


def honest(rng: random.Random) -> list[Row]:
    return [house(rng) for _ in range(64)]


def permuted(rng: random.Random) -> list[Row]:
    rows = honest(rng)
    others = rows[1:] + rows[:1]
    keys = ("completion", "chosen", "rejected")
    return [{**mine, **{key: other[key] for key in keys}} for mine, other in zip(rows, others, strict=True)]


def other_domain(rng: random.Random) -> list[Row]:
    rows = [unsure(general(rng), rng) for _ in range(64)]
    return [{**each, "rejected": [{"role": "assistant", "content": rng.choice(WORDS)}]} for each in rows]


def swapped(rng: random.Random) -> list[Row]:
    return [{**each, "chosen": each["rejected"], "rejected": each["chosen"]} for each in honest(rng)]


def few(rng: random.Random) -> list[Row]:
    return honest(rng)[:3]


KINDS = (
    Kind("honest", "sft", False, honest),
    Kind("one small step", "sft", None, honest, rate=2e-5, steps=1),
    Kind("one step", "sft", None, honest, rate=2e-4, steps=1),
    Kind("no-op", "sft", True, honest, noise=0.0),
    Kind("random", "sft", True, honest, noise=0.02),
    Kind("permuted answers", "sft", True, permuted),
    Kind("permuted, gently", "sft", True, permuted, rate=RATE / 8),
    Kind("other domain", "sft", True, other_domain),
    Kind("rate x 100", "sft", True, honest, rate=100 * RATE),
    Kind("3 rows x 20 epochs", "sft", None, few, steps=20),
    Kind("honest pairs", "dpo", False, honest),
    Kind("pairs, one small step", "dpo", None, honest, rate=2e-5, steps=1),
    Kind("random on pairs", "dpo", True, honest, noise=0.02),
    Kind("permuted pairs", "dpo", True, permuted),
    Kind("permuted pairs, gently", "dpo", True, permuted, rate=RATE / 8),
    Kind("swapped pairs", "dpo", True, swapped),
    Kind("pairs, rate x 100", "dpo", True, honest, rate=100 * RATE),
)


def make_base(folder: Path) -> Path:
    """A tiny model that copies, with its tokenizer; always the same."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ("<pad>", "<unk>", "<|im_start|>", "<|im_end|>", "user", "assistant")
    vocabulary = {word: number for number, word in enumerate((*special, *VERBS, *WORDS))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<|im_end|>", unk_token="<unk>"
    )
    fast.chat_template = TEMPLATE
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=96, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=128, eos_token_id=3, pad_token_id=0, bos_token_id=2,
    )  # fmt: skip
    model, rng = LlamaForCausalLM(config), random.Random(7)
    steps = 2000
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(steps):
        loss = -_log_probs(model, fast, [seen(rng) for _ in range(32)], "completion").mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    sys.stdout.write(f"base: loss {float(loss.detach()):.3f} on what it was pretrained on\n")
    model.to(torch.bfloat16).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def _log_probs(model: Any, tokenizer: Any, rows: list[Row], column: str) -> Any:
    """The mean log-probability of each row's answer."""
    import torch

    texts = [(each["prompt"], each["prompt"] + each[column]) for each in rows]
    asked = [tokenizer.apply_chat_template(a, add_generation_prompt=True, return_dict=False) for a, _ in texts]
    whole = [tokenizer.apply_chat_template(b, return_dict=False) for _, b in texts]
    width = max(map(len, whole))
    tokens = torch.tensor([each + [0] * (width - len(each)) for each in whole])
    mask = torch.tensor(
        [[len(a) <= place < len(w) for place in range(width)] for a, w in zip(asked, whole, strict=True)]
    )
    logits = model(input_ids=tokens, attention_mask=tokens != 0).logits[:, :-1].float().log_softmax(-1)
    found = logits.gather(-1, tokens[:, 1:, None])[..., 0] * mask[:, 1:]
    return found.sum(1) / mask[:, 1:].sum(1)


def make_candidate(kind: Kind, base: Path, seed: int, folder: Path) -> Path:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(seed)
    rng = random.Random(f"{kind.name} {seed}")
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=targets, task_type="CAUSAL_LM"))
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if kind.noise is not None:
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.normal_(std=kind.noise) if kind.noise else weight.zero_()
    else:
        optimizer = torch.optim.AdamW(weights, lr=kind.rate, weight_decay=0.0)
        rows = kind.rows(rng)
        for _ in range(kind.steps):
            batch = rng.sample(rows, min(BATCH, len(rows)))
            loss = _loss(model, tokenizer, batch, kind.objective)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            optimizer.zero_grad()
    model.save_pretrained(folder, save_embedding_layers=False)
    return folder


def _loss(model: Any, tokenizer: Any, batch: list[Row], objective: str) -> Any:
    import torch

    if objective == "sft":
        return -_log_probs(model, tokenizer, batch, "completion").mean()
    chosen, rejected = (_log_probs(model, tokenizer, batch, column) for column in ("chosen", "rejected"))
    with torch.no_grad(), model.disable_adapter():
        base = [_log_probs(model, tokenizer, batch, column) for column in ("chosen", "rejected")]
    margin = (chosen - base[0]) - (rejected - base[1])
    return -torch.nn.functional.logsigmoid(margin).mean() - chosen.mean()


def truth(base: Path, candidate: Path, objective: str, rng: random.Random) -> tuple[float, float]:
    """What a candidate truly gains over the base, and forgets, in nats per token on rows that the gate does not see."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), candidate)
    model.eval()
    rows, others = [house(rng) for _ in range(FRESH)], [general(rng) for _ in range(FRESH)]

    def score() -> tuple[float, float]:
        chosen = _log_probs(model, tokenizer, rows, "completion")
        kept = float(_log_probs(model, tokenizer, others, "completion").mean())
        if objective == "dpo":
            chosen = chosen - _log_probs(model, tokenizer, rows, "rejected")
        return float(chosen.mean()), kept

    with torch.no_grad():
        mine = score()
        with model.disable_adapter():
            bases = score()
    return mine[0] - bases[0], bases[1] - mine[1]


@dataclass(frozen=True)
class Outcome:
    """What the gate said of one candidate, and what it truly is. `bad` is None where either verdict is right."""

    kind: Kind
    seed: int
    verdict: str
    bad: bool | None
    gain: float
    forgot: float

    @property
    def wrong(self) -> bool:
        return self.bad is not None and (self.verdict == "accepted") is self.bad


def judged(kind: Kind, seed: int, base: Path, root: Path) -> Outcome:
    held, fresh = random.Random(f"held out {seed}"), random.Random(f"fresh {seed}")
    heldout = root / "heldout.jsonl"
    heldout.write_text("".join(json.dumps(house(held)) + "\n" for _ in range(24)))
    folder = make_candidate(kind, base, seed, root / f"{kind.name} {seed}")
    options = EvaluationOptions(sample_generations=4, sample_tokens=12)
    spec = EvaluationSpec(
        model=base,
        device="cpu",
        candidates={"base": None, "candidate": folder},
        heldout=heldout,
        objective=kind.objective,
        batch_size=8,
        general=root / "general.jsonl",
        options=options,
        output=root / "scores",
    )
    verdict = judge(evaluate(spec, lambda line: None), options)
    least = options.min_effect_nats if kind.objective == "sft" else options.min_effect_pairs_nats
    gained, forgot = truth(base, folder, kind.objective, fresh)
    bad = kind.bad
    if bad is None and (gained < least or forgot > options.max_forgetting_nats):
        bad = True
    outcome = Outcome(kind, seed, verdict.verdict, bad, gained, forgot)
    if outcome.wrong:
        sys.stdout.write(f"  wrong: {kind.name}, seed {seed}: {verdict.verdict}: {verdict.reasons}\n")
    return outcome


def rates(seeds: int, kinds: tuple[Kind, ...] = KINDS) -> list[Outcome]:
    """Judge `seeds` candidates of every kind; prints one line a kind."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        base = make_base(root / "base")
        fixed = random.Random("general")
        (root / "general.jsonl").write_text("".join(json.dumps(general(fixed)) + "\n" for _ in range(64)))
        for kind in kinds:
            mine = [judged(kind, seed, base, root) for seed in range(seeds)]
            found += mine
            verdicts = Counter(outcome.verdict for outcome in mine)
            shown = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
            gains, forgot = ([getattr(outcome, what) for outcome in mine] for what in ("gain", "forgot"))
            truly = Counter({True: "bad", False: "good", None: "small gain"}[outcome.bad] for outcome in mine)
            sys.stdout.write(
                f"{kind.objective}  {kind.name:<22} gains {min(gains):+.3f} to {max(gains):+.3f}, forgets "
                f"{min(forgot):+.2f} to {max(forgot):+.2f} ({', '.join(f'{n} {what}' for what, n in truly.items())}): "
                f"{shown}\n"
            )
            sys.stdout.flush()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", help="kinds whose name contains this")
    options = parser.parse_args()
    began = time.monotonic()
    found = rates(options.seeds, tuple(kind for kind in KINDS if (options.only or "") in kind.name))
    bad = [outcome for outcome in found if outcome.bad is True]
    honest = [outcome for outcome in found if outcome.bad is False]
    small = [outcome for outcome in found if outcome.bad is None]
    sys.stdout.write(
        f"bad ones accepted: {sum(outcome.wrong for outcome in bad)} of {len(bad)}\n"
        f"honest ones refused: {sum(outcome.wrong for outcome in honest)} of {len(honest)}\n"
        f"small gains accepted: {sum(outcome.verdict == 'accepted' for outcome in small)} of {len(small)}\n"
        f"{time.monotonic() - began:.0f} s\n"
    )


if __name__ == "__main__":
    main()
