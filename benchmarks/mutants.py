"""How many deliberate mistakes the tests of the critical modules miss: mutation testing with mutmut, `make mutants`.

For each module the share of mutants that survive is held against the recorded floor; a larger share fails. Takes about
half an hour on two quiet cores; `python -m benchmarks.mutants ec1.nights` looks at one module. `mutmut results` lists
what survives, and `mutmut show NAME` shows it.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

FLOOR = Path(__file__).with_suffix(".json")
CAUGHT = {"killed", "timeout", "suspicious"}
MUTMUT = Path(sys.executable).with_name("mutmut")


def main(modules: list[str]) -> int:
    floors: dict[str, float] = json.loads(FLOOR.read_text())
    wanted = modules or list(floors)
    subprocess.run([MUTMUT, "run", *(f"{module}.*" for module in wanted)], check=False)
    listed = subprocess.run([MUTMUT, "results", "--all", "true"], capture_output=True, text=True, check=True).stdout
    counts: dict[str, Counter[str]] = {module: Counter() for module in wanted}
    for line in listed.splitlines():
        name, _, status = line.strip().partition(": ")
        module = next((module for module in wanted if name.startswith(f"{module}.")), None)
        if module is not None and status != "not checked":
            counts[module][status] += 1
    worse = False
    for module, found in counts.items():
        checked = sum(found.values())
        survived = checked - sum(found[status] for status in CAUGHT)
        share = survived / checked if checked else 1.0
        verdict = "" if share <= floors[module] else f"  WORSE than the recorded {floors[module]:.1%}"
        worse = worse or bool(verdict)
        print(f"{module:<28} {checked:>5} mutants, {survived:>4} survive, {share:.1%}{verdict}")
    return int(worse)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
