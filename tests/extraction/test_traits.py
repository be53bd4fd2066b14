"""E-mail addresses that a document gives for a person: found beside the name or spelt by it, never guessed."""

import pytest

from ec1.extraction.naming.traits import traits_of
from ec1.extraction.results import Mention


def traits(text: str, *names: str) -> dict[str, str]:
    mentions = [
        Mention(
            name=name,
            entity_class="Company" if name.startswith("Acme") else "Person",
            confidence=0.9,
            chunk=0,
            start=text.index(name),
            end=text.index(name) + len(name),
        )
        for name in names
    ]
    return {trait.name: trait.value for trait in traits_of(text, mentions)}


@pytest.mark.parametrize(
    "text",
    [
        "From: Jane Smith <jane@acme.example>",
        "Jane Smith (e-mail: jane@acme.example) called",
        "Jane Smith, jane@acme.example, and others",
        "Jane Smith\nEmail: JANE@acme.example",
    ],
)
def test_an_address_beside_a_name_is_that_persons(text: str) -> None:
    assert traits(text, "Jane Smith") == {"Jane Smith": "jane@acme.example"}


@pytest.mark.parametrize("local", ["jane.smith", "jsmith", "smith-jane", "JaneSmith"])
def test_an_address_that_spells_a_name_is_that_persons(local: str) -> None:
    text = f"Jane Smith met Ben Cole. Write to {local}@acme.example"
    assert traits(text, "Jane Smith", "Ben Cole") == {"Jane Smith": f"{local.lower()}@acme.example"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Jane Smith <info@acme.example>", ["Jane Smith"]),
        ("Jane Smith wrote. Somebody else: x17@acme.example", ["Jane Smith"]),
        ("Jane Smith and John Smith share jsmith@acme.example", ["Jane Smith", "John Smith"]),
        ("Acme Inc <acme@acme.example>", ["Acme Inc"]),
        ("Jane Smith @ noon", ["Jane Smith"]),
    ],
)
def test_what_is_nobodys_or_anybodys_is_left(text: str, names: list[str]) -> None:
    assert traits(text, *names) == {}
