"""The bundled training corpus: exact formats, enough to train on by each day, no two alike, diffs that are diffs."""

import datetime as dt
import importlib.util
import itertools
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ec1.corpus.tuples import Objective, example_of, group_of, parse_record, trainable
from ec1.errors import RejectedError

EDIT_KEYS = [
    "tuple_type",
    "cluster",
    "source_commit",
    "commit_msg",
    "author",
    "scope",
    "tenant",
    "doctrine_version",
    "before",
    "diff",
    "diff_truncated",
]
SHADOW_KEYS = [
    "tuple_type",
    "doctrine_version",
    "task_type",
    "stage_at_capture",
    "brief",
    "attempt",
    "verdict",
    "actual_diff",
    "final_diff",
    "redaction_class",
    "evidence_class",
    "tenant",
    "cluster",
    "session_id",
    "created",
    "promoted_at",
]
BRIEF_KEYS = [
    "brief_id",
    "created",
    "senior_role",
    "senior_identity",
    "task_type",
    "scope",
    "acceptance_test",
    "doctrine_citations",
    "shadow",
    "body",
]
ATTEMPT_KEYS = [
    "brief_id",
    "attempt_id",
    "created",
    "model",
    "adapter_composition",
    "self_confidence",
    "escalate",
    "inference_ms",
    "tier",
    "cost_usd",
    "reasoning",
    "diff",
]
PAIR_KEYS = [
    "tuple_type",
    "task_type",
    "brief_id",
    "attempt_id",
    "tier_used",
    "format",
    "prompt",
    "chosen",
    "rejected",
    "created",
]
ROLES: dict[str, Objective] = {"engineering": "sft", "apprenticeship": "dpo"}


class Row:
    """One line of the corpus: where it stands, when its file was written, and its record (None if it is broken)."""

    def __init__(self, path: str, written: str, line: str) -> None:
        self.path = path
        self.written = written
        self.role = "engineering" if path.startswith("training-corpus/engineering/") else "apprenticeship"
        try:
            self.record: dict[str, Any] | None = json.loads(line)
        except json.JSONDecodeError:
            self.record = None

    @property
    def reject_reason(self) -> str | None:
        if self.record is None:
            return "not valid JSON"
        try:
            return trainable(parse_record(self.record or {}), ROLES[self.role])
        except RejectedError as error:
            return str(error)

    def texts(self) -> tuple[str, ...]:
        """Prompt and targets, as the training rule reads them."""
        example = example_of(parse_record(self.record or {}), ROLES[self.role])
        return tuple(message["content"] for part in example.values() for message in part if message["role"] != "system")


@pytest.fixture(scope="module")
def rows(project: Path) -> list[Row]:
    root = project / "examples"
    timeline = json.loads((root / "timeline.json").read_text(encoding="utf-8"))
    files = sorted((root / "training-corpus").rglob("*.jsonl"))
    return [
        Row(path, timeline[path], line)
        for path in (file.relative_to(root).as_posix() for file in files)
        for line in (root / path).read_text(encoding="utf-8").splitlines()
    ]


@pytest.fixture(scope="module")
def good(rows: list[Row]) -> dict[str, list[Row]]:
    return {role: [row for row in rows if row.role == role and row.reject_reason is None] for role in ROLES}


def test_every_record_has_exactly_the_keys_of_its_format(rows: list[Row]) -> None:
    for row in rows:
        if row.record is None:
            continue
        kind = row.record["tuple_type"]
        if kind == "edit":
            assert list(row.record) == EDIT_KEYS
            assert re.fullmatch(r"[0-9a-f]{40}", row.record["source_commit"])
            assert row.path == (
                f"training-corpus/engineering/{row.record['cluster']}/{row.record['source_commit']}.jsonl"
            )
        elif kind == "apprenticeship":
            assert list(row.record) == SHADOW_KEYS
            assert list(row.record["brief"]) == BRIEF_KEYS
            assert list(row.record["attempt"]) == ATTEMPT_KEYS
            assert row.record["brief"]["brief_id"] == row.record["attempt"]["brief_id"]
            assert row.path.startswith(f"training-corpus/apprenticeship/{row.record['task_type']}/")
        else:
            assert kind == "apprenticeship-feedback"
            assert list(row.record) == PAIR_KEYS
            assert row.path.startswith("training-corpus/feedback/")


def test_enough_can_be_trained_on_by_each_day(good: dict[str, list[Row]]) -> None:
    for role, wanted in itertools.product(ROLES, ((1, 22), (2, 42), (3, 60), (4, 70), (5, 84))):
        day, least = wanted
        assert sum(row.written < f"2026-06-0{day + 1}" for row in good[role]) >= least, (role, day)


def test_a_few_rows_cannot_be_trained_on_each_for_its_own_reason(rows: list[Row]) -> None:
    for role in ROLES:
        reasons = [row.reject_reason for row in rows if row.role == role and row.reject_reason]
        assert 3 <= len(reasons) <= 5
        assert len(set(reasons)) >= 3, reasons
        assert "not valid JSON" in reasons


