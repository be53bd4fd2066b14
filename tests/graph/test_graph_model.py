"""Identity: what makes two names one entity, and what keeps them apart."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ec1.errors import RejectedError
from ec1.graph.model import clean_name, entity_key, preferred_name


@pytest.mark.parametrize(
    ("one", "other", "entity_class"),
    [
        ("Acme Inc", "ACME, Incorporated", "Company"),
        ("Acme\n  Inc.", "acme", "Company"),
        ("Acme™", "Acme", "Company"),
        ("Acme GmbH;", "ACME gmbh", "Account"),
        ("  Maria \t Alvarez ", "maria alvarez.", "Person"),
        ("Café", "Cafe\u0301", "Location"),
        ("STRASSE", "straße", "Location"),
    ],
)
def test_spellings_of_one_entity(one: str, other: str, entity_class: str) -> None:
    assert entity_key(one, entity_class) == entity_key(other, entity_class)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("Paris", "Person"), ("Paris", "Location")),
        (("Vinci", "Company"), ("Vincinc", "Company")),
        (("3M", "Company"), ("3", "Company")),
        (("Harbour Limited", "Project"), ("Harbour", "Project")),
        (("Murfreesboro, Tennessee", "Location"), ("Murfreesboro", "Location")),
        (("Smith, Jones LLP", "Company"), ("Smith", "Company")),
    ],
)
def test_different_entities(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert entity_key(*one) != entity_key(*other)


def test_only_one_legal_suffix_goes_and_never_the_whole_name() -> None:
    assert entity_key("1031 Exchange Corp", "Company") == "Company:1031 exchange"
    assert entity_key("Limited Company Inc", "Company") == "Company:limited company"
    assert entity_key("Inc.", "Company") == "Company:inc"
    assert entity_key("...", "Company") == "Company:..."


@pytest.mark.parametrize("blank", ["", "  \n", "\t"])
def test_a_blank_name_is_no_entity(blank: str) -> None:
    with pytest.raises(RejectedError, match="blank"):
        entity_key(blank, "Person")


@given(st.text(), st.sampled_from(["Person", "Company"]))
def test_a_key_can_always_be_stored_and_spelled_any_way(name: str, entity_class: str) -> None:
    if not clean_name(name):
        return
    key = entity_key(name, entity_class)
    key.encode()
    assert key.startswith(f"{entity_class}:") and len(key) > len(entity_class) + 1
    assert entity_key(clean_name(name), entity_class) == key
    assert entity_key(f"  {name}\n", entity_class) == key


def test_half_characters_and_nul_are_replaced() -> None:
    assert clean_name("Bob\ud800\0") == "Bob��"


def test_the_preferred_spelling_depends_on_the_set_only() -> None:
    names = ["acme", "ACME INC", "Acme Inc", "Acme"]
    assert {preferred_name(order) for order in itertools.permutations(names)} == {"Acme Inc"}
    step = names[0]
    for name in names[1:]:
        step = preferred_name({step, name})
    assert step == "Acme Inc"
