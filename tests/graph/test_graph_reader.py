"""Reading the published graph: lists, one entity with its evidence, free queries that can only read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from graph_samples import NIGHT, key, result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ec1.errors import InputError
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.reader import GraphReader


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    with LadybugStore.open(folder / "live", buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply(
            key("a.md"), "mk-a", result("a", ("Paris", "Person"), ("Paris", "Location"), ("ACME", "Company")), NIGHT
        )
        store.apply(key("b.md"), "mk-b", result("b", ("Acme Inc.", "Company"), ("Acme", "Company")), NIGHT)
        return store.publish(folder / "published")


@pytest.fixture
def reader(published: Path) -> Iterator[GraphReader]:
    with GraphReader(published) as opened:
        yield opened


def test_nothing_published_yet(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no graph is published at .* run a night first"):
        GraphReader(tmp_path / "published")


def test_something_else_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "published").write_bytes(b"something else" * 500)
    with pytest.raises(InputError, match="cannot be opened as a graph"):
        GraphReader(tmp_path / "published").stats()


def test_entities_come_by_mentions_then_key(reader: GraphReader) -> None:
    found = reader.entities()
    assert [entity.key for entity in found] == ["Company:acme", "Location:paris", "Person:paris"]
    assert (found[0].name, found[0].mentions, found[0].documents) == ("Acme Inc.", 3, 2)
    assert [entity.key for entity in reader.entities(1)] == ["Company:acme"]
    assert [entity.key for entity in reader.entities(entity_class="Person")] == ["Person:paris"]


@pytest.mark.parametrize("search", ["acme inc", "ACM", "me"])
def test_search_looks_at_every_spelling(reader: GraphReader, search: str) -> None:
    (found,) = reader.entities(search=search)
    # The figures are the entity's own, not those of the spellings that matched.
    assert (found.key, found.mentions) == ("Company:acme", 3)


def test_search_text_is_data(reader: GraphReader) -> None:
    assert reader.entities(search="' OR true //") == []


def test_wrong_questions(reader: GraphReader) -> None:
    with pytest.raises(InputError, match="unknown entity class 'Dog': choose one of Person"):
        reader.entities(entity_class="Dog")
    with pytest.raises(InputError, match="limit 0"):
        reader.entities(0)
    with pytest.raises(InputError, match=r"no entity 'par'.*alike: Location:paris, Person:paris"):
        reader.show("par")
    with pytest.raises(InputError, match="which entity"):
        reader.show("  ")


def test_show_by_name_and_by_key(reader: GraphReader) -> None:
    assert [entity.key for entity, _ in reader.show("paris")] == ["Location:paris", "Person:paris"]
    ((entity, mentions),) = reader.show("Company:acme")
    assert ((entity, mentions),) == tuple(reader.show("ACME, Incorporated"))
    places = [(mention.path, mention.name, mention.start, mention.end) for mention in mentions]
    assert places == [("a.md", "ACME", 12, 16), ("b.md", "Acme Inc.", 0, 9), ("b.md", "Acme", 10, 14)]


def test_free_queries_read(reader: GraphReader) -> None:
    query = "MATCH (d:Document)-[m:MENTIONS]->(e:Entity {key: $key}) RETURN d.path AS path ORDER BY path LIMIT 1"
    assert reader.query(query, {"key": "Company:acme"}) == [{"path": "a.md"}]
    assert reader.query("MATCH (e:Entity) WHERE e.name = 'LOAD FROM' RETURN e.key AS key") == []


PIECES = ["MATCH (e:Entity) ", "RETURN e.key AS a", "RETURN 1 AS a", "CALL ", "show_tables() ", "read_parquet('x') "]
PIECES += [
    "'",
    '"',
    "`",
    "/*",
    "*/",
    "//",
    "\n",
    ";",
    "\\",
    " UNION ",
    "WHERE e.name = ",
    "'x'",
    "$p",
    "{",
    "}",
    "\0",
    "Ж",
]


@pytest.mark.parametrize(
    "query",
    [
        "CREATE (:Entity {key: 'x'})",
        "MATCH (e:Entity) SET e.name = 'x'",
        "MATCH (e:Entity) DETACH DELETE e",
        "COPY (MATCH (e:Entity) RETURN e.key) TO '{folder}/out.csv'",
        "copy /* x */ (MATCH (e:Entity) RETURN e.key) TO '{folder}/out.csv'",
        "LOAD FROM '{folder}/in.csv' RETURN *",
        "EXPORT DATABASE '{folder}/out'",
        "INSTALL json",
        "CHECKPOINT",
        "CALL home_directory = '{folder}'",
        "PROFILE COPY (MATCH (e:Entity) RETURN e.key) TO '{folder}/out.csv'",
        "nonsense",
        "",
        ";",
        "RETURN 1 AS a; MATCH (e:Entity) RETURN e.key",
        "RETURN 1 AS a /* ; */ ; RETURN 2 AS b",
        # These end the process where they are let through.
        "CALL read_csv_serial('{folder}/in.csv') RETURN *",
        "CALL read_parquet('{folder}/in.csv') RETURN *",
        "CALL /* x */ read_parquet('{folder}/in.csv') RETURN *",
        "CALL // show_tables()\n read_parquet('{folder}/in.csv') RETURN *",
        "CALL `read_parquet`('{folder}/in.csv') RETURN *",
        "call\tREAD_CSV_PARALLEL('{folder}/in.csv') RETURN *",
        "MATCH (e:Entity) CALL bm_info() RETURN *",
        "RETURN 'a' AS a /* it's */ UNION CALL read_parquet('{folder}/in.csv') RETURN *",
        "RETURN \"/*\" AS a UNION ALL LOAD FROM '{folder}/in.csv' RETURN * // */",
        "RETURN 'unclosed",
        "RETURN 1 /* unclosed",
        "RETURN '\ud83d' AS a",
        "RETURN 1\0 AS a",
        "RETURN 9999999999999999999999999999999999999999999 AS a",
        "RETURN " + "[" * 500 + "1" + "]" * 500 + " AS a",
        "RETURN " + "CASE WHEN true THEN " * 20 + "1" + " END" * 20 + " AS a",
        "RETURN " + "1+" * 5000 + "1 AS a",
    ],
)
def test_free_queries_do_nothing_else(reader: GraphReader, tmp_path: Path, query: str) -> None:
    (tmp_path / "in.csv").write_text("secret\n")
    before = reader.digest()
    with pytest.raises(InputError) as error:
        reader.query(query.replace("{folder}", str(tmp_path)))
    assert "\n" not in str(error.value) and reader.digest() == before
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_the_published_copy_is_exported_like_the_live_graph(
    published: Path, reader: GraphReader, tmp_path: Path
) -> None:
    with LadybugStore.open(published.with_name("live"), buffer_pool_mib=64, wait_seconds=0) as store:
        live = [path.read_bytes() for path in store.export(tmp_path / "live")]
    assert [path.read_bytes() for path in reader.export(tmp_path / "published")] == live


def test_what_describes_the_graph_may_be_called(reader: GraphReader) -> None:
    names = {row["name"] for row in reader.query("CALL show_tables() /* all of them */ RETURN name; // that is it")}
    assert {"Document", "Entity", "MENTIONS"} <= names
    assert reader.query("MATCH (e:Entity) WHERE e.name <> 'call read_parquet; //' RETURN count(*) AS n")[0]["n"]


def test_a_query_that_takes_too_long_ends(reader: GraphReader) -> None:
    slow = "UNWIND range(1, 100000) AS a UNWIND range(1, 100000) AS b RETURN sum(a * b) AS s"
    with pytest.raises(InputError, match="took longer than"):
        reader.query(slow, timeout_seconds=0.1)
    assert reader.query("MATCH (e:Entity) RETURN count(*) AS n")[0]["n"]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_no_query_does_more_than_read(reader: GraphReader, query: str) -> None:
    try:
        reader.query(query, timeout_seconds=5)
    except InputError as error:
        assert "\n" not in str(error)


def test_a_text_that_rotted_on_the_disk_is_an_error_of_ours(tmp_path: Path) -> None:
    live, name = tmp_path / "live", "Rotterdam Harbour Works"
    with LadybugStore.open(live, buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply(key("a.md"), "mk-a", result("a", (name, "Company")), NIGHT)
        store.publish(tmp_path / "published")
    for path in (live, tmp_path / "published"):
        path.write_bytes(path.read_bytes().replace(name.encode(), name.replace("Works", "").encode() + b"\xff" * 5))
    with GraphReader(tmp_path / "published") as reader, pytest.raises(InputError, match="damaged on the disk"):
        reader.show("Company:rotterdam harbour works")
    with LadybugStore.open(live, buffer_pool_mib=64, wait_seconds=0) as store:
        assert store.recovered is not None and "damaged on the disk" in store.recovered
        assert store.ledger() == {}
