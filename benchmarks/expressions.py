"""Learning from execution: held-out tasks solved by the base, a warm start, the same after GRPO or RFT, and beside it.

    python -m benchmarks.expressions [--seeds 3] [--only rft] [--home .ec1-learn]

Needs a home in which `make learn` has run its first night (the warm start). Per seed GRPO and RFT train from the warm
start; `frozen` is GRPO at a rate that moves nothing, so its rewards are those of chance alone; `answers` is the warm
start trained on for as many tokens as GRPO on its own answers. All are asked the same held-out tasks, greedily, in one
evaluation; intervals are those of the gate, over pairs of operations. About 18 idle minutes a seed on two cores, with
`--only rft` 3.
"""

import argparse
import datetime as dt
import json
import os
import sys
from pathlib import Path

from ec1.adapters.evaluation import evaluate
from ec1.adapters.gate import compare
from ec1.adapters.scores import BASE, Scores
from ec1.deployment import load_deployment
from ec1.home import Home
from ec1.launch.process import inherited
from ec1.night.experiments.by_hand import Prepared, prepare, run_by_hand
from ec1.recipes.evaluation import EvaluationOptions
from ec1.recipes.resolution import find_recipe, parse_overrides
from ec1.training.spec import TrainingResult

PROJECT = Path(__file__).resolve().parent.parent
BUDGET = 24 * 3600.0
RFT = (
    *("objective=rft", "rft.max_tokens=12", "rft.warm_start=expressions-warm", "optimisation.scheduler=cosine"),
    *("rft.answers=16", "rft.kept=4", "optimisation.learning_rate=5e-4", "optimisation.epochs=4"),
)
FROZEN = ("optimisation.learning_rate=1e-12", "optimisation.epochs=1")


class Bench:
    """The trainings of one home."""

    def __init__(self, home: Home) -> None:
        self.home, self.deployment = home, load_deployment("expressions", PROJECT)

    def train(self, role: str, settings: tuple[str, ...], seed: int) -> tuple[Prepared, TrainingResult]:
        """Train a recipe of the sample with changes, or take up what is there. Returns what was prepared and left."""
        folders = [*self.deployment.recipes, PROJECT / "configs" / "recipes"]
        resolved = find_recipe(role, folders, parse_overrides(list(settings)))
        prepared = prepare(resolved, self.deployment, self.home, dt.datetime.now(dt.UTC), BUDGET, seed)
        log = self.home.logs / f"benchmark-{role}-{prepared.spec.identity[:12]}.log"
        sys.stdout.write(f"{role} seed {seed} {' '.join(settings)}: {prepared.plan.steps} steps, log {log}\n")
        sys.stdout.flush()
        env = inherited(dict(os.environ))
        return prepared, run_by_hand(prepared.spec, self.deployment, self.home, env, log, "benchmarks.expressions")

    def answers(self, tokens: int, seed: int) -> tuple[Prepared, TrainingResult]:
        """The warm start for as many tokens more, on answers."""
        prepared, first = self.train("expressions-warm", (), seed)
        epochs = prepared.step.recipe.optimisation.epochs
        more = min(100, round(epochs * (1 + tokens / max(first.tokens, 1))))
        return self.train("expressions-warm", (f"optimisation.epochs={more}",), seed)


def gain(scores: Scores, options: EvaluationOptions, model: str, reference: str) -> str:
    pairs = zip(scores.values(model), scores.values(reference), strict=True)
    groups = [example.group for example in scores.examples]
    return str(compare([one - other for one, other in pairs], groups, options, unit="of the tasks"))


def forgotten(scores: Scores, model: str) -> float:
    """By how many nats a token answers to general questions became less likely, as the gate counts it."""
    before, after = scores.general[BASE], scores.general[model]
    return (sum(before) - sum(after)) / len(before)


def curve(result: Prepared) -> list[float]:
    import pyarrow.parquet as pq

    column: list[float] = pq.read_table(result.spec.output / "metrics.parquet")["reward"].to_pylist()
    return column


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=["rft"], help="train nothing else")
    parser.add_argument("--home", type=Path, default=PROJECT / ".ec1-learn")
    given = parser.parse_args()
    bench = Bench(Home(given.home.resolve()))
    models: dict[str, Path | None] = {BASE: None}
    learnt: dict[str, Prepared] = {}
    for seed in range(17, 17 + given.seeds):
        first, _ = bench.train("expressions", RFT, seed)
        assert first.spec.start_adapter is not None
        models |= {"warm start": first.spec.start_adapter.folder, f"RFT {seed}": first.spec.output / "adapter"}
        if given.only:
            continue
        prepared, result = bench.train("expressions", (), seed)
        learnt[f"GRPO {seed}"] = prepared
        models[f"GRPO {seed}"] = prepared.spec.output / "adapter"
        more, _ = bench.answers(result.tokens, seed)
        models[f"answers {seed}"] = more.spec.output / "adapter"
    if learnt:
        learnt["frozen"], _ = bench.train("expressions", FROZEN, 17)
        models["frozen"] = learnt["frozen"].spec.output / "adapter"
    spec = first.step.evaluation_spec(first.dataset, first.spec.output / "adapter", given.home / "benchmark")
    scores = evaluate(spec.model_copy(update={"candidates": models}), lambda line: None)
    groups = len({example.group for example in scores.examples})
    print(f"\n{len(scores.examples)} held-out tasks of {groups} pairs of operations, solved:")
    for model, mean in scores.means().items():
        against = (
            ""
            if model in (BASE, "warm start")
            else f"   over the warm start {gain(scores, spec.options, model, 'warm start')}"
        )
        gone = forgotten(scores, model)
        print(f"  {model:<14} {mean or 0.0:6.1%}, general answers lost {gone:.2f} nats/token{against}")
    for name, each in learnt.items():
        rewards = curve(each)
        tail = max(1, len(rewards) // 6)
        first_share, last_share = sum(rewards[:tail]) / tail, sum(rewards[-tail:]) / tail
        print(f"  reward of {name}: {first_share:.2f} at first, {last_share:.2f} at last, {len(rewards)} steps")
    print(json.dumps(scores.means()))


if __name__ == "__main__":
    main()
