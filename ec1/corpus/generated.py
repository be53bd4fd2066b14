"""Rows that a model proposes and the sandbox checks: functions become tasks "what does this call give?".

Belongs here: reading functions, asking for calls, executing each call twice, and what is kept. Does not: the sandbox
(`ec1.sandbox`), and rows that people or programs wrote.

An answer counts once it is written to the folder of its functions, so an interrupted generation asks for nothing twice.
What two processes with other seeds do not agree on is left out: time, chance and the order of sets teach nothing. Rows
are held in the home until somebody admits them into a bucket.
"""

import ast
import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from ec1.errors import DeferredError, InputError
from ec1.extraction.reading.client import Completion, Messages
from ec1.files import digest_of, read_json, write_atomic, write_json
from ec1.sandbox.batch import Case, Job, Value, call

CALLS = 5
"""Calls that one request asks for."""
MAX_CASES = 32
ROWS, REPORT = "rows.jsonl", "report.json"
_MAX_CALL, _MAX_VALUE = 200, 2_000
_SCHEMA = {
    "type": "object",
    "properties": {
        "calls": {
            "type": "array",
            "items": {"type": "string", "maxLength": _MAX_CALL},
            "minItems": 1,
            "maxItems": CALLS,
        }
    },
    "required": ["calls"],
    "additionalProperties": False,
}
_SYSTEM = "You write calls of a Python function, with literal arguments only, each different from the others."
# One example: without it a small model repeats the function's own words.
_EXAMPLE = ("def area(width, height):\n    return width * height", ["area(3, 4)", "area(0.5, 10)", "area(7, height=2)"])


class Asks(Protocol):
    """What asks a model (`ec1.extraction.reading.client.ChatClient`)."""

    async def complete(
        self,
        messages: Messages,
        schema: Any,
        *,
        stream: str,
        deadline: float | None,
        variation: int = 0,
    ) -> Completion: ...


@dataclass(frozen=True)
class SourceFunction:
    """One function of a module. `module` is all of its text, which runs before each call."""

    name: str
    text: str
    module: str


@dataclass(frozen=True)
class GenerationReport:
    """What became of the calls that a model proposed. `rows` are held under `digest`."""

    functions: int
    requests: int
    unanswered: int
    proposed: int
    not_literal: int
    duplicates: int
    failed: int
    unstable: int
    known: int
    rows: int
    digest: str

    def __str__(self) -> str:
        return (
            f"{self.rows} rows of {self.proposed} calls ({self.requests} requests about {self.functions} functions, "
            f"{self.unanswered} unanswered): {self.not_literal} not literal, {self.duplicates} duplicates, "
            f"{self.failed} without a plain value, {self.unstable} unstable, {self.known} in the bucket already"
        )


