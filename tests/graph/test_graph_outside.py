"""The published graph for analysts and assistants: schema, neighbours, differences, GraphML, a page, MCP, the docs."""

import asyncio
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import written
from graph_samples import NIGHT, key, result

from ec1.commands.mcp_server import graph_server
from ec1.documents.reader import DocumentReader
from ec1.errors import InputError
from ec1.extraction.results import Mention, Relation
from ec1.graph.differences import difference
from ec1.graph.exports import export_night
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.neighbours import neighbourhood, neighbours, write_graphml, write_html
from ec1.graph.quotes import Quotes
from ec1.graph.reader import GraphReader
from ec1.graph.resolution.overrides import NO_OVERRIDES
from ec1.graph.schema_page import MEANING, schema_of

ROOT = Path(__file__).parents[2]
MARIA, ACME = "Person:maria alvarez", "Company:acme"
NASTY = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nights: the second brings a document, changes one, and removes one."""
    folder = tmp_path_factory.mktemp("home")
    works = Relation(
        relation="works_at", subject="Maria Alvarez", subject_class="Person", object="Acme", object_class="Company",
        confidence=0.9, chunk=0, start=0, end=20,
    )  # fmt: skip
    first = result("a", ("Maria Alvarez", "Person"), ("Acme", "Company"), (NASTY, "Project"))
    with LadybugStore.open(folder / "graph", buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply(key("a.md"), "mk-a", first.model_copy(update={"relations": (works,)}), NIGHT)
        store.apply(key("b.md"), "mk-b", result("b", ("Alvarez, Maria", "Person"), ("Bo Li", "Person")), NIGHT)
        store.apply(key("c.md"), "mk-c", result("c", ("Old Hall", "Location")), NIGHT)
        store.resolve(NO_OVERRIDES)
        export_night(store, folder / "exports", NIGHT, store.digest_with_resolution(), 7)
        store.apply(
            key("b.md"), "mk-b", result("b2", ("Maria Alvarez", "Person"), ("ACME Inc", "Company")), "2026-06-02"
        )
        store.apply(key("d.md"), "mk-d", result("d", ("New Hall", "Location")), "2026-06-02")
        store.retract_many([key("c.md")], "2026-06-02")
        store.resolve(NO_OVERRIDES)
        export_night(store, folder / "exports", "2026-06-02", store.digest_with_resolution(), 7)
        store.publish(folder / "published")
    return folder


@pytest.fixture
def reader(home: Path) -> Iterator[GraphReader]:
    with GraphReader(home / "published", buffer_pool_mib=64) as found:
        yield found


def test_the_schema_says_what_each_table_means(reader: GraphReader) -> None:
    tables = {table.table: table for table in schema_of(reader)}
    assert set(tables) == set(MEANING)
    assert tables["Entity"].columns == {"key": "STRING", "name": "STRING", "entity_class": "STRING"}
    assert tables["MENTIONS"].kind == "rel"


def test_neighbours_are_stated_before_they_are_seen_together(reader: GraphReader) -> None:
    (maria,), (acme,) = reader.find(MARIA), reader.find(ACME)
    found = [(each.how, each.key, each.documents) for each in neighbours(reader, maria)]
    assert found[0] == ("works_at", ACME, 1)
    assert ("mentioned together", ACME, 2) in found
    assert neighbours(reader, acme)[0].how == "is the object of works_at"


def test_a_neighbourhood_is_read_by_other_tools(reader: GraphReader, tmp_path: Path) -> None:
    graph = neighbourhood(reader, MARIA, depth=2)
    write_graphml(graph, tmp_path / "x.graphml")
    read = nx.read_graphml(tmp_path / "x.graphml")
    assert read.nodes[ACME]["entity_class"] == "Company" and set(read.nodes) == set(graph.nodes)


def test_a_page_loads_nothing_and_runs_nothing_of_a_document(reader: GraphReader, tmp_path: Path) -> None:
    write_html(neighbourhood(reader, MARIA), tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert "Maria Alvarez" in page and NASTY not in page and "<script>alert" not in page
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)\s*=\s*[\"']?(?:https?:)?//", page)
    assert "default-src 'none'" in page, "what a browser would load all the same, it refuses"
    assert "works_at (1 document)" in page and page.count("data-at=") == len(neighbourhood(reader, MARIA))


def test_a_night_is_compared_with_the_one_before(home: Path) -> None:
    found = difference(home / "exports", "2026-06-02")
    assert (found.night, found.since) == ("2026-06-02", NIGHT)
    assert found.entities_added == ("Location:new hall",)
    assert found.entities_removed == ("Location:old hall", "Person:alvarez, maria", "Person:bo li")
    assert found.renamed == ((ACME, "Acme", "ACME Inc"),) or found.renamed == ()
    assert found.documents_added == ("meetings/d.md",) and "meetings/b.md" in found.documents_changed
    assert found.parted == (("Person:alvarez, maria", "Person:alvarez, maria"), (MARIA, "Person:alvarez, maria"))
    first = difference(home / "exports", NIGHT)
    assert first.since is None and MARIA in first.entities_added and first.mentions_before == 0
    with pytest.raises(InputError, match="no export of night 2030-01-01"):
        difference(home / "exports", "2030-01-01")


QUERIES = re.findall(r"```cypher\n(.*?)```", (ROOT / "docs" / "graph.md").read_text(), re.DOTALL)


def test_the_page_has_ten_questions() -> None:
    assert len(QUERIES) == 10


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_of_the_page_runs(reader: GraphReader, query: str) -> None:
    assert isinstance(reader.query(query), list)


def test_an_assistant_reads_the_graph_over_mcp(home: Path) -> None:
    """The official client against the server in a separate process, over standard input and output."""
    from mcp import Client, StdioServerParameters

    program = (
        "import sys; from pathlib import Path; from ec1.commands.mcp_server import graph_server; "
        "from ec1.queries.graph import GraphReader; "
        "graph_server(lambda: GraphReader(Path(sys.argv[1]), buffer_pool_mib=64)).run('stdio')"
    )
    parameters = StdioServerParameters(command=sys.executable, args=["-c", program, str(home / "published")])

    async def talk() -> tuple[set[str], object, object, list[Any], bool]:
        async with Client(parameters) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            found = await client.call_tool("search", {"text": "alvarez", "limit": 1})
            rows = await client.call_tool("query", {"cypher": "MATCH (e:Entity) RETURN count(*) AS n"})
            shown = [
                (await client.call_tool(name, arguments)).structured_content
                for name, arguments in (("schema", {}), ("show", {"entity": "Acme"}), ("neighbours", {"entity": MARIA}))
            ]
            refused = await client.call_tool("query", {"cypher": "MATCH (e:Entity) DETACH DELETE e"})
            return tools, found.structured_content, rows.structured_content, shown, bool(refused.is_error)

    tools, found, rows, shown, refused = asyncio.run(talk())
    assert tools == {"schema", "search", "show", "neighbours", "query", "path_between", "what_changed"}
    assert json.dumps(found).count(MARIA) == 1 and '"n": 4' in json.dumps(rows)
    described, (acme,), near = (each.get("result", each) for each in shown)
    assert described["holds"]["documents"] == 3 and described["tables"][0]["table"] == "Document"
    assert acme["key"] == ACME and acme["evidence"][0]["path"] and acme["relations"][0]["relation"] == "works_at"
    assert near[0]["how"] == "works_at" and near[0]["entity_class"] == "Company"
    assert refused


def test_an_assistant_is_told_page_and_sentence(tmp_path: Path) -> None:
    from mcp import Client

    pdf = written.pdf("Nothing here.", "Much later, Ruth Haldane signed.")
    (tmp_path / "two.pdf").write_bytes(pdf)
    reader = DocumentReader(tmp_path, 2**20)
    where, sha256 = key("two.pdf"), hashlib.sha256(pdf).hexdigest()
    start = reader.read(where, sha256).text.index("Ruth")
    mention = Mention(
        name="Ruth Haldane",
        entity_class="Person",
        confidence=0.9,
        chunk=0,
        start=start,
        end=start + len("Ruth Haldane"),
    )
    found = result("", ("x", "Person")).model_copy(update={"content_sha256": sha256, "mentions": (mention,)})
    with LadybugStore.open(tmp_path / "graph", buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply(where, "mk-two", found, NIGHT)
        store.publish(tmp_path / "published")

    async def shown() -> Any:
        server = graph_server(lambda: GraphReader(tmp_path / "published", buffer_pool_mib=64), Quotes(reader))
        async with Client(server) as client:
            return (await client.call_tool("show", {"entity": "Ruth Haldane"})).structured_content

    (ruth,) = asyncio.run(shown())["result"]
    quote = ruth["evidence"][0]["quote"]
    assert (quote["before"], quote["name"], quote["after"], quote["place"]) == (
        "Much later, ", "Ruth Haldane", " signed.", "page 2",
    )  # fmt: skip
