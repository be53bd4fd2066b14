"""`ec1 backup` and `ec1 restore`: a home in one file, for another disk or another machine."""

from pathlib import Path
from typing import Annotated

import typer

from ec1.commands.shell import Options, out
from ec1.storage.settings import GcsStoreSettings


def backup(
    context: typer.Context,
    archive: Annotated[Path, typer.Argument(help="the file to write; it must not exist")],
) -> None:
    """Write the whole home to one file, also while a night runs; it holds keys and documents: keep it private."""
    from ec1.night.operations.backup import back_up

    options: Options = context.obj
    summary = back_up(options.home, archive.expanduser(), options.environment)
    dumped = " and Dagster's data base" if summary.postgres else ""
    out.print(f"wrote {archive}: {summary.files} files, {summary.bytes / 2**20:.1f} MiB{dumped}")
    deployment = options.deployment()
    outside = [
        str(path)
        for path in (deployment.documents.root, deployment.corpus.root, getattr(deployment.store, "root", None))
        if path is not None and not path.resolve().is_relative_to(options.home.root.resolve())
    ]
    if isinstance(deployment.store, GcsStoreSettings):
        outside.append(f"gs://{deployment.store.bucket}")
    out.print("not in it: base models and caches, which are made again")
    for place in outside:
        out.print(f"not in it: {place}, outside the home")


def restore(
    context: typer.Context,
    archive: Annotated[Path, typer.Argument(help="what `ec1 backup` wrote")],
) -> None:
    """Make the home from a backup, all at once, after every digest was checked. The home must not exist or be empty."""
    from ec1.night.operations.backup import restore as make_again

    options: Options = context.obj
    summary = make_again(archive.expanduser(), options.home, options.environment)
    out.print(
        f"restored {options.home.root}: {summary.files} files, {summary.bytes / 2**20:.1f} MiB, all digests right; "
        "next: ec1 doctor"
    )
