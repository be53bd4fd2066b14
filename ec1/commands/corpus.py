"""`ec1 corpus`: capture, import, preview, count and export tuples."""

import datetime as dt
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from ec1.commands.shell import Options, out, print_json, printable
from ec1.corpus.tuples import Objective
from ec1.files import checked_name

corpus_app = typer.Typer(
    help="Training corpora: capture, import, preview, count and export tuples.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


@corpus_app.command("from-git")
def from_git(
    context: typer.Context,
    repo: Annotated[Path, typer.Argument(help="a git repository")],
    since: Annotated[str, typer.Option(help="a date as git understands it, such as 2026-06-01")],
    until: Annotated[str | None, typer.Option(help="a date; default: now")] = None,
    cluster: Annotated[str | None, typer.Option(help="the project's name; default: project-<repository>")] = None,
    tenant: Annotated[str | None, typer.Option(help="default: the deployment's")] = None,
    max_tokens: Annotated[
        int, typer.Option(min=100, help="of question and answer together; a larger commit is split by file")
    ] = 2000,
    as_json: AsJson = False,
) -> None:
    """Write the tuples of each commit worth learning from into the corpus. Idempotent."""
    from ec1.corpus.from_git import capture

    options: Options = context.obj
    deployment = options.deployment()
    slug = re.sub(r"[^a-z0-9]+", "-", repo.resolve().name.removesuffix(".git").lower()).strip("-")
    folder = deployment.corpus_root(options.home) / "engineering"
    name, owner = cluster or f"project-{slug}"[:64], tenant or deployment.tenant
    captured = capture(repo, since, until, name, owner, folder, max_tokens=max_tokens)
    if as_json:
        print_json(vars(captured))
        return
    out.print(f"{captured.written} tuples written to {folder}, {captured.known} were there", markup=False)
    for reason, count in sorted(captured.dropped.items()):
        out.print(f"  left out: {count} {reason}", markup=False)


@corpus_app.command("import")
def import_(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="a .jsonl, .json, .parquet, .csv or .tsv file (.gz too), or a folder")],
    role: Annotated[str, typer.Option(help="the role whose bucket gets the rows")],
    name: Annotated[str | None, typer.Option(help="of the file in the corpus; default: that of PATH")] = None,
    format_: Annotated[str, typer.Option("--format", help="auto, or the only format to accept")] = "auto",
    columns: Annotated[str | None, typer.Option(help="ours=theirs,… such as prompt=question,response=answer")] = None,
    mapping: Annotated[
        Path | None, typer.Option(help="LLaMA-Factory's dataset_info.json, or an Axolotl configuration")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="the data set's name in that file")] = None,
    as_json: AsJson = False,
) -> None:
    """Import rows of a public format into the corpus. What is left out is counted, with the reason and an example."""
    from ec1.corpus.importing import import_rows
    from ec1.corpus.mapping import mapping_of

    options: Options = context.obj
    folder = options.deployment().corpus_root(options.home) / checked_name(role, "role")
    only = None if format_ == "auto" else format_
    done = import_rows(path, folder, name=name, mapping=mapping_of(columns, mapping, dataset), only=only)
    if as_json:
        print_json(vars(done))
        return
    verb = "were there already" if done.unchanged else "written"
    out.print(f"{done.written} rows of {done.files} files {verb}: {done.path}", markup=False)
    for kind, count in done.formats.items():
        out.print(f"  {count} {kind}", markup=False)
    for reason, count in done.refused.items():
        out.print(f"  left out: {count} {printable(reason)}, first {printable(done.examples[reason])}", markup=False)
    for ending, count in done.unread.items():
        out.print(f"  not read: {count} {printable(ending)}", markup=False)
    for key, count in done.dropped_keys.items():
        out.print(f"  not kept: {printable(key)} of {count} rows", markup=False)


