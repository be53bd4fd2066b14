"""Short names of people: whose they are in a document, and what an operator can do about it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from graph_samples import NIGHT, key, result

from ec1.extraction.results import ExtractionResult, Trait
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.resolution.overrides import NO_OVERRIDES, Decision, Overrides
from ec1.graph.resolution.owners import owners

LEILA = "Person:leila haddad"


@pytest.mark.parametrize(
    ("names", "short", "owner"),
    [
        (["Leila Haddad", "LEILA"], "LEILA", LEILA),
        (["Leila Haddad", "Haddad"], "Haddad", LEILA),
        (["Haddad, Leila", "Leila"], "Leila", "Person:haddad, leila"),
        (["Hector Villaseñor", "Héctor"], "Héctor", "Person:hector villaseñor"),
        (["Vincent van Gogh", "van Gogh"], "van Gogh", "Person:vincent van gogh"),
        (["Vincent van Gogh", "Gogh"], "Gogh", "Person:vincent van gogh"),
        (["Dr. Ines Carvalho", "Dr. Carvalho"], "Dr. Carvalho", "Person:dr. ines carvalho"),
        (["Miss Elizabeth Bennet", "Miss Elizabeth"], "Miss Elizabeth", "Person:miss elizabeth bennet"),
        (["John Smith", "Mr. John Smith", "Mr. Smith"], "Mr. Smith", "Person:mr. john smith"),
        # Nobody is named in full: the title says more than the name alone.
        (["Mr. Oak", "Oak"], "Oak", "Person:mr. oak"),
    ],
)
def test_a_short_name_belongs_to_the_one_whom_it_fits(names: list[str], short: str, owner: str) -> None:
    assert owners(names)[short] == owner == owners(reversed(names))[short]


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["Leila Haddad", "Leila Novak", "Leila"], "Leila"),
        (["Leila Haddad", "Omar Haddad", "Haddad"], "Haddad"),
        (["Henry James", "James Miller", "James"], "James"),
        (["John Smith", "Mrs. Smith"], "Mrs. Smith"),
        (["Thomas Weber", "Frau Weber"], "Frau Weber"),
        (["Charlotte Temple", "Mr. Temple", "Miss Temple"], "Mr. Temple"),
        # Whoever she is, `Smith` may be she.
        (["John Smith", "Mrs. Smith", "Smith"], "Smith"),
        (["Madame Lebrun", "Lebrun"], "Lebrun"),
        (["Captain Ashburn", "Miss Ashburn", "Ashburn"], "Ashburn"),
        (["Mrs. Charles Musgrove", "Charles"], "Charles"),
        (["L. Haddad", "Haddad"], "Haddad"),
        (["Haddad & Novak", "Haddad"], "Haddad"),
        (["王小明", "王"], "王"),
    ],
)
def test_what_fits_two_or_is_not_borne_out_belongs_to_nobody(names: list[str], short: str) -> None:
    assert short not in owners(names)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LadybugStore]:
    with LadybugStore.open(tmp_path / "live", buffer_pool_mib=64, wait_seconds=0) as opened:
        yield opened


def people(content: str, *names: str) -> ExtractionResult:
    return result(content, *((name, "Person") for name in names))


def mentions(store: LadybugStore) -> dict[str, int]:
    with store.reading() as connection:
        query = "MATCH (:Document)-[m:MENTIONS]->(e:Entity) RETURN e.key, e.name, count(*)"
        return {f"{key} {name}": count for key, name, count in connection.execute(query).get_all()}


def test_mentions_facts_and_relations_of_a_short_name_are_its_owners(store: LadybugStore) -> None:
    told = people("a", "LEILA HADDAD", "Leila", "Leila").model_copy(
        update={"traits": (Trait(name="Leila", entity_class="Person", kind="email", value="l@a.example"),)}
    )
    store.apply(key("a.md"), "mk-a", told, NIGHT)
    assert mentions(store) == {f"{LEILA} LEILA HADDAD": 3}
    with store.reading() as connection:
        ((owner,),) = connection.execute("MATCH (:Document)-[:TRAIT]->(e:Entity) RETURN e.key").get_all()
    assert owner == LEILA
    assert store.digest() == store.recounted_digest()


def test_an_operator_tells_two_apart_and_takes_it_back(store: LadybugStore) -> None:
    store.apply(key("a.md"), "mk-a", people("a", "Leila Haddad", "Leila"), NIGHT)
    store.apply(key("b.md"), "mk-b", people("b", "Leila"), NIGHT)
    (cluster,) = store.resolve(NO_OVERRIDES).clusters
    assert cluster.name == "Leila Haddad" and cluster.members == ("Person:leila", LEILA)
    before = store.digest()
    apart = Overrides(different=(Decision(entities=("Person:leila", LEILA), reason="the cat"),))
    assert store.resolve(apart).clusters == ()
    assert mentions(store) == {f"{LEILA} Leila Haddad": 1, "Person:leila Leila": 2}
    # What a later night says follows the decision, too.
    store.apply(key("c.md"), "mk-c", people("c", "Leila Haddad", "Leila"), NIGHT)
    store.resolve(apart)
    assert mentions(store) == {f"{LEILA} Leila Haddad": 2, "Person:leila Leila": 3}
    assert store.digest() == store.recounted_digest()
    store.retract_many([key("c.md")], NIGHT)
    store.resolve(NO_OVERRIDES)
    store.retract_many([], NIGHT)
    assert mentions(store) == {f"{LEILA} Leila Haddad": 2, "Person:leila Leila": 1}
    assert before != store.digest() == store.recounted_digest()


def test_a_graph_of_an_earlier_program_gets_owners(store: LadybugStore) -> None:
    store.apply(key("a.md"), "mk-a", people("a", "Leila Haddad", "Leila"), NIGHT)
    store.apply(key("b.md"), "mk-b", people("b", "Bram Visser"), NIGHT)
    store.resolve(NO_OVERRIDES)
    with store.reading() as connection:
        owned = "MATCH (d:Document {key: 'meetings/a.md'})-[m:MENTIONS {name: 'Leila'}]->() DELETE m"
        for statement in (
            "CREATE (:Entity {key: 'Person:leila', name: 'Leila', entity_class: 'Person'})",
            owned,
            "MATCH (d:Document {key: 'meetings/a.md'}) MATCH (e:Entity {key: 'Person:leila'}) "
            "CREATE (d)-[:MENTIONS {name: 'Leila', chunk: 0, start_char: 13, end_char: 18, confidence: 0.9, "
            "fingerprint: 'f', model: 'm'}]->(e)",
            "MATCH (m:Meta) WHERE m.name IN ['owners', 'totals', 'resolution'] DELETE m",
        ):
            connection.execute(statement)
    store.resolve(NO_OVERRIDES)
    assert mentions(store) == {f"{LEILA} Leila Haddad": 2, "Person:bram visser Bram Visser": 1}
