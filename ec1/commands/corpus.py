"""`ec1 corpus`: capture, import, preview, count and export tuples."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ec1.commands.generated import corpus_admit, corpus_generate
from ec1.commands.shell import AsJson, Options, out, print_answer, print_json, printable
from ec1.corpus.tuples import Objective
from ec1.files import checked_name
from ec1.night.forgetting.tuples import Trace
from ec1.night.operations.unread_rows import unread_notes
from ec1.night.steps.recipes import recipe_folders
from ec1.plural import counted
from ec1.recipes.resolution import find_recipe

if TYPE_CHECKING:
    from ec1.queries.datasets import BucketCount

corpus_app = typer.Typer(help="Training corpora: capture, count and export tuples.", no_args_is_help=True)
corpus_app.command("generate")(corpus_generate)
corpus_app.command("admit")(corpus_admit)


@corpus_app.command("from-git")
def from_git(
    context: typer.Context,
    repo: Annotated[Path, typer.Argument(help="a git repository")],
    since: Annotated[
        str | None, typer.Option(help="a date as git understands it, such as 2026-06-01; default: 2,000 commits")
    ] = None,
    until: Annotated[str | None, typer.Option(help="a date; default: now")] = None,
    cluster: Annotated[str | None, typer.Option(help="the project's name; default: project-<repository>")] = None,
    tenant: Annotated[str | None, typer.Option(help="default: the deployment's")] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=100, help="of a whole tuple, a larger commit is split by file; default: the recipe's length"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the tuples of each commit worth learning from into the corpus. Idempotent."""
    from ec1.night.operations.git_capture import ROLE, capture_repository

    options: Options = context.obj
    deployment = options.deployment()
    captured = capture_repository(
        deployment,
        options.home,
        options.recipes(),
        repo,
        since=since,
        until=until,
        cluster=cluster,
        tenant=tenant,
        max_tokens=max_tokens,
    )
    folder = deployment.corpus_root(options.home) / ROLE
    if as_json:
        print_json(vars(captured))
        return
    out.print(f"{counted(captured.written, 'tuple')} written to {folder}, {captured.known} were there")
    for reason, count in sorted(captured.dropped.items()):
        out.print(f"  left out: {count} {reason}")
    print_unread_rows(options)


