"""`ec1 forget`: a person, a source or a text, out of the whole home."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from ec1.commands.shell import PARTIAL, AsJson, Options, print_answer, printable
from ec1.night.forgetting.forget import Forgotten
from ec1.night.stores import open_registry
from ec1.plural import counted
from ec1.who import who_acts

_SHOWN = 20


def forget(
    context: typer.Context,
    person: Annotated[str | None, typer.Option(help="a name or an address, however it is spelt")] = None,
    match: Annotated[str | None, typer.Option(help="a text, in any case and with any blanks")] = None,
    source: Annotated[
        str | None, typer.Option(help="key:value, such as session_id:S1, source_commit:… or document:mk-1f0c9de2ab34")
    ] = None,
    also: Annotated[list[str] | None, typer.Option(help="a further spelling that means the person; repeat it")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would go, and change nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove a person, a source or a text from the whole home, and keep it out (docs/forgetting.md).

    Documents, tuples, answers, the graph and its exports, snapshots, datasets, reports, logs and histories are looked
    through, packed ones and databases included. Interrupted, the same command again finishes. Look first: --dry-run.
    """
    from ec1.night.forgetting import forget as forgetting
    from ec1.night.forgetting.wanted import Wanted
    from ec1.queries.forgetting import learnt_from

    options: Options = context.obj
    deployment, wanted = options.deployment(), Wanted(match, source, person, tuple(also or ()))
    registry = open_registry(deployment, options.home)
    learnt = learnt_from(registry)
    if dry_run:
        found = forgetting.look(wanted, deployment, options.home, learnt)
    else:
        found = forgetting.forget(wanted, deployment, options.home, registry, learnt, who=who_acts())
    print_answer(found, as_json, partial(_lines, done=not dry_run))
    if found.left and not dry_run:
        raise typer.Exit(PARTIAL)


def _lines(found: Forgotten, *, done: bool) -> Iterator[str]:
    verb = "removed" if done else "would go"
    yield (
        f"{counted(len(found.documents), 'document')}, {counted(len(found.tuples), 'tuple')}, "
        f"{counted(len(found.snapshots), 'snapshot')}, {counted(len(found.datasets), 'dataset')} and what "
        f"{counted(len(found.files), 'other file')} say{'s' if len(found.files) == 1 else ''} {verb}"
    )
    if found.spellings:
        yield f"spelt: {_counted(found.spellings)}"
    if found.doubtful:
        yield f"not removed, since it may be somebody else: {_counted(found.doubtful)}; --also SPELLING removes one"
    shown = [
        *(f"document  {name}" for name in found.documents),
        *(f"tuple     {each.file}:{each.line} {each.row[:12]}" for each in found.tuples),
        *(f"{action:<13} {name}" for name, action in found.files.items()),
    ]
    yield from (f"  {printable(line)}" for line in shown[:_SHOWN])
    if len(shown) > _SHOWN:
        yield f"  and {len(shown) - _SHOWN} more: --json names all"
    for version in found.versions:
        yield (
            f"learnt from it: {version}, "
            f"{'withdrawn' if done else 'to be withdrawn'}; its weights stay: `ec1 adapters remove`, train again"
        )
    for place, why in found.left.items():
        yield f"still holds it: {printable(place)}: {why}"


def _counted(spellings: dict[str, int]) -> str:
    first = [f"{printable(text)} ({count})" for text, count in list(spellings.items())[:12]]
    return ", ".join([*first, *([f"and {len(spellings) - 12} more"] if len(spellings) > 12 else [])])
