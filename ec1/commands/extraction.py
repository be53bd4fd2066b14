"""`ec1 extraction`: corrections of what phase 1 found; the extractor learns from them."""

import datetime as dt
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ec1.commands.shell import Options, out, print_json, printable
from ec1.documents.ledger import DocumentKey, LedgerEntry, Status, extractor_fingerprint
from ec1.errors import InputError, RejectedError
from ec1.files import write_atomic

extraction_app = typer.Typer(help="What was extracted, for people to correct and the extractor to learn from.")


@extraction_app.command()
def label(
    context: typer.Context,
    corrected: Annotated[Path | None, typer.Argument(help="a corrected file; its records become tuples")] = None,
    to: Annotated[Path | None, typer.Option("--out", help="write what was found to this file, to correct it")] = None,
    path: Annotated[str | None, typer.Option(help="only documents whose path begins so")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Write what the last nights found, one chunk per line, or take a corrected file into the extractor's bucket."""
    from ec1.adapters.extractor import ROLE
    from ec1.corpus.labels import take

    options: Options = context.obj
    if (corrected is None) == (to is None):
        raise InputError("give either a corrected file, or --out and the file to write")
    if to is not None:
        records = _found(options, path or "")
        write_atomic(to, "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in records))
        if as_json:
            print_json({"records": len(records), "file": str(to)})
        else:
            out.print(f"{len(records)} chunks in {to}: correct `entities`, delete what you did not read", markup=False)
        return
    assert corrected is not None
    deployment = options.deployment()
    if not deployment.extraction.vocabulary.is_contracts:
        raise InputError(
            "an extractor is trained for the contract's classes only, and extraction.classes names others: such "
            "corrections cannot be learnt; keep the file, and hold what is found against it with `ec1 score --gold`"
        )
    bucket = deployment.corpus_root(options.home) / ROLE
    taken = take(corrected, bucket, dt.datetime.now(dt.UTC))
    if as_json:
        print_json(vars(taken))
    else:
        out.print(f"{taken.written} tuples written to {bucket}, {taken.known} were there", markup=False)


@extraction_app.command()
def held(
    context: typer.Context,
    path: Annotated[str | None, typer.Option(help="only documents whose path begins so")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """List the sentences that were not read, because they tell a machine what to answer, with the names in them."""
    from ec1.extraction.outbox import Outbox
    from ec1.graph.reader import published_ledger

    options: Options = context.obj
    outbox, rows = Outbox(options.home.outbox), []
    for key, entry in sorted(published_ledger(options.home.published_graph).items(), key=lambda each: each[0].path):
        if entry.status != Status.APPLIED or not key.path.startswith(path or ""):
            continue
        result = outbox.get(extractor_fingerprint(entry.fingerprint), entry.content_sha256)
        rows += [{"path": key.path, **each.model_dump()} for each in (result.held if result is not None else ())]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        names = f"\n  names in it: {printable(', '.join(row['names']))}" if row["names"] else ""
        out.print(printable(f"{row['path']}: {row['sentence']}") + names, markup=False)
    out.print(f"{len(rows)} sentences were not read (extraction.instructions: read reads them)", markup=False)


def _found(options: Options, prefix: str) -> list[dict[str, Any]]:
    """The chunks of all applied documents that still hold the version that was read."""
    from ec1.corpus.labels import records_of
    from ec1.extraction.outbox import Outbox
    from ec1.graph.reader import published_ledger
    from ec1.night.extractor import extractor_of

    deployment, home = options.deployment(), options.home
    extractor, outbox = extractor_of(deployment, home), Outbox(home.outbox)
    records: list[dict[str, Any]] = []
    for key, entry in sorted(published_ledger(home.published_graph).items(), key=lambda each: each[0].path):
        if entry.status != Status.APPLIED or not key.path.startswith(prefix):
            continue
        text = _text(deployment.documents_root(home), key, entry)
        result = outbox.get(extractor_fingerprint(entry.fingerprint), entry.content_sha256)
        if text is None or result is None:
            continue
        chunks = extractor.chunks(extractor.readable(text)[0])
        records += records_of(key.stream, key.path, entry.content_sha256, chunks, result.mentions)
    return records


def _text(root: Path, key: DocumentKey, entry: LedgerEntry) -> str | None:
    import hashlib

    from ec1.documents.parse import parse_document

    file = root / key.path
    data = file.read_bytes() if file.is_file() else b""
    if hashlib.sha256(data).hexdigest() != entry.content_sha256:
        return None
    try:
        return parse_document(key, data).text
    except RejectedError:
        return None
