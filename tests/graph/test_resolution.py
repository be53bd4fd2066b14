"""Resolution: which names are one thing, what forbids it, and that no order enters it."""

import itertools
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.resolution_quality import febrl
from ec1.errors import InputError
from ec1.graph.model import entity_key
from ec1.graph.resolution import scoring
from ec1.graph.resolution.clusters import Band, Cluster, Link, Resolution, compare, find, resolve
from ec1.graph.resolution.overrides import Decision, Overrides, load_overrides
from ec1.graph.resolution.profile import Profile
from ec1.graph.resolution.scoring import Scorer, Statistics
from ec1.graph.resolution.vetoes import veto


def profile(name: str, entity_class: str = "Person", documents: Iterable[str] = (), **attributes: str) -> Profile:
    values = {kind: frozenset([value]) for kind, value in attributes.items()}
    key = entity_key(name, entity_class)
    return Profile(key, entity_class, frozenset([name]), values, frozenset(documents))


def band(one: Profile, other: Profile) -> Band | None:
    """The band of a pair that is alone in the graph."""
    return next((link.band for link in resolve([one, other]).links), None)


def clusters(resolution: Resolution) -> list[tuple[str, ...]]:
    return [cluster.members for cluster in resolution.clusters]


@pytest.mark.parametrize(
    ("one", "other", "entity_class"),
    [
        ("Smith, Jane", "Jane Smith", "Person"),
        ("Smith, Jane", "Dr. Jane A. Smith", "Person"),
        ("JANE SMITH", "Ms Jane Smith", "Person"),
        ("Jan van der Berg", "van der Berg, Jan", "Person"),
        ("O'Brien, Pat", "Pat O’Brien", "Person"),
        ("Martin Luther King Jr.", "King, Martin Luther, Jr", "Person"),
        ("Acme Co Inc", "ACME, Incorporated", "Company"),
        ("AT&T", "AT and T", "Company"),
        ("The North Wind", "Northwind", "Company"),
        ("Project Lantern", "Lantern", "Project"),
        ("Sable account", "Sable", "Account"),
        ("Pine St", "Pine Street", "Location"),
        ("Anna-Maria Lindqvist", "Anna Maria Lindqvist", "Person"),
        ("Ana García López", "Ana Garcia-Lopez", "Person"),
        ("Jörg Grünewald", "Joerg Gruenewald", "Person"),
        ("Jörg Grünewald", "Jorg Grunewald", "Person"),
        ("Ørsted Vind", "Oersted Vind", "Company"),
        ("Ромашка", "Romashka", "Company"),
        ("Nilo-Kola", "Nilo Kola", "Company"),
        ("Zürich", "Zuerich", "Location"),
        ("Ниж-Град", "Nizh Grad", "Location"),
    ],
)
def test_forms_of_one_name_are_merged(one: str, other: str, entity_class: str) -> None:
    assert band(profile(one, entity_class), profile(other, entity_class)) is Band.MERGE


@pytest.mark.parametrize(
    ("one", "other", "entity_class"),
    [
        ("Jane Smith", "J. Smith", "Person"),
        ("Marguerite Dufresne", "Margurite Dufresne", "Person"),
        ("Northwind Capital", "Nortwind Capital", "Company"),
        ("Northwind", "Nortwind", "Company"),
        ("Владимир Соловьёв", "Vladimir Solovyev", "Person"),
    ],
)
def test_what_may_be_one_is_for_review(one: str, other: str, entity_class: str) -> None:
    resolution = resolve([profile(one, entity_class), profile(other, entity_class)])
    assert [link.band for link in resolution.links] == [Band.REVIEW]
    assert resolution.clusters == ()


@pytest.mark.parametrize(
    ("one", "other", "entity_class"),
    [
        ("Jane Smith", "John Smith", "Person"),
        ("Jane Smith", "Jane Jones", "Person"),
        ("Jane", "Jane Smith", "Person"),
        ("Acme", "Acme Foods", "Company"),
        ("Bank of Ohio", "Bank of Iowa", "Company"),
        ("Trailer 14", "Trailer 41", "Project"),
        ("Portland, Oregon", "Portland, Maine", "Location"),
        ("3M", "3 M Holdings", "Company"),
    ],
)
def test_different_things_stay_apart(one: str, other: str, entity_class: str) -> None:
    assert band(profile(one, entity_class), profile(other, entity_class)) is None


