"""What only Dagster knows about a home: runs, the daemon, the schedule. `ec1 doctor` starts `python -m jobs.doctor`.

Prints one JSON list of findings, as `ec1/night/operations/doctor.py` makes them. Changes nothing: an instance that is
not yet there is not made.
"""

import json
import sys
import time
from collections.abc import Iterator

import dagster as dg

from ec1.deployment import load_deployment
from ec1.errors import InputError
from ec1.home import Home
from ec1.night.health.finding import Symptom
from ec1.night.report.failure import one_line
from jobs.instance import OPEN, daemon_lives
from jobs.launcher import why_not_ours
from jobs.workers import is_gone, worker_of
from resources.environment import choice_from_environment
from resources.schedule import check_schedule


def examine(instance: dg.DagsterInstance, *, scheduled: bool) -> Iterator[Symptom]:
    """Runs, daemon and schedule; `scheduled`: whether the deployment starts its nights by itself."""
    if foreign := why_not_ours(instance):
        yield Symptom("dagster", "problem", foreign)
        return
    yield _runs(instance)
    yield _daemon(instance, scheduled)
    yield from _switched_off(instance)
    yield from _ticks(instance)


def _runs(instance: dg.DagsterInstance) -> Symptom:
    living, waiting, orphaned = [], [], []
    for run in instance.get_runs(dg.RunsFilter(statuses=list(OPEN))):
        name = f"{run.run_id[:8]} (night {run.tags.get('dagster/partition', '?')})"
        if run.status == dg.DagsterRunStatus.QUEUED and worker_of(run) is None:
            waiting.append(name)
        elif is_gone(instance, run):
            orphaned.append(name)
        else:
            living.append(name)
    parts = [
        f"{what}: {', '.join(names)}"
        for what, names in (("running", living), ("waiting", waiting), ("process gone", orphaned))
        if names
    ]
    if orphaned:
        parts.append("`ec1 doctor --reconcile` ends those whose process is gone, and so does the next night")
    if waiting and not daemon_lives(instance):
        parts.append("no daemon takes the waiting ones: start `ec1 ui`")
    stuck = bool(orphaned or (waiting and not daemon_lives(instance)))
    return Symptom("runs", "note" if stuck else "ok", "; ".join(parts) or "none is going")


def _daemon(instance: dg.DagsterInstance, scheduled: bool) -> Symptom:
    if daemon_lives(instance):
        return Symptom("daemon", "ok", "alive")
    beats = [beat.timestamp for beat in instance.get_daemon_heartbeats().values()]
    last = f"last seen {time.strftime('%Y-%m-%d %H:%M', time.localtime(max(beats)))}" if beats else "never seen"
    if scheduled:
        return Symptom("daemon", "note", f"{last}: no night starts by itself until `ec1 ui` runs (or its service does)")
    return Symptom("daemon", "ok", f"{last}; this deployment starts no nights by itself")


def _switched_off(instance: dg.DagsterInstance) -> Iterator[Symptom]:
    """Schedules and sensors that a person switched off; what a deployment declares is not reported."""
    off = [state.instigator_name for state in instance.all_instigator_state() if state.status.value == "STOPPED"]
    if off:
        yield Symptom("switched off", "note", f"{', '.join(sorted(off))}: switch it on in the UI (Automation)")


def _ticks(instance: dg.DagsterInstance) -> Iterator[Symptom]:
    """The last tick of every schedule and sensor, if it failed."""
    failed = []
    for state in instance.all_instigator_state():
        ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
        if ticks and ticks[0].is_failure:
            error = ticks[0].error
            why = one_line(error.cls_name or "", error.message) if error else "no error was recorded"
            failed.append(f"{state.instigator_name} failed at {_clock(ticks[0].timestamp)}: {why}")
    if failed:
        yield Symptom("schedule", "problem", f"{'; '.join(failed)}. Mend that, and the next tick catches up")


def _clock(timestamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(timestamp))


def main() -> int:
    choice = choice_from_environment()
    folder = Home(choice.home).dagster
    findings: list[Symptom] = []
    deployment = load_deployment(choice.deployment, choice.project)
    try:
        check_schedule(deployment)
    except InputError as error:
        findings.append(Symptom("schedule", "problem", str(error)))
    if not (folder / "dagster.yaml").exists():
        findings.append(Symptom("dagster", "note", "no instance yet; the first night makes it"))
    else:
        try:
            with dg.DagsterInstance.from_config(str(folder)) as instance:
                findings += examine(instance, scheduled=deployment.schedule.enabled)
        except Exception as error:  # noqa: BLE001  whatever it is, it is a finding
            findings.append(Symptom("dagster", "problem", one_line(type(error).__name__, str(error))))
    sys.stdout.write(json.dumps([vars(finding) for finding in findings]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
