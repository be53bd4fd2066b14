"""Writes the sample's training corpus: `training-corpus/` and its share of `timeline.json`.

Belongs here: the small code base that Fernhollow's developers edit, and the ways in which they edit it. Does not: the
documents and the gold file, which are written by hand. `python examples/generate.py` reproduces the committed files.
Record formats: engineering edits, apprenticeship shadows and feedback pairs, one JSON object a line.
"""

import datetime as dt
import difflib
import hashlib
import json
import random
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEED = 20260601
DAYS = tuple(dt.date(2026, 6, day) for day in range(1, 6))
ENGINEERING_PER_DAY = (22, 20, 18, 10, 14)
SHADOWS_PER_DAY = (13, 12, 11, 6, 8)
FEEDBACK_PER_DAY = (9, 8, 7, 4, 6)
AUTHORS = ("leila-haddad", "jun-morikawa", "tess-okafor", "bram-visser")
DOCTRINE = "0.0.13"
TENANT = "fernhollow"


@dataclass(frozen=True)
class Part:
    """One corner of the code base: a module, what it handles, and the words that its edits use."""

    cluster: str
    stem: str
    func: str
    arg: str
    field: str
    call: str
    noun: str
    low: int
    high: int
    unit: str
    table: str
    knob: str
    old: int
    new: int
    trouble: str

    @property
    def a_noun(self) -> str:
        return f"{'an' if self.noun[0] in 'aeiou' else 'a'} {self.noun}"

    @property
    def module(self) -> str:
        return f"{self.cluster}/{self.stem}.py"


PARTS = (
    Part("frostline", "probe", "read_probe", "frame", "air_temp", "bus.publish(frame)", "probe frame", -40, 40,
         "celsius", "frames", "sample_seconds", 30, 20, "A dead probe reports -127 and looked like a good freeze."),
    Part("frostline", "door", "note_door", "event", "open_seconds", "history.push(event)", "door event", 0, 7200,
         "seconds", "door_events", "debounce_ms", 50, 400, "A loose magnet switch sent forty openings a minute."),
    Part("frostline", "alarm", "raise_alarm", "alert", "severity", "pager.send(alert)", "alarm", 1, 5,
         "level", "alarms", "quiet_minutes", 0, 10, "The night desk was paged twice for one compressor."),
    Part("frostline", "gateway", "drain", "packet", "backlog", "uplink.post(packet)", "gateway packet", 0, 4096,
         "packets", "uplink_log", "batch_size", 16, 64, "Trailers behind the Gorge bluffs upload in one burst."),
    Part("lantern", "route", "plan_leg", "leg", "distance", "solver.cost(leg)", "route leg", 0, 1200,
         "kilometres", "legs", "max_stops", 9, 14, "Yakima runs were split in two for no reason."),
    Part("lantern", "slot", "slot_for", "stop", "arrival_minute", "calendar.place(stop)", "delivery slot", 0, 1439,
         "minutes", "slots", "slack_minutes", 5, 25, "Stores turn a truck away when it is early."),
    Part("lantern", "weather", "icy_roads", "report", "road_temp", "passes.close(report)", "pass report", -50, 60,
         "celsius", "pass_reports", "refresh_hours", 12, 3, "White Pass closed and we learnt it from the driver."),
    Part("lantern", "shift", "assign", "driver", "hours_left", "roster.take(driver)", "driver shift", 0, 11,
         "hours", "shifts", "rest_hours", 8, 10, "One driver was handed two overlapping runs."),
    Part("dispatch", "manifest", "load_manifest", "crate", "count", "bay.stow(crate)", "manifest line", 1, 960,
         "crates", "manifest_lines", "page_rows", 25, 40, "A zero on the manifest hides a missing pallet."),
    Part("dispatch", "label", "print_label", "pallet", "lot", "printer.feed(pallet)", "pallet label", 1, 99999,
         "lots", "labels", "dpi", 203, 300, "The scanner at door three cannot read faint bars."),
    Part("dispatch", "dock", "book_dock", "booking", "door", "board.reserve(booking)", "dock booking", 1, 12,
         "doors", "bookings", "hold_minutes", 60, 30, "No-shows kept a door blocked all afternoon."),
    Part("dispatch", "scale", "net_weight", "ticket", "gross_kg", "tare.subtract(ticket)", "scale ticket", 0, 44000,
         "kilograms", "tickets", "settle_ms", 200, 900, "The floor scale was read before it had settled."),
    Part("accounts", "invoice", "post_invoice", "invoice", "total", "journal.enter(invoice)", "invoice", 1, 90000000,
         "cents", "invoices", "due_days", 14, 30, "Growers were billed twice when the job restarted."),
    Part("accounts", "fuel", "match_fuel", "receipt", "volume", "cards.settle(receipt)", "fuel receipt", 1, 900,
         "litres", "receipts", "match_hours", 6, 36, "Receipts from the mountain stations arrive a day late."),
    Part("accounts", "credit", "apply_credit", "note", "amount", "balance.lower(note)", "credit note", 1, 500000,
         "cents", "credit_notes", "approve_above", 0, 25000, "A note was applied to the wrong grower."),
    Part("accounts", "claim", "open_claim", "claim", "deductible", "insurer.file(claim)", "spoilage claim", 0, 250000,
         "cents", "claims", "evidence_days", 3, 7, "Claims lapsed because the photographs came late."),
)  # fmt: skip