@corpus_app.command()
def preview(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="a recipe file, or a name such as pointsav/engineering")],
    path: Annotated[Path | None, typer.Option(help="rows to look at before they are imported")] = None,
    rows: Annotated[int, typer.Option(min=1, help="how many")] = 3,
    as_json: AsJson = False,
) -> None:
    """Show rows as the model reads them; what is learnt is green, or in «» where there is no colour."""
    from rich.text import Text

    from ec1.corpus.preview import preview_file, preview_snapshot
    from ec1.night.recipe_night import RecipeNight
    from ec1.night.recipes import recipe_folders
    from ec1.recipes.resolution import find_recipe

    options: Options = context.obj
    deployment, now = options.deployment(), dt.datetime.now(dt.UTC)
    resolved = find_recipe(recipe, recipe_folders(deployment, options.project))
    wanted = resolved.recipe
    step = RecipeNight(resolved, deployment, options.home, deployment.current_night(now))
    if path is not None:
        shown = preview_file(path, wanted.data, wanted.rows, step.base_model, rows)
    else:
        shown = preview_snapshot(step.snapshot(now), wanted.data, step.base_model, rows)
    if as_json:
        print_json([vars(row) for row in shown])
        return
    for row in shown:
        out.print(f"{printable(row.origin)}: {row.tokens} tokens, {row.learnt} learnt", markup=False, style="bold")
        if row.problem is not None:
            out.print(f"  left out: {row.problem}", markup=False)
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
    from ec1.corpus.preview import measure
    from ec1.night.recipe_night import RecipeNight

    options: Options = context.obj
    deployment, now = options.deployment(), dt.datetime.now(dt.UTC)
    rows: list[dict[str, Any]] = []
    for resolved in options.recipes():
        step = RecipeNight(resolved, deployment, options.home, deployment.current_night(now))
        snapshot = step.snapshot(now)
        decision = step.decision(snapshot)
        rows.append(
            {
                "recipe": resolved.recipe.name,
                "bucket": snapshot.bucket,
                "files": snapshot.files,
                "bytes": snapshot.bytes,
                "lines": snapshot.lines,
                "trainable": snapshot.trainable,
                "new": decision.new,
                "threshold": decision.threshold,
                "rejected": snapshot.rejected,
            }
        )
        if tokens and snapshot.trainable:
            rows[-1]["tokens"] = vars(measure(snapshot, resolved.recipe.data, step.base_model))
    if as_json:
        print_json(rows)
        return
    for row in rows:
        out.print(
            f"  {row['bucket']:<32} {row['lines']} tuples in {row['files']} files, {row['trainable']} trainable, "
            f"{row['new']} new, threshold {row['threshold']}",
            markup=False,
        )
        for reason, count in sorted(row["rejected"].items(), key=lambda item: -item[1]):
            out.print(f"  {'':<32} {count} {reason}", markup=False)
        if measured := row.get("tokens"):
            shares = ", ".join(f"{name} {count}" for name, count in measured["percentiles"].items())
            out.print(f"  {'':<32} tokens of {measured['rows']} rows: {shares}", markup=False)
            for reason, count in measured["dropped"].items():
                out.print(f"  {'':<32} the recipe would drop {count}: {reason}", markup=False)


@corpus_app.command("export")
def export_corpus(
    context: typer.Context,
    role: Annotated[str, typer.Argument(help="such as engineering: the bucket is <role>-<tenant>")],
    file: Annotated[Path, typer.Argument(help="where to write, a .jsonl or .parquet file")],
    tenant: Annotated[str | None, typer.Option(help="default: the deployment's")] = None,
    objective: Annotated[Objective | None, typer.Option(help="default: the bucket's own")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a bucket's trainable tuples, scrubbed, in the form that TRL and Hugging Face datasets read."""
    from ec1.corpus.buckets import bucket
    from ec1.corpus.export import export
    from ec1.corpus.snapshots import take_snapshot

    options: Options = context.obj
    deployment = options.deployment()
    source = bucket(deployment.corpus_root(options.home), role, tenant or deployment.tenant)
    wanted = objective or source.objective
    snapshot = take_snapshot(source, wanted, as_of=dt.datetime.now(dt.UTC), home=options.home)
    written = export(snapshot, wanted, file.expanduser())
    if as_json:
        print_json(vars(written))
        return
    out.print(f"{written.rows} rows written to {file}", markup=False)
    for reason, count in written.rejected.items():
        out.print(f"  left out: {count} {reason}", markup=False)
