"""A tiny world: two layers and about 120 words, pretrained in a minute on a dozen instructions that carry words from a
prompt into an answer.

One word in seven of those answers is wrong, so that the base is as unsure as real ones are, and one instruction,
`order`, is answered in five forms. The general set is drawn from the other instructions, so forgetting means something:
a base that knows one trick alone, and is certain of it, loses it to any training. An honest candidate learns, in a few
epochs, which of the five forms is the house's.
"""

import json
import random
import sys
from pathlib import Path

from benchmarks._gate_world import Row, Teaching, World, log_probs, row
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
WRONG = 1 / 7
FRESH = 256
TEMPLATE = (
    "{% for m in messages %}<|im_start|> {{ m['role'] }} {{ m['content'] }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)


class TinyWorld(World):
    """Rows are drawn without end."""

    def __init__(self, folder: Path) -> None:
        self.base = make_base(folder / "base")
        self.general = folder / "general.jsonl"
        fixed = random.Random("general")
        self.general.write_text("".join(json.dumps(general(fixed)) + "\n" for _ in range(64)))
        options, taught = EvaluationOptions(sample_tokens=16), Teaching(2e-3, batch_size=16, epochs=6)
        self.options: dict[ScoredObjective, EvaluationOptions] = {"sft": options, "dpo": options}
        self.taught: dict[ScoredObjective, Teaching] = {"sft": taught, "dpo": taught}
        self.rank = 8
        self.dtype, self.max_length = "float32", 512

    def honest(self, objective: ScoredObjective, seed: int, rng: random.Random) -> list[Row]:
        return [house(rng) for _ in range(64)]

    def elsewhere(self, rng: random.Random) -> list[Row]:
        return [unsure(general(rng), rng) for _ in range(64)]

    def heldout(self, objective: ScoredObjective, seed: int) -> list[Row]:
        rng = random.Random(f"held out {seed}")
        return [house(rng) for _ in range(50)]

    def fresh(self, objective: ScoredObjective, seed: int) -> tuple[list[Row], list[Row]]:
        rng = random.Random(f"fresh {seed}")
        return [house(rng) for _ in range(FRESH)], [general(rng) for _ in range(FRESH)]


def general(rng: random.Random) -> Row:
    verb = rng.choice(tuple(GENERAL))
    number, answer = GENERAL[verb]
    words, others = rng.sample(WORDS, number), rng.sample(WORDS, number)
    return row(f"{verb} {' '.join(words)}", answer.format(*words), answer.format(*others))


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
        loss = -log_probs(model, fast, [seen(rng) for _ in range(32)], "completion").mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    sys.stdout.write(f"base: loss {float(loss.detach()):.3f} on what it was pretrained on\n")
    model.to(torch.bfloat16).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