@dataclass(frozen=True)
class Edit:
    """One change of one file: what stood there, what the reviewer accepted, and what a first attempt made of it."""

    path: str
    before: str
    good: str
    bad: str
    kind: str
    subject: str
    why: str
    brief: str
    slip: str
    task_type: str = "git-commit"


def guard(p: Part) -> Edit:
    head = f"def {p.func}({p.arg}):\n"
    tail = f"    return {p.call}\n"
    check = f"    if not {p.low} <= {p.arg}.{p.field} <= {p.high}:\n"
    fault = f'        raise ValueError(f"{p.field} {{{p.arg}.{p.field}}} is out of range")\n'
    return Edit(
        p.module, head + tail, head + check + fault + tail, head + f"    assert {p.arg}.{p.field}\n" + tail,
        "fix", f"refuse {p.a_noun} outside {p.low}..{p.high}", p.trouble,
        f"{p.func} accepts any {p.field}. Refuse values outside {p.low} to {p.high} {p.unit} with an error that names "
        "the value.", "An assert stops bad input.",
    )  # fmt: skip


def retry(p: Part) -> Edit:
    body = f"def {p.func}({p.arg}):\n    return {p.call}\n"
    return Edit(
        p.module, "@retry(attempts=2)\n" + body,
        f'@retry(attempts=5, wait=jittered(1, {p.new}), label="{p.noun}")\n' + body,
        "@retry(attempts=500)\n" + body,
        "fix", f"retry {p.func} with back-off", "Two tries in a row are over before a radio link returns.",
        f"{p.trouble} Let {p.func} try longer when the link drops, with pauses that grow to {p.new} seconds.",
        "More attempts are always safer.",
    )  # fmt: skip


def rename(p: Part) -> Edit:
    short = "".join(word[0] for word in p.func.split("_"))[:2]
    before = f"def {short}(x):\n    return {p.call.replace(p.arg, 'x')}\n\n\nhandlers.add({short})\n"
    good = f"def {p.func}({p.arg}):\n    return {p.call}\n\n\nhandlers.add({p.func})\n"
    return Edit(
        p.module, before, good, good.replace(f"handlers.add({p.func})", f"handlers.add({short})"),
        "refactor", f"call {short}() what it does: {p.func}()", f"Nobody could say what {short} stood for.",
        f"Rename {short} in {p.module} to {p.func} and its parameter to {p.arg}, with every use.",
        "Only the definition has to change.",
    )  # fmt: skip


def logging_call(p: Part) -> Edit:
    before = f'    except LinkDown:\n        print("{p.stem} failed")\n        return None\n'
    good = f'    except LinkDown:\n        log.warning("no link, {p.noun} %s kept", {p.arg}.id)\n        return None\n'
    return Edit(
        p.module, before, good, before.replace("print(", "log.info(").replace("failed", "failed!!!"),
        "fix", f"log which {p.noun} was kept back", "The old line went to a console that nobody sees.",
        f"Replace the print in {p.stem} by a warning that tells the reader which {p.noun} is affected.",
        "Swapping print for a logger is enough.",
    )  # fmt: skip


def type_hints(p: Part) -> Edit:
    kind = p.noun.title().replace(" ", "")
    tail = f"    return sum(item.{p.field} for item in {p.arg}s)\n"
    before = f"def total_{p.unit}({p.arg}s):\n" + tail
    return Edit(
        p.module, before, f"def total_{p.unit}({p.arg}s: Iterable[{kind}]) -> int:\n" + tail,
        f"def total_{p.unit}({p.arg}s: Any = None) -> Any:\n" + tail,
        "chore", f"type total_{p.unit}()", f"A list of {p.field} numbers was passed here once.",
        f"Add type hints to total_{p.unit}: it takes any iterable of {kind} and gives whole {p.unit}.",
        "Any keeps the checker quiet.",
    )  # fmt: skip


