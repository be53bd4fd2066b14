"""Do commits pay that show what stood there before? Equal tokens of old and new tuples, the same held-out lines.

Old tuples: the message and the diff of git as it is, one a commit. New ones: `ec1 corpus from-git`. Both arms train the
small model on as many tokens of the older commits of each repository; the newest are held out. What is scored is
the loss of the added lines alone, each arm with its own question; held out are commits whose added lines are the same
in both forms. `base` is the untrained model with the same questions: what the question alone gives.

A question that shows what stood there takes more of the budget than the answer, so at equal tokens the new arm learns
fewer answers of fewer commits; at a small `--max-length` few new tuples fit at all. `--budget-of learnt` gives both
arms as many tokens that are learnt instead, and `--count` trains nothing and prints what each form is made of.

    python -m benchmarks.commit_tuples --count --commits 150 REPOSITORY REPOSITORY
    python -m benchmarks.commit_tuples REPOSITORY REPOSITORY
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ec1.corpus.from_git import capture
from ec1.corpus.rendering import Rendered, encode, rendered
from ec1.corpus.tuples import Example, example_of, parse_record
from ec1.errors import RejectedError

PROJECT = Path(__file__).resolve().parent.parent
HELD_OUT_SHARE = 0.2
RESAMPLES = 4000


@dataclass(frozen=True)
class Row:
    """One tuple: the commit it is of, its example, and its tokens."""

    commit: str
    example: Example
    text: Rendered
    input_ids: list[int]
    mask: list[int]

    @property
    def added(self) -> list[str]:
        return [line for line in self.text.text[slice(*self.text.answers[0])].splitlines() if _is_added(line)]


def _is_added(line: str) -> bool:
    return line.startswith("+") and not line.startswith("+++")


def _git(repo: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(repo), *arguments], capture_output=True, check=True)
    return done.stdout.decode(errors="replace")


def _old(repo: Path, commits: Sequence[str]) -> list[dict[str, Any]]:
    """What a capture gave before: the whole message and the whole diff."""
    return [
        {
            "tuple_type": "edit",
            "source_commit": commit,
            "commit_msg": _git(repo, "show", "--no-patch", "--format=%B", commit).strip(),
            "diff": _git(repo, "show", "--format=", "--no-color", "--no-ext-diff", "-M", "-p", commit),
            "diff_truncated": False,
        }
        for commit in commits
    ]


def _new(repo: Path, since: str, folder: Path, max_length: int) -> list[dict[str, Any]]:
    """What a capture for recipes of that `max_length` gives: a commit is split, and less is shown, until it fits."""
    capture(repo, since, None, "bench", "bench", folder, max_tokens=max_length)
    return [json.loads(line) for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().splitlines()]


def _rows(records: Sequence[dict[str, Any]], tokenizer: Any, max_length: int) -> list[Row]:
    """The records that fit, as tokens."""
    found = []
    for record in records:
        try:
            example = example_of(parse_record(record), "sft")
            text = rendered(tokenizer, example, "all")
        except RejectedError:
            continue
        (tokens,) = encode(tokenizer, [text])
        if len(tokens.input_ids) <= max_length:
            found.append(Row(record["source_commit"], example, text, tokens.input_ids, tokens.mask))
    return found


def _within(rows: Sequence[Row], budget: int, learnt: bool, seed: int) -> list[Row]:
    """Rows in a random order, up to so many tokens; with `learnt` only those of answers count."""
    order = list(rows)
    random.Random(seed).shuffle(order)
    chosen: list[Row] = []
    for row in order:
        size = sum(row.mask) if learnt else len(row.input_ids)
        if budget < size:
            continue
        budget -= size
        chosen.append(row)
    return chosen


def _write(folder: Path, rows: Sequence[Row]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for side, part in (("train", rows), ("heldout", rows[:1])):
        (folder / side).mkdir(parents=True)
        columns = {
            "prompt": [row.example["prompt"] for row in part],
            "completion": [row.example["completion"] for row in part],
            "input_ids": [row.input_ids for row in part],
            "completion_mask": [row.mask for row in part],
            "group": [row.commit for row in part],
        }
        pq.write_table(pa.table(columns), folder / side / "rows.parquet")


def _train(rows: Sequence[Row], model: Path, output: Path, max_length: int, seed: int) -> tuple[Path, int, int]:
    """The adapter, its steps and its tokens."""
    from ec1.launch.reporting import JsonLinesReporter
    from ec1.recipes.resolution import load_recipe, parse_overrides
    from ec1.training.spec import TrainingSpec
    from ec1.training.trainer import train

    settings = [
        *("method=lora", "quantization=null", "optimisation.epochs=1", "optimisation.batch_size=1"),
        *("optimisation.gradient_accumulation=2", "optimisation.learning_rate=5e-4", f"data.max_length={max_length}"),
        f"optimisation.seed={seed}",
    ]
    path = PROJECT / "examples" / "recipes" / "engineering.yaml"
    resolved = load_recipe(path, [PROJECT / "configs" / "recipes"], parse_overrides(settings))
    _write(output / "dataset", rows)
    spec = TrainingSpec(
        recipe=resolved.recipe,
        recipe_digest=resolved.digest,
        dataset=output / "dataset",
        dataset_digest="0" * 64,
        base_model=model,
        output=output / "training",
        budget_seconds=3600,
        device="cpu",
    )
    result = train(spec, JsonLinesReporter(sys.stderr))
    return output / "training" / "adapter", result.steps, result.tokens


def _losses(model: Any, tokenizer: Any, rows: Sequence[Row]) -> list[float]:
    """Per row, the mean loss of the tokens of its added lines, in nats."""
    import torch
    from torch.nn.functional import cross_entropy

    found = []
    for row in rows:
        start, end = row.text.answers[0]
        spans, place = [], start
        for line in row.text.text[start:end].splitlines(keepends=True):
            if _is_added(line):
                spans.append((place + 1, place + len(line)))
            place += len(line)
        offsets = tokenizer(row.text.text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        wanted = torch.tensor([any(low <= first < high for low, high in spans) for first, _ in offsets])
        ids = torch.tensor([row.input_ids])
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits[0, :-1].float()
        losses = cross_entropy(logits, ids[0, 1:], reduction="none")
        found.append(float(losses[wanted[1:]].mean()))
    return found


def _interval(differences: Sequence[float], seed: int = 1) -> list[float]:
    """Of the mean, 95 %, by resampling commits."""
    values, rng = np.array(differences), np.random.default_rng(seed)
    means = rng.choice(values, (RESAMPLES, len(values))).mean(axis=1)
    return [round(float(edge), 3) for edge in np.percentile(means, [2.5, 97.5])]


def count(repositories: Sequence[Path], model: Path, *, commits: int, tokens: int, lengths: Sequence[int]) -> None:
    """Print, of the newest commits of all repositories, what fits and what of it is learnt in each form."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    found: dict[str, list[Row]] = {"old": [], **{f"new for {length}": [] for length in lengths}}
    with tempfile.TemporaryDirectory() as name:
        for number, repo in enumerate(repositories):
            chosen = _git(repo, "log", "--no-merges", "-n", str(commits), "--format=%H", "HEAD").split()
            since = _git(repo, "show", "--no-patch", "--format=%cI", chosen[-1]).strip()
            found["old"] += _rows(_old(repo, chosen), tokenizer, sys.maxsize)
            for length in lengths:
                records = _new(repo, since, Path(name) / f"{number}-{length}", length)
                found[f"new for {length}"] += _rows(records, tokenizer, sys.maxsize)
    for length in lengths:
        for form in dict.fromkeys(("old", f"new for {length}", f"new for {max(lengths)}")):
            rows = found[form]
            fit = [row for row in rows if len(row.input_ids) <= length]
            read, learnt = sum(len(row.input_ids) for row in fit), sum(sum(row.mask) for row in fit)
            figures = {
                "max_length": length,
                "form": form,
                "tuples": len(rows),
                "that fit": len(fit),
                "of commits": len({row.commit for row in fit}),
                "learnt share": round(learnt / read, 2),
                "learnt of the budget": round(tokens * learnt / read),
            }
            print(json.dumps(figures))


