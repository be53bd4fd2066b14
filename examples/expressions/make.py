"""Writes the sample that learns from execution: `python -m examples.expressions.make`. Always the same bytes.

A prompt names two operations on x, one after the other; the answer is a Python expression. Some pairs of operations
come with answers, for a warm start; the others only with hidden inputs and what they must give.
"""

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
WARM_PAIRS, WARM_ROWS, TASK_ROWS, INPUTS = 30, 3, 2, 5
SEED = 4
OPERATIONS: dict[str, tuple[str, str, Callable[[int, int], int]]] = {
    # The words, the expression ({e}: what it is of, {p}: that in parentheses if needed), and what it computes.
    "plus": ("plus {n}", "{e} + {n}", lambda x, n: x + n),
    "minus": ("minus {n}", "{e} - {n}", lambda x, n: x - n),
    "times": ("times {n}", "{p} * {n}", lambda x, n: x * n),
    "positive": ("made positive", "abs({e})", lambda x, n: abs(x)),
    "square": ("squared", "{p} ** 2", lambda x, n: x**2),
    "cube": ("cubed", "{p} ** 3", lambda x, n: x**3),
    "double": ("doubled", "{p} * 2", lambda x, n: x * 2),
    "triple": ("tripled", "{p} * 3", lambda x, n: x * 3),
    "half": ("halved", "{p} // 2", lambda x, n: x // 2),
    "negate": ("negated", "-{p}", lambda x, n: -x),
    "modulo": ("modulo {n}", "{p} % {n}", lambda x, n: x % n),
    "divide": ("divided by {n}", "{p} // {n}", lambda x, n: x // n),
    "least": ("at least {n}", "max({e}, {n})", lambda x, n: max(x, n)),
    "most": ("at most {n}", "min({e}, {n})", lambda x, n: min(x, n)),
}


def drawn(first: str, second: str, rng: random.Random) -> dict[str, Any]:
    """One prompt of a pair of operations with its answer, and hidden inputs with what they give."""
    n, m = rng.randint(2, 9), rng.randint(2, 9)
    words = [OPERATIONS[first][0].format(n=n), OPERATIONS[second][0].format(n=m)]
    inner = OPERATIONS[first][1].format(e="x", p="x", n=n)
    closed = inner if inner.startswith(("abs(", "max(", "min(")) else f"({inner})"
    inputs = rng.sample(range(-20, 21), INPUTS)
    one, other = OPERATIONS[first][2], OPERATIONS[second][2]
    return {
        "prompt": f"x {words[0]}, {words[1]} =",
        "answer": OPERATIONS[second][1].format(e=inner, p=closed, n=m),
        "cases": [{"given": {"x": x}, "expected": other(one(x, n), m)} for x in inputs],
        "group": f"{first} {second}",
    }


def rows() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Answers for the warm start, and tasks: of other pairs of operations."""
    rng = random.Random(SEED)
    pairs = list(itertools.product(OPERATIONS, OPERATIONS))
    rng.shuffle(pairs)
    warm = [drawn(*pair, rng) for pair in pairs[:WARM_PAIRS] for _ in range(WARM_ROWS)]
    tasks = [drawn(*pair, rng) for pair in pairs[WARM_PAIRS:] for _ in range(TASK_ROWS)]
    return (
        [{"prompt": each["prompt"], "completion": each["answer"], "group": each["group"]} for each in warm],
        [
            {
                "tuple_type": "task",
                "prompt": each["prompt"],
                "checks": [{"check": "python", "value": each["cases"]}],
                "group": each["group"],
            }
            for each in tasks
        ],
    )


def main() -> None:
    warm, tasks = rows()
    # The tasks are written a day later: the night before them has no version that they could start from.
    written = {
        "expressions-warm/answers.jsonl": (warm, "2026-06-01T09:00:00Z"),
        "expressions/tasks.jsonl": (tasks, "2026-06-02T09:00:00Z"),
    }
    for name, (lines, _) in written.items():
        path = ROOT / "training-corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    times = {f"training-corpus/{name}": at for name, (_, at) in written.items()}
    (ROOT / "timeline.json").write_text(json.dumps(times, indent=2) + "\n")


if __name__ == "__main__":
    main()
