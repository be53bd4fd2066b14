"""What follows when a run has ended, however it ended: why it failed, how its parts spent the time, the night's report.

Called by the run's own worker; for a worker that was killed, by whoever ends its run (the next night, the daemon).
"""

import datetime as dt
import sys
from pathlib import Path

import dagster as dg

from ec1.deployment import Deployment, load_deployment
from ec1.errors import EC1Error
from ec1.home import Home
from ec1.night.card_book import card_book
from ec1.night.machines import machine_of, stop_after_run, used_by
from ec1.night.operations.recheck import recheck
from ec1.night.records import Records, RunRecord
from ec1.night.report.failure import one_line, write_failure
from ec1.night.report.morning import PAGE, conclude_night
from ec1.night.report.summary import NightReport, night_report
from ec1.night.report.unbegun import did_not_begin, give_up_reserve
from ec1.night.steps.recipes import broken_recipes, nightly_recipes
from ec1.night.stores import open_registry
from ec1.refused import advice_for
from ec1_assets.night_report import KEY, metadata_of
from ec1_assets.run_tags import VERDICT_TAG
from jobs.failure import PARTITION_TAG, failure_with, record_failure
from jobs.timeline import run_record
from resources.dagster_private import StepMaterializationData
from resources.environment import DeploymentChoice, choice_from_environment, shell_environment


def conclude(
    instance: dg.DagsterInstance, home: Home, run_id: str, stopped_by: str | None = None, broke: str | None = None
) -> None:
    """Write down what a run of a night came to, who or what stopped it, if somebody did, and what broke it where
    Dagster could not write that down. What goes wrong here is said, and never fails the run."""
    try:
        give_up_reserve(home)
        problem = stop_machine(home)
        if problem:
            sys.stderr.write(f"{problem}\n")
        _conclude(instance, home, run_id, problem, stopped_by, broke)
    except OSError as error:
        # The home takes no files; perhaps that is why the run failed. Its last words are on the terminal.
        sys.stderr.write(f"the report could not be written: {advice_for(error)}\n")
    except Exception as error:  # noqa: BLE001  a night that went well must not fail over its report
        sys.stderr.write(f"the report could not be written: {one_line(type(error).__name__, str(error))}\n")


def is_concluded(home: Home, run: dg.DagsterRun) -> bool:
    """Whether that was done."""
    night = run.tags.get(PARTITION_TAG, "")
    return bool(night) and Records(home.night(night)).find(RunRecord, run.run_id) is not None


def stop_machine(home: Home) -> str | None:
    """Stop the GPU machine that is booted for nights, if nobody needs it any more. Returns why it could not be."""
    choice = choice_from_environment()
    machine = machine_of(load_deployment(choice.deployment, choice.project), home)
    return None if machine is None else stop_after_run(machine, lambda message: None)


def tell_unbegun(home: Home, night: str | None, run: str, why: str) -> NightReport | None:
    """Tell that a run did not begin; of a run of no night there is nothing to tell."""
    if night is None:
        return None
    choice = choice_from_environment()
    deployment = load_deployment(choice.deployment, choice.project)
    return did_not_begin(deployment, home, night, run, why, shell_environment())


def conclude_unbegun(instance: dg.DagsterInstance, home: Home, run: dg.DagsterRun, why: str) -> None:
    """End a run with which nothing can be done, and tell it like a failure. Raises nothing."""
    night = run.tags.get(PARTITION_TAG)
    report = tell_unbegun(home, night, run.run_id, why)
    try:
        instance.report_run_failed(run, f"did not begin: {why}")
        page = home.night(night) / PAGE if night else None
        if report is not None and page is not None and page.exists():
            _materialise(instance, run, report, page)
    except Exception as error:  # noqa: BLE001  the same disk may refuse its database, too
        sys.stderr.write(f"the run could not be ended: {one_line(type(error).__name__, str(error))}\n")


def _conclude(
    instance: dg.DagsterInstance,
    home: Home,
    run_id: str,
    problem: str | None,
    stopped_by: str | None,
    broke: str | None,
) -> None:
    run = instance.get_run_by_id(run_id)
    if run is None or PARTITION_TAG not in run.tags:
        return
    stopped_by = stopped_by if run.status != dg.DagsterRunStatus.SUCCESS else None
    if stopped_by is None:
        record_failure(instance, home, run_id)
    night = run.tags[PARTITION_TAG]
    choice = choice_from_environment()
    chosen = DeploymentChoice(choice.deployment, home.root, choice.project)
    deployment = load_deployment(chosen.deployment, chosen.project)
    elsewhere = card_book(deployment, home) is not None
    record = run_record(
        instance,
        run_id,
        recipes=[f"{each.recipe.tenant}/{each.recipe.role}" for each in nightly_recipes(deployment, chosen.project)],
        broken={each.name: each.problem for each in broken_recipes(deployment, chosen.project)},
        # A machine that is booted has books of its own.
        cost_per_hour=deployment.gpu.cost_per_hour if deployment.machine is None and not elsewhere else 0.0,
        cost_per_card_hour=deployment.gpu.cost_per_hour / deployment.gpu.processes if elsewhere else 0.0,
    )
    if stopped_by is None and broke is not None and not run.is_finished:
        write_failure(home, failure_with(run, broke))
        record = record.model_copy(update={"status": "failed"})
    if stopped_by is not None:
        record = record.model_copy(update={"status": "interrupted", "stopped_by": stopped_by})
        instance.add_run_tags(run_id, {VERDICT_TAG: f"stopped by {stopped_by}"})
    unwritten: OSError | None = None
    try:
        Records(home.night(night)).write(run_id, record)
        machine = machine_of(deployment, home)
        used = used_by(machine, night, problem) if machine is not None else None
        if used is not None:
            Records(home.night(night)).write(run_id, used)
    except OSError as error:
        # Somebody is told all the same.
        unwritten = error
    if stopped_by is None:
        _look_at_storage(deployment, home)
    report = night_report(home, night, run_id)
    page = conclude_night(report, deployment, home, shell_environment())
    _materialise(instance, run, report, page)
    if unwritten is not None:
        raise unwritten


def _look_at_storage(deployment: Deployment, home: Home) -> None:
    """Read this day's share of what is named by its content; what is found is in the report."""
    try:
        recheck(home, open_registry(deployment, home), dt.datetime.now(dt.UTC).date())
    except (EC1Error, OSError) as error:
        sys.stderr.write(f"the storage could not be looked at: {one_line(type(error).__name__, str(error))}\n")


def _materialise(instance: dg.DagsterInstance, run: dg.DagsterRun, report: NightReport, page: Path) -> None:
    """Show the report as the last asset of the graph. It is not a step: a step that waits for all others is not run
    when one of them fails, and then the report is wanted most."""
    shown = dg.AssetMaterialization(
        KEY, partition=report.night, metadata=metadata_of(report, page), description=report.status
    )
    event = dg.DagsterEvent(
        event_type_value=dg.DagsterEventType.ASSET_MATERIALIZATION.value,
        job_name=run.job_name,
        event_specific_data=StepMaterializationData(shown, []),
    )
    instance.report_dagster_event(event, run_id=run.run_id)
