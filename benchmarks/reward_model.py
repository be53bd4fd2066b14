"""A reward model beside what needs no training: which of eight answers to a held-out task is the right one.

    python -m benchmarks.reward_model [--home .ec1-learn] [--seed 1]

Needs a home in which `make learn` has run its first night. Its warm start writes eight answers to each task of the
sample, which are executed. On half of the pairs of operations TRL's RewardTrainer learns from right and wrong answers;
on the other half the reward model chooses among eight, and so do the warm start's own likelihood and the most frequent
answer. About ten minutes on two idle cores (docs/decisions/no-reward-models.md).
"""

import argparse
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.answers.answering import fold_slices
from ec1.rewards.checks import checks_of
from ec1.rewards.rewards import score_all
from examples.expressions.make import rows

PROJECT = Path(__file__).resolve().parent.parent
SYSTEM = "Answer with a Python expression."
ANSWERS, TEMPERATURE, MAX_TOKENS, BATCH = 8, 1.0, 14, 32
RIGHT_A_TASK, WRONG_A_RIGHT = 2, 3
RATE, EPOCHS, RANK = 5e-4, 3, 16


@dataclass(frozen=True)
class Written:
    """One answer of the warm start: `likelihood` is the mean log-probability of its tokens."""

    text: str
    likelihood: float
    right: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=PROJECT / ".ec1-learn")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    base = next((given.home / "models").glob("HuggingFaceTB--*/*/config.json")).parent
    warm = given.home / "adapters" / "fernhollow" / "expressions-warm" / "v1"
    tasks = rows()[1]
    greedy = written(base, warm, tasks, 1, given.seed)
    answers = written(base, warm, tasks, ANSWERS, given.seed)
    groups = sorted({task["group"] for task in tasks})
    random.Random(given.seed).shuffle(groups)
    held = set(groups[: len(groups) // 2])
    pairs = pairs_of([(task, mine) for task, mine in zip(tasks, answers, strict=True) if task["group"] not in held])
    reward = trained(base, pairs, given.seed)
    places = [place for place, task in enumerate(tasks) if task["group"] in held]
    rewards = {place: reward(tasks[place]["prompt"], [each.text for each in answers[place]]) for place in places}
    print(f"trained on {len(pairs)} pairs; {len(places)} held-out tasks of {len(held)} pairs of operations")
    print("the right one of a right and a wrong answer:")
    show_pairs([(answers[place], rewards[place]) for place in places])
    count = len(places)
    print(f"one answer, the likeliest token each time: {sum(greedy[at][0].right for at in places) / count:.3f}")
    print(
        f"one at random of {ANSWERS}: {sum(each.right for at in places for each in answers[at]) / count / ANSWERS:.3f}"
    )
    print(f"any of {ANSWERS}: {sum(any(each.right for each in answers[at]) for at in places) / count:.3f}")

    def chosen(worth: Callable[[int, int], float]) -> float:
        best = (answers[at][max(range(ANSWERS), key=lambda number: worth(at, number))] for at in places)
        return sum(each.right for each in best) / count

    print(f"the best by the reward model: {chosen(lambda at, number: rewards[at][number]):.3f}")
    print(f"by its own likelihood: {chosen(lambda at, number: answers[at][number].likelihood):.3f}")
    print(f"by frequency: {chosen(lambda at, n: [each.text for each in answers[at]].count(answers[at][n].text)):.3f}")


def written(base: Path, warm: Path, tasks: Sequence[dict[str, Any]], number: int, seed: int) -> list[list[Written]]:
    """So many answers to each task; one alone is the likeliest."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    model = PeftModel.from_pretrained(plain, str(warm), autocast_adapter_dtype=False).eval()
    fold_slices(model)
    how = {"do_sample": False} if number == 1 else {"do_sample": True, "temperature": TEMPERATURE, "top_k": 0}
    found: list[tuple[str, float]] = []
    with torch.inference_mode():
        for start in range(0, len(tasks), BATCH):
            asked = [conversation(task["prompt"]) for task in tasks[start : start + BATCH]]
            texts = [tokenizer.apply_chat_template(each, tokenize=False, add_generation_prompt=True) for each in asked]
            batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
            said = model.generate(
                **batch,
                **how,
                max_new_tokens=MAX_TOKENS,
                num_return_sequences=number,
                pad_token_id=tokenizer.pad_token_id,
                output_scores=True,
                return_dict_in_generate=True,
            )
            logs = model.compute_transition_scores(said.sequences, said.scores, normalize_logits=True)
            tokens = said.sequences[:, batch["input_ids"].shape[1] :]
            kept = tokens != tokenizer.pad_token_id
            likely = (logs.masked_fill(~kept, 0).sum(1) / kept.sum(1).clamp(min=1)).tolist()
            found += zip(tokenizer.batch_decode(tokens, skip_special_tokens=True), likely, strict=True)
    checks = [checks_of(json.dumps(task["checks"])) for task in tasks for _ in range(number)]
    right = [all(each.right for each in mine) for mine in score_all([text for text, _ in found], checks)]
    every = [Written(*each, solved) for each, solved in zip(found, right, strict=True)]
    return [every[at : at + number] for at in range(0, len(every), number)]


def conversation(prompt: str, answer: str | None = None) -> list[dict[str, str]]:
    asked = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]
    return asked if answer is None else [*asked, {"role": "assistant", "content": answer}]


def pairs_of(answered: Sequence[tuple[dict[str, Any], Sequence[Written]]]) -> list[dict[str, Any]]:
    """Right answers beside wrong ones to the same prompt."""
    rng, pairs = random.Random(0), []
    for task, mine in answered:
        wrong = sorted({each.text for each in mine if not each.right and each.text.strip()})
        for right in sorted({each.text for each in mine if each.right})[:RIGHT_A_TASK]:
            for other in rng.sample(wrong, min(WRONG_A_RIGHT, len(wrong))):
                sides = {"chosen": conversation("", right)[2:], "rejected": conversation("", other)[2:]}
                pairs.append({"prompt": conversation(task["prompt"]), **sides})
    return pairs


def trained(base: Path, pairs: list[dict[str, Any]], seed: int) -> Callable[[str, Sequence[str]], list[float]]:
    """Learn from pairs; returns what gives answers to a prompt their rewards."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from trl import RewardConfig, RewardTrainer

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, dtype=torch.float32)
    model.config.pad_token_id = tokenizer.pad_token_id
    with tempfile.TemporaryDirectory() as folder:
        trainer = RewardTrainer(
            model=model,
            args=RewardConfig(
                output_dir=folder,
                num_train_epochs=EPOCHS,
                learning_rate=RATE,
                lr_scheduler_type="cosine",
                per_device_train_batch_size=8,
                use_cpu=True,
                bf16=True,
                gradient_checkpointing=False,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                seed=seed,
            ),
            train_dataset=Dataset.from_list(pairs),
            processing_class=tokenizer,
            peft_config=LoraConfig(
                r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="SEQ_CLS", modules_to_save=["score"]
            ),
        )
        trainer.train()
    judge = trainer.model.eval()

    @torch.inference_mode()
    def reward(prompt: str, answers: Sequence[str]) -> list[float]:
        texts = [tokenizer.apply_chat_template(conversation(prompt, each), tokenize=False) for each in answers]
        batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        found: list[float] = judge(**batch).logits[:, 0].float().tolist()
        return found

    return reward


def show_pairs(judged: Sequence[tuple[Sequence[Written], Sequence[float]]]) -> None:
    """How often the right answer of a right and a wrong one to the same task is told from the other."""
    worths: dict[str, Callable[[Written, float], float]] = {
        "reward model": lambda answer, reward: reward,
        "its own likelihood": lambda answer, reward: answer.likelihood,
        "the shorter": lambda answer, reward: -len(answer.text),
    }
    for name, worth in worths.items():
        told = [
            worth(one, its) > worth(other, others)
            for answers, rewards in judged
            for one, its in zip(answers, rewards, strict=True)
            for other, others in zip(answers, rewards, strict=True)
            if one.right and not other.right
        ]
        print(f"  {name:<20} {sum(told)} of {len(told)} = {sum(told) / max(1, len(told)):.3f}")


if __name__ == "__main__":
    main()