VETOED = [
    (profile("Jane Smith", email="jane@a.example"), profile("Smith, Jane", email="js@b.example"), "other email"),
    (profile("Jane A. Smith"), profile("Jane B. Smith"), "other middle initial"),
    (profile("George H. W. Bush"), profile("George W. Bush"), "other middle initial"),
    (profile("Mr. Goldsmith", documents="a"), profile("Ms. Goldsmith", documents="a"), "other title"),
    (profile("Miss Ann Goldsmith"), profile("Mrs. Ann Goldsmith"), "other title"),
    (profile("M. Dupont", documents="a"), profile("Mme Dupont", documents="a"), "other title"),
    (profile("John Smith Jr."), profile("John Smith, Sr."), "other suffix"),
    (
        profile("Jane Smith", birth_date="1980-01-02", street="9 Elm", city="Ayr"),
        profile("Ruth Smith", birth_date="1980-01-02", street="9 Elm", city="Ayr"),
        "other first name",
    ),
]


@pytest.mark.parametrize(("one", "other", "reason"), VETOED)
def test_a_veto_stops_a_link_and_is_kept_with_its_reason(one: Profile, other: Profile, reason: str) -> None:
    (link,) = resolve([one, other]).links
    assert (link.band, link.veto) == (Band.NEW, reason)


def test_other_classes_are_never_compared() -> None:
    one, other = profile("Paris Berg"), profile("Berg, Paris", "Location")
    assert veto(one, other) == "other class"
    assert resolve([one, other]).links == ()


def test_what_is_said_in_one_document_tells_a_short_form() -> None:
    full, short = profile("Jane Smith", documents="a"), profile("J. Smith", documents="a")
    assert band(full, short) is Band.MERGE
    assert band(profile("Jane", documents="a"), full) is Band.REVIEW
    acme, foods = profile("Acme", "Company", "a"), profile("Acme Foods Ltd", "Company", "a")
    assert band(acme, foods) is Band.REVIEW


def test_a_name_of_one_word_is_its_bearers_where_documents_call_nobody_else_so() -> None:
    leila, other = called("Leila Haddad", "Leila"), called("Leila Novak", "Leila")
    alone = profile("Leila", documents="b")
    assert band(alone, leila) is Band.MERGE
    # Somebody else bears the name, and may be meant; or is called so, too.
    assert [link.band for link in resolve([leila, alone, profile("Leila Okafor")]).links] == [Band.REVIEW]
    resolution = resolve([leila, other, alone])
    assert resolution.clusters == () and {link.band for link in resolution.links} == {Band.REVIEW}
    # Where nobody called her so, nothing says that she is meant.
    assert resolve([profile("Leila Haddad"), alone]).clusters == ()


def called(name: str, *short: str) -> Profile:
    return replace(profile(name, documents="a"), called=frozenset(short))


def test_a_place_with_less_said_is_the_same_in_one_document() -> None:
    springs, state = "Eureka Springs", "Eureka Springs, Arkansas"
    assert band(profile(springs, "Location", "a"), profile(state, "Location", "a")) is Band.MERGE
    assert band(profile(springs, "Location", "a"), profile(state, "Location", "b")) is Band.REVIEW


def test_an_initial_that_could_be_either_of_two_is_for_review() -> None:
    people = [profile("Jane Smith", documents="a"), profile("John Smith", documents="a")]
    resolution = resolve([*people, profile("J. Smith", documents="a")])
    assert [link.band for link in resolution.links] == [Band.REVIEW, Band.REVIEW]
    assert {link.veto for link in resolution.links} == {"could be either of two"}


def test_nothing_is_chained_through_a_veto() -> None:
    resolution = resolve([profile("Jane A. Smith"), profile("Jane Smith"), profile("Smith, Jane B.")])
    for cluster in resolution.clusters:
        assert not {"Person:jane a. smith", "Person:smith, jane b"} <= set(cluster.members)
    assert all(link.band is not Band.MERGE for link in resolution.links)