def add_test(p: Part) -> Edit:
    name = f"test_{p.stem}_refuses_{p.high + 1}"
    before = f"from {p.cluster}.{p.stem} import {p.func}\n"
    good = (
        f"{before}\n\ndef {name}(make):\n    with pytest.raises(ValueError):\n"
        f"        {p.func}(make({p.field}={p.high + 1}))\n"
    )
    bad = f"{before}\n\ndef {name}(make):\n    {p.func}(make({p.field}={p.high}))\n    assert True\n"
    return Edit(
        f"tests/test_{p.stem}.py", before, good, bad,
        "test", f"hold the upper bound of {p.field}", "The bound was lost once in a merge.",
        f"Add a test which shows that {p.func} raises ValueError for a {p.field} of {p.high + 1}.",
        "The call runs, so the test passes.", "test-add",
    )  # fmt: skip


def sql_parameter(p: Part) -> Edit:
    before = f"    db.execute(f\"SELECT * FROM {p.table} WHERE id = '{{{p.arg}_id}}'\")\n"
    good = f'    db.execute("SELECT * FROM {p.table} WHERE id = ?", [{p.arg}_id])\n'
    bad = f'    {p.arg}_id = {p.arg}_id.replace("\'", "")\n' + before
    return Edit(
        p.module, before, good, bad,
        "fix", f"bind the id when reading {p.table}", "A quote in an id ended the statement early.",
        f"The query on {p.table} pastes {p.arg}_id into the SQL text. Bind it as a parameter.",
        "Removing quotes makes the text safe.", "sql-fix",
    )  # fmt: skip


def config_value(p: Part) -> Edit:
    before = f"{p.stem}:\n  enabled: true\n  {p.knob}: {p.old}\n"
    return Edit(
        f"deploy/{p.cluster}.yaml", before, before.replace(f": {p.old}\n", f": {p.new}\n"),
        f"{p.stem}:\n  enabled: false\n  {p.knob}: {p.old}\n",
        "config", f"{p.knob} {p.old} -> {p.new}", p.trouble,
        f"Set {p.knob} of {p.stem} to {p.new} in the {p.cluster} deployment; leave the rest alone.",
        f"Without {p.stem} the problem is gone.", "config-change",
    )  # fmt: skip


def doc_fix(p: Part) -> Edit:
    before = f"## {p.stem.title()}\n\n`{p.field}` is a number.\n"
    good = f"## {p.stem.title()}\n\n`{p.field}` is in {p.unit}, from {p.low} to {p.high}; others are refused.\n"
    return Edit(
        f"docs/{p.cluster}.md", before, good, f"## {p.stem.title()}\n\n`{p.field}` is a very important number!\n",
        "docs", f"say that {p.field} is in {p.unit}", "Two teams had read it in two ways.",
        f"State the unit and the range of {p.field} in the section on {p.stem}.",
        "Emphasis makes people look it up.", "doc-edit",
    )  # fmt: skip


def with_file(p: Part) -> Edit:
    before = f'    out = open("{p.table}.csv", "a")\n    out.write({p.arg}.row())\n'
    return Edit(
        p.module, before, f'    with open("{p.table}.csv", "a") as out:\n        out.write({p.arg}.row())\n',
        before + "    del out\n",
        "fix", f"close {p.table}.csv after each row", "Rows were missing after a restart.",
        f"The export of {p.a_noun} leaves {p.table}.csv open after row {p.new}. "
        "Close it in every case, also after an error.",
        "Deleting the name closes the file.",
    )  # fmt: skip


def mutable_default(p: Part) -> Edit:
    before = f"def collect_{p.stem}({p.arg}, seen=[]):\n    seen.append({p.arg}.{p.field})\n    return seen\n"
    good = (
        f"def collect_{p.stem}({p.arg}, seen=None):\n    seen = [] if seen is None else seen\n"
        f"    seen.append({p.arg}.{p.field})\n    return seen\n"
    )
    return Edit(
        p.module, before, good, before.replace("return seen", "return list(seen)"),
        "fix", f"collect_{p.stem} starts with its own list", f"Values of {p.field} leaked from one trip to the next.",
        f"collect_{p.stem} remembers {p.field} between calls. Give each call its own list.",
        "Returning a copy hides the shared list.",
    )  # fmt: skip


