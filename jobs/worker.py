"""Executes one run in this process: `python -m jobs.worker RUN_ID [--night NIGHT]`, started by `jobs.launcher`;
`ec1 night` calls `execute` in its own.

The definitions are loaded here, when the run begins, so that a recipe that came, changed or went while the run was
queued counts as it is now.
"""

import argparse
import contextlib
import datetime as dt
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import dagster as dg

from ec1.deployment import load_deployment
from ec1.home import CHECKOUT, Home
from ec1.night.health.peers import peers
from ec1.night.health.preflight import why_not
from ec1.night.machines import machine_of
from ec1.night.report.failure import one_line
from ec1.night.report.unbegun import keep_reserve
from ec1.refused import refuses
from jobs.background import in_background
from jobs.claims import claim_promptly
from jobs.conclusion import conclude, conclude_unbegun, tell_unbegun
from jobs.instance import prepare_instance
from jobs.mark import LIVING_RUN
from jobs.nights import why_not_yet
from jobs.queue import rewrite
from jobs.retention import clean_up
from jobs.signals import asked_by, listen, stopped_by
from resources.dagster_private import (
    ReconstructableRepository,
    copy,
    core_execute_run,
    create_execution_plan,
    create_execution_plan_snapshot_id,
    snapshot_from_execution_plan,
)
from resources.environment import choice_from_environment

DEFINITIONS = ("ec1_assets.definitions", "defs")
POLL_SECONDS, SIGNAL_SECONDS = 1.0, 0.1
SETTLE_SECONDS = 15.0
STOPPED_FROM_OUTSIDE = (dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE)


def repository() -> ReconstructableRepository:
    """The one code location, as the files are now."""
    return ReconstructableRepository.for_module(*DEFINITIONS, working_directory=str(CHECKOUT))


def execute(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    """Execute a run that was launched, in this process. Returns how it ended.

    Raises KeyboardInterrupt (or Dagster's own) if it was ended from the keyboard, by a signal or from the UI.
    """
    os.environ[LIVING_RUN] = run_id
    choice = choice_from_environment()
    home = Home(choice.home)
    recon = repository()
    run = with_present_recipes(instance, _found(instance, run_id), recon)
    if reason := why_not_yet(instance, home, run):
        instance.report_run_failed(run, reason)
        conclude(instance, home, run_id)
        return dg.DagsterRunStatus.FAILURE
    job = recon.get_reconstructable_job(run.job_name)
    if (why := _why_not(home)) is not None:
        conclude_unbegun(instance, home, run, why)
        return _found(instance, run_id).status
    broke: str | None = None
    claim_promptly()
    try:
        with _machine_reserved(home), _ended_from_outside(instance, run_id):
            for _ in core_execute_run(job, run, instance, inject_env_vars=False):
                pass
    except Exception as error:
        # Dagster's own, such as that a full disk took no more of its history: it leaves the run as if it went on.
        broke = refuses(str(error), home.root) or one_line(type(error).__name__, str(error))
        raise
    finally:
        conclude(instance, home, run_id, stopped_by(), broke)
        if broke is not None:
            _end_as_failed(instance, run_id, broke)
    clean_up(instance, choice, run_id)
    return _found(instance, run_id).status


def _end_as_failed(instance: dg.DagsterInstance, run_id: str, why: str) -> None:
    """End a run that broke, if it has no end and its history takes one: the next night does it otherwise."""
    with contextlib.suppress(Exception):
        run = _found(instance, run_id)
        if not run.is_finished:
            instance.report_run_failed(run, why)


def _why_not(home: Home) -> str | None:
    """What stops a night now. Services that do not answer are said, and stop nothing."""
    choice = choice_from_environment()
    deployment = load_deployment(choice.deployment, choice.project)
    why = why_not(deployment, home, dt.datetime.now(dt.UTC))
    if why is None:
        keep_reserve(home)
        for each in peers(deployment, home):
            if each.level != "ok":
                sys.stderr.write(f"{each.subject}: {each.detail}\n")
    return why


def with_present_recipes(
    instance: dg.DagsterInstance, run: dg.DagsterRun, recon: ReconstructableRepository
) -> dg.DagsterRun:
    """The run as today's recipes make it: what has gone is left out, and what came joins a run of a whole job.

    Dagster plans from today's definitions anyhow. It fails for an asset that is gone, and its page of the run shows
    the steps that were planned when the run was asked for: so the run is rewritten to say what is executed.
    """
    job = recon.get_definition().get_job(run.job_name)
    if run.job_snapshot_id == job.get_job_snapshot_id() and not run.asset_selection:
        return run
    layer = job.asset_layer
    assets = run.asset_selection and run.asset_selection & set(layer.executable_asset_keys)
    checks = run.asset_check_selection and run.asset_check_selection & set(layer.asset_graph.asset_check_keys)
    if run.asset_selection and not assets:
        raise SystemExit(f"run {run.run_id[:8]}: all assets that it was asked for have gone from the recipes")
    part = recon.get_reconstructable_job(run.job_name).get_subset(asset_selection=assets, asset_check_selection=checks)
    chosen = part.get_definition()
    if run.job_snapshot_id == chosen.get_job_snapshot_id():
        return run
    steps = run.step_keys_to_execute
    if steps is not None and set(steps) == _all_steps(instance, run):
        # Every step, named one by one, as `dagster job launch` does.
        steps = None
    if steps is not None:
        known = create_execution_plan(part, run_config=run.run_config, tags=run.tags).step_keys_to_execute
        steps = [step for step in steps if step in known]
    plan = create_execution_plan(part, run_config=run.run_config, step_keys_to_execute=steps, tags=run.tags)
    storage = instance.run_storage
    parent = chosen.get_parent_job_snapshot()
    if parent is not None and not storage.has_job_snapshot(parent.snapshot_id):
        storage.add_job_snapshot(parent)
    snapshot = chosen.get_job_snapshot()
    if not storage.has_job_snapshot(snapshot.snapshot_id):
        storage.add_job_snapshot(snapshot)
    planned = snapshot_from_execution_plan(plan, snapshot.snapshot_id)
    planned_id = create_execution_plan_snapshot_id(planned)
    if not storage.has_execution_plan_snapshot(planned_id):
        storage.add_execution_plan_snapshot(planned)
    present = copy(
        run,
        asset_selection=assets,
        asset_check_selection=checks,
        step_keys_to_execute=steps,
        job_snapshot_id=snapshot.snapshot_id,
        execution_plan_snapshot_id=planned_id,
    )
    rewrite(instance, present)
    if _all_steps(instance, run) != _all_steps(instance, present):
        told = "The recipes changed while this run was queued: it follows the present ones."
        instance.report_engine_event(told, present)
    return present


def _all_steps(instance: dg.DagsterInstance, run: dg.DagsterRun) -> set[str]:
    """The steps that the whole of a run's job had when the run was asked for."""
    if run.execution_plan_snapshot_id is None:
        return set()
    return {step.key for step in instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id).steps}


