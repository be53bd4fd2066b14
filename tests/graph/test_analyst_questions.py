"""Ten questions of an analyst, asked over MCP with the official client; the answers are those of the sample's gold."""

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import parse_document
from ec1.extraction.results import ChunkAnswer, ExtractionResult, Mention
from ec1.files import sha256_file
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.resolution.overrides import NO_OVERRIDES
from ec1.home import CHECKOUT

SAMPLE = CHECKOUT / "examples" / "documents"
STAND_UP = "service-minutebook/assets/2026/06/2026-06-01-frostline-stand-up.md"
SERVER = """
import sys
from pathlib import Path
from ec1.commands.mcp_server import graph_server
from ec1.documents.reader import DocumentReader
from ec1.graph.quotes import Quotes
from ec1.graph.reader import GraphReader
quotes = Quotes(DocumentReader(Path(sys.argv[2]), 10**6))
graph_server(lambda: GraphReader(Path(sys.argv[1]), buffer_pool_mib=64), quotes).run("stdio")
"""


def said(key: DocumentKey, names: list[tuple[str, str]]) -> ExtractionResult:
    """What an extractor that misses nothing says: the gold's names wherever they stand, the longest at a place."""
    text = parse_document(key, (SAMPLE / key.path).read_bytes()).text
    taken: list[tuple[int, int]] = []
    mentions = []
    for name, entity_class in sorted(names, key=lambda each: (-len(each[0]), each)):
        for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE):
            start, end = match.span()
            if not any(start < other_end and other_start < end for other_start, other_end in taken):
                taken.append((start, end))
                mentions.append(
                    Mention(name=match[0], entity_class=entity_class, confidence=0.9, chunk=0, start=start, end=end)
                )
    return ExtractionResult(
        content_sha256=sha256_file(SAMPLE / key.path), stream=key.stream, fingerprint="f" * 64, status="complete",
        mentions=tuple(mentions),
        answers=(ChunkAnswer(chunk=0, start=0, end=len(text), finish_reason="stop", model="gold"),),
    )  # fmt: skip


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("analyst")
    gold = [json.loads(line) for line in (CHECKOUT / "examples/gold/entities.jsonl").read_text().splitlines()]
    results: list[tuple[DocumentKey, str, ExtractionResult]] = []
    for row in gold:
        key = DocumentKey(row["stream"], row["path"])
        names = [(each["name"], each["class"]) for each in row["entities"]]
        results.append((key, f"mk-{len(results)}", said(key, names)))
    late = [each for each in results if "lantern" in each[0].path]
    with LadybugStore.open(folder / "live", buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply_many([each for each in results if each not in late], "2026-06-04")
        store.apply_many(late, "2026-06-05")
        store.resolve(NO_OVERRIDES)
        return store.publish(folder / "published")


def names(found: Any) -> list[str]:
    return [each["name"] for each in found["items"]]


Check = Callable[[Any], bool]
QUESTIONS: list[tuple[str, str, dict[str, Any], Check]] = [
    ("Who is Haddad?", "search", {"text": "Haddad Leila"}, lambda a: names(a)[0] == "Leila Haddad"),
    ("Is there a Lindquist?", "search", {"text": "Lindquist"}, lambda a: names(a)[0] == "Tobias Lindqvist"),
    (
        "What did Leila say at the stand-up, where only her first name stands?",
        "show",
        {"entity": "Leila Haddad", "limit": 200},
        lambda a: any(
            each["path"] == STAND_UP
            and "kettle" in each["quote"]["before"] + each["quote"]["after"]
            and each["quote"]["date"] == "2026-06-01"
            for each in a[0]["evidence"]
        ),
    ),
    (
        "Why are Leila and Leila Haddad one, and how is that undone?",
        "show",
        {"entity": "Person:leila", "limit": 5},
        lambda a: (
            a[0]["name"] == "Leila Haddad"
            and any("--different Person:leila 'Person:leila haddad'" in each["undo"] for each in a[0]["joined"])
            and all(each["why"] and each["sentences"] for each in a[0]["joined"])
        ),
    ),
    (
        "Who is mentioned with Hector Villaseñor?",
        "neighbours",
        {"entity": "Hector Villaseñor", "limit": 100},
        lambda a: {"Lucas Renner", "Saltgrass Creamery"} <= {each["name"] for each in a},
    ),
    (
        "How do Winifred Saltmarsh and Nils Halvorsen hang together?",
        "path_between",
        {"one": "Winifred Saltmarsh", "other": "Nils Halvorsen"},
        lambda a: (
            a[0]["one"] == "Person:winifred saltmarsh"
            and a[-1]["other"] == "Person:nils halvorsen"
            and all(each["document"] for each in a)
        ),
    ),
    (
        "What did the last night bring?",
        "what_changed",
        {},
        lambda a: a["night"] == "2026-06-05" and a["documents_count"] == 1 and "lantern" in a["documents"][0],
    ),
    (
        "What does the stand-up say?",
        "read_document",
        {"path": STAND_UP, "length": 200},
        lambda a: "kettle" in a["text"] and a["date"] == "2026-06-01" and a["next"] == 200,
    ),
    (
        "Who is mentioned most?",
        "query",
        {
            "cypher": "MATCH (:Document)-[m:MENTIONS]->(e:Entity)-[:MEMBER_OF]->(c:Cluster) "
            "RETURN c.name AS name, count(m) AS n ORDER BY n DESC LIMIT 1"
        },
        lambda a: a[0]["n"] > 20 and " " in a[0]["name"],
    ),
    (
        "How much is there?",
        "schema",
        {},
        lambda a: a["holds"]["resolved"]["Person"] < a["holds"]["entities"]["Person"] and len(a["tables"]) > 5,
    ),
]
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("show", {"entity": "Nobody Atall"}, "no entity"),
    ("search", {"text": "a", "limit": 0}, "limit 0"),
    ("search", {"text": "a", "limit": 10**9}, "limit"),
    ("path_between", {"one": "Leila Haddad", "other": "Gus Petrakis", "steps": 99}, "steps"),
    ("read_document", {"path": "/etc/passwd"}, "no document"),
    ("read_document", {"path": f"../{STAND_UP}"}, "no document"),
    ("what_changed", {"night": "1999-01-01"}, "2026-06-05"),
    ("query", {"cypher": "RETURN size(range(1, 2000000000))"}, "at most"),
]