def narrow_except(p: Part) -> Edit:
    before = f"    try:\n        {p.call}\n    except Exception:\n        pass\n"
    good = f"    try:\n        {p.call}\n    except TimeoutError:\n        pending.append({p.arg})\n"
    return Edit(
        p.module, before, good, before.replace("except Exception:", "except:"),
        "fix", f"queue {p.a_noun} that timed out", "Every other error was swallowed with it.",
        f"{p.stem} hides all errors. Catch only the time-out, and put the {p.noun} on the pending list.",
        "A bare except is shorter.",
    )  # fmt: skip


def utc_time(p: Part) -> Edit:
    before = f"    {p.arg}.at = datetime.now()\n    save({p.arg})\n"
    return Edit(
        p.module, before, f"    {p.arg}.at = datetime.now(UTC)\n    save({p.arg})\n",
        f"    {p.arg}.at = datetime.now() + timedelta(hours=7)\n    save({p.arg})\n",
        "fix", f"stamp each {p.noun} in UTC", "On the night of the clock change an hour came twice.",
        f"The {p.noun} is stamped in local time. Use an aware UTC time.", "Seven hours is the offset to UTC here.",
    )  # fmt: skip


def add_index(p: Part) -> Edit:
    before = f"-- {p.table}\nCREATE TABLE {p.table} (id TEXT, {p.field} INTEGER);\n"
    return Edit(
        f"migrations/{p.cluster}.sql", before,
        before + f"CREATE INDEX {p.table}_by_{p.field} ON {p.table} ({p.field});\n",
        before.replace(f"CREATE TABLE {p.table}", f"DROP TABLE {p.table};\nCREATE TABLE {p.table}"),
        "perf", f"index {p.table} by {p.field}", "The morning report scanned the whole table.",
        f"Reports filter {p.table} by {p.field} and scan every row. Add an index.",
        "A fresh table is fast again.", "sql-fix",
    )  # fmt: skip


def shell_safety(p: Part) -> Edit:
    before = f"#!/bin/bash\ncd $DATA/{p.table}\nrm -f {p.stem}-*.{p.unit}\n"
    good = f'#!/bin/bash\nset -euo pipefail\ncd "$DATA/{p.table}"\nrm -f -- {p.stem}-*.{p.unit}\n'
    return Edit(
        f"bin/tidy-{p.stem}", before, good, before.replace("cd $DATA", "cd $DATA || true; cd $DATA"),
        "fix", f"tidy-{p.stem} stops when its folder is missing", "It once tidied the folder that it was started in.",
        f"When {p.table} is not mounted, tidy-{p.stem} deletes elsewhere. Make it stop, and quote the path.",
        "With true the script never fails.",
    )  # fmt: skip


def one_query(p: Part) -> Edit:
    before = f"    for key in keys:\n        rows.append(db.get_{p.stem}(key))\n    return rows\n"
    return Edit(
        p.module, before, f"    return db.get_{p.stem}_many(keys)\n",
        before.replace("    return rows", "        time.sleep(0.1)\n    return rows"),
        "perf", f"read all {p.table} in one query", f"A page of {p.new} rows made {p.new} round trips.",
        f"{p.trouble} To see it sooner, read the {p.table} of a page in one query, not row by row.",
        "A pause spares the database.",
    )  # fmt: skip


def off_by_one(p: Part) -> Edit:
    before = f"    for n in range(1, len({p.table})):\n        check({p.table}[n].{p.field})\n"
    return Edit(
        p.module, before, f"    for {p.arg} in {p.table}:\n        check({p.arg}.{p.field})\n",
        before.replace(f"len({p.table})", f"len({p.table}) + 1"),
        "fix", f"check the first {p.noun} too", "The loop began at one.",
        f"The first {p.noun} of every batch is never checked. Check all of them.",
        "The loop ends one too early.",
    )  # fmt: skip


def changelog(p: Part) -> Edit:
    before = "## Unreleased\n\n- Nothing yet.\n"
    good = f"## Unreleased\n\n- {p.stem}: `{p.knob}` is now {p.new} (was {p.old}). {p.trouble}\n"
    return Edit(
        "CHANGELOG.md", before, good, before + f"- Improved {p.stem} in various ways.\n",
        "docs", f"note the new {p.knob}", "Operators read this file before they update.",
        f"Write the change of {p.knob} from {p.old} to {p.new} into the changelog, with its reason.",
        "Details would only confuse.", "doc-edit",
    )  # fmt: skip


