"""What all commands share: the options before a command's name, exit statuses, and how output is printed."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel
from rich.console import Console

from ec1.deployment import Deployment, load_deployment
from ec1.gpu.lease import VISIBLE
from ec1.home import CHECKOUT, Home
from ec1.night.operations.sample import install_sample
from ec1.night.steps.recipes import nightly_recipes
from ec1.plural import counted
from ec1.recipes.resolution import ResolvedRecipe

DONE, FAILED, USAGE, PARTIAL = 0, 1, 2, 3
INTERRUPTED = 128 + signal.SIGINT

Answer = TypeVar("Answer")
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]

# What is printed is mostly from outside: neither `[red]` nor `:x:` in it means anything.
out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


@dataclass(frozen=True)
class Options:
    """What every command knows: the options in front of the command's name."""

    deployment_name: str
    home: Home
    project: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """The shell's, for what is started from here."""

    def deployment(self) -> Deployment:
        return load_deployment(self.deployment_name, self.project).on_cards(self.environment.get(VISIBLE))

    def recipes(self) -> list[ResolvedRecipe]:
        return nightly_recipes(self.deployment(), self.project)


def print_answer(found: Answer, as_json: bool, lines: Callable[[Answer], Iterable[str]]) -> None:
    """Print what a query found: as JSON, or the lines that `lines` makes of it."""
    if as_json:
        print_json(found)
    else:
        for line in lines(found):
            out.print(line)


def print_json(value: Any) -> None:
    """Records (dataclasses, pydantic models) are objects; paths and times are text."""
    print(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, default=_plain))  # noqa: T201


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return str(value)


def printable(text: object) -> str:
    """Text from outside as one line that cannot steer a terminal: control and half characters become `\\x1b`."""
    shown = str(text).replace("\n", " ").replace("\t", " ")
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in shown
    )


def _environment(options: Options) -> dict[str, str]:
    return {
        **options.environment,
        "EC1_DEPLOYMENT": options.deployment_name,
        "EC1_HOME": str(options.home.root),
        "EC1_PROJECT": str(options.project),
        "DAGSTER_HOME": str(options.home.dagster),
        "PYTHONUNBUFFERED": "1",
    }


def output_of_module(module: list[str], options: Options) -> str:
    """What `python -m ...` with this choice of deployment and home prints, or its last words if it failed."""
    done = subprocess.run(
        [sys.executable, "-m", *module], cwd=CHECKOUT, env=_environment(options), capture_output=True, text=True
    )
    return done.stdout if done.returncode == 0 else done.stderr


def run_module(module: list[str], options: Options, log: Path | None = None, *, quiet: bool = False) -> int:
    """Run `python -m ...` with this choice of deployment and home. Returns its status, or INTERRUPTED.

    Signals reach it, and it ends its own children, so it is waited for and never killed from here. With `log`, what
    it writes to standard error (Dagster's own log) goes there. If `quiet`, what it prints goes to standard error.
    """
    environment = _environment(options)
    options.home.create()
    if log is None:
        errors = None
    else:
        log.parent.mkdir(parents=True, exist_ok=True)
        errors = log.open("ab")
    interrupts: list[int] = []
    # The terminal interrupts the whole group. Before the start: a child would inherit that interrupts are ignored, as
    # they are in a script's background job, and Dagster ignores terminations where it finds interrupts ignored.
    previous = {signal.SIGINT: signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))}
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", *module],
            cwd=CHECKOUT,
            env=environment,
            stdout=sys.stderr if quiet else None,
            stderr=errors,
        )
        # A termination is sent to us alone, so it is passed on.
        previous[signal.SIGTERM] = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        status = process.wait()
        # It may have ended well all the same.
        return INTERRUPTED if interrupts and status else status
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def fill_with_sample(deployment: Deployment, home: Home) -> None:
    home.create()
    if deployment.sample is None:
        return
    installed = install_sample(deployment.sample, home)
    if installed is not None:
        what = f"{counted(installed.documents, 'document')}, {counted(installed.tuples, 'tuple')}"
        err.print(f"installed the bundled sample: {what}")
