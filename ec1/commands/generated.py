"""`ec1 corpus generate` and `admit`: rows that a model proposes and the sandbox checks, held until admitted."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ec1.commands.shell import AsJson, Options, err, out, print_answer, printable
from ec1.corpus.generated import (
    DEFAULT_PROMPTING,
    Ask,
    GenerationReport,
    admit,
    answers_folder,
    asks_of,
    functions_in,
    generate,
    held_rows,
    prompts_in,
    propose,
    sample_of,
)
from ec1.errors import InputError
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.settings import ExtractionSettings
from ec1.files import checked_name
from ec1.sandbox.batch import why_no_python

SHOWN = 5
Role = Annotated[str, typer.Option(help="whose bucket the rows are for")]


def corpus_generate(
    context: typer.Context,
    functions: Annotated[Path, typer.Argument(help="a Python file; each function at its top is asked about")],
    role: Role,
    url: Annotated[str, typer.Option(help="an OpenAI-compatible server that obeys JSON schemas, without /v1")],
    model: Annotated[str, typer.Option(help="the id under which it serves the model")],
    requests: Annotated[int, typer.Option(min=1, max=100, help="about each function, for five calls each")] = 5,
    as_json: AsJson = False,
) -> None:
    """Have a model propose calls of functions, execute each twice, and hold what is reproducible as tasks.

    Started again after an interruption, it asks for nothing twice.
    """
    options: Options = context.obj
    if (why := why_no_python()) is not None:
        raise InputError(why)
    found = functions_in(functions)
    folder = options.home.generated / checked_name(role, "role")
    answers, asks = answers_folder(folder, model, found, DEFAULT_PROMPTING), asks_of(found, requests)
    unanswered = asyncio.run(_propose(asks, url, model, answers))
    bucket = options.deployment().corpus_root(options.home) / role
    report = generate(asks, answers, folder, unanswered=unanswered, model=model, known=prompts_in(bucket))
    print_answer(report, as_json, lambda each: _lines(each, role, held_rows(folder, each.digest)))


def corpus_admit(
    context: typer.Context,
    digest: Annotated[str, typer.Argument(help="of a generation, or its beginning")],
    role: Role,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask; some rows are shown in any case")] = False,
) -> None:
    """Show some of the rows that are held, and put all of them into the bucket."""
    options: Options = context.obj
    rows = held_rows(options.home.generated / checked_name(role, "role"), digest)
    if not rows:
        raise InputError(f"generation {digest} holds no row")
    for line in _shown(rows):
        out.print(line)
    if not yes and not (sys.stdin.isatty() and typer.confirm(f"Admit {len(rows)} rows into the bucket of {role}?")):
        raise InputError("not admitted: say --yes where nobody can be asked")
    path = admit(rows, options.deployment().corpus_root(options.home) / role)
    out.print(f"{len(rows)} rows in {path}")


async def _propose(asks: Sequence[Ask], url: str, model: str, answers: Path) -> int:
    async with OpenAIClient(url, model, ExtractionSettings(max_in_flight=8, max_answer_tokens=256)) as client:
        return await propose(asks, client, answers, lambda line: err.print(f"  {line}"))


def _lines(report: GenerationReport, role: str, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield str(report)
    yield from _shown(rows)
    if rows:
        yield f"held until `ec1 corpus admit {report.digest[:12]} --role {role}`"


def _shown(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    for row in sample_of(rows, SHOWN):
        asked = str(row["prompt"]).rpartition("\n")[2]
        yield f"  {printable(asked)} {printable(row['checks'][0]['value']['expected'])}"
