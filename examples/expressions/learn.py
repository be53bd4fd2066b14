"""`make learn`: a warm start on answers, then GRPO on execution, as two nights of Dagster; and what came of it.

Belongs here: starting the two nights and showing what they left. Does not: the sample (`make.py`) and its recipes.
"""

import os
import subprocess
import sys
from pathlib import Path

from ec1.adapters.scores import BASE, CANDIDATE
from ec1.deployment import load_deployment
from ec1.home import Home
from ec1.night.steps.candidate import INCUMBENT
from ec1.night.steps.recipe_night import RecipeNight
from ec1.recipes.resolution import find_recipe

DEPLOYMENT, NIGHTS = "expressions", ("2026-06-01", "2026-06-02")
PROJECT = Path(__file__).resolve().parents[2]
SHOWN = 10


def main() -> int:
    """Exit status: that of the night that failed, else 0."""
    home = Home(Path(os.environ.get("EC1_HOME", ".ec1-learn")).resolve())
    for night in NIGHTS:
        command = ["ec1.cli", "--deployment", DEPLOYMENT, "--home", str(home.root), "night", "--date", night]
        if status := subprocess.run([sys.executable, "-m", *command], check=False).returncode:
            return status
    show(home)
    return 0


def show(home: Home) -> None:
    """Print the second night's verdict, held-out answers before and after, and where the curve of the reward lies."""
    deployment = load_deployment(DEPLOYMENT, PROJECT)
    resolved = find_recipe("expressions", [*deployment.recipes, PROJECT / "configs" / "recipes"])
    step = RecipeNight(resolved, deployment, home, deployment.night(NIGHTS[-1]))
    judged, curves = step.judged(), step.candidate().curves()
    means = judged.scores.means()
    count = len(judged.scores.examples)
    print(f"\nheld-out tasks solved, of {count} with pairs of operations that nothing was trained on:")
    for model, name in ((BASE, "base"), (INCUMBENT, "warm start (before)"), (CANDIDATE, "after GRPO")):
        print(f"  {name:<20} {means[model] or 0.0:.0%}")
    for model, gain in judged.verdict.differences.items():
        print(f"  gain over {'the warm start' if model == INCUMBENT else model}: {gain}")
    print(f"the gate says {judged.verdict.verdict}: {'; '.join(judged.verdict.reasons)}\n")
    print(f"  {'prompt':<36} {'before':<24} after")
    for sample in judged.scores.samples[:SHOWN]:
        print(f"  {sample.prompt:<36} {sample.answers[INCUMBENT]:<24} {sample.answers[CANDIDATE]}")
    first, last = (sum(part) / len(part) for part in (curves["reward"][:5], curves["reward"][-5:]))
    print(f"\nreward {first:.2f} in the first five steps, {last:.2f} in the last five")
    print(f"its curve: {step.folder / 'reward.png'}")


if __name__ == "__main__":
    sys.exit(main())