def main(
    repositories: Sequence[Path],
    model: Path,
    *,
    tokens: int,
    learnt: bool,
    heldout: int,
    since: str,
    max_length: int,
    seed: int,
) -> dict[str, Any]:
    """Print and return losses per arm, and the difference with its interval."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    started = time.monotonic()
    tokenizer = AutoTokenizer.from_pretrained(model)
    train: dict[str, list[Row]] = {"old": [], "new": []}
    held: dict[str, list[Row]] = {"old": [], "new": []}
    owners: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for number, repo in enumerate(repositories):
            commits = _git(repo, "log", "--no-merges", "--reverse", "--format=%H", f"--since={since}", "HEAD").split()
            newest = set(commits[-round(HELD_OUT_SHARE * len(commits)) :])
            forms = {
                "old": _rows(_old(repo, commits), tokenizer, max_length),
                "new": _rows(_new(repo, since, work / str(number), max_length), tokenizer, max_length),
            }
            of: dict[str, dict[str, list[Row]]] = {"old": {}, "new": {}}
            for form, rows in forms.items():
                train[form] += [row for row in rows if row.commit not in newest]
                for row in rows:
                    if row.commit in newest:
                        of[form].setdefault(row.commit, []).append(row)
            both = [
                commit
                for commit in commits
                if len(of["old"].get(commit, ())) == len(of["new"].get(commit, ())) == 1
                and of["old"][commit][0].added
                and of["old"][commit][0].added == of["new"][commit][0].added
            ]
            random.Random(seed).shuffle(both)
            for commit in both[: heldout // len(repositories)]:
                owners.append(repo.parent.name)
                for form in held:
                    held[form].append(of[form][commit][0])
        load: Callable[[], Any] = lambda: AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval()  # noqa: E731
        figures: dict[str, Any] = {"repositories": [repo.parent.name for repo in repositories]}
        base, losses = load(), {}
        for form in train:
            losses[f"base, {form} question"] = _losses(base, tokenizer, held[form])
        for form, rows in train.items():
            chosen = _within(rows, tokens, learnt, seed)
            adapter, steps, read = _train(chosen, model, work / form, max_length, seed)
            figures[form] = {
                **{"tuples": len(rows), "trained on": len(chosen), "steps": steps, "tokens": read},
                **{"learnt tokens": sum(map(sum, (row.mask for row in chosen)))},
                **{"commits": len({row.commit for row in chosen})},
            }
            losses[form] = _losses(PeftModel.from_pretrained(load(), str(adapter)).eval(), tokenizer, held[form])
    figures["held-out commits"] = len(held["new"])
    figures["loss of added lines, nats/token"] = {key: round(float(np.mean(each)), 3) for key, each in losses.items()}
    differences = [old - new for old, new in zip(losses["old"], losses["new"], strict=True)]
    figures["new better than old by"] = round(float(np.mean(differences)), 3)
    figures["95 % interval"] = _interval(differences)
    figures["by repository"] = {
        owner: [
            owners.count(owner),
            round(float(np.mean([d for d, o in zip(differences, owners, strict=True) if o == owner])), 3),
        ]
        for owner in sorted(set(owners))
    }
    figures["seconds"] = round(time.monotonic() - started)
    print(json.dumps(figures, indent=2))
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repositories", type=Path, nargs="+")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--tokens", type=int, default=16_000, help="that each arm reads")
    parser.add_argument("--budget-of", choices=("all", "learnt"), default="all", help="what `--tokens` counts")
    parser.add_argument("--count", action="store_true", help="train nothing: what fits, and what of it is learnt")
    parser.add_argument("--commits", type=int, default=150, help="with --count: the newest of each repository")
    parser.add_argument("--heldout", type=int, default=24, help="commits, over all repositories")
    parser.add_argument("--since", default="2021-01-01")
    parser.add_argument("--max-length", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    model = options.model or PROJECT / ".ec1" / "models" / "HuggingFaceTB--SmolLM2-135M-Instruct" / "main"
    if options.count:
        lengths = (512, 1024, 2048)
        count(options.repositories, model, commits=options.commits, tokens=options.tokens, lengths=lengths)
        sys.exit()
    main(
        options.repositories,
        model,
        tokens=options.tokens,
        learnt=options.budget_of == "learnt",
        heldout=options.heldout,
        since=options.since,
        max_length=options.max_length,
        seed=options.seed,
    )
