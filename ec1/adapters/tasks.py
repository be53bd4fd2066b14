"""Task cases of a recipe: whether a model's answer passes a check that a program can make.

Belongs here: finding the answer in what the model wrote, and the checks. Does not: asking the model (`evaluation.py`),
cases that a model judges (`judging.py`), and what follows from a failure (`gate.py`).
"""

import json
import re
import shutil
import subprocess
from typing import Any

from ec1.errors import InputError
from ec1.recipes.evaluation import TaskCase

COMMAND_SECONDS = 10.0
_FENCE = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)
# No network, no other process, no home, nothing writable but an empty folder that is gone afterwards.
_SANDBOX = (
    *("--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin"),
    *("--ro-bind", "/usr", "/usr", "--ro-bind-try", "/bin", "/bin", "--ro-bind-try", "/lib", "/lib"),
    *("--ro-bind-try", "/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev"),
    *("--size", str(16 * 2**20), "--tmpfs", "/tmp", "--chdir", "/tmp"),
)


def check_tasks(tasks: tuple[TaskCase, ...]) -> None:
    """Raises InputError for a case that this machine cannot check."""
    if any(task.check == "command" for task in tasks) and shutil.which("bwrap") is None:
        raise InputError("evaluation.tasks: a command is run in bubblewrap, which is not installed: install `bwrap`")


def passes(task: TaskCase, answer: str) -> bool:
    """Whether what a model wrote passes the check, which is a program's."""
    # What a reasoning model thought before it answered is no answer.
    answer = answer.rpartition("</think>")[2]
    if task.check == "schema":
        value = first_json(answer)
        return value is not None and _valid(value[0], task.value)
    fenced = _FENCE.search(answer)
    text = (fenced[1] if fenced else answer).strip()
    if task.check == "regex":
        return re.search(str(task.value), text) is not None
    if task.check == "exact":
        return text == str(task.value).strip()
    return _command(tuple(task.value), text)


def first_json(text: str) -> tuple[Any] | None:
    """The first JSON object or list in a text, in a tuple; None if there is none."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"[\[{]", text):
        try:
            return (decoder.raw_decode(text, match.start())[0],)
        except (ValueError, RecursionError):
            continue
    return None


def _valid(value: Any, schema: Any) -> bool:
    import jsonschema

    try:
        jsonschema.validate(value, schema)
    except jsonschema.ValidationError:
        return False
    except jsonschema.SchemaError as error:
        raise InputError(f"evaluation.tasks: the schema is none: {error.message}") from None
    return True


def _command(command: tuple[str, ...], text: str) -> bool:
    # The program is the recipe's, written by whoever may write recipes; what it reads was written by a model.
    try:
        done = subprocess.run(
            ["bwrap", *_SANDBOX, *command],
            input=text.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
