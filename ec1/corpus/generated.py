"""Rows that a model proposes and the sandbox checks: functions become tasks "what does this call give?".

Belongs here: reading functions, asking for calls, executing each call again and again, and what is kept. Does not: the
sandbox (`ec1.sandbox`), and rows that people or programs wrote.

An answer counts once it is written to the folder of its functions, so an interrupted generation asks for nothing twice.
What eight processes with other seeds do not agree on is left out: time, chance and the order of sets teach nothing, and
two agree too often by chance, on a coin half of the time. Rows are held in the home until somebody admits them into a
bucket.
"""

import ast
import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from ec1.corpus.tuples import load_record
from ec1.errors import DeferredError, InputError
from ec1.extraction.reading.client import Completion, Messages
from ec1.files import digest_of, read_json, write_atomic, write_json
from ec1.sandbox.batch import Case, Job, Value, call

CALLS = 5
"""Calls that one request asks for."""
MAX_CASES = 32
RUNS = 8
"""Processes that must agree on what a call gives."""
ROWS, REPORT, STEPS = "rows.jsonl", "report.json", "steps.jsonl"
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
Became = Literal["row", "not_literal", "duplicates", "failed", "unstable", "known"]
"""What becomes of a proposed call; all but the first are reasons to leave it out."""


@dataclass(frozen=True)
class Prompting:
    """How a model is asked for calls of a function: a system prompt, and one example of a function with its calls."""

    instruction: str
    example: str
    example_calls: tuple[str, ...]

    def messages(self, function: "SourceFunction") -> list[dict[str, str]]:
        """What a model is shown of a function."""
        shown = [
            {"role": "user", "content": self.example},
            {"role": "assistant", "content": json.dumps({"calls": list(self.example_calls)})},
        ]
        return [
            {"role": "system", "content": self.instruction},
            *(shown if self.example.strip() and self.example_calls else ()),
            {"role": "user", "content": function.text},
        ]


DEFAULT_PROMPTING = Prompting(
    "You write calls of a Python function, with literal arguments only, each different from the others.",
    # One example: without it a small model repeats the function's own words.
    "def area(width, height):\n    return width * height",
    ("area(3, 4)", "area(0.5, 10)", "area(7, height=2)"),
)


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


Ask = tuple[SourceFunction, int]
"""A request about a function; the number tells it from the other requests about the same one."""


@dataclass(frozen=True)
class GenerationStep:
    """One proposed call, from the answer to what became of it: the `request` about the function, the `call` in one
    spelling, and what two processes gave, as JSON, or why nothing: two that do not agree, if there are any."""

    function: str
    request: int
    proposed: str
    call: str
    first: str
    second: str
    became: Became


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
    return functions_of(path.read_text(encoding="utf-8"), str(path))


def functions_of(text: str, where: str) -> list[SourceFunction]:
    """The functions at the top of a Python module; `where` names it in errors. Raises InputError if there is none."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{where} is not Python: {error}") from None
    found = [
        SourceFunction(node.name, ast.get_source_segment(text, node) or "", text)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    if not found:
        raise InputError(f"{where} defines no function at its top")
    return found


def asks_of(functions: Sequence[SourceFunction], requests: int) -> list[Ask]:
    """So many requests about each function: one about each before there is a second about any."""
    return [(function, number) for number in range(requests) for function in functions]


def answers_folder(role: Path, model: str, functions: Sequence[SourceFunction], prompting: Prompting) -> Path:
    """Where the answers about these functions are kept, below the folder of a role's generations."""
    return role / "answers" / digest_of([model, asdict(prompting), *(each.text for each in functions)])[:24]


async def propose(
    asks: Sequence[Ask],
    client: Asks,
    folder: Path,
    progress: Callable[[str], None],
    *,
    prompting: Prompting = DEFAULT_PROMPTING,
    deadline: float | None = None,
) -> int:
    """Ask for calls, and write each answer to `folder`; what is there is not asked again. Returns how many requests
    have no answer, such as those that had no time before `deadline` (`time.monotonic`). Raises ServiceError if the
    server answers nobody."""

    async def one(function: SourceFunction, variation: int) -> bool:
        path = _answer_path(folder, function, variation)
        if path.is_file():
            return True
        try:
            answer = await client.complete(
                prompting.messages(function), _SCHEMA, stream="generation", deadline=deadline, variation=variation
            )
            calls = [str(each) for each in json.loads(answer.content)["calls"]][:CALLS]
        except (DeferredError, ValueError, KeyError, TypeError):
            return False
        write_json(path, {"function": function.name, "calls": calls})
        progress(f"{function.name}: {len(calls)} calls")
        return True

    folder.mkdir(parents=True, exist_ok=True)
    done = await asyncio.gather(*(one(function, number) for function, number in asks))
    return done.count(False)


