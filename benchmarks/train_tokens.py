"""Training speed: ours against a bare TRL script with the same recipe, and against one that pads every row to the full.

Each training is a separate process, the small model with NF4 QLoRA on rows of mixed lengths. Tokens are those of the
rows, not padding; the clock runs over the last epoch. Losses are means over held-out rows, after it.
Seconds are the process's own, on one core, so that what else the machine does hardly counts. `bare` is what
the library's own example does; `bare, our environment` has our allocator's settings too, so that the
difference to `ours, in the same order` is our own overhead (and, on a CPU, our scorer's gain).
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
GOODS = ("apples", "pears", "plums", "figs", "dates", "limes", "kiwis", "melons", "grapes", "olives")
VARIANTS = ("ours", "ours, in the same order", "bare, our environment", "bare", "bare, padded to the full")
WITH_LIGER = "ours, with Liger"
"""On a card only."""


def _rows(count: int, max_length: int, seed: int) -> list[dict[str, Any]]:
    """Most rows are short and a few fill the length, as in a corpus of edits."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        words = int((max_length - 60) / 2 * rng.random() ** 3) + 5
        text = " ".join(f"{rng.choice(GOODS)} {rng.randrange(100)}," for _ in range(words // 2 + 1))
        prompt = [{"role": "user", "content": f"What stands in aisle {number}?"}]
        rows.append({"prompt": prompt, "completion": [{"role": "assistant", "content": f"We count {text} no more."}]})
    return rows


def _recipe(options: argparse.Namespace, *, grouped: bool) -> Any:
    from ec1.recipes.resolution import load_recipe
    from ec1.recipes.schema import Recipe

    shipped = PROJECT / "configs" / "recipes"
    values = load_recipe(PROJECT / "examples" / "recipes" / "engineering.yaml", [shipped]).recipe.model_dump(
        mode="json"
    )
    quantised = load_recipe(shipped / "pointsav" / "engineering.yaml", [shipped]).recipe
    values |= quantised.model_dump(mode="json", include={"method", "quantization"})
    values["optimisation"] |= {"batch_size": options.batch, "epochs": options.epochs, "group_by_length": grouped}
    values["optimisation"]["gradient_checkpointing"] = options.device == "cuda"
    values["optimisation"]["liger_kernels"] = options.variant == WITH_LIGER
    values["data"]["max_length"] = options.max_length
    values["hardware"]["device"] = options.device
    return Recipe.model_validate(values)


def _clock(device: str) -> float:
    """CPU seconds of this process; with a card, seconds after all that it was asked for."""
    if device == "cpu":
        return time.process_time()
    import torch

    torch.cuda.synchronize()
    return time.monotonic()


def _train(options: argparse.Namespace) -> dict[str, float]:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch
    from transformers import AutoTokenizer, TrainerCallback

    rows, heldout = _rows(options.rows, options.max_length, 1), _rows(8, options.max_length, 2)
    tokenizer = AutoTokenizer.from_pretrained(options.model)

    class Watch(TrainerCallback):  # type: ignore[misc, unused-ignore]
        began = ended = loss = 0.0

        def on_epoch_begin(self, *args: Any, **kwargs: Any) -> None:
            self.began = _clock(options.device)

        def on_train_end(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
            self.ended = _clock(options.device)
            losses = []
            with torch.no_grad():
                for row in heldout:
                    ids = tokenizer.apply_chat_template(row["prompt"] + row["completion"], return_dict=False)
                    start = len(tokenizer.apply_chat_template(row["prompt"], return_dict=False))
                    ids = torch.tensor([ids[: options.max_length]], device=options.device)
                    logits = model(input_ids=ids).logits[0, start - 1 : -1].float()
                    losses.append(float(torch.nn.functional.cross_entropy(logits, ids[0, start:])))
            self.loss = sum(losses) / len(losses)

    watch = Watch()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.variant.startswith("ours"):
            from ec1.launch.reporting import JsonLinesReporter
            from ec1.training.spec import TrainingSpec
            from ec1.training.trainer import train

            for side in ("train", "heldout"):
                (folder / side).mkdir()
                pq.write_table(pa.Table.from_pylist(rows), folder / side / "rows.parquet")
            recipe = _recipe(options, grouped=options.variant in ("ours", WITH_LIGER))
            spec = TrainingSpec(
                recipe=recipe,
                recipe_digest=recipe.digest(),
                dataset=folder,
                dataset_digest="d" * 64,
                base_model=options.model,
                output=folder / "output",
                budget_seconds=3600,
                device=options.device,
            )
            train(spec, JsonLinesReporter(sys.stderr), extra_callbacks=[watch])
        else:
            _bare(options, rows, tokenizer, watch, folder)
    lengths = [len(tokenizer.apply_chat_template(row["prompt"] + row["completion"], return_dict=False)) for row in rows]
    tokens = sum(min(length, options.max_length) for length in lengths)
    seconds = watch.ended - watch.began
    return {"tokens": tokens, "seconds": seconds, "per_second": tokens / seconds, "heldout_loss": watch.loss}


def _bare(options: argparse.Namespace, rows: list[dict[str, Any]], tokenizer: Any, watch: Any, folder: Path) -> None:
    """The training as the library's documentation shows it, with this recipe's figures."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    from trl import SFTConfig, SFTTrainer

    from ec1.training.plan import schedule_of

    recipe = _recipe(options, grouped=False)
    assert recipe.lora is not None
    quantization = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    trainer = SFTTrainer(
        AutoModelForCausalLM.from_pretrained(
            options.model,
            dtype=torch.bfloat16,
            quantization_config=quantization,
            device_map={"": 0} if options.device == "cuda" else None,
        ),
        args=SFTConfig(
            output_dir=str(folder / "output"),
            num_train_epochs=options.epochs,
            learning_rate=recipe.optimisation.learning_rate,
            warmup_steps=schedule_of(recipe, len(rows), 0).warmup_steps,
            per_device_train_batch_size=options.batch,
            gradient_checkpointing=options.device == "cuda",
            max_length=options.max_length,
            pad_to_multiple_of=options.max_length if "padded" in options.variant else None,
            bf16=options.device == "cuda",
            use_cpu=options.device == "cpu",
            seed=recipe.optimisation.seed,
            data_seed=recipe.optimisation.seed,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=recipe.lora.r,
            lora_alpha=recipe.lora.alpha,
            lora_dropout=recipe.lora.dropout,
            target_modules=list(recipe.lora.target_modules),
            task_type="CAUSAL_LM",
        ),
        callbacks=[watch],
    )
    trainer.train()


def main(rows: int, batch: int, max_length: int, epochs: int, model: Path, rounds: int) -> dict[str, Any]:
    """Print and return tokens per CPU second of each variant, the best of `rounds` that take turns, and the ratios."""
    from ec1.launch.environment import process_environment

    found: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for variant in VARIANTS:
            own = variant.startswith("ours") or "our environment" in variant
            # One thread: two that wait for each other would burn processor time in which nothing is done.
            plain = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-m", "benchmarks.train_tokens", "--variant", variant, "--rows", str(rows)]
            command += ["--batch", str(batch), "--max-length", str(max_length), "--model", str(model)]
            command += ["--epochs", str(epochs)]
            done = subprocess.run(
                command,
                env=process_environment("cpu", plain) if own else plain,
                cwd=PROJECT,
                capture_output=True,
                check=False,
                text=True,
            )
            if done.returncode:
                raise RuntimeError(f"{variant} failed: {done.stderr[-1000:]}")
            figures = json.loads(done.stdout.splitlines()[-1])
            print(variant, {key: round(value, 3) for key, value in figures.items()}, flush=True)
            if figures["per_second"] > found.get(variant, {"per_second": 0.0})["per_second"]:
                found[variant] = figures

    def ratio(one: str, other: str) -> float:
        return round(found[one]["per_second"] / found[other]["per_second"], 3)

    figures = {
        "ours_to_bare_with_our_environment": ratio("ours, in the same order", "bare, our environment"),
        "ours_to_bare": ratio("ours, in the same order", "bare"),
        "mixed_lengths_ours_to_padded": ratio("ours", "bare, padded to the full"),
        "loss_ours_less_padded": round(
            found["ours"]["heldout_loss"] - found["bare, padded to the full"]["heldout_loss"], 4
        ),
    }
    print(json.dumps(figures, indent=2))
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", choices=(*VARIANTS, WITH_LIGER))
    parser.add_argument("--rows", type=int, default=48)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--model", type=Path, help="folder; default: the sample's small model")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of one variant")
    arguments = parser.parse_args()
    if arguments.variant is None:
        from benchmarks._engine import embedded, model_of

        with tempfile.TemporaryDirectory() as scratch:
            model = arguments.model or model_of(embedded()[0], Path(scratch))
            main(arguments.rows, arguments.batch, arguments.max_length, arguments.epochs, model, arguments.rounds)
    else:
        print(json.dumps(_train(arguments)))
