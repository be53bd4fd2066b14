"""A deployment's own classes and relations: what is asked, what is trusted; and nothing changes where none are set."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ec1.deployment import Deployment
from ec1.documents.chunks import Chunk
from ec1.errors import DeferredError, InputError
from ec1.extraction import schema
from ec1.extraction.defence import instructions
from ec1.extraction.naming import decision, grounding, relations
from ec1.extraction.naming.baseline import names_of
from ec1.extraction.prompt import messages, prompt_names
from ec1.extraction.reading import extractor as extractor_module
from ec1.extraction.reading import fields
from ec1.extraction.reading.extractor import Extractor
from ec1.extraction.schema import Named, Stated
from ec1.extraction.settings import ExtractionSettings
from ec1.gpu.engine import ServedAdapter
from ec1.vocabulary import CONTRACT, CONTRACT_CLASSES, CONTRACT_RELATIONS, Vocabulary, read_example

SMALL = "HuggingFaceTB/SmolLM2-135M-Instruct"
SHIP: dict[str, Any] = {
    "name": "Ship",
    "description": "a vessel at sea, by its name.",
    "examples": ["The [Aurora Star] left [Lisbon|Location] under [Ines Duarte|Person].", "We boarded the [Kestrel]."],
    "words": ["MV", "vessel"],
    "sent_as": "Project",
}
STATUTE: dict[str, Any] = {
    "name": "Statute",
    "description": "a law that was passed",
    "examples": ["Under the [Harbour Dues Act 1999] the fee is due at [Port Ellis|Location]."],
    "keeps": ["laws"],
    "sent_as": "Project",
}
SAILS: dict[str, Any] = {
    "name": "sails_for",
    "subjects": ["Ship"],
    "objects": ["Company"],
    "examples": ["The [Kestrel|Ship] sails for [Blue Line|Company]."],
}
OWN: dict[str, Any] = {"classes": ["Person", "Company", "Location", SHIP, STATUTE]}
INFERENCE = {"kind": "server", "base_url": "http://127.0.0.1:1", "model": "some/model"}


def settings_of(**values: Any) -> ExtractionSettings:
    return ExtractionSettings.model_validate(values)


def vocabulary_of(**values: Any) -> Vocabulary:
    return settings_of(**(values or OWN)).vocabulary


def fingerprint(**values: Any) -> str:
    return Extractor(settings_of(**values), "some/model", "main", Path("nowhere")).fingerprint("meeting")


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


# --- nothing changes where nothing is set


def test_the_contracts_prompt_grammar_and_questions_are_the_same_bytes_as_ever() -> None:
    """As they were before a deployment could have classes of its own: a change reads every document again."""
    asked = {
        stated: (digest(messages("T", "meeting", relations=stated)), digest(schema.answer_schema(stated)))
        for stated in (False, True)
    }
    assert asked[False] == ("d4dde6ffec0b25eb", "eee6552f1799af77")
    assert asked[True] == ("35b33cb585af7db7", "94b3d90129cf347a")
    assert digest(decision.questions(Chunk(0, 0, 5, "Ann A"), ["Ann"])) == "d6ccb2d38b8be985"


@pytest.mark.parametrize(
    ("mode", "stated", "expected"),
    [
        ("answer", False, "1a8b759659e32171b8ed933201ba8cab703e763e8adcfcbcaa0990a08d42d80d"),
        ("answer", True, "a61466601bd74ec2ddbe364f44e4acc83d6cea0b9eb8db6b291be92643063caf"),
        ("decide", False, "092b7c9295f5c5bdf42b93a3e41164fe46c4e40e53099e06312ea5dd0848e45a"),
        ("both", True, "647e0976ab28eeb006470bf19432921139153d07eb3511f2d25b8b5f231bd3ba"),
    ],
)
def test_the_fingerprint_of_the_contracts_classes_is_what_it_was(
    mode: str, stated: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The rule and the parser of that time, which have their own places in a fingerprint.
    monkeypatch.setattr(instructions, "rule", lambda: 1)
    monkeypatch.setattr(extractor_module, "PARSER_VERSION", 2)
    monkeypatch.setattr(grounding, "GROUNDING_VERSION", 4)
    named = {"classes": list(CONTRACT_CLASSES), "relation_types": list(CONTRACT_RELATIONS)}
    for classes in ({}, named):
        # The default of that time.
        settings = settings_of(mode=mode, relations=stated, min_confidence=0.0, **classes)
        assert Extractor(settings, SMALL, "main", Path("nowhere")).fingerprint("meeting") == expected


def test_an_adapters_fingerprint_is_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "rule", lambda: 1)
    monkeypatch.setattr(extractor_module, "PARSER_VERSION", 2)
    monkeypatch.setattr(grounding, "GROUNDING_VERSION", 4)
    adapter = ServedAdapter("extractor@x", Path("/x"), "d" * 64, 16)
    read = Extractor(settings_of(mode="both"), "some/model", "main", Path("nowhere"), adapter).fingerprint("meeting")
    assert read == "221626a1ccd6528dda87357f506d18d9b26becd31ec658f75ed6181b9ef3c80a"


# --- what may be said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": ["Person", "Ship"]}, "'Ship' is not a class of the contract"),
        ({"classes": ["Person", "Person"]}, "two classes have the same class 'person'"),
        ({"classes": []}, "at least 1 item"),
        ({"classes": [SHIP]}, "names the class 'Location', which is none of Ship"),
        ({"classes": [*OWN["classes"], SHIP]}, "the same class 'ship'"),
        ({"classes": ["Person", "Location", SHIP | {"label": "person"}]}, "the same label 'person'"),
        ({"classes": ["Person", "Location", SHIP | {"label": "none"}]}, "a word of EC1's own"),
        ({"classes": ["Person", "Location", SHIP | {"name": "All"}]}, "a word of EC1's own"),
        ({"classes": ["Person", SHIP | {"name": "Person"}]}, "is a class of the contract"),
        ({"classes": ["Person", "Location", SHIP | {"colour": "red"}]}, "colour"),
        ({"classes": ["Person", "Location", SHIP | {"examples": ["We boarded it."]}]}, "mark each name"),
        ({"classes": ["Person", "Location", SHIP | {"examples": ["To [Lisbon|Location]."]}]}, "names none"),
        ({"classes": ["Person", "Location", SHIP | {"examples": ["A [Kestrel] and a [[Heron]."]}]}, "mark each name"),
        ({"classes": ["Person", "Location", SHIP | {"description": "a\tship"}]}, "control character"),
        ({"classes": [*OWN["classes"], STATUTE | {"name": "Rule"}]}, "the same keeps 'laws'"),
        (OWN | {"relation_types": ["sails_for"]}, "not a relation of the contract"),
        (OWN | {"relation_types": [SAILS | {"subjects": ["Boat"]}]}, "subject and then an object"),
        (OWN | {"relation_types": [SAILS | {"objects": ["Company", "Boat"]}]}, "names the class 'Boat'"),
        (OWN | {"relation_types": [SAILS | {"examples": ["The [Kestrel|Ship] sank."]}]}, "subject and then an object"),
    ],
)
def test_what_does_not_fit_together_is_refused_with_a_sentence(change: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        settings_of(**change)


@given(st.text(max_size=40))
def test_a_name_is_refused_unless_it_is_harmless_everywhere(name: str) -> None:
    """It becomes the first part of a key, a word of the grammar and of the prompt."""
    try:
        settings_of(classes=["Person", "Location", SHIP | {"name": name, "label": "ship"}])
    except ValidationError:
        return
    assert re.fullmatch("[A-Z][A-Za-z0-9]+", name) and len(name) <= 32


@given(st.text(max_size=60))
def test_an_example_is_refused_or_holds_its_names(marked: str) -> None:
    try:
        example = read_example(marked, "Ship")
    except ValueError:
        return
    assert example.names
    assert all(name in " ".join(example.text.split()) for name, _ in example.names)


def test_service_content_needs_to_know_what_an_own_class_is_there() -> None:
    base = {"name": "here", "tenant": "acme", "recipes": [], "inference": INFERENCE}
    classes = ["Person", "Location", SHIP | {"sent_as": None}]
    Deployment.model_validate(base | {"extraction": {"classes": classes}})
    with pytest.raises(ValidationError, match=r"add `sent_as: Person \| .*` to the class Ship"):
        Deployment.model_validate(
            base | {"extraction": {"classes": classes}, "graph_stores": ["ladybug", "service_content"]}
        )


def test_an_adapter_is_not_served_with_other_classes() -> None:
    adapter = ServedAdapter("extractor@x", Path("/x"), "d" * 64, 16)
    with pytest.raises(InputError, match=r"trained for Person, .* only"):
        Extractor(settings_of(**OWN), "some/model", "main", Path("nowhere"), adapter)


# --- what is asked


def test_prompt_and_grammar_follow_the_deployments_classes() -> None:
    vocabulary = vocabulary_of()
    asked = messages("We met.", "meeting", vocabulary=vocabulary)
    assert asked[0]["content"].startswith(
        "You list every person, company, location, ship and statute that is named in the text, as JSON. "
        "Ship: a vessel at sea, by its name. Statute: a law that was passed. "
    )
    answers = [each["content"] for each in asked if each["role"] == "assistant"]
    assert answers[-1] == (
        '{"entities":[{"name":"Harbour Dues Act 1999","class":"Statute"},{"name":"Port Ellis","class":"Location"}]}'
    )
    read = [schema.decode_answer(answer, "stop", relations=False, vocabulary=vocabulary) for answer in answers]
    assert {each.entity_class for answer in read for each in answer.entities} == set(vocabulary.classes)
    assert "Kestrel" in prompt_names(vocabulary) and "Kestrel" not in prompt_names()
    with pytest.raises(DeferredError, match="not of our schema"):
        schema.decode_answer(
            '{"entities":[{"name":"Heron","class":"Project"}]}', "stop", relations=False, vocabulary=vocabulary
        )


def test_no_example_contradicts_the_deployments_classes() -> None:
    """None names what is of a class that is gone, and none shows a law as no name where laws are names."""
    vocabulary = vocabulary_of()
    text = json.dumps(messages("x", "meeting", vocabulary=vocabulary))
    assert "Project" not in text and "Harbour Upgrade" not in text and "Consumer Rights Act" not in text
    (question,) = decision.questions(Chunk(0, 0, 1, "x"), ["x"], vocabulary)
    assert "Consumer Rights Act" not in question and "Project Heron" not in question
    assert question.startswith(
        "Say what each name in the text is: person, company (any organisation), place, ship (a vessel at sea, by its "
        "name), statute (a law that was passed), or none (no name)."
    )
    assert "\nAurora Star = ship\nLisbon = place\nInes Duarte = person\n" in question


def test_labels_and_decisions_are_of_the_deployments_classes() -> None:
    vocabulary = vocabulary_of()
    words = decision.labels(vocabulary)
    assert list(words.values()) == [" person", " company", " place", " ship", " statute", " none"]
    content = json.dumps(
        {"answer": "", "decided": [{"start": 0, "end": 3, "source": "part", "scores": [-9, -9, -9, -1, -9, -2]}]}
    )
    _, (decided,) = decision.decode(content, vocabulary)
    assert (decided.best, decided.of("Ship"), decided.of(None)) == ("Ship", -1, -2)


def test_a_model_that_cannot_tell_two_labels_apart_is_refused(words: Path) -> None:
    """The tokenizer of these tests knows neither of the two words: they are one token to it."""
    extractor = Extractor(settings_of(mode="decide", **OWN), "some/model", "main", words)
    with pytest.raises(InputError, match="'ship' and 'statute': give one of them another `label`"):
        extractor.check()


def test_examples_that_leave_no_room_are_refused_before_anything_is_asked(words: Path) -> None:
    extractor = Extractor(settings_of(**OWN), "some/model", "main", words)
    extractor.max_model_len = 4096
    extractor.check()
    extractor.max_model_len = 1500
    with pytest.raises(InputError, match=r"take 1,\d+ tokens, .* 1,500"):
        extractor.check()


def test_what_decides_results_is_in_the_fingerprint_and_nothing_else() -> None:
    def own(**change: Any) -> str:
        return fingerprint(classes=["Person", "Company", "Location", SHIP | change])

    changes: list[dict[str, Any]] = [
        {},
        {"description": "a boat"},
        {"examples": SHIP["examples"][:1]},
        {"words": ["MV"]},
        {"keeps": ["numbers"]},
        {"label": "boat"},
        {"name": "Vessel"},
    ]
    prints = [own(**change) for change in changes]
    assert len({*prints, fingerprint(), fingerprint(classes=["Person"])}) == len(prints) + 2
    assert own(sent_as="Company") == own()
    assert own(words=["vessel", "MV"]) == own()


# --- what is trusted


def ground(text: str, *named: tuple[str, str], vocabulary: Vocabulary | None = None) -> dict[str, str]:
    vocabulary = vocabulary or vocabulary_of()
    chunk = Chunk(0, 0, len(text), text)
    mentions, _ = grounding.ground([Named(*each) for each in named], chunk, text, vocabulary=vocabulary)
    return {each.name: each.entity_class for each in mentions}


def test_a_name_keeps_the_own_class_that_the_model_gave_it() -> None:
    """`Lake …` and `Bank of …` prove a place and a firm, where nothing else is a class."""
    assert ground("The Lake Superior sailed.", ("Lake Superior", "Ship")) == {"Lake Superior": "Ship"}
    assert ground("The Lake Superior froze.", ("Lake Superior", "Person")) == {"Lake Superior": "Location"}


def test_words_prove_an_own_class() -> None:
    assert ground("MV Aurora and the vessel Heron met Kestrel.", ("MV Aurora", "Person"), ("Heron", "Company")) == {
        "MV Aurora": "Ship",
        "Heron": "Ship",
    }
    assert ground("The vessel Blue Line Ltd chartered sank.", ("Blue Line Ltd", "Person")) == {
        "Blue Line Ltd": "Company"
    }


def test_what_a_class_keeps_is_no_longer_dropped_and_is_of_that_class() -> None:
    text = "The Consumer Rights Act applies from Monday."
    assert ground(text, ("Consumer Rights Act", "Statute"), ("Monday", "Statute")) == {"Consumer Rights Act": "Statute"}
    assert ground(text, ("Consumer Rights Act", "Company")) == {"Consumer Rights Act": "Statute"}
    assert ground(text, ("Consumer Rights Act", "Company"), vocabulary=CONTRACT) == {}


def test_a_class_that_is_not_there_is_never_given() -> None:
    """Neither a proof, nor a field, nor the base line brings one in."""
    people = vocabulary_of(classes=["Person", "Company"])
    assert ground("Lake Erie called from Lake Erie.", ("Lake Erie", "Company"), vocabulary=people) == {
        "Lake Erie": "Company"
    }
    text = "location: Graz\nauthor: Ann Lee\n\nIt rained."
    assert {each.entity_class for each in fields.mentions_in(text, 33, people)} == {"Person"}
    assert {kind for _, kind in names_of("We saw Lake Erie with Ann Lee and Oslo.", people)} <= {"Person", "Company"}


def test_the_base_line_knows_an_own_class_by_its_words() -> None:
    found = names_of("We boarded the MV Aurora and the Ship Heron.", vocabulary_of())
    assert {("mv aurora", "Ship"), ("ship heron", "Ship")} <= found


# --- relations


def test_own_relations_are_asked_for_and_hold_between_their_classes_only() -> None:
    vocabulary = vocabulary_of(**OWN, relations=True, relation_types=["works_at", "owns_account", SAILS])
    # Accounts are gone, and with them what is said of them.
    assert vocabulary.relations == ("works_at", "sails_for")
    asked = messages("x", "meeting", relations=True, vocabulary=vocabulary)
    assert asked[0]["content"].endswith("between two of them: works_at, sails_for.")
    assert asked[-2]["content"].endswith(
        '"relations":[{"subject":"Kestrel","relation":"sails_for","object":"Blue Line"}]}'
    )
    enum = schema.answer_schema(True, vocabulary)["properties"]["relations"]["items"]["properties"]["relation"]["enum"]
    assert enum == ["works_at", "sails_for"]

    text = "MV Kestrel sails for Blue Line Ltd, where Ann Lee works."
    named = [Named("MV Kestrel", "Ship"), Named("Blue Line Ltd", "Company"), Named("Ann Lee", "Person")]
    chunk = Chunk(0, 0, len(text), text)
    mentions, _ = grounding.ground(named, chunk, text, vocabulary=vocabulary)
    stated = [Stated("MV Kestrel", "sails_for", "Blue Line Ltd"), Stated("Ann Lee", "sails_for", "Blue Line Ltd")]
    located, _ = relations.locate(stated, named, mentions, chunk)
    kept, dropped = relations.settle(located, mentions, text, 0.0, vocabulary)
    assert [(each.subject, each.relation, each.object_class) for each in kept] == [
        ("MV Kestrel", "sails_for", "Company")
    ]
    assert [each.reason for each in dropped] == ["relation: the classes do not fit"]


def test_an_own_relation_is_in_the_fingerprint_where_relations_are_asked_for() -> None:
    wider = SAILS | {"objects": ["Company", "Person"]}
    prints = {fingerprint(**OWN, relations=True, relation_types=[each]) for each in (SAILS, wider)}
    assert len(prints) == 2
    assert fingerprint(**OWN, relation_types=[SAILS]) == fingerprint(**OWN)
