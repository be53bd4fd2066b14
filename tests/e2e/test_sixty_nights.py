"""Sixty nights in a row, twenty of them with three faults each, planted at random: what each came to, and that nothing
is lost. Prints the table of outcomes (`-s`), and leaves it in the test's folder as `outcomes.md`. `EC1_SOAK_NIGHTS`
runs fewer of them.

A fault is something that happens to a machine and a home; what the operator then does is what the night's own last line
says: run it again, after the cause is gone. How single failures are told is tested in `test_planted_failures.py`.
"""

import datetime as dt
import json
import os
import random
import shutil
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from corpus_builder import edit
from damage import cut, flip
from light import LightCommandLine, light_project

from ec1.graph.reader import published_ledger
from ec1.night.records import DecisionRecord, GraphRecord, Records
from ec1.night.report.summary import is_done

NIGHTS, FAULTY, FAULTS = 60, 20, 3
FIRST = dt.date(2026, 6, 1)
SEED = 28
TRIES = 6
"""A night with three faults needs at most one run for each and one that is left alone; two more are a margin."""

Mend = Callable[[], object] | None
"""What makes the cause go away; None where EC1 heals by itself."""


def newest(folder: Path, pattern: str) -> Path | None:
    found = sorted((path for path in folder.glob(pattern) if path.is_file()), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


FOUND: Counter[str] = Counter()
"""How often there was a file to damage, by pattern: what is planted nowhere tests nothing."""


def damaged(pattern: str, how: Callable[[Path], object]) -> Callable[[LightCommandLine], Mend]:
    """Damage the newest file of a kind, if there is one."""

    def plant(ec1: LightCommandLine) -> Mend:
        path = newest(ec1.home.root, pattern)
        FOUND[pattern] += path is not None
        if path is not None:
            how(path)
        return None

    return plant


def model_gone(ec1: LightCommandLine) -> Mend:
    text = (ec1.home.root.parent / "configs" / "deployments" / "light.yaml").read_text()
    model = Path(next(line for line in text.splitlines() if "path: " in line).split("path: ")[1].rstrip("}"))
    aside = model.with_name("aside")
    if aside.exists():
        return None
    model.rename(aside)
    return lambda: aside.rename(model)


def stray_file(ec1: LightCommandLine) -> Mend:
    path = ec1.home.documents / "service-people" / "source" / f"broken-{time.time_ns()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'{"corpus": "\xff\xfe')
    return path.unlink


def lock_of_nobody(ec1: LightCommandLine) -> Mend:
    ec1.home.gpu_lock.unlink(missing_ok=True)
    ec1.home.gpu_lock.write_text("{half a holder")
    return None


def cache_gone(ec1: LightCommandLine) -> Mend:
    shutil.rmtree(ec1.home.cache, ignore_errors=True)
    return None


def killed(after: str) -> Callable[[LightCommandLine], Mend]:
    """SIGKILL the night's whole group as soon as `after` exists below the home; `{night}` in it is this one."""

    def plant(ec1: LightCommandLine) -> Mend:
        KILL_AFTER.append(after)
        return None

    return plant


KILL_AFTER: list[str] = []

PLANTED: dict[str, Callable[[LightCommandLine], Mend]] = {
    "killed when it had listed": killed("nights/{night}/source_documents.json"),
    "killed when it had read": killed("nights/{night}/records/extraction/*.json"),
    "killed at the handover": killed("nights/{night}/records/gpu_handover/*.json"),
    "killed while it trained": killed("runs/*/*/{night}/training/run.json"),
    "model folder gone": model_gone,
    "a file that is no text": stray_file,
    "live graph: a bit flipped": damaged("graph/live", flip),
    "live graph: cut": damaged("graph/live", cut),
    "live graph: gone": damaged("graph/live", Path.unlink),
    "published graph: gone": damaged("graph/published", Path.unlink),
    "result in the outbox: flipped": damaged("outbox/*/*/*.json", flip),
    "result in the outbox: gone": damaged("outbox/*/*/*.json", Path.unlink),
    "snapshot: flipped": damaged("snapshots/*/*/tuples-*.jsonl", flip),
    "dataset: flipped": damaged("datasets/*/train/rows.parquet", flip),
    "adapter: flipped": damaged("quarantine/*/*/*/adapter_model.safetensors", flip),
    "lock of nobody": lock_of_nobody,
    "caches gone": cache_gone,
}


def one_run(ec1: LightCommandLine, night: str) -> tuple[int, str]:
    """One `ec1 night`, killed if that was planted. Returns its status and its last line."""
    pattern = KILL_AFTER.pop() if KILL_AFTER else None
    pattern = pattern.format(night=night) if pattern else None
    before = set(ec1.home.root.glob(pattern)) if pattern else set()
    process = ec1.start("night", "--date", night, own_group=True)
    if pattern is not None:
        while process.poll() is None:
            if set(ec1.home.root.glob(pattern)) - before:
                os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(0.05)
    output, _ = process.communicate(timeout=900)
    lines = [line for line in output.splitlines() if line.strip()]
    return process.returncode, (lines[-1] if lines else "").strip()


def write_a_day(ec1: LightCommandLine, day: dt.date) -> None:
    """What this day wrote: one document and a few tuples, as old as their day. Every fifth day there are enough of
    them for a training."""
    document = ec1.home.documents / "service-agents" / f"{day}.md"
    tuples = ec1.home.corpus / "engineering" / "demo" / f"{day}.jsonl"
    rows = [edit(100 * day.toordinal() + number, tenant="fernhollow") for number in range(4)]
    text = f"On {day} Maria Alvarez of Northwind Capital wrote to Person{day:%j} Reyes in Vancouver.\n"
    moment = dt.datetime.combine(day, dt.time(12), dt.UTC).timestamp()
    for path, content in ((document, text), (tuples, "".join(f"{json.dumps(row)}\n" for row in rows))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        os.utime(path, (moment, moment))


def run_until_done(ec1: LightCommandLine, night: str, mends: list[Mend]) -> tuple[list[int], list[str]]:
    statuses, told = [], []
    for attempt in range(TRIES):
        status, last = one_run(ec1, night)
        statuses.append(status)
        if status not in (0, 3):
            told.append(last)
        # Once the night has said what is wrong, its cause goes away.
        for mend in mends if attempt == 0 else []:
            if mend is not None:
                mend()
        if status in (0, 3) and not KILL_AFTER and is_done(ec1.home, night):
            return statuses, told
    raise AssertionError(f"night {night} is not done after {TRIES} runs: {statuses} {told}")


def check(ec1: LightCommandLine, nights: list[str]) -> None:
    """Nothing is lost and nothing is there twice, whatever happened on the way."""
    assert all(is_done(ec1.home, night) for night in nights)
    ledger = published_ledger(ec1.home.published_graph)
    documents = [path for path in ec1.home.documents.glob("service-agents/2026-*.md")]
    written = {path.name for path in documents}
    applied = Counter(key.path.rsplit("/", 1)[-1] for key, entry in ledger.items() if entry.status.value == "applied")
    assert written <= applied.keys() and max(applied[name] for name in written) == 1
    last = Records(ec1.home.night(nights[-1])).read(GraphRecord)
    assert last.entities_after > 0 and last.missing == 0 and last.deferred == 0
    decided = [Records(ec1.home.run("fernhollow", "engineering", night)).read(DecisionRecord) for night in nights]
    trained = [each.decision.snapshot for each in decided if each.decision.train]
    assert len(trained) == len(set(trained)) >= len(nights) // 6, "one corpus trains once, and a new one does"
    with sqlite3.connect(ec1.home.dagster / "history" / "runs.db") as runs:
        left = runs.execute("select count(*) from runs where status in ('STARTED', 'STARTING', 'QUEUED')").fetchone()
    assert left == (0,), "no run is left behind"
    assert ec1.processes() == []


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_sixty_nights_with_faults(tmp_path: Path, project: Path, tiny_model: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    ec1 = light_project(tmp_path / "project", project, model)
    recipe = tmp_path / "project" / "recipes" / "engineering.yaml"
    # A day's tuples are longer than the sample's.
    recipe.write_text(recipe.read_text().replace("max_length: 192", "max_length: 256"))
    count = int(os.environ.get("EC1_SOAK_NIGHTS", NIGHTS))
    rng = random.Random(SEED)
    faulty = set(rng.sample(range(1, count), min(FAULTY, count // 3)))
    nights = [(FIRST + dt.timedelta(days=number)).isoformat() for number in range(count)]
    rows = []
    for number, night in enumerate(nights):
        write_a_day(ec1, dt.date.fromisoformat(night))
        names = rng.sample(sorted(PLANTED), FAULTS) if number in faulty else []
        mends = [PLANTED[name](ec1) for name in names]
        statuses, told = run_until_done(ec1, night, mends)
        rows.append((night, ", ".join(names) or "-", " ".join(map(str, statuses)), "; ".join(told) or "-"))
        print(" | ".join(rows[-1]), flush=True)
    table = "\n".join(f"| {' | '.join(cell.replace('|', '/')[:160] for cell in row)} |" for row in rows)
    head = "| night | planted | exit statuses | last lines |\n|---|---|---|---|\n"
    (tmp_path / "outcomes.md").write_text(head + table + "\n")
    check(ec1, nights)
    if count >= NIGHTS:
        assert min(FOUND.values()) > 0, f"each kind of thing was there to be damaged: {FOUND}"