def missing_key(p: Part) -> Edit:
    before = f'    {p.knob} = settings["{p.knob}"]\n    return run({p.knob})\n'
    return Edit(
        p.module, before, f'    {p.knob} = settings.get("{p.knob}", {p.new})\n    return run({p.knob})\n',
        f'    {p.knob} = settings.get("{p.knob}")\n    return run({p.knob} or None)\n',
        "fix", f"{p.knob} is optional, default {p.new}", "Old trailers still send settings without it.",
        f"{p.stem} stops with KeyError when the settings lack {p.knob}. Fall back to {p.new}.",
        "None means that nothing is set.",
    )  # fmt: skip


def named_constant(p: Part) -> Edit:
    before = f"def too_much({p.arg}):\n    return {p.arg}.{p.field} > {p.high}\n"
    name = f"MAX_{p.unit.upper()}"
    return Edit(
        p.module, before, f"{name} = {p.high}\n\n\ndef too_much({p.arg}):\n    return {p.arg}.{p.field} > {name}\n",
        before.replace(str(p.high), str(p.high // 2)),
        "refactor", f"give the limit of {p.high} {p.unit} a name", f"It stood in three places of {p.stem}.",
        f"Name the limit {p.high} in {p.module} as {name}; behaviour stays the same.",
        "A smaller limit is on the safe side.",
    )  # fmt: skip


def idempotent(p: Part) -> Edit:
    before = f"    {p.call}\n    mark_done({p.arg}.id)\n"
    good = f"    if is_done({p.arg}.id):\n        return\n    {p.call}\n    mark_done({p.arg}.id)\n"
    return Edit(
        p.module, before, good, f"    mark_done({p.arg}.id)\n    {p.call}\n",
        "fix", f"do not handle {p.a_noun} twice", p.trouble,
        f"A restart handles the same {p.noun} again. Skip what is done; never mark it before it is.",
        "Marking first prevents the repeat.",
    )  # fmt: skip


def json_field(p: Part) -> Edit:
    before = f'    return {{"id": {p.arg}.id, "value": {p.arg}.{p.field}}}\n'
    good = f'    return {{"id": {p.arg}.id, "{p.field}": {p.arg}.{p.field}, "unit": "{p.unit}"}}\n'
    return Edit(
        p.module, before, good, before.replace('"value"', '"v"'),
        "feat", f"send {p.field} with its unit", "Readers of the feed had to guess.",
        f"The feed sends a bare value for each {p.noun}. Name the field {p.field} and add its unit.",
        "A shorter key saves bytes.",
    )  # fmt: skip


PATTERNS: tuple[Callable[[Part], Edit], ...] = (
    guard, retry, rename, logging_call, type_hints, add_test, sql_parameter, config_value, doc_fix, with_file,
    mutable_default, narrow_except, utc_time, add_index, shell_safety, one_query, off_by_one, changelog, missing_key,
    named_constant, idempotent, json_field,
)  # fmt: skip


def unified(path: str, before: str, after: str, offset: int = 0, git_line: bool = True) -> str:
    """A one-file diff with right line counts; `offset` is the number of lines of the file above the excerpt."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}", n=1
    )
    text = "".join(lines)
    text = re.sub(
        r"^@@ -(\d+)(\S*) \+(\d+)(\S*) @@$",
        lambda hunk: f"@@ -{int(hunk[1]) + offset}{hunk[2]} +{int(hunk[3]) + offset}{hunk[4]} @@",
        text,
        flags=re.MULTILINE,
    )
    return f"diff --git a/{path} b/{path}\n{text}" if git_line else text


def lines_above(path: str, rng: random.Random) -> int:
    """How far down its file an excerpt stands: scripts are whole, a changelog and imports open the file."""
    top = {"bin": 0, "CHANGELOG.md": 2, "tests": 1}
    return top.get(path.split("/")[0], rng.randrange(4, 120))


def hex_of(*parts: object, length: int = 40) -> str:
    return hashlib.sha1("/".join(map(str, parts)).encode(), usedforsecurity=False).hexdigest()[:length]


def stamp(moment: dt.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def times_of(day: dt.date, count: int, rng: random.Random) -> list[dt.datetime]:
    """`count` different moments of a working day, in order."""
    start = dt.datetime.combine(day, dt.time(8), tzinfo=dt.UTC)
    return [start + dt.timedelta(seconds=second) for second in sorted(rng.sample(range(10 * 3600), count))]


def fill_days(groups: Sequence[list[Any]], per_day: Sequence[int]) -> list[list[list[Any]]]:
    """Deal groups out so that the groups of day i hold exactly per_day[i] items; a group is never torn."""
    left = sorted(groups, key=len, reverse=True)
    days: list[list[list[Any]]] = []
    for day, wanted in enumerate(per_day):
        chosen: list[list[Any]] = []
        # A steady share of the large groups each day, the small ones to fill up.
        for group in left[day % 2 :: 2] + left[1 - day % 2 :: 2]:
            if len(group) <= wanted - sum(map(len, chosen)):
                chosen.append(group)
        if sum(map(len, chosen)) != wanted:
            raise ValueError(f"day {day} cannot be filled with exactly {wanted}")
        left = [group for group in left if not any(group is taken for taken in chosen)]
        days.append(chosen)
    return days


class Corpus:
    """Collects lines and times, then writes them."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.times: dict[str, dt.datetime] = {}

    def add(self, path: str, record: dict[str, Any] | str, at: dt.datetime) -> None:
        """Append a record (or, for a planted damage, a raw line); the file was last written at the latest `at`."""
        line = record if isinstance(record, str) else json.dumps(record, ensure_ascii=False)
        self.lines.setdefault(path, []).append(line)
        self.times[path] = max(at, self.times.get(path, at))

    def write(self, root: Path) -> None:
        shutil.rmtree(root / "training-corpus", ignore_errors=True)
        for path, lines in self.lines.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        timeline = root / "timeline.json"
        known = json.loads(timeline.read_text(encoding="utf-8")) if timeline.exists() else {}
        known = {path: at for path, at in known.items() if not path.startswith("training-corpus/")}
        known |= {path: stamp(at) for path, at in self.times.items()}
        timeline.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def edits_of_class(remainder: int) -> list[tuple[Part, Edit]]:
    """A quarter of all combinations: each pattern on four parts, one of each cluster."""
    return [
        (part, pattern(part))
        for number, part in enumerate(PARTS)
        for index, pattern in enumerate(PATTERNS)
        if (number - index) % 4 == remainder
    ]


def engineering(corpus: Corpus, rng: random.Random) -> None:
    pool = edits_of_class(0)[: sum(ENGINEERING_PER_DAY)]
    commits: list[list[tuple[Part, Edit]]] = []
    for part in PARTS:
        own = [pair for pair in pool if pair[0] is part]
        rng.shuffle(own)
        for size in (2, 1, 1, 1, 1) if part.stem in ("alarm", "route", "label", "fuel") else (3, 1, 2):
            commits.append(own[:size])
            own = own[size:]
    commits = [commit for commit in commits if commit]
    rng.shuffle(commits)
    for day, groups in zip(DAYS, fill_days(commits, ENGINEERING_PER_DAY), strict=True):
        rng.shuffle(groups)
        for group, at in zip(groups, times_of(day, len(groups), rng), strict=True):
            _commit(corpus, group, at, rng)
    _engineering_oddities(corpus)


def _commit(corpus: Corpus, group: list[tuple[Part, Edit]], at: dt.datetime, rng: random.Random) -> None:
    part, first = group[0]
    message = f"{first.kind}({part.stem}): {first.subject}"
    if len(group) > 1:
        message += "\n\n" + "\n".join(f"- {edit.subject}" for _, edit in group[1:])
    elif rng.random() < 0.6:
        message += f"\n\n{first.why}"
    sha = hex_of(SEED, message, stamp(at))
    author = rng.choice(AUTHORS)
    for _, edit in group:
        diff = unified(edit.path, edit.before, edit.good, lines_above(edit.path, rng))
        corpus.add(_engineering_path(part.cluster, sha), _edit_record(part, sha, message, author, diff), at)


def _engineering_path(cluster: str, sha: str) -> str:
    return f"training-corpus/engineering/project-{cluster}/{sha}.jsonl"


def _edit_record(part: Part, sha: str, message: str, author: str, diff: str) -> dict[str, Any]:
    return {
        "tuple_type": "edit",
        "cluster": f"project-{part.cluster}",
        "source_commit": sha,
        "commit_msg": message,
        "author": author,
        "scope": part.stem,
        "tenant": TENANT,
        "doctrine_version": DOCTRINE,
        "diff": diff,
        "diff_truncated": False,
    }


def _engineering_oddities(corpus: Corpus) -> None:
    """What real corpora also hold: a leaked key, an address, the same edit twice, and rows that cannot be used."""
    fake_key = "AKIA" + "FAKE" * 4
    probe, scale, credit, shift = PARTS[0], PARTS[11], PARTS[14], PARTS[7]

    def add(part: Part, day: int, hour: int, message: str, diff: str) -> None:
        at = dt.datetime.combine(DAYS[day], dt.time(hour, 41, 7), tzinfo=dt.UTC)
        sha = hex_of(SEED, "odd", message, day)
        corpus.add(_engineering_path(part.cluster, sha), _edit_record(part, sha, message, "bram-visser", diff), at)

    before = f'bucket: trailer-exports\naccess_key: "{fake_key}"\nregion: us-west-2\n'
    after = "bucket: trailer-exports\naccess_key: ${EXPORT_KEY}\nregion: us-west-2\n"
    add(probe, 1, 18, "fix(export): take the key out of the file", unified("deploy/export.yaml", before, after))
    before = "# Contacts\n\nNight desk: ask around.\n"
    after = "# Contacts\n\nNight desk: night.desk@fernhollow.example, second line Jun.\n"
    add(shift, 2, 18, "docs(contacts): say how to reach the night desk", unified("docs/contacts.md", before, after))

    twin = guard(scale)
    for day, message in ((1, "refuse impossible weights"), (3, "refuse impossible weights again")):
        add(scale, day, 19, f"fix(scale): {message}", unified(twin.path, twin.before, twin.good, 16 + day))

    add(credit, 0, 19, "chore(credit): empty commit to start the build", "")
    echo = "<no diff provided: the change was sent by mail and applied by hand, ask Tess for the patch>"
    add(credit, 1, 20, "fix(credit): see attachment", echo)
    add(credit, 3, 20, "chore(credit): merge", "<no changes on this side of the merge>")
    sha = hex_of(SEED, "odd", "cut")
    at = dt.datetime.combine(DAYS[2], dt.time(19, 3, 9), tzinfo=dt.UTC)
    note = one_query(PARTS[14])
    record = _edit_record(PARTS[14], sha, "perf(credit): read in one query", "tess-okafor", unified(
        note.path, note.before, note.good, 60))  # fmt: skip
    corpus.add(_engineering_path("accounts", sha), json.dumps(record)[:211], at)


def apprenticeship(corpus: Corpus, rng: random.Random) -> None:
    pool = [pair for pair in edits_of_class(2)]
    rng.shuffle(pool)
    shadows, pairs = pool[: sum(SHADOWS_PER_DAY)], pool[sum(SHADOWS_PER_DAY) :]
    pairs = pairs[: sum(FEEDBACK_PER_DAY)]
    _shadows(corpus, shadows, rng)
    _feedback(corpus, pairs, rng)
    _apprenticeship_oddities(corpus, rng)


def _shadows(corpus: Corpus, pool: list[tuple[Part, Edit]], rng: random.Random) -> None:
    left = iter(pool)
    for day, count in zip(DAYS, SHADOWS_PER_DAY, strict=True):
        session = 0
        for number, at in enumerate(times_of(day, count, rng)):
            part, edit = next(left)
            # Sessions of one to three briefs; every sixth brief was given outside any session.
            session += number % 5 in (0, 2, 3)
            name = None if number % 6 == 5 else f"S-{day:%m%d}-{session}"
            record = shadow_record(part, edit, at, name, rng)
            corpus.add(_shadow_path(edit.task_type, record), record, at)


def _shadow_path(task_type: str, record: dict[str, Any]) -> str:
    stem = (record["session_id"] or record["brief"]["brief_id"]).lower()
    return f"training-corpus/apprenticeship/{task_type}/{stem}.jsonl"


def shadow_record(
    part: Part, edit: Edit, at: dt.datetime, session: str | None, rng: random.Random, tier: str = "local"
) -> dict[str, Any]:
    brief_id = f"B-{hex_of(SEED, edit.brief, stamp(at), length=8)}"
    offset = lines_above(edit.path, rng)
    minutes = rng.randrange(3, 20)
    revised = rng.random() < 0.2
    accepted = unified(edit.path, edit.before, edit.good, offset)
    return {
        "tuple_type": "apprenticeship",
        "doctrine_version": DOCTRINE,
        "task_type": edit.task_type,
        "stage_at_capture": "review",
        "brief": {
            "brief_id": brief_id,
            "created": stamp(at - dt.timedelta(minutes=minutes + 1)),
            "senior_role": "master",
            "senior_identity": rng.choice(AUTHORS),
            "task_type": edit.task_type,
            "scope": {"cluster": f"project-{part.cluster}", "files": [edit.path]},
            "acceptance_test": "",
            "doctrine_citations": [],
            "shadow": True,
            "body": edit.brief,
        },
        "attempt": {
            "brief_id": brief_id,
            "attempt_id": f"A-{hex_of(brief_id, 'attempt', length=8)}",
            "created": stamp(at - dt.timedelta(minutes=1)),
            "model": "olmo",
            "adapter_composition": [],
            "self_confidence": round(rng.uniform(0.4, 0.95), 2),
            "escalate": False,
            "inference_ms": rng.randrange(600, 5200),
            "tier": tier,
            "cost_usd": 0.0,
            "reasoning": edit.slip,
            "diff": unified(edit.path, edit.before, edit.bad, offset),
        },
        "verdict": None,
        # A reviewer sometimes improves what was first committed: then the final diff is what counts.
        "actual_diff": unified(edit.path, edit.before, edit.bad, offset) if revised else accepted,
        "final_diff": accepted if revised else None,
        "redaction_class": "internal",
        "evidence_class": "primary",
        "tenant": TENANT,
        "cluster": f"project-{part.cluster}",
        "session_id": session,
        "created": stamp(at),
        "promoted_at": None,
    }


def _feedback(corpus: Corpus, pool: list[tuple[Part, Edit]], rng: random.Random) -> None:
    left = iter(pool)
    for day, count in zip(DAYS, FEEDBACK_PER_DAY, strict=True):
        for number, at in enumerate(times_of(day, count, rng)):
            _, edit = next(left)
            # Two attempts at one piece of work share its brief: a split must keep them together.
            brief = f"B-{day:%m%d}-{(number * 3) // 4}"
            corpus.add(f"training-corpus/feedback/{day}-{number // 4 + 1}.jsonl", pair_record(edit, brief, at, rng), at)


def pair_record(edit: Edit, brief: str, at: dt.datetime, rng: random.Random, tier: str = "local") -> dict[str, Any]:
    offset = lines_above(edit.path, rng)
    return {
        "tuple_type": "apprenticeship-feedback",
        "task_type": edit.task_type,
        "brief_id": brief,
        "attempt_id": f"A-{hex_of(brief, edit.brief, length=8)}",
        "tier_used": tier,
        "format": "canonical-envelope-v1",
        "prompt": f"{edit.path}: {edit.brief}",
        "chosen": unified(edit.path, edit.before, edit.good, offset, git_line=False),
        "rejected": unified(edit.path, edit.before, edit.bad, offset, git_line=False),
        "created": stamp(at),
    }


def _apprenticeship_oddities(corpus: Corpus, rng: random.Random) -> None:
    """Rows that no rule lets through, and one piece of work that was recorded twice."""

    def at(day: int, hour: int) -> dt.datetime:
        return dt.datetime.combine(DAYS[day], dt.time(hour, 17, 23), tzinfo=dt.UTC)

    def add(record: dict[str, Any], when: dt.datetime) -> None:
        corpus.add(_shadow_path(record["task_type"], record), record, when)

    part, edit = PARTS[3], guard(PARTS[3])
    add(shadow_record(part, edit, at(0, 19), None, rng, tier="external"), at(0, 19))

    part, edit = PARTS[7], rename(PARTS[7])
    short = shadow_record(part, edit, at(1, 19), None, rng)
    short["attempt"]["diff"] = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    add(short, at(1, 19))

    part, edit = PARTS[10], add_test(PARTS[10])
    echo = shadow_record(part, edit, at(2, 19), None, rng)
    echo["attempt"]["diff"] = "auto-reject: the attempt could not be read: the answer held no diff between its marks"
    add(echo, at(2, 19))

    cut = json.dumps(pair_record(off_by_one(PARTS[13]), "B-0604-cut", at(3, 19), rng))
    corpus.add("training-corpus/feedback/2026-06-04-1.jsonl", cut[: len(cut) // 2], at(3, 19))
    outside = pair_record(idempotent(PARTS[13]), "B-0605-outside", at(4, 19), rng, tier="external")
    corpus.add("training-corpus/feedback/2026-06-05-2.jsonl", outside, at(4, 19))

    twin = narrow_except(PARTS[4])
    for day in (1, 2):
        record = pair_record(twin, f"B-twin-{day}", at(day, 20), random.Random(day))
        corpus.add(f"training-corpus/feedback/{DAYS[day]}-twin.jsonl", record, at(day, 20))


def generate(root: Path) -> None:
    """Write `training-corpus/` below `root` anew, and its entries of `timeline.json`; other entries stay."""
    corpus = Corpus()
    engineering(corpus, random.Random(SEED))
    apprenticeship(corpus, random.Random(SEED + 1))
    corpus.write(root)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent)