def test_a_number_of_ones_own_outweighs_a_changed_name() -> None:
    facts = {"identifier": "6988048", "birth_date": "19081209", "city": "ayr"}
    jane, ruth = profile("Jane Smith", **facts), profile("Ruth Smith", **facts)
    assert band(jane, ruth) is Band.MERGE
    # The second fact may have a slip; the number may not, since those of twins follow each other.
    assert band(jane, profile("Ruth Smith", **facts | {"birth_date": "19081208"})) is Band.MERGE
    assert band(jane, profile("Ruth Smith", **facts | {"identifier": "6988049"})) is Band.NEW
    # Who is proven to have both names may be met under either, with a slip in the number, too.
    third = profile("Smith, Ruth", **facts | {"identifier": "6988049"})
    assert clusters(resolve([jane, ruth, third])) == [(jane.key, ruth.key, third.key)]


def test_a_proven_name_lets_no_father_be_his_son() -> None:
    facts = {"identifier": "6988048", "birth_date": "19081209", "city": "ayr"}
    son, bare, father = profile("John Smith Jr.", **facts), profile("John Smith", **facts), profile("John Smith Sr.")
    found = clusters(resolve([son, bare, father]))
    assert found and not any({son.key, father.key} <= set(members) for members in found)


# --- operators


def decision(*names: str) -> Decision:
    return Decision(entities=tuple(entity_key(name, "Person") for name in names), reason="seen in the register")


def test_an_operator_makes_one_of_two_whatever_speaks_against_it() -> None:
    people = [profile("Jane A. Smith"), profile("Ruth Jones")]
    resolution = resolve(people, Overrides(same=(decision("Jane A. Smith", "Ruth Jones"),)))
    assert clusters(resolution) == [("Person:jane a. smith", "Person:ruth jones")]
    assert "seen in the register" in resolution.links[0].reasons
    assert resolve(people).clusters == ()


def test_an_operator_keeps_two_apart_also_through_a_third() -> None:
    people = [profile("Jane Smith"), profile("Smith, Jane"), profile("Ms Jane Smith")]
    assert len(clusters(resolve(people))[0]) == 3
    resolution = resolve(people, Overrides(different=(decision("Smith, Jane", "Ms Jane Smith"),)))
    assert all(not {"Person:smith, jane", "Person:ms jane smith"} <= set(members) for members in clusters(resolution))


def test_decisions_about_entities_that_are_gone_are_told() -> None:
    resolution = resolve([profile("Jane Smith")], Overrides(same=(decision("Jane Smith", "Ruth Jones"),)))
    assert resolution.unused_overrides == ("Person:ruth jones",) and resolution.clusters == ()


def test_decisions_that_contradict_each_other_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    path.write_text(
        "same:\n- {entities: [a, b], reason: x}\n- {entities: [b, c], reason: y}\n"
        "different:\n- {entities: [a, c], reason: two firms}\n"
    )
    with pytest.raises(InputError, match=r"'a' and 'c' are different \(two firms\)"):
        load_overrides(path)
    path.write_text("same:\n- {entities: [a], reason: x}\n")
    with pytest.raises(InputError, match="entities"):
        load_overrides(path)
    with pytest.raises(InputError, match="does not exist"):
        load_overrides(tmp_path / "none.yaml")


# --- properties

GIVEN = ["Jane", "John", "J.", "Jane A.", "Jane B.", "Jan", "Ruth", "Dr. Jane"]
SURNAMES = ["Smith", "Smyth", "Smith Jr.", "Smith Sr", "Jones"]
PEOPLE = st.builds(
    lambda given, surname, turned, email, documents: profile(
        f"{surname}, {given}" if turned else f"{given} {surname}",
        documents=documents,
        **({"email": email} if email else {}),
    ),
    st.sampled_from(GIVEN),
    st.sampled_from(SURNAMES),
    st.booleans(),
    st.sampled_from(["", "", "jane@a.example", "j@b.example"]),
    st.sets(st.sampled_from("abc")),
)
FIRMS = st.builds(
    lambda name, suffix: profile(f"{name}{suffix}", "Company"),
    st.sampled_from(["Acme", "Acme Foods", "Northwind Capital", "Nortwind Capital", "Pier 14", "Pier 41"]),
    st.sampled_from(["", " Inc", " Co Ltd", " GmbH & Co KG"]),
)
GRAPHS = st.lists(st.one_of(PEOPLE, FIRMS), min_size=1, max_size=25, unique_by=lambda each: each.key)


