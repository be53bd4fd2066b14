"""Names found in an index beside the published graph: parts, other orders, slips of the pen, and whose index it is."""

from pathlib import Path

import pytest
from graph_samples import NIGHT, key, result

from ec1.errors import InputError
from ec1.graph import search_index
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.reader import GraphReader
from ec1.graph.resolution.overrides import NO_OVERRIDES
from ec1.graph.search_index import index_path

NAMES = [
    ("Leila Haddad", "Person"), ("Leila", "Person"), ("Tobias Lindqvist", "Person"), ("Hector Villaseñor", "Person"),
    ("Northwind Capital", "Company"), ("Northwind", "Project"), ("Ek", "Company"), ('A "B" C*', "Account"),
]  # fmt: skip


def published(folder: Path, *names: tuple[str, str]) -> Path:
    with LadybugStore.open(folder / "live", buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply(key("a.md"), "mk-a", result("a", *NAMES, *names), NIGHT)
        store.apply(key("b.md"), "mk-b", result("b", ("Haddad, Leila", "Person"), ("Northwind", "Project")), NIGHT)
        store.resolve(NO_OVERRIDES)
        return store.publish(folder / "published")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("search"))


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Haddad Leila", "Haddad, Leila"),
        ("LINDQUIST", "Tobias Lindqvist"),
        ("lindq", "Tobias Lindqvist"),
        ("Villasenor", "Hector Villaseñor"),
        ("Héctor", "Hector Villaseñor"),
        ("Nothwind Capital", "Northwind Capital"),
        ("ek", "Ek"),
        ('"b"', 'A "B" C*'),
        ("c*", 'A "B" C*'),
    ],
)
def test_a_name_is_found_as_people_type_it(graph: Path, text: str, first: str) -> None:
    with GraphReader(graph, buffer_pool_mib=64) as reader:
        assert reader.search(text)[0].name == first


def test_what_is_rare_in_a_name_finds_it_where_most_of_it_is_common(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "_ROWS", 3)
    graph = published(tmp_path, *((f"Northwind {name}", "Company") for name in ("Alma", "Bern", "Cole", "Dora")))
    with GraphReader(graph, buffer_pool_mib=64) as reader:
        assert [each.name for each in reader.search("Northwind Capitol")] == ["Northwind Capital"]
        # All of it is common: what is rarest must do.
        assert len(reader.search("Nortwind")) == 6


def test_the_answer_is_the_resolved_entity_with_all_its_mentions(graph: Path) -> None:
    with GraphReader(graph, buffer_pool_mib=64) as reader:
        (leila,) = reader.search("leila")
        assert (leila.mentions, leila.documents, len(leila.members)) == (3, 2, 2)
        assert leila == reader.find("Leila Haddad")[0] == reader.find("Haddad, Leila")[0]
        # Those mentioned most first, and page after page the same.
        both = reader.search("northwind")
        assert [each.entity_class for each in both] == ["Project", "Company"]
        assert reader.search("northwind", limit=1, skip=1) == both[1:]
        assert reader.search("northwind", "Company") == both[1:]
        assert reader.search("zzzz") == reader.search("' OR 1=1 --") == []
        with pytest.raises(InputError, match="a part of its name"):
            reader.search("  ")


def test_an_index_is_of_one_publication_and_names_nobody_who_is_gone(tmp_path: Path) -> None:
    graph = published(tmp_path, ("Gone Tomorrow", "Person"))
    with GraphReader(graph, buffer_pool_mib=64) as reader:
        assert reader.search("tomorrow")
    assert b"tomorrow" in index_path(graph).read_bytes()
    with LadybugStore.open(tmp_path / "live", buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply(key("a.md"), "mk-a", result("a2", *NAMES), NIGHT)
        store.publish(graph)
    assert not index_path(graph).exists()
    index_path(graph).write_bytes(b"not an index")
    with GraphReader(graph, buffer_pool_mib=64) as reader:
        assert reader.search("tomorrow") == [] and reader.search("haddad")
    assert [path.name for path in tmp_path.iterdir() if "search" in path.name] == ["published.search"]