def test_ten_questions_have_the_answers_of_the_gold(published: Path) -> None:
    from mcp import Client, StdioServerParameters

    parameters = StdioServerParameters(command=sys.executable, args=["-c", SERVER, str(published), str(SAMPLE)])

    async def talk() -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        async with Client(parameters) as client:
            tools = (await client.list_tools()).tools
            answers = [await client.call_tool(tool, asked) for _, tool, asked, _ in QUESTIONS]
            refused = [await client.call_tool(tool, asked) for tool, asked, _ in WRONG]
            prompts = (await client.list_prompts()).prompts
            return list(tools), answers, refused, list(prompts)

    tools, answers, refused, prompts = asyncio.run(talk())
    assert all(tool.annotations.read_only_hint and not tool.annotations.destructive_hint for tool in tools)
    assert [prompt.name for prompt in prompts] == ["who_is"]
    for (question, _, _, check), answer in zip(QUESTIONS, answers, strict=True):
        assert not answer.is_error, f"{question} {answer.content}"
        found = answer.structured_content
        assert check(found.get("result", found)), f"{question} {json.dumps(found)[:1500]}"
    for (tool, asked, line), answer in zip(WRONG, refused, strict=True):
        text = answer.content[0].text
        assert answer.is_error and line in text, f"{tool} {asked} {text}"
        assert str(published.parent) not in text and str(SAMPLE) not in text