@settings(max_examples=150, deadline=None)
@given(GRAPHS, st.randoms(use_true_random=False))
def test_the_order_of_entities_does_not_matter(graph: list[Profile], rng: random.Random) -> None:
    shuffled = graph[:]
    rng.shuffle(shuffled)
    assert resolve(shuffled) == resolve(graph)


@settings(max_examples=150, deadline=None)
@given(GRAPHS)
def test_no_cluster_holds_two_that_may_not_be_one(graph: list[Profile]) -> None:
    known = {each.key: each for each in graph}
    for members in clusters(resolve(graph)):
        for one, other in itertools.combinations(members, 2):
            assert veto(known[one], known[other]) is None
            assert veto(known[other], known[one]) is None


@settings(max_examples=100, deadline=None)
@given(GRAPHS, st.data())
def test_what_operators_decide_holds(graph: list[Profile], data: st.DataObject) -> None:
    keys = [each.key for each in graph]
    if len(keys) < 2:
        return
    one, other = data.draw(st.lists(st.sampled_from(keys), min_size=2, max_size=2, unique=True))
    same = resolve(graph, Overrides(same=(Decision(entities=(one, other), reason="x"),)))
    assert any({one, other} <= set(members) for members in clusters(same))
    apart = resolve(graph, Overrides(different=(Decision(entities=(one, other), reason="x"),)))
    assert not any({one, other} <= set(members) for members in clusters(apart))


# --- real data


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least_recall"), [("dataset1", 0.95), ("dataset3", 0.97)])
def test_contact_records_with_slips_of_the_pen(shared_data: Path, name: str, least_recall: float) -> None:
    people, true = febrl(shared_data / "febrl" / f"{name}.csv")
    found = {pair for members in clusters(resolve(people)) for pair in itertools.combinations(members, 2)}
    precision, recall = len(found & true) / len(found), len(found & true) / len(true)
    print(f"{name}: {len(people)} records, {len(true)} true pairs, precision {precision:.4f}, recall {recall:.4f}")
    assert precision >= 0.98
    assert recall >= least_recall


# --- forms that libraries and positions tell


@pytest.mark.parametrize(
    ("one", "other", "entity_class"),
    [
        ("Carrano & Biewener", "Carrano and Biewener", "Person"),
        ("US President Jane Marlow", "Jane Marlow", "Person"),
        ("WHO", "World Health Organization", "Company"),
        ("JSC", "Johnson Space Center", "Location"),
        ("Houston", "Houston, Texas", "Location"),
    ],
)
def test_forms_of_one_document_are_merged_there_and_nowhere_else(one: str, other: str, entity_class: str) -> None:
    together = [profile(each, entity_class, ["a"]) for each in (one, other)]
    assert band(*together) is Band.MERGE
    assert band(profile(one, entity_class, ["a"]), profile(other, entity_class, ["b"])) is not Band.MERGE


@pytest.mark.parametrize(
    ("one", "other", "entity_class"),
    [
        ("Müller Bau GmbH & Co. KG", "Müller Bau", "Company"),
        ("Tessera Sp. z o.o.", "Tessera", "Company"),
        ("Tessera Oyj", "Tessera AB", "Company"),
    ],
)
def test_legal_forms_of_many_countries_are_no_part_of_a_name(one: str, other: str, entity_class: str) -> None:
    assert band(profile(one, entity_class), profile(other, entity_class)) is Band.MERGE


def test_a_nickname_is_no_other_first_name() -> None:
    one, other = profile("Bill Sommerfeld"), profile("William Sommerfeld")
    assert veto(one, other) is None and band(one, other) is Band.REVIEW
    assert veto(one, profile("Carl Sommerfeld")) == "other first name"


