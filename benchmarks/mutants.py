"""How many deliberate mistakes the tests of the critical modules miss: mutation testing with mutmut, `make mutants`.

`python -m benchmarks.mutants gate` (or `make mutants MODULE=gate`) looks at the modules whose names contain the word;
all of them take about half an hour on two quiet cores. For each module the share of mutants that survive is held
against the recorded floor (`benchmarks/mutants.json`); a larger share fails. Two kinds of mutants are counted apart:

- wording: only a sentence or a log line differs. Tests ask what a message must say, not each of its letters.
- equivalent: no test can tell the difference. Each is listed with the reason.

mutmut runs of the selected tests (`[tool.mutmut]`) only those that reach the changed function. What survived is printed
with its change. `--record` writes the figures of this run as the floor. A floor that
is not `measured` is a goal; `before` is the share with the tests of before these figures.
"""

import argparse
import ast
import difflib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_suffix(".json")
MUTANTS = Path("mutants")
# Exit codes of a mutant's tests: failed, broke off, out of time (mutmut's own, and SIGXCPU in three spellings), killed
# by what it tests.
CAUGHT = {1, 3, 24, -24, 36, 152, 255, -9}
_SENTENCE = re.compile(r"[A-Za-z,:;] | [A-Za-z]")


@dataclass
class Figures:
    """What became of the mutants of one module."""

    mutants: int = 0
    wording: int = 0
    equivalent: int = 0
    survivors: list[str] = field(default_factory=list)
    unchecked: int = 0

    @property
    def share(self) -> float:
        """The survivors among the mutants that a test could catch."""
        return len(self.survivors) / max(1, self.mutants - self.wording - self.equivalent)


class _Plain(ast.NodeTransformer):
    """Takes sentences and log lines out of a function."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        is_sentence = isinstance(node.value, str) and _SENTENCE.search(node.value)
        return ast.Constant("") if is_sentence else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if (
            isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "log"
        ):
            return ast.Constant("")
        return self.generic_visit(node)


def plain(function: str) -> str:
    """A function's source without what only people read."""
    return ast.unparse(_Plain().visit(ast.parse(function)))


def change(function: str, mutated: str) -> tuple[str, str]:
    """The statements that differ, before and after, each without its indentation."""
    lines = list(difflib.unified_diff(function.splitlines(), mutated.splitlines(), n=0, lineterm=""))[3:]
    before, after = (" / ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")
    return before, after


def mutants_of(module: str) -> Iterator[tuple[str, int | None, str, str]]:
    """Name, exit code of its tests (None: not run), source before and after, of each mutant that mutmut made."""
    path = MUTANTS / f"{module.replace('.', '/')}.py"
    codes: dict[str, int | None] = json.loads(path.with_name(path.name + ".meta").read_text())["exit_code_by_key"]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    sources: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and "__mutmut_" in node.name:
            name, node.name, node.decorator_list = node.name, "function", []
            sources[name] = ast.unparse(node)
    for name, code in codes.items():
        short = name.rpartition(".")[2]
        yield name, code, sources[f"{short.rpartition('__mutmut_')[0]}__mutmut_orig"], sources[short]


def figures_of(module: str, equivalents: dict[str, str]) -> Figures:
    """Count the mutants of a module. `equivalents`: statement after the change -> why nothing can tell it."""
    found = Figures()
    for name, code, before, after in mutants_of(module):
        old, new = change(before, after)
        found.mutants += 1
        found.unchecked += code is None
        if plain(before) == plain(after):
            found.wording += 1
        elif new in equivalents:
            found.equivalent += 1
        elif code is not None and code not in CAUGHT:
            found.survivors.append(f"{name}\n    - {old}\n    + {new}")
    return found


def alone() -> list[str]:
    """The beginning of a command that sees only its own processes. A mistake in the lease's search for what a crashed
    holder left behind finds every process of the machine, and the next line kills them. Raises SystemExit."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *user, "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"]).returncode:
        raise SystemExit("mutants need `unshare` with a process namespace of their own: one may kill all it can see")
    return command


def run(modules: list[str], jobs: int) -> None:
    """Try every mutant of the modules."""
    # Which test reaches which function: a test that changed since would be left out.
    (MUTANTS / "mutmut-stats.json").unlink(missing_ok=True)
    command = [
        *alone(),
        sys.executable,
        "-m",
        "benchmarks._mutmut",
        "run",
        "--max-children",
        str(jobs),
        *(f"{module}.*" for module in modules),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL if os.environ.get("CI") else None)


def main(arguments: list[str]) -> int:
    record: dict[str, Any] = json.loads(RECORD.read_text())
    known: dict[str, dict[str, float]] = record["modules"]
    parser = argparse.ArgumentParser(prog="benchmarks.mutants", description="mutation tests of the critical modules")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="parts of module names; all of them by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants that are tried at once")
    parser.add_argument("--report", action="store_true", help="try nothing, tell what the last run found")
    parser.add_argument("--record", action="store_true", help="write the figures as the new floor")
    options = parser.parse_args(arguments)
    wanted = [each for each in known if not options.modules or any(part in each for part in options.modules)]
    if not wanted:
        parser.error(f"no module is called so: there are {', '.join(known)}")
    if not options.report:
        run(wanted, options.jobs)
    worse = False
    print(f"{'module':<26} mutants  wording  equivalent  survivors   share   floor")
    for module in wanted:
        found = figures_of(module, record["equivalent"].get(module, {}))
        floor = known[module]["floor"]
        failed = found.unchecked > 0 or found.share > floor
        worse = worse or failed
        print(
            f"{module:<26} {found.mutants:>7} {found.wording:>8} {found.equivalent:>11} {len(found.survivors):>10} "
            f"{found.share:>7.1%} {floor:>7.1%}{'  WORSE' * (found.share > floor)}"
            f"{f'  {found.unchecked} were not tried' * (found.unchecked > 0)}"
        )
        print("".join(f"  {survivor}\n" for survivor in found.survivors), end="")
        if options.record and not found.unchecked:
            known[module] |= {
                "mutants": found.mutants,
                "wording": found.wording,
                "equivalent": found.equivalent,
                "survivors": len(found.survivors),
                "floor": math.ceil(1000 * found.share) / 1000,
                "measured": True,
            }
    if options.record:
        RECORD.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(worse and not options.record)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
