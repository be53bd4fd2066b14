"""The bundled documents: their formats, their spread over the week, and the gold entities that stand in them."""

import base64
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from ruamel.yaml import YAML

from ec1.extraction.results import ENTITY_CLASSES
from ec1.streams import CONTRACT_STREAMS


def plain(text: str) -> str:
    """Text with every run of white space as one space: names may be broken across lines."""
    return re.sub(r"\s+", " ", text)


def front_matter(text: str) -> tuple[dict[str, Any] | None, str]:
    found = re.match(r"---\n(.*?)\n---\n", text, flags=re.DOTALL)
    if not found:
        return None, text
    return YAML(typ="safe", pure=True).load(found[1]), text[found.end() :]


def contact_text(record: dict[str, Any]) -> tuple[str, str]:
    """(shape, text) of a contact file."""
    keys = [key for key in ("corpus", "body", "text", "file") if key in record]
    assert len(keys) == 1
    if keys != ["file"]:
        return keys[0], record[keys[0]]
    assert record["file"]["filename"]
    mime, data = re.fullmatch(r"data:([a-z/]+)(?:;charset=utf-8)?;base64,(.+)", record["file"]["data"]).groups()
    text = base64.b64decode(data, validate=True).decode()
    if mime == "text/html":
        soup = BeautifulSoup(text, "html.parser")
        for tag in soup(["script", "style"]):
            tag.decompose()
        text = soup.get_text(" ")
    return mime, text


@pytest.fixture(scope="module")
def documents(project: Path) -> dict[tuple[str, str], str]:
    """The text of every document, by stream and path."""
    root = project / "examples" / "documents"
    texts = {}
    for name, stream in CONTRACT_STREAMS.items():
        for path in sorted((root / stream.folder).rglob("*")):
            if path.is_file():
                assert path.suffix in stream.suffixes
                raw = path.read_text(encoding="utf-8")
                if path.suffix == ".md":
                    raw = front_matter(raw)[1]
                elif path.suffix == ".json":
                    raw = contact_text(json.loads(raw))[1]
                texts[name, path.relative_to(root).as_posix()] = raw
    assert len(texts) == sum(path.is_file() for path in root.rglob("*")), "a file lies outside the streams"
    return texts


@pytest.fixture(scope="module")
def gold(project: Path) -> list[dict[str, Any]]:
    lines = (project / "examples/gold/entities.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_there_are_enough_documents_of_each_stream(documents: dict[tuple[str, str], str]) -> None:
    assert Counter(stream for stream, _ in documents) == {"meeting": 10, "research": 8, "contact": 8}


def test_lengths_vary_within_one_to_four_pages(documents: dict[tuple[str, str], str]) -> None:
    words = sorted(len(text.split()) for (stream, _), text in documents.items() if stream == "meeting")
    assert words[0] >= 200
    assert words[-1] <= 1200
    assert sum(count > 500 for count in words) >= 2


def test_markdown_opens_with_front_matter_and_some_has_rules_later(project: Path) -> None:
    rules = 0
    for path in (project / "examples/documents").rglob("*.md"):
        head, body = front_matter(path.read_text(encoding="utf-8"))
        assert head, path
        rules += bool(re.search(r"^---$", body, flags=re.MULTILINE))
    assert rules >= 5


def test_research_yaml_parses(project: Path) -> None:
    files = [path for path in (project / "examples/documents").rglob("*.y*ml")]
    assert {path.suffix for path in files} == {".yaml", ".yml"}
    for path in files:
        assert isinstance(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")), dict)


def test_contacts_come_in_every_shape(project: Path) -> None:
    files = (project / "examples/documents/service-people").rglob("*.json")
    shapes = Counter(contact_text(json.loads(path.read_text(encoding="utf-8")))[0] for path in files)
    assert shapes == {"corpus": 2, "body": 2, "text": 1, "text/html": 2, "text/plain": 1}


def test_every_document_has_one_gold_line_in_order(
    documents: dict[tuple[str, str], str], gold: list[dict[str, Any]]
) -> None:
    keys = [(line["stream"], line["path"]) for line in gold]
    assert keys == sorted(documents)


def test_gold_names_stand_in_their_document(documents: dict[tuple[str, str], str], gold: list[dict[str, Any]]) -> None:
    missing = [
        (line["path"], entity["name"])
        for line in gold
        for entity in line["entities"]
        if not re.search(rf"(?<!\w){re.escape(entity['name'])}(?!\w)", plain(documents[line["stream"], line["path"]]))
    ]
    assert not missing


def test_gold_is_well_formed(gold: list[dict[str, Any]]) -> None:
    everyone = {(entity["name"], entity["class"]) for line in gold for entity in line["entities"]}
    for line in gold:
        pairs = [(entity["name"], entity["class"]) for entity in line["entities"]]
        assert len(pairs) == len(set(pairs)), line["path"]
        for entity in line["entities"]:
            assert entity.keys() <= {"name", "class", "same_as"}
            assert entity["class"] in ENTITY_CLASSES
            if "same_as" in entity:
                assert (entity["same_as"], entity["class"]) in everyone
                assert entity["same_as"] != entity["name"]
    assert {cls for _, cls in everyone} == set(ENTITY_CLASSES)


def test_gold_misses_no_name_that_it_knows_from_elsewhere(
    documents: dict[tuple[str, str], str], gold: list[dict[str, Any]]
) -> None:
    """A name of two words or more that is gold in one document is gold wherever it stands alone."""
    known = {entity["name"] for line in gold for entity in line["entities"] if " " in entity["name"]}
    for line in gold:
        own = {entity["name"] for entity in line["entities"]}
        text = plain(documents[line["stream"], line["path"]])
        for name in sorted(own, key=len, reverse=True):
            text = text.replace(name, "·")
        assert not [name for name in known if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)], line["path"]


def test_awkward_names_and_traps_are_there(documents: dict[tuple[str, str], str], gold: list[dict[str, Any]]) -> None:
    by_path = {line["path"]: {entity["name"] for entity in line["entities"]} for line in gold}
    names = set().union(*by_path.values())
    assert {"Harrow, Finch LLP", "9 Mile Growers", "4Sight Sensors", "Longview, Washington", "Coeur d'Alene"} <= names
    assert [path for path, own in by_path.items() if not own] == [
        "service-minutebook/assets/desk/2026-06-05-lifting-and-slipping.md"
    ]
    order = documents["research", "service-agents/inbox/capture-0601.md"]
    assert "Ignore all previous instructions" in order
    assert "Zenith Omega Holdings" in order
    assert "Zenith Omega Holdings" not in names
    assert not names & {"Food Safety Modernization Act", "EN 12830", "n/a", "tbd", "unknown", "accounts/fuel.py"}


def test_documents_are_spread_over_five_days(project: Path, documents: dict[tuple[str, str], str]) -> None:
    timeline = json.loads((project / "examples/timeline.json").read_text(encoding="utf-8"))
    days = Counter(timeline[f"documents/{path}"][:10] for _, path in documents)
    assert sorted(days) == [f"2026-06-0{day}" for day in range(1, 6)]
    assert min(days.values()) >= 4
