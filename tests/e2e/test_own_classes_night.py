"""A night of a deployment with streams of its own, of PDF and Word files too, and two classes of its own beside some of
the contract's: real engine, model and graph."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import written
from commandline import CommandLine

from ec1.home import Home

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
NIGHT = "2026-06-05"
DEPLOYMENT = """
tenant: acme
documents:
  streams:
    minutes: {{folder: minutes, id_prefix: mi, owner: "team:harbour"}}
    inbox: {{folder: post/in}}
recipes: []
models:
  {model}: {{source: directory, path: {folder}}}
inference: {{kind: vllm, model: {model}, max_model_len: 2048, max_num_seqs: 8, enforce_eager: true}}
extraction:
  chunk_tokens: 90
  overlap_tokens: 12
  max_answer_tokens: 200
  mode: decide
  adapter: ec1/extraction/shipped
  gold: gold.jsonl
  classes:
    - Person
    - Company
    - Location
    - name: Ship
      description: a vessel at sea
      examples:
        - "The [Kestrel] left [Port Ellis|Location] with [Ines Duarte|Person] on board."
        - "[Blue Line|Company] bought the vessel [Grey Heron]."
      words: [MV, vessel]
    - name: Statute
      description: a law that was passed
      examples: ["Under the [Pilotage Act 1987] the fee is due in [Graz|Location]."]
      keeps: [laws]
gpu: {{device: cpu, min_free_gib: 1, name: CPU, memory_gib: 12, tokens_per_second: 100}}
schedule: {{enabled: false, first_night: 2026-06-01}}
"""
DOCUMENTS = {
    "minutes/a.md": "Maria Alvarez said that MV Aurora Star left Rotterdam. The vessel Silver Wake waits in Hamburg.",
    "post/in/b.docx": "MV Northern Pearl was inspected under the Merchant Shipping Act 1995. Tom Reyes signed.",
    "post/in/deep/c.PDF": "The Harbour Dues Act 1966 applies to MV Cedar Bay, and to the vessel Blue Marlin of Hoshi.",
}
SHIPS = {"aurora star", "silver wake", "northern pearl", "cedar bay", "blue marlin"}
pytestmark = pytest.mark.system


@dataclass(frozen=True)
class OwnCommandLine(CommandLine):
    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "EC1_PROJECT": str(self.home.root.parent)}

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stdout
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def ec1(project: Path, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> OwnCommandLine:
    """A home in which the night was run."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "configs" / "deployments").mkdir(parents=True)
    (folder / "configs" / "deployments" / "own.yaml").write_text(DEPLOYMENT.format(model=MODEL, folder=small_model))
    documents = folder / "home" / "documents"
    (folder / "gold.jsonl").write_text(
        json.dumps(
            {
                "stream": "minutes",
                "path": "minutes/a.md",
                "entities": [{"name": "Aurora Star", "class": "Ship"}, {"name": "Rotterdam", "class": "Location"}],
            }
        )
    )
    made = OwnCommandLine(project, Home(folder / "home"), "own")
    for name, text in {**DOCUMENTS, "elsewhere/note.txt": "read by nobody", "minutes/song.mp3": "x"}.items():
        path = documents / name
        path.parent.mkdir(parents=True, exist_ok=True)
        suffix = path.suffix.lower()
        data = written.word(text) if suffix == ".docx" else written.pdf(text) if suffix == ".pdf" else text.encode()
        path.write_bytes(data)
        os.utime(path, (1780646400, 1780646400))  # 2026-06-05, 08:00 UTC
    planned = made.run("plan", "--date", NIGHT)
    assert planned.returncode == 0, planned.stdout
    assert "3 to read" in planned.stdout
    assert "2 files that no stream reads: 1 .txt in elsewhere, 1 .mp3 of kinds that EC1 cannot read" in planned.stdout
    assert "a trained extractor (shipped) knows the contract's classes only and is not used" in planned.stdout
    night = made.run("night", "--date", NIGHT)
    assert night.returncode == 0, night.stdout
    return made


def test_the_graph_holds_own_classes_and_no_others(ec1: OwnCommandLine) -> None:
    stats = ec1.json("graph", "stats")
    assert set(stats["entities"]) <= {"Person", "Company", "Location", "Ship", "Statute"}
    ships = ec1.json("graph", "search", "MV", "--class", "Ship")
    # Which of them a model this small misses depends on the processor; all of them it does not.
    assert {each["name"].removeprefix("MV ").lower() for each in ships} & SHIPS
    assert all(each["key"].startswith("Ship:") for each in ships)
    (shown, *_) = ec1.json("graph", "show", ships[0]["key"])
    assert shown["evidence"][0]["quote"]


def test_what_stands_in_a_converted_file_names_its_page_and_its_stream(ec1: OwnCommandLine) -> None:
    rows = ec1.json("graph", "query", "MATCH (d:Document)-[:MENTIONS]->(e:Entity) RETURN d.path AS path, e.key AS key")
    keys = {row["path"]: row["key"] for row in rows}
    assert keys.keys() == DOCUMENTS.keys()
    (shown, *_) = ec1.json("graph", "show", keys["post/in/deep/c.PDF"])
    evidence = next(each for each in shown["evidence"] if each["path"].endswith(".PDF"))
    assert evidence["stream"] == "inbox" and evidence["document_id"].startswith("inbox-")
    assert evidence["quote"]["place"] == "page 1"
    assert evidence["quote"]["name"] in DOCUMENTS["post/in/deep/c.PDF"]


def test_what_is_a_law_is_a_statute_or_nothing(ec1: OwnCommandLine) -> None:
    rows = ec1.json("graph", "query", "MATCH (e:Entity) RETURN e.name AS name, e.entity_class AS class")
    laws = {row["class"] for row in rows if "Act" in row["name"].split()}
    assert laws == {"Statute"}


def test_score_has_a_row_for_each_class_of_the_deployment(ec1: OwnCommandLine) -> None:
    table = ec1.json("score")
    assert set(table) == {"Person", "Company", "Location", "Ship", "Statute", "all", "any class"}
    assert table["Ship"]["gold"] == 1


def test_labels_go_out_and_are_not_taken_for_what_no_extractor_can_learn(ec1: OwnCommandLine, tmp_path: Path) -> None:
    out = ec1.run("extraction", "label", "--out", str(tmp_path / "labels.jsonl"))
    assert out.returncode == 0, out.stdout
    named = [
        each for line in (tmp_path / "labels.jsonl").read_text().splitlines() for each in json.loads(line)["entities"]
    ]
    assert "Ship" in {each["class"] for each in named}
    back = ec1.run("extraction", "label", str(tmp_path / "labels.jsonl"))
    assert back.returncode == 2 and "corrections cannot be learnt" in back.stdout


def test_doctor_says_what_is_looked_for(ec1: OwnCommandLine) -> None:
    findings = {each["subject"]: each["detail"] for each in json.loads(ec1.run("doctor", "--json").stdout)}
    assert findings["classes"].startswith("Person, Company, Location, Ship, Statute")