def generate(
    asks: Sequence[Ask],
    answers: Path,
    held: Path,
    *,
    unanswered: int,
    model: str,
    known: frozenset[str] = frozenset(),
    noted: Mapping[str, str] | None = None,
) -> GenerationReport:
    """Execute what was proposed, twice, and hold the rows that come of it in a folder of `held`, named by their digest,
    beside the steps that led to them.

    `known`: prompts that the bucket has already, which what is held out is among. `noted` stands in the metadata of
    each row.
    """
    proposed: dict[tuple[str, str], SourceFunction] = {}
    steps: list[GenerationStep] = []
    for function, number in asks:
        path = _answer_path(answers, function, number)
        for text in read_json(path)["calls"] if path.is_file() else ():
            plain = literal_call(text, function.name)
            became: Became = "not_literal" if plain is None else "row"
            if plain is not None and (function.name, plain) in proposed:
                became = "duplicates"
            elif plain is not None:
                proposed[function.name, plain] = function
            steps.append(GenerationStep(function.name, number, text, plain or "", "", "", became))
    ran = _executed(proposed)
    rows: list[dict[str, Any]] = []
    for place, step in enumerate(steps):
        if step.became != "row":
            continue
        function, (first, second) = proposed[step.function, step.call], ran[step.function, step.call]
        prompt = f"{function.text}\n\nWhat does {step.call} give?"
        became = _outcome(first, second)
        if became == "row" and prompt in known:
            became = "known"
        steps[place] = replace(step, first=_told(first), second=_told(second), became=became)
        if became == "row" and isinstance(first, Value):
            rows.append(
                {
                    "tuple_type": "task",
                    "prompt": prompt,
                    "checks": [{"check": "python", "value": {"expected": first.value}}],
                    "group": f"function:{digest_of([function.module, step.function])[:16]}",
                }
            )
    digest = digest_of([model, rows])[:32]
    for row in rows:
        row["metadata"] = {"origin": f"generated/{digest}", "model": model, **(noted or {})}
    counts = Counter[str](step.became for step in steps)
    figures = {name: counts[name] for name in ("not_literal", "duplicates", "failed", "unstable", "known")}
    report = GenerationReport(
        functions=len({(function.module, function.name) for function, _ in asks}),
        requests=len(asks),
        unanswered=unanswered,
        proposed=len(steps),
        rows=len(rows),
        digest=digest,
        **figures,
    )
    write_atomic(held / digest / ROWS, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    lines = (json.dumps(asdict(step), ensure_ascii=False) + "\n" for step in steps)
    write_atomic(held / digest / STEPS, "".join(lines))
    write_json(held / digest / REPORT, asdict(report))
    return report


def steps_in(folder: Path) -> list[GenerationStep]:
    """The steps of a generation in its folder; none where an earlier release generated."""
    if not (folder / STEPS).is_file():
        return []
    lines = (folder / STEPS).read_text(encoding="utf-8").splitlines()
    return [GenerationStep(**json.loads(line)) for line in lines]


def prompts_in(bucket: Path) -> frozenset[str]:
    """What earlier generations of a bucket ask; whatever is held out of them must not come back as training."""
    records = (
        load_record(line)
        for path in sorted(bucket.glob("generated-*.jsonl"))
        for line in path.read_bytes().splitlines()
    )
    return frozenset(str(record.get("prompt")) for record in records)


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


def _answer_path(folder: Path, function: SourceFunction, number: int) -> Path:
    return folder / f"{digest_of([function.module, function.name])[:24]}-{number}.json"


Ran = Value | str


def _executed(proposed: Mapping[tuple[str, str], SourceFunction]) -> dict[tuple[str, str], tuple[Ran, Ran]]:
    """What each call gives in a first process, and in the first of the others that does not agree with it, or the last.
    What gives nothing is tried twice only."""
    first, other = _run(proposed), _run(proposed)
    for _ in range(RUNS - 2):
        agreed = {key: proposed[key] for key in first if isinstance(first[key], Value) and first[key] == other[key]}
        other |= _run(agreed)
    return {key: (first[key], other[key]) for key in first}


def _run(proposed: Mapping[tuple[str, str], SourceFunction]) -> dict[tuple[str, str], Ran]:
    """What each call gives in one box, with its own seed of hashes, of `random` and its own time; or why nothing."""
    jobs, names = [], []
    for function in {id(each): each for each in proposed.values()}.values():
        own = [key for key, each in proposed.items() if each is function]
        for start in range(0, len(own), MAX_CASES):
            names.append(own[start : start + MAX_CASES])
            jobs.append(Job(function.module, tuple(Case(text) for _, text in names[-1])))
    results = call(jobs)
    return {
        key: ran for keys, each in zip(names, results, strict=True) for key, ran in zip(keys, each.results, strict=True)
    }


def _outcome(first: Ran, second: Ran) -> Became:
    if not isinstance(first, Value) or len(json.dumps(first.value)) > _MAX_VALUE:
        return "failed"
    return "row" if first == second else "unstable"


def _told(ran: Ran) -> str:
    text = json.dumps(ran.value, ensure_ascii=False) if isinstance(ran, Value) else ran
    return text if len(text) <= _MAX_VALUE else text[:_MAX_VALUE] + "\u2026"
