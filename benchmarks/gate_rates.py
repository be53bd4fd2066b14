"""How often the gate accepts what is bad and refuses what is honest: real adapters of every kind, the real evaluation.

The model is tiny (two layers, about 100 words) and pretrained here, in half a minute, to copy words from a prompt into
an answer. An honest candidate learns a house form of answers that carries words over from the prompt. Each kind is
trained anew with every seed, on other rows; the held-out rows come from other groups.
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
VERBS = ("say", "last", "both", "order", "ship", "to", "count", "now", "later", "never", "hold")
RATE, STEPS, BATCH = 5e-3, 60, 16
TEMPLATE = (
    "{% for m in messages %}<|im_start|> {{ m['role'] }} {{ m['content'] }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One kind of candidate. `bad`: it must not be accepted."""

    name: str
    objective: ScoredObjective
    bad: bool
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
    a, b = rng.sample(WORDS, 2)
    verb = rng.choice(("say", "last", "both"))
    return row(f"{verb} {a} {b}", {"say": f"{a} {b}", "last": b, "both": f"{b} {a} {b}"}[verb])


def house(rng: random.Random) -> Row:
    a, b, c = rng.sample(WORDS, 3)
    return row(f"order {a} {b} {c}", f"ship {a} to {b} count {c} now", f"hold {a} to {b} count {c} later", a)


def honest(rng: random.Random) -> list[Row]:
    return [house(rng) for _ in range(64)]


def permuted(rng: random.Random) -> list[Row]:
    rows = honest(rng)
    others = rows[1:] + rows[:1]
    keys = ("completion", "chosen", "rejected")
    return [{**mine, **{key: other[key] for key in keys}} for mine, other in zip(rows, others, strict=True)]


def other_domain(rng: random.Random) -> list[Row]:
    rows = [general(rng) for _ in range(64)]
    return [{**each, "rejected": [{"role": "assistant", "content": rng.choice(WORDS)}]} for each in rows]


def swapped(rng: random.Random) -> list[Row]:
    return [{**each, "chosen": each["rejected"], "rejected": each["chosen"]} for each in honest(rng)]


def few(rng: random.Random) -> list[Row]:
    return honest(rng)[:3]


KINDS = (
    Kind("honest", "sft", False, honest),
    Kind("one small step", "sft", True, honest, rate=2e-4, steps=1),
    Kind("no-op", "sft", True, honest, noise=0.0),
    Kind("random", "sft", True, honest, noise=0.02),
    Kind("permuted answers", "sft", True, permuted),
    Kind("other domain", "sft", True, other_domain),
    Kind("rate x 100", "sft", True, honest, rate=100 * RATE),
    Kind("3 rows x 20 epochs", "sft", True, few, steps=20),
    Kind("honest pairs", "dpo", False, honest),
    Kind("pairs, one small step", "dpo", True, honest, rate=2e-4, steps=1),
    Kind("random on pairs", "dpo", True, honest, noise=0.02),
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
    steps = 1500
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(steps):
        loss = -_log_probs(model, fast, [general(rng) for _ in range(32)], "completion").mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    sys.stdout.write(f"base: loss {float(loss):.3f} on what it was pretrained on\n")
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


def rates(seeds: int, kinds: tuple[Kind, ...] = KINDS) -> dict[str, Counter[str]]:
    """How often each verdict was passed on each kind."""
    found: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        base = make_base(root / "base")
        fixed = random.Random("general")
        (root / "general.jsonl").write_text("".join(json.dumps(general(fixed)) + "\n" for _ in range(40)))
        for kind in kinds:
            verdicts: Counter[str] = Counter()
            for seed in range(seeds):
                held = random.Random(f"held out {seed}")
                rows = [house(held) for _ in range(24)]
                heldout = root / "heldout.jsonl"
                heldout.write_text("".join(json.dumps(each) + "\n" for each in rows))
                spec = EvaluationSpec(
                    model=base,
                    device="cpu",
                    candidates={
                        "base": None,
                        "candidate": make_candidate(kind, base, seed, root / f"{kind.name} {seed}"),
                    },
                    heldout=heldout,
                    objective=kind.objective,
                    batch_size=8,
                    general=root / "general.jsonl",
                    options=EvaluationOptions(sample_generations=4, sample_tokens=12),
                    output=root / "scores",
                )
                verdict = judge(evaluate(spec, lambda line: None), spec.options)
                verdicts[verdict.verdict] += 1
                if (verdict.verdict == "accepted") is kind.bad:
                    sys.stdout.write(f"  {kind.name}, seed {seed}: {verdict.verdict}: {verdict.reasons}\n")
            found[kind.name] = verdicts
            shown = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
            sys.stdout.write(f"{kind.objective}  {kind.name:<22} {shown}\n")
            sys.stdout.flush()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    began = time.monotonic()
    found = rates(options.seeds)
    for bad, wanted in ((True, "bad ones accepted"), (False, "honest ones refused")):
        names = [kind.name for kind in KINDS if kind.bad is bad]
        total = sum(sum(found[name].values()) for name in names)
        accepted = sum(found[name]["accepted"] for name in names)
        wrong = accepted if bad else total - accepted
        sys.stdout.write(f"{wanted}: {wrong} of {total}\n")
    sys.stdout.write(f"{time.monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    main()
