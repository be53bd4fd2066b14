"""Forms of names as other languages, countries and habits write them: which are one, and which only look so."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ec1.graph.model import entity_key
from ec1.graph.resolution import names
from ec1.graph.resolution.clusters import Band, Resolution, resolve
from ec1.graph.resolution.names import person_name, thing_name
from ec1.graph.resolution.profile import Profile


def together(*names: str, entity_class: str = "Person", document: str = "a") -> Resolution:
    """The resolution of names that one document mentions; of none if there is no document."""
    return resolve(
        Profile(entity_key(name, entity_class), entity_class, frozenset([name]), {}, frozenset(document))
        for name in names
    )


def band(one: str, other: str, entity_class: str = "Person", document: str = "") -> Band | None:
    links = together(one, other, entity_class=entity_class, document=document).links
    return links[0].band if links else None


def test_a_mark_that_makes_another_letter_makes_another_name() -> None:
    assert person_name("राहुल शर्मा").words == ("राहुल", "शर्मा")
    assert thing_name("パリ", "Location") != thing_name("バリ", "Location")
    assert band("パリ", "バリ", "Location", "a") is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Gogh, Vincent van", "Vincent van Gogh"),
        ("Leyen, Ursula von der", "Ursula von der Leyen"),
        ("Beethoven, Ludwig van", "van Beethoven, Ludwig"),
        ("TJ Hollis", "T. J. Hollis"),
        ("Hollis TJ", "Hollis, T. J."),
        ("Łukasz Żak", "Lukasz Zak"),
        ("Nguyễn Văn An", "Nguyen Van An"),
        ("Владимир Орлов", "Orlov, Vladimir"),
    ],
)
def test_forms_of_a_person_are_merged(one: str, other: str) -> None:
    assert band(one, other) is Band.MERGE


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("JL Picard", "Jean-Luc Picard"),
        ("Picard JL", "Jean-Luc Picard"),
        ("Jean-Luc Picard", "J.-L. Picard"),
        ("王小明", "Wang Xiaoming"),
        ("王小明", "Xiaoming Wang"),
    ],
)
def test_a_person_who_may_be_the_one_is_for_review(one: str, other: str) -> None:
    assert band(one, other) is Band.REVIEW


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # Both are said Wang Xiaoming.
        ("王小明", "王晓明"),
        ("JR Hollis", "TJ Hollis"),
        # No name of two words that ends in its given name's initials.
        ("HOLLIS TJ", "Thomas Jones Hollis"),
    ],
)
def test_people_who_only_look_or_sound_alike_stay_apart(one: str, other: str) -> None:
    assert band(one, other, document="a") is None


def test_firms_that_sound_alike_are_for_review_at_most() -> None:
    assert band("华为技术", "Huawei Jishu", "Company") is Band.REVIEW
    # Both are said Shixin.
    assert band("世新科技", "时新科技", "Company", "a") is None


def test_how_a_name_sounds_merges_nobody_whatever_the_size_of_the_graph() -> None:
    """In a large graph a rare name is worth more bits; that two names sound alike still proves nothing."""
    crowd = [f"Given{number} Surname{number}" for number in range(3000)]
    found = together("王小明", "Wang Xiaoming", *crowd, document="")
    assert [link.band for link in found.links if "王" in link.other or "王" in link.one] == [Band.REVIEW]


def test_degrees_titles_and_generations_are_no_initials() -> None:
    for name in ("Jane Hollis MD", "Jane Hollis MBA"):
        assert person_name(name) == person_name("Jane Hollis")
    assert person_name("DR Hollis").single == "hollis"
    assert person_name("Peter Hollis II").generation == "ii"
    assert person_name("AL Hollis").given == "a"


# Beside those of `test_resolution.py`; each is the form that ISO 20275 or the country's register shows.
FORMS = [
    "Tessera S.A. de C.V.", "Tessera Pvt. Ltd.", "Tessera Pte Ltd", "Tessera SE", "Tessera S.L.U.", "Tessera EOOD",
    "Tessera OÜ", "Tessera SIA", "Tessera Tbk", "Tessera UG (haftungsbeschränkt)", "Tessera gGmbH", "Tessera JSC",
    "Tessera Pty Ltd", "Tessera K.K.", "Tessera d.o.o.", "Tessera Zrt.", "Tessera A.Ş.", "Tessera Sdn Bhd",
    "OOO Tessera", "UAB Tessera", "SARL Tessera",
]  # fmt: skip


@pytest.mark.parametrize("firm", FORMS)
def test_legal_forms_of_a_firm_are_no_part_of_its_name(firm: str) -> None:
    assert band(firm, "Tessera AG", "Company") is Band.MERGE
    assert band(firm, "Tessera AG", "Company", "a") is Band.MERGE, "nor where both are in one document"
    assert band(firm, "Mosaica AG", "Company") is None


@pytest.mark.parametrize(
    ("firm", "name"),
    [
        ("ООО «Ромашка»", "Ромашка"),
        ("株式会社テッセラ", "テッセラ"),
        ("テッセラ株式会社", "テッセラ"),
        ("北京特塞拉有限公司", "北京特塞拉"),
        ("주식회사 테세라", "테세라"),
    ],
)
def test_legal_forms_in_other_scripts(firm: str, name: str) -> None:
    assert band(firm, name, "Company") is Band.MERGE


@pytest.mark.parametrize(("one", "other"), [("SAS Institute", "Institute"), ("SIA Engineering", "Engineering")])
def test_a_name_that_begins_like_a_legal_form_keeps_its_beginning(one: str, other: str) -> None:
    assert band(one, other, "Company") is not Band.MERGE


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("BBC", "British Broadcasting Corporation"),
        ("NASA", "National Aeronautics and Space Administration"),
        ("WHO", "World Health Organization (WHO)"),
        ("B.M.W.", "Bayerische Motoren Werke AG"),
    ],
)
def test_an_acronym_is_its_name_in_one_document_and_nowhere_else(short: str, long: str) -> None:
    assert band(short, long, "Company", "a") is Band.MERGE
    assert band(short, long, "Company") is None


def test_an_acronym_in_brackets_is_no_part_of_a_name() -> None:
    for document in ("", "a"):
        one, other = "World Health Organization (WHO)", "World Health Organization"
        assert band(one, other, "Company", document) is Band.MERGE
    assert thing_name("Marlow Trading (EMEA)", "Company").words == ("marlow", "trading", "emea")


def test_an_acronym_of_two_in_one_document_is_for_review() -> None:
    names = ("BBC", "British Broadcasting Corporation", "Baltic Bridge Company")
    found = together(*names, entity_class="Company")
    assert found.clusters == ()
    reviewed = {frozenset((link.one, link.other)) for link in found.band(Band.REVIEW)}
    ends = [frozenset(entity_key(each, "Company") for each in pair) for pair in itertools.combinations(names, 2)]
    assert reviewed == set(ends[:2])


WORDS = (
    "Jane",
    "Van",
    "Berg",
    "Dr",
    "Junior",
    "Ii",
    "Phd",
    "And",
    "de",
    "JL",
    "O'Neil",
    "Al",
    "Ma",
    "Łukasz",
    "Smith,",
)


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join))
def test_names_of_two_words_are_taken_apart_as_all_others_are(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        quick = person_name.__wrapped__(name)
        patch.setattr(names, "_TWO_WORDS", re.compile("never"))
        assert person_name.__wrapped__(name) == quick
