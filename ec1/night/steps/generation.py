"""Rows that nights generate by recipes whose sample a person accepted.

Belongs here: asking the night's model within the night's time, and admitting what comes of it. Does not: recipes and
their acceptance (`ec1.corpus.generation_recipe`), how rows are made (`ec1.corpus.generated`).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from ec1.corpus.generated import (
    GenerationReport,
    admit,
    answers_folder,
    asks_of,
    functions_of,
    generate,
    held_rows,
    prompts_in,
    propose,
)
from ec1.corpus.generation_recipe import KeptRecipe, note_made, waiting_recipes
from ec1.errors import EC1Error, InputError
from ec1.home import Home
from ec1.night.records import GenerationRecord, Records
from ec1.sandbox.batch import why_no_python

if TYPE_CHECKING:
    from ec1.extraction.reading.client import ChatClient


def generation_of_night(
    home: Home,
    corpus: Path,
    model: str,
    night: str,
    run: str,
    serve: "Callable[[], AbstractContextManager[ChatClient]]",
    *,
    deadline_of: Callable[[], float],
    progress: Callable[[str], None],
) -> GenerationRecord:
    """`generate_rows` of a run, recorded. The handover, and all trainings behind it, must not fail for it: what was in
    the way stands in the record, and in the night's report."""
    try:
        reports = generate_rows(home.generated, corpus, model, night, serve, deadline_of=deadline_of, progress=progress)
        done = GenerationRecord(
            rows=sum(report.rows for report in reports.values()),
            unanswered=sum(report.unanswered for report in reports.values()),
            made={name: str(report) for name, report in reports.items()},
        )
    except EC1Error as error:
        done = GenerationRecord(problem=str(error))
    Records(home.night(night)).write(run, done)
    return done


def generate_rows(
    root: Path,
    corpus: Path,
    model: str,
    night: str,
    serve: "Callable[[], AbstractContextManager[ChatClient]]",
    *,
    deadline_of: Callable[[], float],
    progress: Callable[[str], None],
) -> dict[str, GenerationReport]:
    """Make what accepted recipes below `root` still have to make, and put it into their buckets of `corpus`; returns
    the reports by `role/recipe`. `serve` is entered only if there is something to ask; what it has no time for waits
    for the next night. Raises InputError without a sandbox, and as `serve`."""
    waiting = waiting_recipes(root)
    if not waiting:
        return {}
    if (why := why_no_python()) is not None:
        raise InputError(f"rows cannot be generated: {why}")
    with serve() as client:
        unanswered = asyncio.run(_ask(waiting, root, client, model, deadline_of(), progress))
    return {
        f"{each.recipe.role}/{each.name}": _make(each, root, corpus, model, night, left)
        for each, left in zip(waiting, unanswered, strict=True)
    }


async def _ask(
    waiting: Sequence[KeptRecipe],
    root: Path,
    client: "ChatClient",
    model: str,
    deadline: float,
    progress: Callable[[str], None],
) -> list[int]:
    """Ask for what each recipe lacks; returns how many requests of each have no answer."""
    unanswered = []
    async with client:
        for kept in waiting:
            recipe = kept.recipe
            functions = functions_of(recipe.functions, kept.name)
            folder = answers_folder(root / recipe.role, model, functions, recipe.prompting)
            asks = asks_of(functions, recipe.requests)
            unanswered.append(
                await propose(asks, client, folder, progress, prompting=recipe.prompting, deadline=deadline)
            )
    return unanswered


def _make(kept: KeptRecipe, root: Path, corpus: Path, model: str, night: str, unanswered: int) -> GenerationReport:
    recipe = kept.recipe
    functions, bucket = functions_of(recipe.functions, kept.name), corpus / recipe.role
    accepted: Mapping[str, str] = kept.accepted or {}
    noted = {"recipe": f"{kept.name}@{recipe.digest()[:12]}", "accepted_by": str(accepted.get("by", ""))}
    report = generate(
        asks_of(functions, recipe.requests),
        answers_folder(root / recipe.role, model, functions, recipe.prompting),
        root / recipe.role,
        unanswered=unanswered,
        model=model,
        known=prompts_in(bucket),
        noted=noted,
    )
    # A person has accepted the sample of just this recipe: `waiting_recipes` has looked.
    if report.rows:
        admit(held_rows(root / recipe.role, report.digest), bucket)
    note_made(kept, night, report.rows, unanswered)
    return report
