"""Many untrusted Python answers in few boxes: calls go in, plain values come out, and are compared outside.

Belongs here: handing answers to a box, a new box where one was used up, and what came back. Does not: the box
(`box.py`), what runs in it (`runner.py`), and what a value is worth (`ec1.rewards`).

No expected value ever enters a box: whatever an answer does to its process, to `==` or to the exit status, it has to
know the right value to be counted as right.
"""

import functools
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ec1.errors import InputError
from ec1.sandbox import runner
from ec1.sandbox.box import Limits, Ran, run, why_not

CALL_LIMITS = Limits(seconds=4, cpu_seconds=2, memory_mib=512, processes=16, files_mib=8, output_mib=0.0625)
"""For one answer with all its cases."""
_START_SECONDS = 20.0
_OWN_MIB = 128
"""What the box's first process takes, with a child that has not begun yet."""


@dataclass(frozen=True)
class Case:
    """What is asked of an answer: an expression that is evaluated after it, such as `f(3)`; or None for an answer that
    is an expression itself. `given` are names that it may use."""

    call: str | None = None
    given: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Job:
    """One answer: a Python program or expression, and its cases."""

    program: str
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Value:
    """A plain value that came out of the box: as JSON has it, tuples as lists."""

    value: Any


@dataclass(frozen=True)
class Returned:
    """What came back of one answer: per case a value, or why there is none. `problem` is set where its process ended
    without results: `ended`, `signal`, `seconds`, `cpu_seconds`, `memory`, `output` or `box`."""

    results: tuple[Value | str, ...]
    problem: str | None = None


def call(jobs: Sequence[Job], limits: Limits = CALL_LIMITS) -> list[Returned]:
    """Run each answer in a process of its own, one after the other, and evaluate its cases.

    `limits` are of each answer. Raises InputError if the sandbox cannot run Python on this machine.
    """
    outcomes: list[Returned] = []
    while len(outcomes) < len(jobs):
        outcomes += _in_one_box(jobs[len(outcomes) :], limits)
    return outcomes


@functools.lru_cache(maxsize=1)
def python_in_box() -> str | None:
    """The Python that a box can see."""
    return shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")


def why_no_python() -> str | None:
    """Why Python answers cannot be run on this machine, or None."""
    if (why := why_not()) is not None:
        return why
    try:
        [outcome] = call([Job("1 + 1", (Case(),))])
    except InputError as error:
        return str(error)
    return None if outcome.results == (Value(2),) else f"Python does not compute in the sandbox: {outcome.problem}"


def _in_one_box(jobs: Sequence[Job], limits: Limits) -> list[Returned]:
    """The outcomes of as many as one box could run: at least of the first."""
    python = python_in_box()
    if python is None:
        raise InputError("the sandbox sees no python3 below /usr: apt-get install python3")
    each = {name: getattr(limits, name) for name in Limits.__dataclass_fields__}
    stdin = b"".join(_framed(value) for value in (each, *map(_shown, jobs)))
    ran = run((python, "-I", "-S", "-c", _source()), stdin, _of_all(limits, len(jobs)), first=True)
    found = [_outcome(job, line) for job, line in zip(jobs, _reports(ran), strict=False)]
    if len(found) < len(jobs) and ran.status != 3:
        # The one that was running ended its box; without any, the box itself does not work.
        if not found and ran.stopped is None:
            said = ran.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise InputError(f"{python} does not run in the sandbox (status {ran.status}): {said or 'it said nothing'}")
        found.append(Returned(tuple("box" for _ in jobs[len(found)].cases), ran.stopped or "box"))
    return found


def _of_all(limits: Limits, jobs: int) -> Limits:
    """The limits of a box that runs so many answers."""
    return replace(
        limits,
        seconds=_START_SECONDS + jobs * limits.seconds,
        cpu_seconds=_START_SECONDS + jobs * (limits.cpu_seconds + 1),
        memory_mib=limits.memory_mib + _OWN_MIB,
        processes=limits.processes + 2,
        # A character may take six in JSON.
        output_mib=1 + 6 * jobs * limits.output_mib,
    )


@functools.lru_cache(maxsize=1)
def _source() -> str:
    return Path(runner.__file__).read_text(encoding="utf-8")


def _shown(job: Job) -> dict[str, Any]:
    cases = [{"call": case.call, "given": dict(case.given or {})} for case in job.cases]
    # Half of a surrogate pair is neither text nor a program.
    return {"program": job.program.encode("utf-8", "replace").decode(), "cases": cases}


def _framed(value: Any) -> bytes:
    text = json.dumps(value).encode()
    return len(text).to_bytes(8, "big") + text


def _reports(ran: Ran) -> Iterator[dict[str, str]]:
    """What the box's first process said, as far as its lines are whole."""
    for line in ran.stdout.split(b"\n")[:-1]:
        yield json.loads(line)


def _outcome(job: Job, report: dict[str, str]) -> Returned:
    """What a child wrote, checked: it may be anything."""
    nothing = tuple(report["ended"] for _ in job.cases)
    if report["ended"] != "ended":
        return Returned(nothing, report["ended"])
    try:
        pairs = json.loads(report["text"])
        results = tuple(Value(value) if good is True else str(value)[:80] for good, value in pairs)
    except (ValueError, TypeError, RecursionError):
        return Returned(nothing, "ended")
    return Returned(results) if len(results) == len(job.cases) else Returned(nothing, "ended")
