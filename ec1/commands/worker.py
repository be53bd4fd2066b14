"""`ec1 worker`: does the trainings and evaluations that nights on other machines ask for."""

import dataclasses
import json
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from ec1.commands.shell import FAILED, Options, err, out, print_json, printable
from ec1.launch.process import OFFLINE, inherited


def worker(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="do what waits now, then end")] = False,
    folder: Annotated[
        Path | None, typer.Option(help="take markers from this folder, not from the deployment's store")
    ] = None,
    card: Annotated[
        str | None, typer.Option(help="work on this card, by its number or UUID, not on the deployment's gpu.index")
    ] = None,
    marker: Annotated[
        str | None, typer.Option(help="do only the work of this marker, such as x-2026-06-09.json, then end")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="only try this machine's device, and say what it has")] = False,
    with_store: Annotated[bool, typer.Option("--with-store", help="with --check: also ask the store")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a line for each marker")] = False,
) -> None:
    """Do the work that markers in the deployment's store ask for, one at a time, until interrupted.

    It judges and publishes nothing: the night that asked does. Several workers may share a store, and a machine: one
    for each card.
    """
    from ec1.files import inside
    from ec1.gpu.cards import cards_of
    from ec1.gpu.check import check_device
    from ec1.launch.orders import WORK, own_version
    from ec1.night.launchers import open_worker
    from ec1.night.stores import open_store
    from ec1.storage.directory import DirectoryStore
    from ec1.strict_yaml import validate

    options: Options = context.obj
    deployment = options.deployment()
    if card is not None:
        chosen = {**deployment.gpu.model_dump(), "index": int(card) if card.isdecimal() else card}
        deployment = deployment.model_copy(update={"gpu": validate(type(deployment.gpu), chosen, "--card")})
    if check:
        device = deployment.gpu.device
        found = {"version": own_version(), "device": device, **check_device(device, cards_of(deployment.gpu, 1)[0])}
        if with_store:
            open_store(deployment.store, options.home).exists(f"{WORK}asked-by-a-look")
        if as_json:
            print_json(found)
        else:
            out.print(f"EC1 {found['version']}, {device}: {found['name']}, {found['free_gib']} GiB free")
        return
    if marker is not None and deployment.gpu.lock is None and deployment.gpu.lock_dir is None:
        # A scheduler gave this job its cards alone, and counts them anew for each.
        locks = inside(options.home.root.absolute() / "locks", marker)
        deployment = deployment.model_copy(update={"gpu": deployment.gpu.model_copy(update={"lock_dir": locks})})
    options.home.create()
    store = DirectoryStore(folder) if folder is not None else open_store(deployment.store, options.home)
    env = {**inherited(options.environment), **OFFLINE}
    # What runs is stopped, and the claim is given back. A parent that ignores interrupts would hand that down.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    poll = None if once else deployment.worker.poll_seconds
    failed = False
    if not as_json:
        err.print(f"waiting for work on {deployment.gpu.device}; Ctrl-C ends it" if poll else "doing what waits")
    for done in open_worker(deployment, options.home, store, env, only=marker).run(poll):
        failed |= done.outcome == "failed"
        if as_json:
            sys.stdout.write(json.dumps(dataclasses.asdict(done)) + "\n")
            sys.stdout.flush()
        else:
            out.print(f"{done.file}: {done.outcome} in {done.seconds:.0f} s {printable(done.reason)}")
    if failed:
        raise typer.Exit(FAILED)
