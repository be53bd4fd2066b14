"""A person whose name stands in documents, tuples and feedback is removed from a home in which a night was run."""

import json
import os
import sqlite3
from pathlib import Path

import pytest
from light import LightCommandLine, light_project
from planted_person import PERSON, SPELLINGS, still_holding
from written import pdf, word

NIGHT, LATER = "2026-06-05", "2026-06-06"
BEFORE = 1_780_000_000
"""28 May 2026, in seconds since 1970."""


def plant(ec1: LightCommandLine, export: Path) -> None:
    notes, corpus = ec1.home.documents / "notes", ec1.home.corpus / "engineering" / "shop"
    notes.mkdir(parents=True)
    corpus.mkdir(parents=True)
    for number, spelling in enumerate(SPELLINGS):
        (notes / f"meeting-{number}.md").write_text(
            f"# Works meeting {number}\n\nMarta Quill opened. {spelling} reported on pump {number}. Ivo Tanner left.\n"
        )
    (notes / "minutes.pdf").write_bytes(pdf("The pump was mended.", f"{PERSON}\nsigned the list."))
    (notes / "letter.docx").write_bytes(word("Dear Ivo,", "Brandt, Ottilie will come.", rows=(("Ottilie", "Brandt"),)))
    for number in range(6):
        (notes / f"other-{number}.md").write_text(f"Sven Lund and Marta Quill met Dora Finch on day {number}.\n")
    rows = [
        {"prompt": f"Which part does machine {n} need, number {n * n}?", "completion": f"Part {n} of drawer {n % 7}."}
        for n in range(40)
    ]
    hers = [
        {"prompt": f"Who keeps drawer {n}?", "completion": f"As far as I know {spelling} keeps drawer {n}."}
        for n, spelling in enumerate(SPELLINGS)
    ]
    (corpus / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows + hers))
    export.write_text("".join(json.dumps(row) + "\n" for row in hers), encoding="utf-8")
    feedback = ec1.home.corpus / "feedback"
    feedback.mkdir()
    pair = {"tuple_type": "apprenticeship-feedback", "prompt": "Who?", "chosen": PERSON * 9, "rejected": "Ivo " * 30}
    (feedback / "a.jsonl").write_text(json.dumps(pair) + "\n")
    for path in (*notes.iterdir(), *ec1.home.corpus.rglob("*")):
        os.utime(path, (BEFORE, BEFORE))


@pytest.mark.soak
def test_a_person_is_gone_after_a_night_and_stays_away(tiny_model: Path, project: Path, tmp_path: Path) -> None:
    ec1 = light_project(tmp_path, project, tiny_model)
    deployment = tmp_path / "configs" / "deployments" / "light.yaml"
    settings = [line for line in deployment.read_text().splitlines() if not line.startswith("sample")]
    settings += ["documents: {streams: {notes: {folder: notes}}}", "graph: {exports: 2}"]
    deployment.write_text("\n".join(settings))
    export = tmp_path / "hers.jsonl"
    plant(ec1, export)
    night = ec1.run("night", "--date", NIGHT)
    assert night.returncode in (0, 3), night.stdout
    (history,) = (ec1.home.dagster / "history" / "runs").glob("????????-*.db")
    with sqlite3.connect(history) as events:
        events.execute("UPDATE event_logs SET event = json_set(event, '$.user_message', ?) WHERE id = 1", [PERSON])
    before = len(still_holding(ec1.home))
    assert before > len(SPELLINGS) + 8

    looked = json.loads(ec1.run("forget", "--person", PERSON, "--dry-run", "--json").stdout)
    assert len(looked["documents"]) == len(SPELLINGS) + 2 and len(looked["tuples"]) == len(SPELLINGS) + 1
    assert len(still_holding(ec1.home)) == before, "looking changes nothing"
    done = ec1.run("forget", "--person", PERSON)
    assert done.returncode == 0, done.stdout
    assert still_holding(ec1.home) == []

    refused = ec1.run("corpus", "import", str(export), "--role", "engineering", "--name", "back")
    assert refused.returncode == 2 and f"{len(SPELLINGS)} was removed on request" in refused.stdout.replace("\n", " ")
    assert list(ec1.home.corpus.rglob("back*")) == []
    # The documents come back as they were, and with one character changed.
    notes = ec1.home.documents / "notes"
    text = f"# Works meeting 0\n\nMarta Quill opened. {PERSON} reported on pump 0. Ivo Tanner left.\n"
    (notes / "again.md").write_text(text)
    (notes / "almost.md").write_text(text.replace("opened", "opens"))
    for path in (notes / "again.md", notes / "almost.md"):
        os.utime(path, (BEFORE, BEFORE))
    later = ec1.run("night", "--date", LATER)
    assert later.returncode in (0, 3), later.stdout
    told = still_holding(ec1.home)
    assert {path.name for path in told} == {"again.md", "almost.md"}, told
    assert "removed on request" in ec1.run("documents", "trace", "notes/almost.md", "--json").stdout