@pytest.mark.parametrize(
    ("one", "other"),
    [("Biewener", "Carrano & Biewener"), ("Doctor Who", "Lady Cassandra from Doctor Who"), ("Who Company", "WHO")],
)
def test_what_only_ends_alike_is_not_merged(one: str, other: str) -> None:
    assert band(profile(one, documents=["a"]), profile(other, documents=["a"])) is not Band.MERGE


# --- what operators decide, and the best link first


def same(*entities: str) -> Overrides:
    return Overrides(same=(Decision(entities=entities, reason="x"),))


def test_a_decided_pair_does_not_stop_the_search_for_others() -> None:
    names = ("Anna Berg", "Berg, Anna", "Carl Dahl", "Dahl, Carl")
    decided = Overrides(different=(Decision(entities=("Person:anna berg", "Person:berg, anna"), reason="x"),))
    found = resolve([profile(name) for name in names], decided)
    assert clusters(found) == [("Person:carl dahl", "Person:dahl, carl")]


def test_two_that_an_operator_made_one_do_not_contest_a_third() -> None:
    people = [profile(name, documents=["a"]) for name in ("Jane Smith", "John Smith", "J. Smith")]
    contested = resolve(people)
    assert {link.veto for link in contested.band(Band.REVIEW)} == {"could be either of two"}
    found = resolve(people, same("Person:jane smith", "Person:john smith"))
    assert "could be either of two" not in {link.veto for link in found.links}


def test_all_that_a_short_form_could_be_are_contested_also_beside_two_that_are_one() -> None:
    names = ("Adele Smith", "Albert Smith", "Astrid Smith", "A. Smith")
    people = [profile(name, documents=["a"]) for name in names]
    for decided in (Overrides(), same("Person:adele smith", "Person:albert smith")):
        found = {(link.one, link.other): link.veto for link in resolve(people, decided).links}
        for name in names[:3]:
            assert found["Person:a. smith", f"Person:{name.lower()}"] == "could be either of two"


def test_a_finding_says_what_was_found_and_at_which_ends_it_is_contested() -> None:
    names = ("Jane Smith", "John Smith", "J. A. Smith", "J. B. Smith")
    finding = find([profile(name, documents=["a"]) for name in names], Overrides())
    ends = ("Person:j. a. smith", "Person:j. b. smith"), ("Person:jane smith", "Person:john smith")
    pairs = list(itertools.product(*ends))
    assert finding.contested == {pair: frozenset(pair) for pair in pairs}
    assert {finding.found[pair].band for pair in pairs} == {Band.MERGE}


def test_weights_come_from_the_statistics_that_are_given() -> None:
    people = [profile(name, documents=["a"]) for name in ("Jane Smith", "J. Smith")]
    many = Statistics.of([profile(f"{given} Smith") for given in ("Ann", "Bea", "Carl", "Dora", "Eve", "Finn", "Gus")])
    bands = [[link.band for link in resolve(people, statistics=given).links] for given in (None, {"Person": many}, {})]
    assert bands == [[Band.MERGE], [Band.REVIEW], [Band.MERGE]]


def test_links_that_do_not_contradict_each_other_are_not_contested() -> None:
    people = [profile(name, documents=["a"]) for name in ("Jane Smith", "Smith, Jane", "J. Smith")]
    assert "could be either of two" not in {link.veto for link in resolve(people).links}


def test_the_best_link_wins_where_only_one_of_two_can() -> None:
    """The better link comes later in the order of keys, and is so much better that it is not contested."""
    worse = profile("Jane A. Smith", email="one@a.example")
    middle = profile("Jane Smith", phone="555 0100 200")
    better = profile("Smith, Jane", phone="555 0100 200", email="two@b.example")
    found = resolve([worse, middle, better])
    assert clusters(found) == [("Person:jane smith", "Person:smith, jane")]
    (left,) = [link for link in found.links if {link.one, link.other} == {worse.key, middle.key}]
    assert left.band is Band.REVIEW and (left.veto or "").startswith("other email")


# --- what is said of a link and of a cluster


