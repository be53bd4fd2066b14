"""Where a night's time goes: which step waits for which, and what the steps on the critical path do.

Without `--home` it runs the bundled sample's night from nothing in a new home (about five minutes on two idle cores)
and counts the CPU seconds of each process meanwhile. With `--home` it reads a night that has run, from that home's own
records; CPU seconds are then not known. Seconds by the clock need an idle machine; CPU seconds hardly do. `--small` has
six documents, 16 rows and four held-out examples for each recipe: what surrounds the work is what it is in a whole
night. `--checkout` runs the night of another checkout, to compare with.

Run: python -m benchmarks.critical_path [--home .ec1] [--small] [--svg docs/images/critical-path.svg] [--json FILE]
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

import dagster as dg
import psutil

from ec1.home import CHECKOUT, Home
from jobs.instance import prepare_instance
from resources.dagster_private import RunStepKeyStatsSnapshot

IMPORTS, LOADING, WORK, OTHER = "imports", "loading", "work", "other"
COLOURS = {IMPORTS: "#d98b2b", LOADING: "#5b8fc7", WORK: "#4f9d69", OTHER: "#b9b9b9"}
# What an event's text says has begun. The first that fits counts; text that fits none goes on with what was.
BEGINS = [
    (re.compile(r"starting vLLM"), LOADING, "engine starts"),
    (re.compile(r"vLLM is ready"), WORK, "documents are read"),
    (re.compile(r"external process successfully opened"), IMPORTS, "libraries are imported"),
    (re.compile(r"^loading "), LOADING, "model and rows are loaded"),
    # Progress that comes too fast is left out: then the first step shows that the model is loaded.
    (re.compile(r"^(loaded in|step \d+ of)"), WORK, "training"),
    (re.compile(r"^loaded .* adapters in"), WORK, "scoring"),
    (re.compile(r"external process.* closed|^converted "), OTHER, "result is written"),
]
SAMPLES_PER_SECOND = 2


@dataclass(frozen=True)
class Stage:
    """What a step did from `began` to `ended`, in seconds since the night was asked for."""

    kind: str
    name: str
    began: float
    ended: float
    cpu: float | None = None


@dataclass
class Step:
    """One step of the run. `needs` are the steps that must end before it begins."""

    key: str
    began: float
    ended: float
    needs: set[str]
    pid: int | None = None
    stages: list[Stage] = field(default_factory=list)


class CpuSampler:
    """Counts the CPU seconds of a process and all that descend from it, while the block runs."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.parents: dict[int, int] = {}
        self.samples: dict[int, list[tuple[float, float]]] = defaultdict(list)
        """Per process: time since the epoch, CPU seconds until then."""

    def __enter__(self) -> "CpuSampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(1 / SAMPLES_PER_SECOND):
            try:
                family = [self._root, *self._root.children(recursive=True)]
            except psutil.Error:
                return
            for process in family:
                try:
                    times, now = process.cpu_times(), time.time()
                    self.parents[process.pid] = process.ppid()
                except psutil.Error:
                    continue
                self.samples[process.pid].append((now, times.user + times.system))

    @property
    def total(self) -> float:
        """CPU seconds of all processes, but for the last half second of each."""
        return sum(samples[-1][1] for samples in self.samples.values())

    def of(self, pid: int, began: float, ended: float) -> float:
        """CPU seconds that a process and its descendants used between two times since the epoch."""
        family = {each for each in self.samples if pid in self._line(each)}
        return sum(_at(self.samples[each], ended) - _at(self.samples[each], began) for each in family)

    def _line(self, pid: int) -> Iterator[int]:
        while pid in self.parents:
            yield pid
            pid = self.parents[pid]


def _at(samples: Sequence[tuple[float, float]], moment: float) -> float:
    """CPU seconds at a moment, between two samples in proportion; a process starts with none."""
    before = (samples[0][0] - 1 / SAMPLES_PER_SECOND, 0.0)
    for now, cpu in samples:
        if now >= moment:
            share = (moment - before[0]) / (now - before[0]) if now > before[0] else 1.0
            return before[1] + max(0.0, share) * (cpu - before[1])
        before = (now, cpu)
    return before[1]


def steps_of(instance: dg.DagsterInstance, run_id: str, cpu: CpuSampler | None) -> tuple[list[Step], float]:
    """The steps of a run that ran, in the order in which they began, and the seconds until the run ended."""
    stored = instance.get_run_record_by_id(run_id)
    assert stored is not None
    run, zero = stored.dagster_run, stored.create_timestamp.timestamp()
    assert run.execution_plan_snapshot_id is not None
    stats: dict[str, RunStepKeyStatsSnapshot] = {each.step_key: each for each in instance.get_run_step_stats(run_id)}
    pids, told = _told(instance, run_id)
    found = []
    for step in instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id).steps:
        mine = stats.get(step.key)
        if mine is None or mine.start_time is None or mine.end_time is None:
            continue
        needs = {key for each in step.inputs for key in each.upstream_step_keys}
        made = Step(step.key, mine.start_time - zero, mine.end_time - zero, needs, pids.get(step.key))
        made.stages = _stages(made, [(at - zero, text) for at, text in told.get(step.key, [])])
        if cpu is not None and made.pid is not None:
            made.stages = [
                Stage(s.kind, s.name, s.began, s.ended, cpu.of(made.pid, zero + s.began, zero + s.ended))
                for s in made.stages
            ]
        found.append(made)
    return sorted(found, key=lambda step: step.began), (stored.end_time or time.time()) - zero


