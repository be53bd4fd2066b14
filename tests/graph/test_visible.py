"""Readers with access labels: what they may not read is not there, whatever they ask and however."""

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from graph_samples import NIGHT, key, random_changes, result
from typer.testing import CliRunner, Result

from ec1.cli import app
from ec1.documents.ledger import DocumentKey
from ec1.documents.settings import DocumentSettings
from ec1.errors import InputError
from ec1.extraction.results import Relation, Trait
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.reader import GraphReader
from ec1.graph.resolution.overrides import NO_OVERRIDES
from ec1.graph.visible import publish_visible
from ec1.home import Home

DEPLOYMENT = """
tenant: acme
recipes: []
inference: {kind: vllm, model: m, max_model_len: 4096}
documents:
  streams:
    meetings: {folder: ".", suffixes: [.md]}
  labels: {hr: [hr], hr/board: [board]}
"""
PLANTED = [f"Zenobia Quarrel{number}" for number in range(100)]


def visible(published: Path, folder: Path, paths: set[str]) -> GraphReader:
    publish_visible(
        published, folder / "copy", lambda each: each.path in paths, overrides=NO_OVERRIDES, buffer_pool_mib=64
    )
    return GraphReader(folder / "copy", buffer_pool_mib=64)


def test_the_copy_is_what_the_visible_documents_alone_would_give(tmp_path: Path) -> None:
    """A random history, with deferred, rejected and deleted documents, traits and relations."""
    history = random_changes(1, documents=16, changes=40)
    paths = {f"{number}.md" for number in range(16)}
    some = set(random.Random(1).sample(sorted(paths), 7)) | {"3.md"}
    for name, wanted in (("all", paths), ("some", some)):
        with LadybugStore.open(tmp_path / name, buffer_pool_mib=64, wait_seconds=0) as store:
            store.apply_many((_with_facts(*each) for each in history if each[0].path in wanted), NIGHT)
            store.retract_many([each for each in (key("3.md"), key("4.md")) if each.path in wanted], NIGHT)
            store.resolve(NO_OVERRIDES)
            store.publish(tmp_path / f"{name}-published")
    for name, wanted in (("all", paths), ("some", some)):
        with (
            GraphReader(tmp_path / f"{name}-published", buffer_pool_mib=64) as honest,
            visible(tmp_path / "all-published", tmp_path, wanted) as copy,
        ):
            assert copy.digest() == copy.recounted_digest() == honest.recounted_digest()
            assert copy.entities(limit=None) == honest.entities(limit=None)
            assert copy.ledger() == honest.ledger()
            assert copy.resolution() == honest.resolution()
            assert copy.stats() == honest.stats()
        assert not list(tmp_path.glob(".building-*"))