def functions_in(path: Path) -> list[SourceFunction]:
    """The functions at the top of a Python file. Raises InputError if there is none."""
    text = path.read_text(encoding="utf-8")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path} is not Python: {error}") from None
    found = [
        SourceFunction(node.name, ast.get_source_segment(text, node) or "", text)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    if not found:
        raise InputError(f"{path} defines no function at its top")
    return found


async def propose(
    functions: Sequence[SourceFunction], client: Asks, folder: Path, requests: int, progress: Callable[[str], None]
) -> int:
    """Ask `requests` times for calls of each function, and write each answer to `folder`; what is there is not asked
    again. Returns how many requests have no answer. Raises ServiceError if the server answers nobody."""

    async def one(function: SourceFunction, variation: int) -> bool:
        path = folder / f"{digest_of([function.module, function.name])[:24]}-{variation}.json"
        if path.is_file():
            return True
        try:
            answer = await client.complete(
                _messages(function), _SCHEMA, stream="generation", deadline=None, variation=variation
            )
            calls = [str(each) for each in json.loads(answer.content)["calls"]][:CALLS]
        except (DeferredError, ValueError, KeyError, TypeError):
            return False
        write_json(path, {"function": function.name, "calls": calls})
        progress(f"{function.name}: {len(calls)} calls")
        return True

    folder.mkdir(parents=True, exist_ok=True)
    done = await asyncio.gather(*(one(function, number) for function in functions for number in range(requests)))
    return done.count(False)


def generate(
    functions: Sequence[SourceFunction],
    answers: Path,
    held: Path,
    *,
    requests: int,
    unanswered: int,
    model: str,
    known: frozenset[str] = frozenset(),
) -> GenerationReport:
    """Execute what was proposed, twice, and hold the rows that come of it in a folder of `held`, named by their digest.

    `known`: prompts that the bucket has already, which what is held out is among.
    """
    counts: Counter[str] = Counter()
    proposed: dict[tuple[str, str], SourceFunction] = {}
    for function in functions:
        for number in range(requests):
            path = answers / f"{digest_of([function.module, function.name])[:24]}-{number}.json"
            for text in read_json(path)["calls"] if path.is_file() else ():
                counts["proposed"] += 1
                plain = literal_call(text, function.name)
                counts["not_literal"] += plain is None
                counts["duplicates"] += plain is not None and (function.name, plain) in proposed
                if plain is not None:
                    proposed.setdefault((function.name, plain), function)
    rows: list[dict[str, Any]] = []
    for (name, text), value in _executed(proposed, counts).items():
        prompt = f"{proposed[name, text].text}\n\nWhat does {text} give?"
        if prompt in known:
            counts["known"] += 1
            continue
        rows.append(
            {
                "tuple_type": "task",
                "prompt": prompt,
                "checks": [{"check": "python", "value": {"expected": value}}],
                "group": f"function:{digest_of([proposed[name, text].module, name])[:16]}",
            }
        )
    digest = digest_of([model, rows])[:32]
    for row in rows:
        row["metadata"] = {"origin": f"generated/{digest}", "model": model}
    figures = {name: counts[name] for name in ("proposed", "not_literal", "duplicates", "failed", "unstable", "known")}
    report = GenerationReport(
        functions=len(functions),
        requests=len(functions) * requests,
        unanswered=unanswered,
        rows=len(rows),
        digest=digest,
        **figures,
    )
    write_atomic(held / digest / ROWS, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    write_json(held / digest / REPORT, asdict(report))
    return report


def literal_call(text: str, name: str) -> str | None:
    """A call of that function with literal arguments, in one spelling; None if it is anything else."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != name:
            return None
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            ast.literal_eval(argument)
        return None if any(keyword.arg is None for keyword in node.keywords) else ast.unparse(node)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def held_rows(held: Path, digest: str) -> list[dict[str, Any]]:
    """The rows that are held under a digest, or under the only one that begins so. Raises InputError."""
    found = [path for path in sorted(held.glob(f"{digest}*")) if (path / ROWS).is_file()] if digest else []
    if len(found) != 1:
        raise InputError(f"{len(found)} generations below {held} begin with {digest!r}: name one")
    lines = (found[0] / ROWS).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def sample_of(rows: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """A few rows to look at before they are admitted: always the same."""
    return random.Random(len(rows)).sample(list(rows), min(count, len(rows)))


def admit(rows: Sequence[dict[str, Any]], bucket: Path) -> Path:
    """Put rows into a bucket's folder, as one file; again the same rows are the same file."""
    digest = rows[0]["metadata"]["origin"].rpartition("/")[2]
    path = bucket / f"generated-{digest}.jsonl"
    write_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def _executed(proposed: dict[tuple[str, str], SourceFunction], counts: Counter[str]) -> dict[tuple[str, str], Any]:
    """What each call gives, where two processes agree on it."""
    jobs, names = [], []
    for function in {id(each): each for each in proposed.values()}.values():
        own = [key for key, each in proposed.items() if each is function]
        for start in range(0, len(own), MAX_CASES):
            names.append(own[start : start + MAX_CASES])
            jobs.append(Job(function.module, tuple(Case(text) for _, text in names[-1])))
    # Two boxes: each has its own seed of hashes, of `random` and its own time.
    first, second = call(jobs), call(jobs)
    values: dict[tuple[str, str], Any] = {}
    for keys, one, other in zip(names, first, second, strict=True):
        for key, mine, theirs in zip(keys, one.results, other.results, strict=True):
            if not isinstance(mine, Value) or len(json.dumps(mine.value)) > _MAX_VALUE:
                counts["failed"] += 1
            elif mine != theirs:
                counts["unstable"] += 1
            else:
                values[key] = mine.value
    return values


def _messages(function: SourceFunction) -> list[dict[str, str]]:
    text, calls = _EXAMPLE
    return [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": text},
        {"role": "assistant", "content": json.dumps({"calls": calls})},
        {"role": "user", "content": function.text},
    ]