def _told(instance: dg.DagsterInstance, run_id: str) -> tuple[dict[str, int], dict[str, list[tuple[float, str]]]]:
    """Per step: its process, and what it told, with times since the epoch."""
    pids: dict[str, int] = {}
    told: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for entry in instance.all_logs(run_id):
        event, text = entry.dagster_event, entry.user_message or entry.message or ""
        key = entry.step_key or (event.step_key if event else None)
        captured = re.search(r"pid: (\d+)", text) if event and event.event_type_value == "LOGS_CAPTURED" else None
        if event is not None and captured:
            for each in event.logs_captured_data.step_keys or []:
                pids[each] = int(captured[1])
        elif key:
            told[key].append((entry.timestamp, text))
    return pids, told


def _stages(step: Step, told: Sequence[tuple[float, str]]) -> list[Stage]:
    # An evaluation imports its libraries before it reports that it is there.
    late = step.key.endswith("__evaluation")
    marks = [(step.began, IMPORTS, "libraries are imported") if late else (step.began, OTHER, "before")]
    for at, text in told:
        fits = next(((kind, name) for pattern, kind, name in BEGINS if pattern.search(text)), None)
        if late and fits is not None and fits[0] == IMPORTS:
            fits = (LOADING, "model is loaded")
        if fits is not None and fits[1] != marks[-1][2] and step.began <= at <= step.ended:
            marks.append((at, *fits))
    ends = [at for at, _, _ in marks[1:]] + [step.ended]
    return [Stage(kind, name, at, end) for (at, kind, name), end in zip(marks, ends, strict=True) if end - at >= 0.05]


def critical_path(steps: Sequence[Step]) -> list[Step]:
    """From the step that ended last back to the first: before each, what it waited for longest.

    That is a step that it needs, or, if it began long after those, whatever ended last before it began: it waited for
    the card or for a place among the steps of the run.
    """
    line = [max(steps, key=lambda step: step.ended)]
    while True:
        now = line[-1]
        earlier = [step for step in steps if step.ended <= now.began + 0.5 and step is not now and step not in line]
        needed = [step for step in earlier if step.key in now.needs]
        latest = max(needed, key=lambda step: step.ended, default=None)
        if latest is None or now.began - latest.ended > 2.0:
            latest = max(earlier, key=lambda step: step.ended, default=latest)
        if latest is None:
            return line[::-1]
        line.append(latest)


def as_markdown(steps: Sequence[Step], line: Sequence[Step], seconds: float, cpu: float | None) -> str:
    """The stages of the critical path, with what passed between its steps."""
    rows = ["| step | what | from | seconds | CPU seconds |", "|---|---|---|---|---|"]
    ended = 0.0
    for step in line:
        if step.began - ended >= 0.5:
            rows.append(f"| | *between steps* | {ended:.0f} | {step.began - ended:.1f} | |")
        for stage in step.stages:
            used = "" if stage.cpu is None else f"{stage.cpu:.1f}"
            took = stage.ended - stage.began
            name = stage.name or "all of it"
            if took >= 0.5:
                rows.append(f"| {_short(step.key)} | {name} | {stage.began:.0f} | {took:.1f} | {used} |")
        ended = step.ended
    rows.append(f"| | *after the last step* | {ended:.0f} | {seconds - ended:.1f} | |")
    total = f"**{seconds:.0f} s**, {len(steps)} steps, {len(line)} of them on the critical path"
    if cpu is not None:
        total += f"; {cpu:.0f} CPU seconds, of {seconds * (psutil.cpu_count() or 1):.0f} that the machine's cores had"
    return "\n".join([total, "", *rows])