@corpus_app.command("import")
def import_(
    context: typer.Context,
    path: Annotated[
        Path, typer.Argument(help="a .jsonl, .json, .parquet, .csv or .tsv file, packed or not, or a folder")
    ],
    role: Annotated[str, typer.Option(help="the role whose bucket gets the rows")],
    name: Annotated[str | None, typer.Option(help="of the file in the corpus; default: that of PATH")] = None,
    format_: Annotated[str, typer.Option("--format", help="auto, or the only format to accept")] = "auto",
    columns: Annotated[str | None, typer.Option(help="ours=theirs,… such as prompt=question,response=answer")] = None,
    mapping: Annotated[
        Path | None, typer.Option(help="LLaMA-Factory's dataset_info.json, or an Axolotl configuration")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="the data set's name in that file")] = None,
    split: Annotated[str | None, typer.Option(help="of a data set or a folder that has some; default: train")] = None,
    ignore_keys: Annotated[
        str,
        typer.Option(
            help="key,message.key,… that change nothing that is learnt; others that nobody reads refuse a row"
        ),
    ] = "",
    recipe: Annotated[
        str | None, typer.Option(help="a recipe: rows that its base model's chat template cannot show are refused here")
    ] = None,
    labels: Annotated[list[str] | None, typer.Option("--label", help="an access label of the rows, such as hr")] = None,
    as_json: AsJson = False,
) -> None:
    """Import rows of a public format into the corpus. What is left out is counted, with the reason and an example."""
    from ec1.corpus.importing import import_rows
    from ec1.corpus.mapping import mapping_of
    from ec1.corpus.tombstones import Tombstones
    from ec1.queries import datasets as queries

    options: Options = context.obj
    deployment = options.deployment()
    ignored = {key.strip() for key in ignore_keys.split(",")} - {""}
    check = None
    if recipe is not None:
        resolved = find_recipe(recipe, recipe_folders(deployment, options.project))
        ignored |= set(resolved.recipe.data.ignore_keys)
        check = queries.row_check(deployment, options.home, resolved, dt.datetime.now(dt.UTC))
    done = import_rows(
        path,
        deployment.corpus_root(options.home) / checked_name(role, "role"),
        name=name,
        mapping=mapping_of(columns, mapping, dataset),
        only=None if format_ == "auto" else format_,
        ignored=sorted(ignored),
        split=split,
        check=check,
        labels=[checked_name(each, "label") for each in labels or ()],
        is_removed=Tombstones(options.home).refuses,
    )
    if as_json:
        print_json(vars(done))
        return
    verb = "were there already" if done.unchanged else "written"
    out.print(f"{counted(done.written, 'row')} of {counted(done.files, 'file')} {verb}: {done.path}")
    for kind, count in done.formats.items():
        out.print(f"  {count} {kind}")
    if done.repeated:
        out.print(f"  {done.repeated} of them repeat another: a dataset takes each once")
    for file, encoding in done.encodings.items():
        out.print(f"  read as {encoding}: {printable(file)}")
    for reason, count in done.refused.items():
        out.print(f"  left out: {count} {printable(reason)}, first {printable(done.examples[reason])}")
    for ending, count in done.unread.items():
        out.print(f"  not read: {count} {printable(ending)}")
    for key, count in done.dropped_keys.items():
        out.print(f"  not kept: {printable(key)} of {counted(count, 'row')}")
    for tenant in done.tenants.keys() - {deployment.tenant}:
        rows = counted(done.tenants[tenant], "row")
        out.print(printable(f"no recipe of {deployment.tenant} reads {rows} of tenant {tenant}"))
    print_unread_rows(options)


def print_unread_rows(options: Options) -> None:
    """Say what lies in the corpus and no recipe reads."""
    for note in unread_notes(options.deployment(), options.home, options.project):
        out.print(printable(note))


