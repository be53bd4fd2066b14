"""What it would save to train several roles in one process on one loaded base: the sample's model, CPU seconds.

Three times the process of one role's training (the sample's own recipe, rows of its size) is measured from outside,
with its start and imports, as a night has it; and as often a process that does only what could be shared: it starts,
imports, and loads and quantises the base. Six roles one by one are six times the first; in one process they are the
second once and the rest six times. That is the most that sharing can save: it makes no step faster.
https://docs.python.org/3/library/resource.html#resource.getrusage
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._engine import embedded, model_of
from benchmarks.train_tokens import _rows
from ec1.files import write_json
from ec1.home import CHECKOUT
from ec1.recipes.resolution import load_recipe
from ec1.training.spec import TrainingSpec

ROLES = 6
_LOAD = """
import sys
from pathlib import Path
import trl, peft
from ec1.training.spec import TrainingSpec
from ec1.training.methods import METHODS
from ec1.training.trainer import load_tokenizer
spec = TrainingSpec.model_validate_json(Path(sys.argv[1]).read_bytes())
load_tokenizer(spec.base_model)
METHODS[spec.recipe.method].base(spec.recipe, spec.base_model, None)
"""


def _spec(folder: Path, model: Path, rows: int) -> Path:
    """The specification of one role's training, with its dataset."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    shipped = CHECKOUT / "configs" / "recipes"
    recipe = load_recipe(CHECKOUT / "examples" / "recipes" / "engineering.yaml", [shipped]).recipe
    for side, part in (("train", _rows(rows, 256, 1)), ("heldout", _rows(8, 256, 2))):
        (folder / "dataset" / side).mkdir(parents=True)
        table = pa.Table.from_pylist([{**row, "group": str(n), "row": str(n)} for n, row in enumerate(part)])
        pq.write_table(table, folder / "dataset" / side / "rows.parquet")
    spec = TrainingSpec(
        recipe=recipe,
        recipe_digest=recipe.digest(),
        dataset=folder / "dataset",
        dataset_digest="d" * 64,
        base_model=model,
        output=folder / "output",
        device="cpu",
        budget_seconds=3600,
    )
    write_json(folder / "spec.json", spec.model_dump(mode="json"))
    return folder / "spec.json"


def _cpu_seconds(command: list[str]) -> float:
    """CPU seconds of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=sys.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(rows: int = 50, rounds: int = 3) -> dict[str, Any]:
    """Print and return the figures."""
    deployment, _ = embedded()
    whole, shared = [], []
    with tempfile.TemporaryDirectory() as name:
        model = model_of(deployment, Path(name))
        for number in range(rounds):
            folder = Path(name) / str(number)
            folder.mkdir()
            spec = str(_spec(folder, model, rows))
            shared.append(_cpu_seconds([sys.executable, "-c", _LOAD, spec]))
            whole.append(_cpu_seconds([sys.executable, "-m", "ec1.training.trainer", spec]))
    one, part = statistics.median(whole), statistics.median(shared)
    figures = {
        "rows": rows,
        "one_role_cpu_s": round(one, 1),
        "of_it_shareable_cpu_s": round(part, 1),
        "six_one_by_one_cpu_s": round(ROLES * one, 1),
        "six_in_one_process_cpu_s": round(part + ROLES * (one - part), 1),
        "at_most_times_faster": round(ROLES * one / (part + ROLES * (one - part)), 2),
        "most_training_for_twice_cpu_s": round(part * (ROLES - 2) / ROLES, 1),
    }
    print(json.dumps(figures, indent=2))
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    main(**vars(parser.parse_args()))