def as_svg(steps: Sequence[Step], line: Sequence[Step], seconds: float) -> str:
    """One bar per step over the night's seconds; steps on the critical path are framed."""
    left, width, height = 300, 800, 22
    scale = width / max(seconds, 1.0)
    parts = []
    for number, step in enumerate(steps):
        y = 34 + number * height
        weight = "bold" if step in line else "normal"
        parts.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end" font-weight="{weight}">')
        parts.append(f"{escape(_short(step.key))}</text>")
        for stage in step.stages:
            size = max(1.0, (stage.ended - stage.began) * scale)
            parts.append(
                f'<rect x="{left + stage.began * scale:.1f}" y="{y}" width="{size:.1f}" height="15" '
                f'fill="{COLOURS[stage.kind]}"><title>{escape(stage.name)}</title></rect>'
            )
        if step in line:
            size = max(1.0, (step.ended - step.began) * scale)
            parts.append(
                f'<rect x="{left + step.began * scale:.1f}" y="{y}" width="{size:.1f}" height="15" fill="none" '
                'stroke="#b3261e" stroke-width="2"/>'
            )
    bottom = 34 + len(steps) * height
    for at in range(0, int(seconds) + 1, 20 if seconds < 400 else 60):
        x = left + at * scale
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="28" y2="{bottom}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x:.1f}" y="22" text-anchor="middle" fill="#666666">{at} s</text>')
    for number, (kind, colour) in enumerate(COLOURS.items()):
        x = left + number * 120
        parts.append(f'<rect x="{x}" y="{bottom + 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="{bottom + 20}">{kind}</text>')
    parts.append(
        f'<rect x="{left + 480}" y="{bottom + 10}" width="12" height="12" fill="none" stroke="#b3261e" '
        f'stroke-width="2"/><text x="{left + 498}" y="{bottom + 20}">on the critical path</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 30} {bottom + 34}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _short(key: str) -> str:
    return "/".join(key.split("__")[-2:])


def small_project(folder: Path) -> dict[str, str]:
    """A project like the sample with little of everything; returns the environment that chooses it."""
    shutil.copytree(CHECKOUT / "examples", folder / "examples", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    by_stream: dict[str, list[Path]] = defaultdict(list)
    for path in sorted((folder / "examples" / "documents").rglob("*")):
        if path.is_file():
            by_stream[path.relative_to(folder / "examples" / "documents").parts[0]].append(path)
    timeline = json.loads((folder / "examples" / "timeline.json").read_text())
    for path in [path for paths in by_stream.values() for path in paths[2:]]:
        del timeline[path.relative_to(folder / "examples").as_posix()]
        path.unlink()
    (folder / "examples" / "timeline.json").write_text(json.dumps(timeline))
    for recipe in ("engineering", "apprenticeship"):
        path = folder / "examples" / "recipes" / f"{recipe}.yaml"
        text = re.sub(r"  max_rows: .*\n|  epochs: .*\n", "", path.read_text())
        text = text.replace("  max_length: 256", "  max_length: 256\n  max_rows: 16")
        text = text.replace("optimisation:", "optimisation:\n  epochs: 1")
        text = text.replace("sample_generations: 3", "sample_generations: 1\n  max_examples: 4\n  min_examples: 2")
        path.write_text(text)
    deployments = folder / "configs" / "deployments"
    deployments.mkdir(parents=True)
    text = (CHECKOUT / "configs" / "deployments" / "embedded.yaml").read_text()
    text = text.replace("  gold: examples/gold/entities.jsonl\n", "")
    text = text.replace("adapter: ec1/", f"adapter: {CHECKOUT}/ec1/")
    (deployments / "embedded.yaml").write_text(text)
    return {"EC1_PROJECT": str(folder)}


def night_in(home: Path, checkout: Path, chosen: dict[str, str]) -> CpuSampler:
    """Run the sample's night in a home of its own; returns what its processes used."""
    # What is imported is the checkout's, wherever this interpreter has EC1 from.
    env = {**os.environ, "PYTHONPATH": str(checkout), "EC1_HOME": str(home), "EC1_DEPLOYMENT": "embedded", **chosen}
    with (
        subprocess.Popen([sys.executable, "-m", "ec1.cli", "night"], cwd=checkout, env=env, stdout=sys.stderr) as night,
        CpuSampler(night.pid) as cpu,
    ):
        status = night.wait()
    # 3: some documents are left for a later night, as on a busy machine.
    if status not in (0, 3):
        sys.exit(f"the night ended with status {status}")
    return cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, help="of a night that has run")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--checkout", type=Path, default=CHECKOUT)
    parser.add_argument("--run", help="beginning of a run's id; default: the newest")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = arguments.home or Path(scratch) / "home"
        chosen = small_project(Path(scratch) / "project") if arguments.small else {}
        cpu = None if arguments.home else night_in(home, arguments.checkout.resolve(), chosen)
        with prepare_instance(Home(home.resolve())) as instance:
            ids = [run.run_id for run in instance.get_runs() if run.run_id.startswith(arguments.run or "")]
            if not ids:
                sys.exit(f"{home} has no such run")
            steps, seconds = steps_of(instance, ids[0], cpu)
    line = critical_path(steps)
    print(as_markdown(steps, line, seconds, None if cpu is None else cpu.total))
    if arguments.svg:
        arguments.svg.write_text(as_svg(steps, line, seconds))
    if arguments.json:
        rows = [
            {"step": step.key, "critical": step in line, "stages": [vars(s) for s in step.stages]} for step in steps
        ]
        used = None if cpu is None else cpu.total
        arguments.json.write_text(json.dumps({"seconds": seconds, "cpu_seconds": used, "steps": rows}, indent=1))


if __name__ == "__main__":
    main()
