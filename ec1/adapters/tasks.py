"""Task cases of a recipe: whether a model's answer passes a check that a program can make.

Belongs here: finding the answer in what the model wrote, and the checks. Does not: asking the model (`evaluation.py`),
cases that a model judges (`judging.py`), and what follows from a failure (`gate.py`).
"""

import json
import re
from typing import Any

from ec1.errors import InputError
from ec1.recipes.evaluation import TaskCase
from ec1.sandbox.box import run

_FENCE = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)


def passes(task: TaskCase, answer: str) -> bool:
    """Whether what a model wrote passes the check, which is a program's."""
    # What a reasoning model thought before it answered is not an answer.
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
    # The program is the recipe's, written by whoever may write recipes; what it reads was written by a model.
    return run(tuple(task.value), text.encode()).status == 0


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