def _with_facts(document: DocumentKey, identity: str, found: Any) -> tuple[DocumentKey, str, Any]:
    if len(found.mentions) < 2:
        return document, identity, found
    one, other = found.mentions[0], found.mentions[-1]
    relation = Relation(
        relation="works_at", subject=one.name, subject_class=one.entity_class, object=other.name,
        object_class=other.entity_class, confidence=0.9, chunk=0, start=0, end=9,
    )  # fmt: skip
    trait = Trait(name=one.name, entity_class=one.entity_class, kind="email", value=f"{document.path}@example.org")
    return document, identity, found.model_copy(update={"relations": (relation,), "traits": (trait,)})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployment with labels and a graph of three documents: for everybody, for hr, and for hr and board."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "configs/deployments").mkdir(parents=True)
    (folder / "configs/deployments/acme.yaml").write_text(DEPLOYMENT)
    home = Home(folder / "home")
    secret = result("s", *((name, "Person") for name in PLANTED), ("Acme Holding", "Company"))
    with LadybugStore.open(home.graph, buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply(key("a.md"), "m-a", result("a", ("Maria Alvarez", "Person"), ("ACME", "Company")), NIGHT)
        store.apply(key("hr/b.md"), "m-b", secret, NIGHT)
        store.apply(key("hr/board/c.md"), "m-c", result("c", ("Secret Plan", "Project")), NIGHT)
        store.apply(DocumentKey("gone", "d.md"), "g-d", result("d", ("Old Stream", "Project")), NIGHT)
        store.resolve(NO_OVERRIDES)
        store.publish(home.published_graph)
    return folder


def ec1(project: Path, *arguments: str) -> Result:
    options = ["--project", str(project), "--home", str(project / "home"), "--deployment", "acme"]
    return CliRunner().invoke(app, [*options, "graph", *arguments])


def _entities(project: Path, *labels: str) -> int:
    found = ec1(project, *labels, "query", "MATCH (e:Entity) RETURN count(*) AS n", "--json")
    return int(json.loads(found.stdout)[0]["n"])


def test_labels_open_what_they_name_and_no_more(project: Path) -> None:
    assert _entities(project) == 2
    assert _entities(project, "--as", "board") == 2, "a document with two labels takes both"
    assert _entities(project, "--as", "hr") == 103
    assert _entities(project, "--as", "board,hr") == 104
    assert _entities(project, "--as", "*") == 105, "and what no stream reads any more is shown to nobody else"
    assert "103" in ec1(project, "--as", "hr", "stats").stdout
    assert isinstance(ec1(project, "diff", "2026-06-01").exception, InputError)
    assert isinstance(ec1(project, "--as", "../x", "stats").exception, InputError)


def test_no_trace_is_in_what_the_reader_opens(project: Path, tmp_path: Path) -> None:
    ec1(project, "export", str(tmp_path / "export"))
    copies = list((project / "home/cache/visible-graphs").iterdir())
    written = [*copies, *(tmp_path / "export").iterdir()]
    small = [path for path in written if b"Maria Alvarez" in path.read_bytes()]
    assert small
    ec1(project, "stats")
    assert _entities(project) == 2
    mine = min(copies, key=lambda path: path.read_bytes().count(b"Zenobia"))
    assert b"zenobia" not in mine.read_bytes().lower() and b"Secret Plan" not in mine.read_bytes()
    for path in (tmp_path / "export").iterdir():
        assert b"zenobia" not in path.read_bytes().lower()


def test_a_name_is_spelt_as_the_visible_documents_spell_it(project: Path) -> None:
    """Among all documents `Acme Holding` is another entity, and resolution may take the two for one."""
    shown = ec1(project, "show", "acme").stdout
    assert "ACME" in shown and "Holding" not in shown and "Zenobia" not in shown


@pytest.mark.slow
def test_an_assistant_without_the_label_finds_none_of_a_hundred_names(project: Path) -> None:
    """Every tool of the server, every planted name, through the command that starts it."""
    from mcp import Client, StdioServerParameters

    command = ["-m", "ec1.cli", "--project", str(project), "--home", str(project / "home"), "--deployment", "acme"]

    async def told(*labels: str) -> tuple[str, set[str]]:
        parameters = StdioServerParameters(
            command=sys.executable, args=[*command, "graph", *labels, "mcp"], env=dict(os.environ)
        )
        said = []
        async with Client(parameters) as client:
            tools = (await client.list_tools()).tools
            # `ask` reads documents, which this graph has none of (tests/graph/test_answers.py).
            asking = [tool for tool in tools if tool.input_schema["properties"] and tool.name != "ask"]
            # Each name is asked for in one way, each way with many names.
            for number, name in enumerate(PLANTED):
                tool = asking[number % len(asking)]
                texts = {
                    "cypher": f"MATCH (n) WHERE n.name = '{name}' RETURN n",
                    "key": f"Person:{name.lower()}",
                    "other": "Maria Alvarez",
                    "path": "hr/b.md",
                }
                fields = {"cypher", "text", "entity", "key", "one", "other", "path"} & tool.input_schema[
                    "properties"
                ].keys()
                answer = await client.call_tool(tool.name, {field: texts.get(field, name) for field in fields})
                # A refusal may repeat the question.
                said.append("" if answer.is_error else json.dumps(answer.structured_content))
            for tool in [tool for tool in tools if tool not in asking]:
                said.append(json.dumps((await client.call_tool(tool.name, {})).structured_content))
            said.append(json.dumps((await client.call_tool("search", {"text": "quarrel"})).structured_content))
            for cypher in (
                "MATCH (n) RETURN n",
                "MATCH ()-[r]->() RETURN r",
                "MATCH (e:Entity) RETURN max(offset(id(e))), count(*)",
            ):
                said.append(str((await client.call_tool("query", {"cypher": cypher})).structured_content))
        return "\n".join(said), {tool.name for tool in tools}

    without, tools = asyncio.run(told())
    assert tools == {
        "schema", "search", "show", "neighbours", "query", "path_between", "what_changed", "read_document", "ask"
    }  # fmt: skip
    assert "zenobia" not in without.lower() and "quarrel" not in without.lower()
    assert "hr/" not in without and "103" not in without
    assert "Maria Alvarez" in without
    named, _ = asyncio.run(told("--as", "hr"))
    assert all(name in named for name in PLANTED)
    assert "Secret Plan" not in named


def test_labels_are_of_folders_and_streams_and_add_up() -> None:
    documents = DocumentSettings.model_validate(
        {
            "streams": {"people": {"folder": "crm", "labels": ["hr"]}, "rest": {"folder": "notes"}},
            "labels": {"crm/board": ["board"], "notes/pay": ["pay"]},
        }
    )

    def labels(stream: str, path: str) -> set[str]:
        return set(documents.labels_of(DocumentKey(stream, path)))

    assert labels("people", "crm/a.json") == {"hr"}
    assert labels("people", "crm/board/a.json") == {"hr", "board"}
    assert labels("people", "crm/boardroom/a.json") == {"hr"}
    assert labels("rest", "notes/a.md") == set()
    assert labels("rest", "notes/pay/x.zip/a.md") == {"pay"}
    assert labels("gone", "other/a.md") == {"(unknown)"}
    assert DocumentSettings().labels_of(DocumentKey("gone", "a")) == frozenset(), "without labels all is as it was"
