"""A person whose name stands in documents, tuples and feedback is removed from a home in which a night was run."""

import json
import os
from pathlib import Path

import pytest
from light import LightCommandLine, light_project
from written import pdf, word

NIGHT = "2026-06-05"
BEFORE = 1_780_000_000
"""28 May 2026, in seconds since 1970."""
SPELLINGS = (
    "Ottilie Brandt",
    "OTTILIE BRANDT",
    "ottilie brandt",
    "Ottilie\nBrandt",
    "Ottilie  Brandt",
    "Ottilie\u00a0Brandt",
    "Brandt, Ottilie",
    "Brandt,Ottilie",
    "ottilie.brandt@fernhollow.example",
    "ottilie_brandt",
    "ottilie-brandt",
    "OttilieBrandt",
    "Öttilie Brandt",
    "**Ottilie** Brandt",
    "Ottilie%20Brandt",
)


def plant(ec1: LightCommandLine) -> None:
    notes = ec1.home.documents / "notes"
    notes.mkdir(parents=True)
    for number, spelling in enumerate(SPELLINGS):
        (notes / f"meeting-{number}.md").write_text(
            f"# Works meeting {number}\n\nMarta Quill opened. {spelling} reported on pump {number}. Ivo Tanner agreed.\n"
        )
    (notes / "minutes.pdf").write_bytes(pdf("The pump was mended.", "Ottilie Brandt\nsigned the list."))
    (notes / "letter.docx").write_bytes(word("Dear Ivo,", "Brandt, Ottilie will come.", rows=(("Ottilie", "Brandt"),)))
    for number in range(6):
        (notes / f"other-{number}.md").write_text(f"Sven Lund and Marta Quill met Dora Finch on day {number}.\n")
    corpus = ec1.home.corpus / "engineering" / "shop"
    corpus.mkdir(parents=True)
    rows = [
        {
            "prompt": f"Which part does machine {n} need, number {n * n}?",
            "completion": f"Part {n} of drawer {n % 7}, shelf {n % 5}.",
        }
        for n in range(40)
    ]
    rows += [
        {"prompt": f"Who keeps drawer {n}?", "completion": f"As far as I know {spelling} keeps drawer {n}."}
        for n, spelling in enumerate(SPELLINGS)
    ]
    (corpus / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for path in (*notes.iterdir(), *ec1.home.corpus.rglob("*")):
        os.utime(path, (BEFORE, BEFORE))


@pytest.mark.slow
def test_forgotten(tiny_model: Path, project: Path, tmp_path: Path) -> None:
    ec1 = light_project(tmp_path, project, tiny_model)
    deployment = tmp_path / "configs" / "deployments" / "light.yaml"
    text = deployment.read_text()
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("sample"))
    deployment.write_text(text + "documents: {streams: {notes: {folder: notes}}}\ngraph: {exports: 2}\n")
    plant(ec1)
    night = ec1.run("night", "--date", NIGHT)
    print(night.stdout)
    assert night.returncode in (0, 3), night.stdout