def test_a_cluster_has_the_key_of_its_first_member_and_the_best_spelling() -> None:
    found = resolve([profile("JANE SMITH"), profile("Smith, Jane"), profile("Acme Inc", "Company")])
    keys = ("Person:jane smith", "Person:smith, jane")
    assert found.clusters == (Cluster(keys[0], "Smith, Jane", "Person", keys),), "a name in capitals says less"


def test_a_link_says_what_it_rests_on() -> None:
    (link,) = resolve([profile("Jane Smith", city="ayr"), profile("Smith, Jane", city="ayr")]).links
    assert (link.one, link.other, link.band, link.veto) == (
        "Person:jane smith",
        "Person:smith, jane",
        Band.MERGE,
        None,
    )
    assert link.reasons == "given exact, surname exact, city exact"
    assert link.score == round(link.score, 3) != round(link.score, 2)


def test_links_of_a_band_come_best_first() -> None:
    people = [
        profile(name, **facts)
        for names, facts in (
            (("Anna Berg", "Berg, Anna"), {}),
            (("Carl Dahl", "Dahl, Carl"), {"phone": "555 0100 200"}),
            (("Eva Falk", "Falk, Eva"), {"region": "north"}),
        )
        for name in names
    ]
    merged = resolve(people).band(Band.MERGE)
    assert [link.one for link in merged] == ["Person:carl dahl", "Person:eva falk", "Person:anna berg"]
    assert resolve(people).band(Band.REVIEW) == []


def test_a_decision_is_a_link_of_its_own() -> None:
    people = [profile("Jane Smith"), profile("Ruth Jones"), profile("Smith, Jane")]
    pair = ("Person:jane smith", "Person:ruth jones")
    found = resolve(people, Overrides(same=(Decision(entities=pair, reason="a marriage"),)))
    assert Link(*pair, Band.MERGE, 0.0, "operator: a marriage") in found.links
    apart = ("Person:jane smith", "Person:smith, jane")
    found = resolve(people, Overrides(different=(Decision(entities=apart, reason="two of them"),)))
    assert found.links == (Link(*apart, Band.NEW, 0.0, "operator: two of them"),)
    gone = resolve(people, Overrides(different=(Decision(entities=("Person:jane smith", "Person:x"), reason="y"),)))
    assert all("operator" not in link.reasons for link in gone.links)


def test_an_operators_no_holds_in_whatever_order_the_two_are_met() -> None:
    people = [profile("Jane Smith", region="north"), profile("Smith, Jane", region="north"), profile("Ms Jane Smith")]
    apart = Decision(entities=("Person:ms jane smith", "Person:smith, jane"), reason="x")
    found = resolve(people, Overrides(different=(apart,)))
    assert clusters(found) == [("Person:jane smith", "Person:smith, jane")]
    (stopped,) = found.band(Band.REVIEW)
    assert stopped.veto == "an operator told Person:smith, jane from Person:ms jane smith"


# --- two links that contradict each other


def test_what_is_clearly_better_is_not_contested_and_what_is_a_little_better_is() -> None:
    def merged(**facts: str) -> list[tuple[str, ...]]:
        worse = profile("Jane A. Smith", email="one@a.example")
        middle, better = profile("Jane Smith", **facts), profile("Smith, Jane", email="two@b.example", **facts)
        found = resolve([worse, middle, better])
        assert all(link.score < 16 for link in found.links), "not beyond doubt"
        return clusters(found)

    assert merged(house_number="12") == [("Person:jane smith", "Person:smith, jane")]
    assert merged(region="north") == []


def test_what_is_beyond_doubt_is_not_contested() -> None:
    facts = {"phone": "555 0100 200", "house_number": "12"}
    one, other = (
        profile("Jane A. Smith", email="one@a.example", **facts),
        profile("Smith, Jane", email="two@b.example", **facts),
    )
    found = resolve([one, profile("Jane Smith", **facts), other])
    assert len(found.clusters) == 1 and "could be either of two" not in {link.veto for link in found.links}


def test_what_is_no_link_contests_none() -> None:
    found = resolve([profile("Jane A. Smith"), profile("Smith, Jane A."), profile("Jane B. Smith")])
    assert [link.band for link in found.links].count(Band.NEW) == 2
    assert clusters(found) == [("Person:jane a. smith", "Person:smith, jane a")]


