"""`ec1 extraction`: corrections of what phase 1 found; the extractor learns from them."""

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ec1.commands.shell import AsJson, Options, out, print_json, printable
from ec1.documents.ledger import Status, extractor_fingerprint
from ec1.errors import InputError
from ec1.files import write_atomic
from ec1.plural import counted
from ec1.queries.doors import check_learns_names
from ec1.queries.held_back import held_sentences
from ec1.who import who_acts

if TYPE_CHECKING:
    from ec1.extraction.defence.releases import Release

extraction_app = typer.Typer(help="What was extracted, for people to correct and the extractor to learn from.")


@extraction_app.command()
def label(
    context: typer.Context,
    corrected: Annotated[Path | None, typer.Argument(help="a corrected file; its records become tuples")] = None,
    to: Annotated[Path | None, typer.Option("--out", help="write what was found to this file, to correct it")] = None,
    path: Annotated[str | None, typer.Option(help="only documents whose path begins so")] = None,
    as_json: AsJson = False,
) -> None:
    """Write what the last nights found, one chunk per line, or take a corrected file into the extractor's bucket."""
    from ec1.adapters.extractor import ROLE
    from ec1.corpus.labels import take

    options: Options = context.obj
    if (corrected is None) == (to is None):
        raise InputError("give either a corrected file, or --out and the file to write")
    if to is not None:
        if to.is_dir():
            raise InputError(f"{to} is a folder: name the file to write")
        records = _found(options, path or "")
        write_atomic(to, "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in records))
        if as_json:
            print_json({"records": len(records), "file": str(to)})
        else:
            out.print(f"{len(records)} chunks in {to}: correct `entities`, delete what you did not read")
        return
    assert corrected is not None
    deployment = options.deployment()
    check_learns_names(deployment)
    bucket = deployment.corpus_root(options.home) / ROLE
    taken = take(corrected, bucket, dt.datetime.now(dt.UTC), deployment.documents.labels_of)
    if as_json:
        print_json(vars(taken))
    else:
        tuples = "1 tuple" if taken.written == 1 else f"{taken.written} tuples"
        out.print(f"{tuples} written to {bucket}, {taken.known} were there")
        if not any(each.recipe.kind == "extraction" for each in options.recipes()):
            out.print("no recipe of this deployment trains on them: add one of `kind: extraction` (docs/recipes.md)")


@extraction_app.command()
def held(
    context: typer.Context,
    path: Annotated[str | None, typer.Option(help="only documents whose path begins so")] = None,
    released: Annotated[bool, typer.Option("--released", help="those that were released to be read")] = False,
    as_json: AsJson = False,
) -> None:
    """List the sentences that tell a machine what to answer, or may do so, with the names that were not kept for it."""
    from ec1.extraction.defence.releases import read_releases

    options: Options = context.obj
    counting = read_releases(options.home.releases).counting
    if released:
        rows = [each.model_dump(mode="json") for each in counting.values() if each.path.startswith(path or "")]
    else:
        rows = [
            {"id": each.id, "path": each.path, **each.held.model_dump(), "released_by": _by(counting.get(each.id))}
            for each in held_sentences(options.home, path or "")
        ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        who = row["by"] if released else row["released_by"]
        label = "read, but found with too little confidence" if row.get("read") else "names in it"
        names = f"\n  {label}: {printable(', '.join(row['names']))}" if row.get("names") else ""
        later = f"\n  released by {printable(who)}" + ("" if released else ": read on the next night") if who else ""
        out.print(printable(f"{row['id']}  {row['path']}: {row['sentence']}") + names + later)
    if released:
        out.print(f"released: {counted(len(rows), 'sentence')}")
        return
    of_names = sum(bool(row["read"]) for row in rows)
    out.print(
        f"held back: {counted(len(rows) - of_names, 'sentence')}, and of {of_names} only names "
        "(extraction.instructions: read keeps all)"
    )


_Ids = Annotated[list[str] | None, typer.Argument(help="as `ec1 extraction held` lists them")]
_Document = Annotated[str | None, typer.Option("--all-of", help="all sentences of the document with this path")]
_By = Annotated[str | None, typer.Option("--by", help="who you are; default: your user's name")]


@extraction_app.command()
def release(
    context: typer.Context, ids: _Ids = None, document: _Document = None, by: _By = None, as_json: AsJson = False
) -> None:
    """Let sentences be read that were held back; the next night reads their documents again, once."""
    from ec1.extraction.defence.releases import Release, Releases, add

    options: Options = context.obj
    listed = list(held_sentences(options.home, document or ""))
    chosen = _chosen(ids, document, {each.id: each.path for each in listed}, "is held back")
    now, who = dt.datetime.now(dt.UTC).replace(microsecond=0), by or who_acts()

    def lines(known: Releases) -> list[Release]:
        new = {each.id: each for each in listed if each.id in chosen and each.id not in known.counting}
        return [each.line("release", who, now) for each in new.values()]

    _tell(add(options.home.releases, lines), as_json, "released: the next night reads them")


@extraction_app.command()
def hold(
    context: typer.Context, ids: _Ids = None, document: _Document = None, by: _By = None, as_json: AsJson = False
) -> None:
    """Say that sentences are held back rightly: the report leaves them out, and a release of them is taken back."""
    from ec1.extraction.defence.releases import Release, Releases, add, read_releases

    options: Options = context.obj
    counting = read_releases(options.home.releases).counting
    listed = {each.id: each for each in held_sentences(options.home, document or "")}
    known_paths = {each.id: each.path for each in listed.values()} | {each.id: each.path for each in counting.values()}
    chosen = _chosen(ids, document, known_paths, "is held back or released")
    now, who = dt.datetime.now(dt.UTC).replace(microsecond=0), by or who_acts()

    def lines(known: Releases) -> list[Release]:
        back = [
            each.model_copy(update={"action": "hold", "by": who, "at": now})
            for each in known.counting.values()
            if each.id in chosen
        ]
        decided = {each.id for each in known.lines}
        new = (each for each in listed.values() if each.id in chosen and each.id not in decided)
        return [*back, *(each.line("hold", who, now) for each in new)]

    _tell(add(options.home.releases, lines), as_json, "stay held back, or are again from the next night on")


def _chosen(ids: list[str] | None, document: str | None, known: Mapping[str, str], what: str) -> frozenset[str]:
    """The sentences that are asked for, of those that are known with their document. Raises InputError."""
    if bool(ids) == (document is not None):
        raise InputError("name sentences by their id, or all of a document with --all-of PATH")
    if ids:
        if strange := sorted(set(ids) - known.keys()):
            raise InputError(
                f"no sentence {', '.join(strange)} {what}: `ec1 extraction held` lists them with their ids"
            )
        return frozenset(ids)
    found = frozenset(each for each, path in known.items() if path == document)
    if not found:
        raise InputError(f"no sentence of {document} {what}: `ec1 extraction held` lists them with their documents")
    return found


def _by(release: "Release | None") -> str | None:
    return release.by if release is not None else None


def _tell(lines: "list[Release]", as_json: bool, what: str) -> None:
    if as_json:
        print_json([each.model_dump(mode="json") for each in lines])
        return
    for each in lines:
        out.print(printable(f"{each.id}  {each.path}: {each.sentence}"))
    out.print(f"{counted(len(lines), 'sentence')} {what}" if lines else "nothing to do: it was so already")


def _found(options: Options, prefix: str) -> list[dict[str, Any]]:
    """The chunks of all applied documents that still hold the version that was read."""
    from ec1.corpus.labels import records_of
    from ec1.extraction.reading.outbox import Outbox
    from ec1.graph.reader import published_ledger
    from ec1.night.steps.extractor import extractor_of

    deployment, home = options.deployment(), options.home
    extractor, outbox, reader = extractor_of(deployment, home), Outbox(home.outbox), deployment.document_reader(home)
    records: list[dict[str, Any]] = []
    for key, entry in sorted(published_ledger(home.published_graph).items(), key=lambda each: each[0].path):
        if entry.status != Status.APPLIED or not key.path.startswith(prefix):
            continue
        text = reader.text(key, entry.content_sha256)
        result = outbox.get(extractor_fingerprint(entry.fingerprint), entry.content_sha256)
        if text is None or result is None:
            continue
        chunks = extractor.chunks(extractor.readable(text, entry.content_sha256)[0])
        records += records_of(key.stream, key.path, entry.content_sha256, chunks, result.mentions)
    return records