@contextlib.contextmanager
def _machine_reserved(home: Home) -> Iterator[None]:
    """Between the phases of this run nobody else stops the GPU machine that it booted."""
    choice = choice_from_environment()
    machine = machine_of(load_deployment(choice.deployment, choice.project), home)
    with contextlib.nullcontext() if machine is None else machine.reserved():
        yield


@contextlib.contextmanager
def _ended_from_outside(instance: dg.DagsterInstance, run_id: str) -> Iterator[None]:
    """While the block runs, check whether the run was ended (UI, monitor) and interrupt this process if so."""

    def watch(done: threading.Event) -> None:
        ended: float | None = None
        looked = 0.0
        while not done.wait(SIGNAL_SECONDS):
            if stopped_by() is not None:
                # Or Dagster takes it for a failure.
                if (stopped := instance.get_run_by_id(run_id)) is not None and not stopped.is_finished:
                    instance.report_run_canceling(stopped)
                return
            if time.monotonic() - looked < POLL_SECONDS:
                continue
            looked = time.monotonic()
            run = instance.get_run_by_id(run_id)
            if run is None or run.status == dg.DagsterRunStatus.CANCELING:
                asked_by("a request (the UI)")
                break
            if run.status in STOPPED_FROM_OUTSIDE:
                # A run that ended by itself is given the time to leave this block.
                ended = ended or time.monotonic()
                if time.monotonic() - ended > SETTLE_SECONDS:
                    break
        else:
            return
        os.kill(os.getpid(), signal.SIGINT)

    with in_background("ended-from-outside", watch):
        yield


def _found(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRun:
    run = instance.get_run_by_id(run_id)
    if run is None:
        raise SystemExit(f"run {run_id} is not in {instance.root_directory}: it was deleted while it was queued")
    return run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m jobs.worker")
    parser.add_argument("run_id")
    parser.add_argument("--night", help="whose run it is, for a history that does not say so any more")
    arguments = parser.parse_args()
    # A parent that ignores interrupts (a script's background job) would hand that down.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    listen()
    home = Home(choice_from_environment().home)
    try:
        prepared = prepare_instance(home)
    except Exception as error:  # noqa: BLE001  whatever it is, it is told: this run has nobody else for it
        why = _why_not(home) or one_line(type(error).__name__, str(error))
        tell_unbegun(home, arguments.night, arguments.run_id, why)
        sys.stderr.write(f"did not begin: {why}\n")
        return 1
    with prepared as instance:
        try:
            status = execute(instance, arguments.run_id)
        except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError):
            return 128 + signal.SIGINT
    if stopped_by() is not None and status != dg.DagsterRunStatus.SUCCESS:
        return 128 + signal.SIGINT
    return 0 if status == dg.DagsterRunStatus.SUCCESS else 1


if __name__ == "__main__":
    sys.exit(main())