@corpus_app.command()
def preview(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="a recipe file, or a name such as pointsav/engineering")],
    path: Annotated[Path | None, typer.Option(help="rows to look at before they are imported")] = None,
    columns: Annotated[str | None, typer.Option(help="ours=theirs,… of --path, as for import")] = None,
    rows: Annotated[int, typer.Option(min=1, help="how many")] = 3,
    start: Annotated[int, typer.Option(min=0, help="rows to leave out before them")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show rows as the model reads them; what is learnt is green, or in «» where there is no colour."""
    from rich.text import Text

    from ec1.corpus.mapping import mapping_of

    # Imported here, and below: it loads what the other commands do without.
    from ec1.queries import datasets as queries

    options: Options = context.obj
    deployment = options.deployment()
    resolved = find_recipe(recipe, recipe_folders(deployment, options.project))
    now = dt.datetime.now(dt.UTC)
    mapping = mapping_of(columns, None, None)
    shown = queries.preview(deployment, options.home, resolved, now, path, rows, str(start), mapping).items
    if as_json:
        print_json(shown)
        return
    for row in shown:
        out.print(f"{printable(row.origin)}: {row.tokens} tokens, {row.learnt} learnt", style="bold")
        if row.problem is not None:
            out.print(f"  left out: {row.problem}")
        text = Text()
        for piece, counts in row.pieces:
            marked = piece if out.is_terminal or not counts else f"«{piece}»"
            text.append(_visible(marked), style="green" if counts else "dim")
        out.print(text)


def _visible(text: str) -> str:
    """Text on a terminal: lines stay lines, what could steer the terminal is spelt out."""
    return "\n".join(printable(line) for line in text.split("\n"))


@corpus_app.command()
def stats(
    context: typer.Context,
    tokens: Annotated[bool, typer.Option(help="measure rows with each base model's tokenizer, too")] = False,
    as_json: AsJson = False,
) -> None:
    """Count each recipe's bucket: lines, trainable ones, what is new since the last training, reasons of the rest."""
    from ec1.queries import datasets as queries

    options: Options = context.obj
    now = dt.datetime.now(dt.UTC)
    found = queries.buckets(options.deployment(), options.home, options.recipes(), now, tokens=tokens)
    print_answer(found, as_json, _bucket_lines)
    if not as_json:
        print_unread_rows(options)


def _bucket_lines(found: "tuple[BucketCount, ...]") -> Iterator[str]:
    for each in found:
        yield (
            f"  {each.bucket:<32} {counted(each.lines, 'tuple')} in {counted(each.files, 'file')}, "
            f"{each.trainable} trainable, {each.new} new, threshold {each.threshold}"
        )
        for reason, count in sorted(each.rejected.items(), key=lambda item: -item[1]):
            yield f"  {'':<32} {count} {reason}"
        if each.tokens:
            shares = ", ".join(f"{name} {count}" for name, count in each.tokens.percentiles.items())
            yield f"  {'':<32} tokens of {counted(each.tokens.rows, 'row')}: {shares}"
            for reason, count in each.tokens.dropped.items():
                yield f"  {'':<32} the recipe would drop {count}: {reason}"


@corpus_app.command()
def trace(
    context: typer.Context,
    row: Annotated[str, typer.Argument(help="the beginning of a tuple's digest, as rejects and datasets name it")],
    as_json: AsJson = False,
) -> None:
    """Say where a tuple stands and where it went: snapshots, datasets, versions."""
    from ec1.queries import datasets as queries

    options: Options = context.obj
    print_answer(queries.trace(options.deployment(), options.home, row), as_json, _trace_lines)


def _trace_lines(found: Trace) -> Iterator[str]:
    for each in found.tuples:
        yield f"corpus    {printable(each.file)}:{each.line} {each.row}"
    for name, values in (("snapshot", found.snapshots), ("dataset", found.datasets), ("version", found.versions)):
        for value in values:
            yield f"{name:<9} {value}"


@corpus_app.command("export")
def export_corpus(
    context: typer.Context,
    role: Annotated[str, typer.Argument(help="such as engineering: the bucket is <role>-<tenant>")],
    path: Annotated[Path, typer.Argument(help="where to write, a .jsonl or .parquet file; of iceberg a folder")],
    tenant: Annotated[str | None, typer.Option(help="default: the deployment's")] = None,
    objective: Annotated[Objective | None, typer.Option(help="default: the bucket's own")] = None,
    to: Annotated[
        Literal["file", "iceberg"], typer.Option(help="iceberg: a table in a folder with a SQLite catalog")
    ] = "file",
    as_json: AsJson = False,
) -> None:
    """Write a bucket's trainable tuples, scrubbed, in the form that TRL and Hugging Face datasets read."""
    from ec1.corpus.buckets import bucket
    from ec1.corpus.export import export
    from ec1.corpus.iceberg import export_iceberg
    from ec1.corpus.snapshots import take_snapshot

    options: Options = context.obj
    deployment = options.deployment()
    owner, path = tenant or deployment.tenant, path.expanduser()
    source = bucket(deployment.corpus_root(options.home), role, owner)
    wanted = objective or source.objective
    snapshot = take_snapshot(source, wanted, as_of=dt.datetime.now(dt.UTC), home=options.home, check_all=True)
    if to == "iceberg":
        written = export_iceberg(snapshot, wanted, path, tenant=owner, role=role)
    else:
        written = export(snapshot, wanted, path)
    if as_json:
        print_json(vars(written) if written is not None else {"rows": 0, "rejected": {}, "unchanged": True})
        return
    if written is None:
        out.print(f"{path} holds this snapshot of {source.name} already: nothing written")
        return
    out.print(f"{counted(written.rows, 'row')} written to {path}")
    for reason, count in written.rejected.items():
        out.print(f"  left out: {count} {reason}")