def test_a_group_wise_split_has_groups_to_work_with(good: dict[str, list[Row]]) -> None:
    for role, own in good.items():
        groups = Counter(group_of(parse_record(row.record or {})) for row in own)
        assert len(groups) >= 30, role
        assert max(groups.values()) <= 5
        assert sum(count > 1 for count in groups.values()) >= 8, "only groups of several show a leak"


def test_times_agree(rows: list[Row]) -> None:
    for row in rows:
        assert dt.datetime.fromisoformat(row.written).tzinfo is not None
        if row.record and "created" in row.record:
            assert row.record["created"] <= row.written
            assert row.record["created"][:10] == row.written[:10]
        if row.record and "brief" in row.record:
            assert row.record["brief"]["created"] < row.record["attempt"]["created"] < row.record["created"]


def hunk_problems(diff: str) -> Iterator[str]:
    """What keeps a diff from being applied: headers, and line counts that differ from what the hunk holds."""
    heads = re.findall(r"^--- a/(.+)\n\+\+\+ b/(.+)$", diff, flags=re.MULTILINE)
    if len(heads) != 1 or heads[0][0] != heads[0][1]:
        yield "headers"
    hunks = re.split(r"^(@@ .* @@)\n", diff, flags=re.MULTILINE)[1:]
    if not hunks:
        yield "no hunk"
    for head, body in zip(hunks[::2], hunks[1::2], strict=True):
        counts = re.fullmatch(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@", head)
        marks = Counter(line[0] for line in body.splitlines())
        if counts is None or set(marks) - set(" +-") or not marks["+"] + marks["-"]:
            yield head
        elif (int(counts[1] or 1), int(counts[2] or 1)) != (marks[" "] + marks["-"], marks[" "] + marks["+"]):
            yield f"{head}: {marks}"


def test_diffs_apply_structurally(good: dict[str, list[Row]]) -> None:
    for row in itertools.chain(*good.values()):
        for diff in row.texts()[1:]:
            assert not list(hunk_problems(diff)), (row.path, diff)


def test_a_prompt_shows_what_the_diff_takes_away(good: dict[str, list[Row]]) -> None:
    for row in itertools.chain(*good.values()):
        prompt, *diffs = row.texts()
        for diff in diffs:
            taken = re.findall(r"(?m)^-(?!--)(.+)$", diff)
            assert taken and all(line in prompt.splitlines() for line in taken if "KEY" not in line), row.path


def test_which_of_two_is_chosen_cannot_be_told_from_length_or_from_the_prompt(good: dict[str, list[Row]]) -> None:
    def overlap(prompt: str, answer: str) -> float:
        words = set(re.findall(r"\w+", answer))
        return len(words & set(re.findall(r"\w+", prompt))) / len(words)

    pairs = [row.texts() for row in good["apprenticeship"]]
    shorter = sum(len(chosen) < len(rejected) for _, chosen, rejected in pairs)
    longer = sum(len(chosen) > len(rejected) for _, chosen, rejected in pairs)
    assert abs(shorter - longer) <= 0.15 * len(pairs), (shorter, longer)
    closer = sum(overlap(prompt, chosen) > overlap(prompt, rejected) for prompt, chosen, rejected in pairs)
    assert 0.35 <= closer / len(pairs) <= 0.65, closer


def shingles(row: Row) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+|[^\w\s]", " ".join(row.texts()))
    return set(zip(words, words[1:], words[2:], strict=False))


def test_no_two_are_alike_but_the_planted_twins(good: dict[str, list[Row]]) -> None:
    for role, own in good.items():
        sets = [shingles(row) for row in own]
        alike = [
            (own[i].path, own[j].path)
            for i, j in itertools.combinations(range(len(own)), 2)
            if len(sets[i] & sets[j]) > 0.8 * len(sets[i] | sets[j])
        ]
        assert len(alike) == 1, (role, alike)


def test_one_fake_secret_and_one_address_are_planted(rows: list[Row]) -> None:
    lines = [json.dumps(row.record) for row in rows]
    assert sum("AKIA" + "FAKE" * 4 in line for line in lines) == 1
    assert sum("@fernhollow.example" in line for line in lines) == 1


@pytest.mark.slow
def test_rows_are_short_enough_to_train_on_a_small_machine(small_model: Path, good: dict[str, list[Row]]) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(small_model)
    lengths = {
        role: sorted([len(tokenizer(text)["input_ids"]) for text in row.texts()] for row in own)
        for role, own in good.items()
    }
    assert all(sum(row) <= 190 for row in lengths["engineering"])
    assert all(max(row[1:]) <= 130 and row[0] <= 60 for row in lengths["apprenticeship"])


def test_the_generator_reproduces_the_committed_files(project: Path, tmp_path: Path) -> None:
    committed = project / "examples"
    spec = importlib.util.spec_from_file_location("generate_sample", committed / "generate.py")
    assert spec is not None
    generator = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(generator)
    shutil.copy(committed / "timeline.json", tmp_path)
    generator.generate(tmp_path)

    def files(root: Path) -> dict[str, bytes]:
        paths = [root / "timeline.json", *(root / "training-corpus").rglob("*.jsonl")]
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}

    assert files(tmp_path) == files(committed)
