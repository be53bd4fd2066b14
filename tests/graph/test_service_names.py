"""Our rules for service-content's names, held against the rules of its own source (`service_content_rules`)."""

import service_content_rules as rules
from hypothesis import given, settings
from hypothesis import strategies as st

from ec1.extraction.results import ENTITY_CLASSES
from ec1.graph.service_names import alias_block, could_alias, is_cleaned, service_key

WORDS = (
    "Woodfine", "Woodfines", "Wood", "Browne", "Brown", "Peter", "Pete", "M.", "J.", "Corporation", "Limited", "Inc.",
    "LLC", "Capital", "Projects", "Project", "and", "the", "The", "3M", "20260520", "A/S", "(UK)", "a_b", "ACME", "+",
    "Smith,", "model", "Systems", "build.py", "$HOME", "`x`", "n/a", "Ångström", "élan", "\u0130zmir", "x:y",
)  # fmt: skip
NAMES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=10).map(" ".join) | st.text(max_size=12).map(str.strip)
SAID = st.tuples(NAMES, st.sampled_from(ENTITY_CLASSES))


@given(st.lists(SAID, min_size=2, max_size=40))
@settings(max_examples=400, deadline=None)
def test_whatever_the_service_would_make_one_is_known_beforehand(said: list[tuple[str, str]]) -> None:
    by_key: dict[tuple[str, str], list[str]] = {}
    for name, entity_class in said:
        by_key.setdefault((entity_class, rules.key_of(name)), []).append(name)
    for entity_class in ENTITY_CLASSES:
        for one, other in rules.aliases_in([each for each in said if each[1] == entity_class]).items():
            assert any(
                alias_block(first, entity_class) == alias_block(second, entity_class) and could_alias(first, second)
                for first in by_key[entity_class, one]
                for second in by_key[entity_class, other]
            )


@given(NAMES, st.sampled_from(ENTITY_CLASSES))
@settings(max_examples=1000, deadline=None)
def test_keys_and_what_the_clean_up_deletes_are_known_beforehand(name: str, entity_class: str) -> None:
    assert service_key(name) == rules.key_of(name)
    assert is_cleaned(name, entity_class) == rules.is_cleaned(name, entity_class)


def test_names_that_it_makes_one_for_good() -> None:
    for one, other in (
        ("Browne LLC", "Brown Inc"),
        ("Woodfine Corporation", "Woodfines Limited"),
        ("Jennifer M. Woodfine", "Jennifer Woodfine"),
    ):
        assert rules.aliases_in([(one, "Company"), (other, "Company")]), "the service would"
        assert alias_block(one, "Company") == alias_block(other, "Company") and could_alias(one, other)
    assert not could_alias("Acme Holdings", "Acme Robotics")