def test_all_that_is_contested_is_for_review() -> None:
    names = ("Jane Smith", "John Smith", "J. Smith", "Carl Dahl", "Chris Dahl", "C. Dahl")
    found = resolve([profile(name, documents=["a"]) for name in names])
    assert found.clusters == ()
    assert [link.veto for link in found.band(Band.REVIEW)] == ["could be either of two"] * 4


def test_a_decision_about_two_ends_a_contest_in_whatever_order() -> None:
    people = [
        profile("Jane Smith", documents=["a"]),
        profile("John Smith", documents=["a"], region="north"),
        profile("J. Smith", documents=["a"], region="north"),
    ]
    assert "could be either of two" in {link.veto for link in resolve(people).links}
    found = resolve(people, same("Person:john smith", "Person:jane smith"))
    assert "could be either of two" not in {link.veto for link in found.links}


PARTS = ("Jane", "Jan", "J.", "Bill", "William", "US President", "Barack", "Smith", "Smyth", "van Smith", "Obama", "B.")
SPELT = st.one_of(
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map(" ".join),
    st.tuples(st.sampled_from(PARTS), st.lists(st.sampled_from(PARTS), min_size=1, max_size=2).map(" ".join)).map(
        ", ".join
    ),
    st.sampled_from(["Jane Smith Jr.", "Smith & Obama", "Łukasz Smith", "王小明", "Dr. Smith", "Mr. Jan Smith"]),
)
PERSONS = st.builds(
    lambda names, documents, email: Profile(
        f"Person:{sorted(names)}",
        "Person",
        frozenset(names),
        {"email": frozenset([email])} if email else {},
        frozenset(documents),
    ),
    st.lists(SPELT, min_size=1, max_size=2),
    st.sets(st.sampled_from("ab"), min_size=1),
    st.sampled_from(["", "", "j@a.example"]),
)


@settings(max_examples=400, deadline=None)
@given(one=PERSONS, other=PERSONS, size=st.sampled_from([10, 1_000, 30_000, 10_000_000]))
def test_a_pair_that_is_dismissed_at_first_sight_would_be_no_link(one: Profile, other: Profile, size: int) -> None:
    scorer = Scorer(Statistics(size, {"surname": {"smith": 5}}))
    one, other = sorted((one, other), key=lambda profile: profile.key)
    link = compare(scorer, one, other)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "are_far", lambda *names: False)
        assert compare(scorer, one, other) == link


@pytest.mark.parametrize(
    ("one", "other", "far"),
    [
        ("Jane Smith", "Jane Kowalski", True),
        ("Jane Smith", "Robert Smith", True),
        ("J. Smith", "Robert Smith", True),
        ("Jane A. Smith", "Robert Smith", True),
        ("Smith", "Jane Kowalski", True),
        ("Smith", "Jane Smith", False),
        ("Smith Jane", "Jane Smith", False),
        ("Bill Smith", "William Smith", False),
        ("Barack Obama", "US President Barack Obama", False),
    ],
)
def test_most_pairs_are_dismissed_at_first_sight(one: str, other: str, far: bool) -> None:
    scorer = Scorer(Statistics(100_000, {}))
    assert (scorer.compare(profile(one), profile(other)) is scoring._FAR) is far


ELDER = {"identifier": "6988048", "birth_date": "19410211"}
YOUNGER = {"identifier": "1237719", "birth_date": "19851130"}


@pytest.mark.parametrize("several", [True, False])
def test_a_name_of_several_people_is_one_with_no_other(several: bool) -> None:
    """Its documents give two numbers and two birthdays."""
    facts = {kind: frozenset([value, YOUNGER[kind]] if several else [value]) for kind, value in ELDER.items()}
    one = Profile("Person:jane smith", "Person", frozenset(["Jane Smith"]), facts)
    other = Profile(
        "Person:smith, jane",
        "Person",
        frozenset(["Smith, Jane"]),
        {kind: frozenset([value]) for kind, value in ELDER.items()},
    )
    (link,) = resolve([one, other]).links
    assert link.band is (Band.NEW if several else Band.MERGE)
    assert link.veto == ("a name of several people" if several else None)
