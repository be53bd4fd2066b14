"""Questions of an analyst, asked over MCP with the official client; the answers are those of the sample's gold."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import sample
from benchmarks.sample import DOCUMENTS as SAMPLE

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


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample.publish(tmp_path_factory.mktemp("analyst"))


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
        "Who makes the buttons for the cabs?",
        "ask",
        {"question": "Who makes the buttons for the cabs?"},
        lambda a: (
            "Lakeshore Prototype, makes them for nine dollars" in a["sources"][0]["sentence"]
            and a["sources"][0]["path"] == "service-people/source/trade/marguerite-dufresne.json"
        ),
    ),
    (
        "Where was Tobias Lindqvist born?",
        "ask",
        {"question": "Where was Tobias Lindqvist born?"},
        lambda a: (a["sources"], a["note"]) == ([], "not in the graph"),
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
    ("ask", {"question": "what is it?"}, "what is the question about"),
    ("read_document", {"path": "/etc/passwd"}, "no document"),
    ("read_document", {"path": f"../{STAND_UP}"}, "no document"),
    ("what_changed", {"night": "1999-01-01"}, "2026-06-05"),
    ("query", {"cypher": "RETURN size(range(1, 2000000000))"}, "at most"),
]


def test_the_questions_have_the_answers_of_the_gold(published: Path) -> None:
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
