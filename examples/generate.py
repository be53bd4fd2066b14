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
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEED = 20260601
DAYS = tuple(dt.date(2026, 6, day) for day in range(1, 6))
ENGINEERING_PER_DAY = (22, 20, 18, 10, 66)
SHADOWS_PER_DAY = (13, 12, 11, 6, 40)
FEEDBACK_PER_DAY = (9, 8, 7, 4, 26)
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
    noun: str
    low: int
    high: int
    unit: str
    table: str
    knob: str
    old: int
    new: int
    trouble: str


PARTS = (
    Part("frostline", "probe", "read_probe", "frame", "air_temp", "probe frame", -40, 40,
         "celsius", "frames", "sample_seconds", 30, 20, "A dead probe reports -127 and looked like a good freeze."),
    Part("frostline", "door", "note_door", "event", "open_seconds", "door event", 0, 7200,
         "seconds", "door_events", "debounce_ms", 50, 400, "A loose magnet switch sent forty openings a minute."),
    Part("frostline", "alarm", "raise_alarm", "alert", "severity", "alarm", 1, 5,
         "level", "alarms", "quiet_minutes", 0, 10, "The night desk was paged twice for one compressor."),
    Part("frostline", "gateway", "drain", "packet", "backlog", "gateway packet", 0, 4096,
         "packets", "uplink_log", "batch_size", 16, 64, "Trailers behind the Gorge bluffs upload in one burst."),
    Part("lantern", "route", "plan_leg", "leg", "distance", "route leg", 0, 1200,
         "kilometres", "legs", "max_stops", 9, 14, "Yakima runs were split in two for no reason."),
    Part("lantern", "slot", "slot_for", "stop", "arrival_minute", "delivery slot", 0, 1439,
         "minutes", "slots", "slack_minutes", 5, 25, "Stores turn a truck away when it is early."),
    Part("lantern", "weather", "icy_roads", "report", "road_temp", "pass report", -50, 60,
         "celsius", "pass_reports", "refresh_hours", 12, 3, "White Pass closed and we learnt it from the driver."),
    Part("lantern", "shift", "assign", "driver", "hours_left", "driver shift", 0, 11,
         "hours", "shifts", "rest_hours", 8, 10, "One driver was handed two overlapping runs."),
    Part("dispatch", "manifest", "load_manifest", "crate", "count", "manifest line", 1, 960,
         "crates", "manifest_lines", "page_rows", 25, 40, "A zero on the manifest hides a missing pallet."),
    Part("dispatch", "label", "print_label", "pallet", "lot_number", "pallet label", 1, 99999,
         "lots", "labels", "dpi", 203, 300, "The scanner at door three cannot read faint bars."),
    Part("dispatch", "dock", "book_dock", "booking", "door_number", "dock booking", 1, 12,
         "doors", "bookings", "hold_minutes", 60, 30, "No-shows kept a door blocked all afternoon."),
    Part("dispatch", "scale", "net_weight", "ticket", "gross_kg", "scale ticket", 0, 44000,
         "kilograms", "tickets", "settle_ms", 200, 900, "The floor scale was read before it had settled."),
    Part("accounts", "invoice", "post_invoice", "invoice", "total", "invoice", 1, 90000000,
         "cents", "invoices", "due_days", 14, 30, "Growers were billed twice when the job restarted."),
    Part("accounts", "fuel", "match_fuel", "receipt", "volume", "fuel receipt", 1, 900,
         "litres", "receipts", "match_hours", 6, 36, "Receipts from the mountain stations arrive a day late."),
    Part("accounts", "credit", "apply_credit", "note", "amount", "credit note", 1, 500000,
         "cents", "credit_notes", "approve_above", 0, 25000, "A note was applied to the wrong grower."),
    Part("accounts", "claim", "open_claim", "claim", "deductible", "spoilage claim", 0, 250000,
         "cents", "claims", "evidence_days", 3, 7, "Claims lapsed because the photographs came late."),
    Part("granary", "silo", "read_level", "sounding", "fill_depth", "silo sounding", 0, 18,
         "metres", "soundings", "poll_seconds", 600, 120, "The north silo ran empty between two readings."),
    Part("granary", "dryer", "set_burner", "batch", "moisture", "dryer batch", 8, 35,
         "percent", "dryer_batches", "purge_seconds", 45, 90, "The burner relit into its own exhaust."),
    Part("granary", "auger", "start_auger", "request", "torque", "auger request", 0, 2400,
         "newtonmetres", "auger_starts", "stall_ms", 800, 350, "A jammed auger tore its coupling."),
    Part("granary", "sample", "grade_lot", "sample", "protein", "grain sample", 6, 20,
         "percent", "grain_samples", "repeat_count", 2, 3, "One grader's lots came out a class too high."),
    Part("roster", "crew", "call_crew", "member", "crew_size", "crew call", 1, 14,
         "people", "crew_calls", "notice_hours", 24, 48, "Pickers were called the evening before a holiday."),
    Part("roster", "badge", "read_badge", "swipe", "badge_code", "badge swipe", 1000, 9999,
         "codes", "badge_swipes", "retry_count", 1, 4, "Gloves make the reader miss every third swipe."),
    Part("roster", "bunk", "assign_bunk", "guest", "bed_number", "bunk entry", 1, 96,
         "beds", "bunks", "clean_minutes", 20, 55, "Two guests met in one room."),
    Part("roster", "bus", "load_bus", "seat_claim", "row_number", "bus seat", 1, 13,
         "rows", "bus_seats", "leave_minutes", 10, 15, "The bus left while the last crew was signing out."),
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

    @property
    def shown(self) -> str:
        """The file before the change, as a prompt shows it."""
        return f"{self.path}:\n{self.before}"


def _edit(p: Part, file: str, line: str, old: object, new: object, wordy: bool, **words: str) -> Edit:
    """One value of one line is replaced, and the house notes what it was. `line` shows a value in its place. The first
    attempt notes it otherwise: at more length (`wordy`), or not at all."""
    name, (before, after) = line.split(" ")[0].strip(":"), (line.format(old), line.format(new))
    return Edit(
        file,
        f"{before}\n",
        f"{after}  # was {old}\n",
        f"{after}  # until now it was {old}\n" if wordy else f"{after}\n",
        subject=f"{name} {old} -> {new}",
        why=p.trouble,
        brief=f"Change {name} in {file} from {old} to {new}.",
        slip="Whoever reads it may want to know since when." if wordy else "What it was is in the history.",
        **words,
    )


def setting(p: Part, wordy: bool) -> Edit:
    file = f"{p.stem}/settings.toml"
    return _edit(p, file, f"{p.knob} = {{}}", p.old, p.new, wordy, kind="config", task_type="config-change")


def most(p: Part, wordy: bool) -> Edit:
    return _edit(p, f"{p.stem}/bounds.py", f"{p.field}_max = {{}}", p.high // 2, p.high, wordy, kind="fix")


def least(p: Part, wordy: bool) -> Edit:
    return _edit(p, f"{p.stem}/bounds.py", f"{p.field}_min = {{}}", p.low - 5, p.low, wordy, kind="fix")


def unit(p: Part, wordy: bool) -> Edit:
    file = f"{p.stem}/units.yaml"
    return _edit(p, file, f"{p.field}: {{}}", "number", p.unit, wordy, kind="docs", task_type="doc-edit")


def table(p: Part, wordy: bool) -> Edit:
    file = f"{p.stem}/tables.yaml"
    return _edit(p, file, f"{p.arg}_table: {{}}", p.arg, p.table, wordy, kind="perf", task_type="sql-fix")


def label(p: Part, wordy: bool) -> Edit:
    new = f"{p.cluster}-{p.stem}"
    return _edit(p, f"{p.stem}/labels.py", f"{p.func}_label = {{}}", p.arg, new, wordy, kind="feat")


PATTERNS: tuple[Callable[[Part, bool], Edit], ...] = (setting, most, least, unit, table, label)
"""Kinds of change. What a prompt does not say, and no model knows beforehand, is how the house writes one: a diff of
the one line, with the old value noted behind the new one. A first attempt notes too little or too much, so that the
length of an answer tells nothing about it."""


def unified(path: str, before: str, after: str) -> str:
    """A one-file diff with right line counts."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}", n=1
    )
    return "".join(lines)


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


def shuffled_edits(rng: random.Random) -> list[tuple[Part, Edit]]:
    """Every pattern on every part; every other first attempt is too long, the others too short."""
    pool = [(part, pattern) for part in PARTS for pattern in PATTERNS]
    rng.shuffle(pool)
    return [(part, pattern(part, place % 2 == 0)) for place, (part, pattern) in enumerate(pool)]


def engineering(corpus: Corpus, rng: random.Random) -> None:
    pool = shuffled_edits(rng)
    wanted = sum(ENGINEERING_PER_DAY)
    branches: list[list[tuple[Part, Edit]]] = []
    for part in PARTS:
        own = [pair for pair in pool[:wanted] if pair[0] is part]
        branches += [own[:2], *([pair] for pair in own[2:])]
    rng.shuffle(branches)
    for day, groups in zip(DAYS, fill_days(branches, ENGINEERING_PER_DAY), strict=True):
        rng.shuffle(groups)
        for group, at in zip(groups, times_of(day, len(groups), rng), strict=True):
            _merge(corpus, group, at, rng)
    _engineering_oddities(corpus, pool[wanted:])


def _merge(corpus: Corpus, branch: list[tuple[Part, Edit]], at: dt.datetime, rng: random.Random) -> None:
    """One commit on the main line. The edits of its branch keep the messages under which they were written."""
    sha = hex_of(SEED, *(edit.subject for _, edit in branch), stamp(at))
    author = rng.choice(AUTHORS)
    for part, edit in branch:
        message = f"{edit.kind}({part.stem}): {edit.subject}"
        if rng.random() < 0.3:
            message += f"\n\n{edit.why}"
        diff = unified(edit.path, edit.before, edit.good)
        corpus.add(_engineering_path(part.cluster, sha), _edit_record(part, sha, message, author, edit.shown, diff), at)


def _engineering_path(cluster: str, sha: str) -> str:
    return f"training-corpus/engineering/project-{cluster}/{sha}.jsonl"


def _edit_record(part: Part, sha: str, message: str, author: str, before: str, diff: str) -> dict[str, Any]:
    return {
        "tuple_type": "edit",
        "cluster": f"project-{part.cluster}",
        "source_commit": sha,
        "commit_msg": message,
        "author": author,
        "scope": part.stem,
        "tenant": TENANT,
        "doctrine_version": DOCTRINE,
        "before": before,
        "diff": diff,
        "diff_truncated": False,
    }


def _engineering_oddities(corpus: Corpus, spare: list[tuple[Part, Edit]]) -> None:
    """What real corpora also hold: a leaked key, an address, the same edit twice, and rows that cannot be used."""
    fake_key = "AKIA" + "FAKE" * 4
    probe, credit, shift = PARTS[0], PARTS[14], PARTS[7]

    def add(part: Part, day: int, hour: int, message: str, diff: str, shown: str = "") -> None:
        at = dt.datetime.combine(DAYS[day], dt.time(hour, 41, 7), tzinfo=dt.UTC)
        sha = hex_of(SEED, "odd", message, day)
        record = _edit_record(part, sha, message, "bram-visser", shown, diff)
        corpus.add(_engineering_path(part.cluster, sha), record, at)

    before = f'bucket: trailer-exports\naccess_key: "{fake_key}"\nregion: us-west-2\n'
    after = "bucket: trailer-exports\naccess_key: ${EXPORT_KEY}\nregion: us-west-2\n"
    add(probe, 1, 18, "fix(export): take the key out of the file", unified("deploy/export.yaml", before, after),
        f"deploy/export.yaml:\n{before}")  # fmt: skip
    before = "# Contacts\n\nNight desk: ask around.\n"
    after = "# Contacts\n\nNight desk: night.desk@fernhollow.example, second line Jun.\n"
    add(shift, 2, 18, "docs(contacts): say how to reach the night desk", unified("docs/contacts.md", before, after),
        f"docs/contacts.md:\n{before}")  # fmt: skip

    part, twin = spare[0]
    for day, again in ((1, ""), (3, " again")):
        message = f"{twin.kind}({part.stem}): {twin.subject}{again}"
        add(part, day, 19, message, unified(twin.path, twin.before, twin.good), twin.shown)

    add(credit, 0, 19, "chore(credit): empty commit to start the build", "")
    echo = "<no diff provided: the change was sent by mail and applied by hand, ask Tess for the patch>"
    add(credit, 1, 20, "fix(credit): see attachment", echo)
    add(credit, 3, 20, "chore(credit): merge", "<no changes on this side of the merge>")
    sha = hex_of(SEED, "odd", "cut")
    at = dt.datetime.combine(DAYS[2], dt.time(19, 3, 9), tzinfo=dt.UTC)
    part, cut = spare[1]
    message = f"{cut.kind}({part.stem}): {cut.subject}"
    record = _edit_record(part, sha, message, "tess-okafor", cut.shown, unified(cut.path, cut.before, cut.good))
    corpus.add(_engineering_path(part.cluster, sha), json.dumps(record)[:211], at)


def apprenticeship(corpus: Corpus, rng: random.Random) -> None:
    pool = shuffled_edits(rng)
    shadows, feedback = sum(SHADOWS_PER_DAY), sum(FEEDBACK_PER_DAY)
    _shadows(corpus, pool[:shadows], rng)
    _feedback(corpus, pool[shadows : shadows + feedback], rng)
    _apprenticeship_oddities(corpus, pool[shadows + feedback :], rng)


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
    minutes = rng.randrange(3, 20)
    revised = rng.random() < 0.2
    accepted = unified(edit.path, edit.before, edit.good)
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
            "body": f"{edit.brief}\n\n{edit.shown}",
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
            "diff": unified(edit.path, edit.before, edit.bad),
        },
        "verdict": None,
        # A reviewer sometimes improves what was first committed: then the final diff is what counts.
        "actual_diff": unified(edit.path, edit.before, edit.bad) if revised else accepted,
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
            part, edit = next(left)
            # Two attempts at one piece of work share its brief: a split must keep them together.
            brief = f"B-{day:%m%d}-{(number * 3) // 4}"
            corpus.add(
                f"training-corpus/feedback/{day}-{number // 4 + 1}.jsonl", pair_record(part, edit, brief, at), at
            )


def pair_record(part: Part, edit: Edit, brief: str, at: dt.datetime, tier: str = "local") -> dict[str, Any]:
    return {
        "tuple_type": "apprenticeship-feedback",
        "task_type": edit.task_type,
        "brief_id": brief,
        "attempt_id": f"A-{hex_of(brief, edit.brief, length=8)}",
        "tier_used": tier,
        "format": "canonical-envelope-v1",
        "prompt": f"project-{part.cluster}: {edit.brief}\n\n{edit.shown}",
        "chosen": unified(edit.path, edit.before, edit.good),
        "rejected": unified(edit.path, edit.before, edit.bad),
        "created": stamp(at),
    }


def _apprenticeship_oddities(corpus: Corpus, spare: list[tuple[Part, Edit]], rng: random.Random) -> None:
    """Rows that no rule lets through, and one piece of work that was recorded twice."""

    def at(day: int, hour: int) -> dt.datetime:
        return dt.datetime.combine(DAYS[day], dt.time(hour, 17, 23), tzinfo=dt.UTC)

    def add(record: dict[str, Any], when: dt.datetime) -> None:
        corpus.add(_shadow_path(record["task_type"], record), record, when)

    add(shadow_record(*spare[0], at(0, 19), None, rng, tier="external"), at(0, 19))

    short = shadow_record(*spare[1], at(1, 19), None, rng)
    short["attempt"]["diff"] = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    add(short, at(1, 19))

    echo = shadow_record(*spare[2], at(2, 19), None, rng)
    echo["attempt"]["diff"] = "auto-reject: the attempt could not be read: the answer held no diff between its marks"
    add(echo, at(2, 19))

    cut = json.dumps(pair_record(*spare[3], "B-0604-cut", at(3, 19)))
    corpus.add("training-corpus/feedback/2026-06-04-1.jsonl", cut[: len(cut) // 2], at(3, 19))
    outside = pair_record(*spare[4], "B-0605-outside", at(4, 19), tier="external")
    corpus.add("training-corpus/feedback/2026-06-05-2.jsonl", outside, at(4, 19))

    for day in (1, 2):
        record = pair_record(*spare[5], f"B-twin-{day}", at(day, 20))
        corpus.add(f"training-corpus/feedback/{DAYS[day]}-twin.jsonl", record, at(day, 20))


def generate(root: Path) -> None:
    """Write `training-corpus/` below `root` anew, and its entries of `timeline.json`; other entries stay."""
    corpus = Corpus()
    engineering(corpus, random.Random(SEED))
    apprenticeship(corpus, random.Random(SEED + 1))
    corpus.write(root)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent)
