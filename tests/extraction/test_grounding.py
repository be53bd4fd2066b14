"""Trust: what is located, what is dropped and why, and what the text proves."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ec1.documents.chunks import Chunk
from ec1.extraction.folding import Folded, normalised
from ec1.extraction.naming.grounding import ground, places_of, settle, trimmed, without_rivals
from ec1.extraction.prompt import PROMPT_NAMES
from ec1.extraction.results import Dropped, Mention
from ec1.extraction.schema import MAX_NAME_CHARACTERS, Named


def grounded(text: str, *named: tuple[str, str], start: int = 0) -> tuple[list[Mention], list[Dropped]]:
    return ground([Named(*each) for each in named], Chunk(0, start, len(text), text[start:]), text)


def names(text: str, *named: tuple[str, str]) -> list[tuple[str, str]]:
    return [(each.name, each.entity_class) for each in grounded(text, *named)[0]]


def reason(text: str, name: str, entity_class: str = "Company") -> str:
    mentions, dropped = grounded(text, (name, entity_class))
    assert mentions == []
    return dropped[0].reason


@pytest.mark.parametrize(
    ("text", "name", "stands"),
    [
        ("We met Ann Lee there.", "Ann Lee", "Ann Lee"),
        ("We met Ann\n  Lee there.", "Ann Lee", "Ann\n  Lee"),
        ("We met Ann\u00a0Lee there.", "Ann Lee", "Ann\u00a0Lee"),
        ("We met ANN LEE there.", "Ann Lee", "ANN LEE"),
        ("Hector Villaseñor called.", "Hector Villasenor", "Hector Villaseñor"),
        ("Hector Villasen\u0303or called.", "Hector Villaseñor", "Hector Villasen\u0303or"),
        ("Straße GmbH called.", "STRASSE GmbH", "Straße GmbH"),
        ("Ed O’Malley called.", "Ed O'Malley", "Ed O’Malley"),
        ("Wei‑Ling Chen called.", "Wei-Ling Chen", "Wei‑Ling Chen"),
        ("It is Alvarez's report.", "Alvarez's", "Alvarez"),
        ("It is Alvarez's report.", "Alvarez's report", "Alvarez"),
        ("He spoke with Imani Grove about it.", "spoke with Imani Grove about it", "Imani Grove"),
        ("the Sparrow Hill redevelopment is late", "Sparrow Hill redevelopment", "Sparrow Hill redevelopment"),
        ("Dr. Lena Fischer called.", "Dr. Lena Fischer", "Lena Fischer"),
        ("Mr Renner called.", "Mr Renner", "Mr Renner"),
        ("It is Alvarez’s report.", "Alvarez", "Alvarez"),
        ("It is Alvarez’s report.", "Alvarez’s", "Alvarez"),
        ("We met Jose\u0301 there.", "José", "Jose\u0301"),
        ("We met Jose\u0301\u0323 there.", "José", "Jose\u0301\u0323"),
        ("by Acme Widgets Inc. in May", "Acme Widgets Inc.", "Acme Widgets Inc."),
        ("by the Acme Bank in May", "the Acme Bank", "Acme Bank"),
        ("昨日田中さんが来た", "田中", "田中"),
        ("昨日パリへ行った", "ﾊﾟﾘ", "パリ"),
        ("昨日ﾊﾟﾘへ行った", "パリ", "ﾊﾟﾘ"),
        ("昨日ハ\u309aリへ行った", "パリ", "ハ\u309aリ"),
        ("葛\U000e0100城市の人", "葛城市", "葛\U000e0100城市"),
        ("مُحَمَّد جاء", "محمد", "مُحَمَّد"),
    ],
)
def test_a_name_is_located_in_the_documents_own_spelling(text: str, name: str, stands: str) -> None:
    mentions, _ = grounded(text, (name, "Person"))
    assert [text[each.start : each.end] for each in mentions] == [stands]
    assert mentions[0].name == " ".join(stands.split())


def test_every_place_is_a_mention_and_offsets_are_the_documents() -> None:
    text = "Intro. Ann Lee came. Then Ann Lee left; Ann Leeson stayed."
    mentions, _ = grounded(text, ("Ann Lee", "Person"), start=7)
    assert [each.start for each in mentions] == [7, 26]
    assert all(text[each.start : each.end] == "Ann Lee" for each in mentions)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("We met Ann Lee.", "Bob Ray", "not in the text"),
        ("We met Ann Leeson.", "Ann Lee", "not in the text"),
        ("We met Ann Lee.", min(PROMPT_NAMES), "only in the prompt"),
        ("It is due in June 2026.", "June 2026", "date"),
        ("It is due on Tuesday.", "Tuesday", "date"),
        ("It is due 12 July.", "12 July", "date"),
        ("It ended 2026-06-01.", "2026-06-01", "date"),
        ("In Q3 2026 we grow.", "Q3 2026", "date"),
        ("It costs 12,000 dollars.", "12,000 dollars", "number"),
        ("About 40 MW of it.", "40 MW", "number"),
        ("Balance Baltic Timber 7,310 Sum", "Baltic Timber 7,310", "number"),
        ("Paid Baltic Timber $7,310.50 USD", "Baltic Timber $7,310.50 USD", "number"),
        ("At 9:05 we began.", "9:05", "date"),
        ("Under the Data Protection Act we must.", "Data Protection Act", "law"),
        ("Under the Clean Air Act of 1990 we must.", "Clean Air Act of 1990", "law"),
        ("See Regulation (EU) 2019/1020 for it.", "Regulation (EU) 2019/1020", "law"),
        ("See Section 4.2 for it.", "Section 4.2", "law"),
        ("As 21 CFR 1.908 says.", "21 CFR 1.908", "law"),
        ("The GDPR applies.", "GDPR", "law"),
        ("See docs/plan.md for it.", "docs/plan.md", "path"),
        ("Stored in /var/lib/k2/readings.db now.", "/var/lib/k2/readings.db", "path"),
        ("See https://example.org/A for it.", "https://example.org/A", "path"),
        ("Write to ann@acme.example now.", "ann@acme.example", "path"),
        ("Set MAX_RETRIES now.", "MAX_RETRIES", "code identifier"),
        ("Call parse_header now.", "parse_header", "code identifier"),
        ("Call Parser.run() now.", "Parser.run()", "code identifier"),
        ("Commit 9f1c0de9f1c broke it.", "9f1c0de9f1c", "code identifier"),
        ("Use `HeaderParser` now.", "HeaderParser", "code identifier"),
        ("reviewer: N/A", "N/A", "placeholder"),
        ("owner: TBD", "TBD", "placeholder"),
        ("owner: Unknown", "Unknown", "placeholder"),
        ("We discussed pricing and supply chain.", "supply chain", "common word"),
        ("He likes to be told bad news first.", "likes to be told bad news first", "common word"),
        ("Thanks. We are done.", "Thanks", "common word"),
        ("Offer ten. An offer is made.", "Offer", "common word"),
        ("Project Manager: I agree with you there.", "Project Manager", "role"),
        ("Speaker 1: I agree with you there.", "Speaker 1", "role"),
        ("", "Ann", "not in the text"),
        ("Ann came.", "   ", "not in the text"),
        ("Ann came.", "...", "not in the text"),
    ],
)
def test_what_is_no_entity_is_dropped_with_its_reason(text: str, name: str, expected: str) -> None:
    assert reason(text, name) == expected


@pytest.mark.parametrize(
    "name",
    [
        *(
            "3M",
            "Area 51",
            "Fund 1,000 Trees",
            "1031 Exchange Corp",
            "Smith, Jones LLP",
            "Murfreesboro, Tennessee",
            "9 Mile Growers, Inc.",
            "A/S Norsk",
        ),
        *(
            "7-Eleven",
            "Booking.com",
            "Yahoo!",
            "AT&T",
            "eBay",
            "iRobot",
            "Act On Software",
            "July Systems Ltd",
            "May Lin",
        ),
        *("Bill Gates", "Section One Ltd", "O'Reilly", "X Corp.", "Rule Financial", "The Dalles", "Pier 4", "AC-44871"),
        *(
            "President Obama",
            "Head Sports GmbH",
            "Regulation Brewing Co",
            "Project Lantern",
            "K2",
            "Good Foods",
            "St. Louis",
        ),
        *(
            "U.S.",
            "100 Thieves",
            "Monday.com",
            "March Networks",
            "2nd Watch",
            "Chief Joseph",
            "Staff Sgt. Cole",
            "Team Rubicon",
        ),
    ],
)
def test_legitimate_names_pass(name: str) -> None:
    text = f"Yesterday we heard that {name} will be there again."
    mentions, dropped = grounded(text, (name, "Company"))
    assert dropped == []
    assert normalised(mentions[0].name) == normalised(name)


def test_an_account_may_be_a_number_if_the_text_says_so() -> None:
    assert names("Book it on 20931 account.", ("20931", "Account")) == [("20931", "Account")]
    assert reason("Book 20931 pallets.", "20931", "Account") == "number"


def test_a_text_without_capitals_may_have_names() -> None:
    assert names("then maria alvarez said no", ("maria alvarez", "Person")) == [("maria alvarez", "Person")]


@pytest.mark.parametrize(
    ("text", "name", "entity_class", "proven"),
    [
        ("We asked Falk & Partner GmbH twice.", "Falk & Partner GmbH", "Person", "Company"),
        ("We asked Orchard Foods Ltd. twice.", "Orchard Foods Ltd", "Location", "Company"),
        ("We asked Dr. Lena Fischer twice.", "Lena Fischer", "Company", "Person"),
        ("We asked Ms Whitcombe twice.", "Ms Whitcombe", "Company", "Person"),
        ("On the Tidewater account we wait.", "Tidewater account", "Company", "Account"),
        ("On the Tidewater account we wait.", "Tidewater", "Company", "Account"),
        ("We call it Project Lantern here.", "Project Lantern", "Company", "Project"),
        ("We call it Project Lantern here.", "Lantern", "Company", "Project"),
        ("TESS OKAFOR: I did not count.\nJUN: No?\nTESS OKAFOR: No, not one.", "Tess Okafor", "Location", "Person"),
        ("**Tess:** I did not count.\n\n**Tess:** It was loud.", "Tess", "Location", "Person"),
        ("Rates: by the hour, and in advance.", "Rates", "Account", "Account"),
        ("We asked Saltgrass Creamery twice.", "Saltgrass Creamery", "Person", "Company"),
        ("We swam in Lake Erie twice.", "Lake Erie", "Company", "Location"),
        ("It is the Redwood Rollout again.", "Redwood Rollout", "Company", "Project"),
        ("They live in Toppenish now.", "Toppenish", "Company", "Location"),
        ("We asked Imani Grove, who said no.", "Imani Grove", "Company", "Person"),
        ("Attendees: Ann Lee, Zoë Kravitz", "Zoë Kravitz", "Location", "Person"),
        ("Dear Beatriz, thank you.", "Beatriz", "Location", "Person"),
        ("We waited for Goldman Sachs then.", "Goldman Sachs", "Company", "Company"),
        ("The float is full, so Fuel Float pays for fuel.", "Fuel Float", "Company", "Company"),
        ("We saw Tidewater there.", "Tidewater", "Company", "Company"),
    ],
)
def test_the_class_is_corrected_where_the_text_proves_it(text: str, name: str, entity_class: str, proven: str) -> None:
    assert {each[1] for each in names(text, (name, entity_class))} == {proven}


def test_a_place_belongs_to_the_longest_name() -> None:
    text = "The University of Lisbon is in Lisbon; Maria Silva works there."
    found = names(text, ("Lisbon", "Location"), ("University of Lisbon", "Company"), ("Silva", "Person"))
    lisbon = ("Lisbon", "Location")
    assert found == [("University of Lisbon", "Company"), lisbon, lisbon, ("Silva", "Person")]
    mentions, dropped = grounded(text, ("Maria Silva", "Person"), ("Silva", "Person"))
    assert [each.name for each in mentions] == ["Maria Silva"]
    assert [each.reason for each in dropped] == ["part of a longer name"]


@pytest.mark.parametrize(
    ("text", "outer", "inner", "both"),
    [
        ("From Sydney, Australia it came.", ("Sydney, Australia", "Location"), ("Australia", "Location"), True),
        ("The Bank of Peru wrote.", ("Bank of Peru", "Company"), ("Peru", "Location"), True),
        ("We met Lucas Renner there.", ("Lucas Renner", "Person"), ("Lucas", "Person"), False),
        ("We flew to New York then.", ("New York", "Location"), ("York", "Location"), False),
    ],
)
def test_a_name_inside_a_name_counts_where_it_is_an_entity_of_its_own(
    text: str, outer: tuple[str, str], inner: tuple[str, str], both: bool
) -> None:
    kept, _ = settle(grounded(text, outer, inner)[0], 0)
    assert [each.name for each in kept] == ([outer[0], inner[0]] if both else [outer[0]])


@pytest.mark.parametrize(
    ("text", "name", "entity_class"),
    [
        ("Made in the US by people like us.", "US", "Location"),
        ("The WHO said who may come.", "WHO", "Company"),
        ("We told IT that it is slow.", "IT", "Company"),
        ("Theresa May spoke. May said that she would stay.", "May", "Person"),
        ("June, who runs the desk, was late in June.", "June", "Person"),
        (
            "We work with the French National Institute for Research in Computer Science and Automation there.",
            "French National Institute for Research in Computer Science and Automation",
            "Company",
        ),
    ],
)
def test_what_looks_like_a_word_or_a_date_is_a_name_where_the_text_says_so(
    text: str, name: str, entity_class: str
) -> None:
    assert (name, entity_class) in names(text, (name, entity_class))


def test_a_word_in_a_line_of_capitals_is_a_word() -> None:
    assert names("THIS IS FOR US ALL\nand so on.", ("US", "Location")) == []


def mention(
    name: str,
    start: int,
    chunk: int = 0,
    entity_class: str = "Person",
    confidence: float = 0.7,
    proven: bool = False,
) -> Mention:
    return Mention.model_validate(
        {
            "name": name,
            "entity_class": entity_class,
            "confidence": confidence,
            "chunk": chunk,
            "start": start,
            "end": start + len(name),
            "proven": proven,
        }
    )


def test_a_place_that_two_chunks_share_counts_once() -> None:
    kept, dropped = settle([mention("Ann Lee", 10, 0), mention("Ann Lee", 10, 1), mention("Ann", 10, 1)], 0)
    assert [(each.name, each.start) for each in kept] == [("Ann Lee", 10)]
    assert dropped == []


def test_the_order_of_the_answers_does_not_matter() -> None:
    """Two chunks overlap at 100; which one's answer comes back first is chance."""
    found = [mention("Ann", 100, 0), mention("Ann", 100, 1), mention("Ann", 5, 0), mention("ANN", 160, 1, "Company")]
    expected = settle(found, 0)
    assert [(each.start, each.chunk) for each in expected[0]] == [(5, 0), (100, 0), (160, 1)]
    for order in itertools.permutations(found):
        assert settle(list(order), 0) == expected


def test_chunks_that_agree_are_believed_more_and_one_class_wins() -> None:
    once, _ = settle([mention("Ann", 0)], 0)
    twice, _ = settle([mention("Ann", 0, 0), mention("ANN", 50, 1)], 0)
    assert once[0].confidence == 0.7 < twice[0].confidence == twice[1].confidence == 0.8
    mixed = [mention("Ann", 0, 0), mention("Ann", 50, 1), mention("Ann", 90, 2, "Company")]
    kept, _ = settle(mixed, 0)
    assert {each.entity_class for each in kept} == {"Person"}
    assert all(each.confidence < twice[0].confidence for each in kept)


def test_a_proof_outvotes_what_is_not_proven() -> None:
    unproven = [mention("Tess", 10 * i, i, "Company") for i in range(5)]
    kept, _ = settle([*unproven, mention("TESS", 90, 6, "Person", proven=True)], 0)
    assert {each.entity_class for each in kept} == {"Person"}


def test_a_capital_that_any_word_would_have_is_worth_less() -> None:
    bare, _ = grounded("Hurt came up twice. We met Hurt.", ("Hurt", "Person"))
    opening, _ = grounded("Hurt came up twice. We met nobody.", ("Hurt", "Person"))
    assert opening[0].confidence < bare[0].confidence


def test_low_confidence_is_dropped_and_counted() -> None:
    kept, dropped = settle([mention("Ann", 0, confidence=0.6), mention("Bob", 9)], 0.65)
    assert [each.name for each in kept] == ["Bob"]
    assert [each.reason for each in dropped] == ["low confidence"]


@pytest.mark.parametrize(
    ("one", "other"), [("パリ", "バリ"), ("ガス", "カス"), ("दिल्ली", "दल्ला"), ("ป่า", "ป้า"), ("কলি", "কলা")]
)
def test_a_mark_that_makes_another_letter_makes_another_name(one: str, other: str) -> None:
    """Paris is not Bali, and a Thai forest not an aunt."""
    assert normalised(one) != normalised(other)
    assert places_of(one, f"({one})") == [(1, 1 + len(one))]
    assert places_of(one, f"({other})") == []


@given(st.text(max_size=60), st.text(max_size=20))
def test_whatever_is_named_a_mention_is_a_place_of_the_text(text: str, name: str) -> None:
    mentions, dropped = grounded(text, (name, "Person"))
    assert bool(mentions) != bool(dropped)
    for each in mentions:
        assert 0 <= each.start < each.end <= len(text)
        assert normalised(text[each.start : each.end]) in normalised(name) or normalised(name) in normalised(each.name)


@given(st.text(max_size=80))
def test_folding_remembers_where_each_character_stood(text: str) -> None:
    folded = Folded.of(text)
    assert len(folded.text) == len(folded.origin)
    assert list(folded.origin) == sorted(folded.origin)
    assert Folded.of(folded.text).text == folded.text


@pytest.mark.parametrize("name", ["1" * 64 + "x", "a." * 32, "Jan " * 16 + "x", "/" * 64, "A_" * 32, "a:" * 32])
def test_no_name_makes_a_filter_slow(name: str) -> None:
    """Backtracking here would not end within the test run."""
    grounded(f"x {name} y", (name, "Company"))


# --- where a chunk lies in a long document

FILLER = "Nothing of note was said here. " * 200
"""Longer than what the filters may look at."""


def in_chunk(text: str, start: int, end: int, *named: Named, index: int = 3) -> tuple[list[Mention], list[Dropped]]:
    return ground(named, Chunk(index, start, end, text[start:end]), text)


def test_offsets_are_the_documents_however_far_the_chunk_lies() -> None:
    said = "We met Ann Lee there. Later Ann Lee left."
    text = FILLER + said + " " + FILLER
    start = len(FILLER)
    mentions, dropped = in_chunk(text, start, start + len(said), Named("Ann Lee", "Person"), Named("Bob Ray", "Person"))
    assert [(each.start, each.end) for each in mentions] == [(start + 7, start + 14), (start + 28, start + 35)]
    assert all(text[each.start : each.end] == each.name == "Ann Lee" and each.chunk == 3 for each in mentions)
    assert [(each.name, each.entity_class, each.chunk, each.reason) for each in dropped] == [
        ("Bob Ray", "Person", 3, "not in the text")
    ]


@pytest.mark.parametrize("where", ["before", "after"])
def test_what_stands_beside_a_chunk_says_what_is_in_it(where: str) -> None:
    said, beside = "Offer ten.", "An offer is made."
    text = f"{beside} {said}" if where == "before" else f"{said} {beside}"
    start = text.index(said)
    assert in_chunk(text, start, start + len(said), Named("Offer", "Company"))[1][0].reason == "common word"
    assert in_chunk(said, 0, len(said), Named("Offer", "Company"))[1] == []
    # A whole document is not read for one chunk of it.
    far = f"{beside} {FILLER}{said}" if where == "before" else f"{said} {FILLER}{beside}"
    start = far.index(said)
    assert in_chunk(far, start, start + len(said), Named("Offer", "Company"))[1] == []


# --- the figures of the module's docstring


@pytest.mark.parametrize(
    ("text", "name", "entity_class", "found_class", "confidence", "proven"),
    [
        ("We saw Ann Lee there.", "Ann Lee", "Person", "Person", 0.65, False),
        ("We saw ANN LEE there.", "Ann Lee", "Person", "Person", 0.6, False),
        ("We saw Falk GmbH there.", "Falk GmbH", "Company", "Company", 0.95, True),
        ("We saw Falk GmbH there.", "Falk GmbH", "Person", "Company", 0.85, True),
        ("They live in Toppenish now.", "Toppenish", "Location", "Location", 0.75, False),
        ("They live in Toppenish now.", "Toppenish", "Company", "Location", 0.65, False),
        ("Hurt came up twice.", "Hurt", "Person", "Person", 0.55, False),
        ("Hurt came up twice. We met Hurt.", "Hurt", "Person", "Person", 0.65, False),
        ("Ann Lee came up twice.", "Ann Lee", "Person", "Person", 0.65, False),
    ],
)
def test_confidence_is_what_the_docstring_says(
    text: str, name: str, entity_class: str, found_class: str, confidence: float, proven: bool
) -> None:
    mention = grounded(text, (name, entity_class))[0][0]
    assert (mention.entity_class, mention.confidence, mention.proven) == (found_class, confidence, proven)


def test_what_was_weighed_before_keeps_its_class_and_confidence() -> None:
    (found,), _ = in_chunk("They live in Toppenish now.", 0, 27, Named("Toppenish", "Company", 0.4216))
    assert (found.entity_class, found.confidence) == ("Company", 0.422)
    (found,), _ = in_chunk("We saw Falk GmbH there.", 0, 23, Named("Falk GmbH", "Person", 0.3))
    assert (found.entity_class, found.confidence) == ("Person", 0.3)


def test_each_further_chunk_takes_a_third_of_the_doubt_away() -> None:
    kept, _ = settle([mention("Ann Lee", 50 * place, place, confidence=0.4) for place in range(3)], 0)
    assert [each.confidence for each in kept] == [round(1 - 0.6 * 4 / 9, 3)] * 3
    twice_in_one, _ = settle([mention("Ann Lee", 0, 0, confidence=0.4), mention("Ann Lee", 50, 0, confidence=0.4)], 0)
    assert [each.confidence for each in twice_in_one] == [0.4, 0.4]


def test_a_doubtful_class_costs_its_share_of_the_votes() -> None:
    kept, _ = settle([mention("Ann", 0, 0, "Person", 0.6), mention("Ann", 50, 0, "Company", 0.2)], 0)
    assert [(each.entity_class, each.confidence) for each in kept] == [("Person", 0.45), ("Person", 0.15)]


def test_the_bound_is_reached_by_what_equals_it_and_calibrated_before_it_is_compared() -> None:
    kept, dropped = settle([mention("Ann", 0, 4, confidence=0.65), mention("Bob", 9, 4, confidence=0.649)], 0.65)
    assert [each.name for each in kept] == ["Ann"]
    assert dropped == [Dropped(name="Bob", entity_class="Person", chunk=4, reason="low confidence", confidence=0.649)]
    kept, dropped = settle([mention("Ann", 0, confidence=0.8)], 0.5, calibrated=lambda raw: raw / 2)
    assert (dropped, kept) == (
        [Dropped(name="Ann", entity_class="Person", chunk=0, reason="low confidence", confidence=0.4)],
        [],
    )
    kept, _ = settle([mention("Ann", 0, confidence=0.8)], 0.2, calibrated=lambda raw: raw / 3)
    assert kept[0].confidence == 0.267


# --- names that share characters


def test_a_name_that_is_too_long_is_not_looked_for() -> None:
    long = "A" + "b" * (MAX_NAME_CHARACTERS - 1)
    assert grounded(f"We saw {long} there.", (long, "Company"))[0][0].name == long
    mentions, (dropped,) = grounded(f"We saw {long}c there.", (f"{long}c", "Company"))
    assert (mentions, dropped.name, dropped.reason) == ([], long, "too long")


def test_each_place_is_judged_by_what_surrounds_it() -> None:
    text = "Lucas Renner came. Renner left."
    mentions, dropped = grounded(text, ("Renner", "Person"), ("Lucas Renner", "Person"))
    assert [(each.name, each.start) for each in mentions] == [("Lucas Renner", 0), ("Renner", 19)]
    assert dropped == []


def test_what_is_named_twice_counts_once() -> None:
    once = grounded("We saw Ann Lee there.", ("Ann Lee", "Person"))
    assert grounded("We saw Ann Lee there.", ("Ann Lee", "Person"), ("Ann Lee", "Person")) == once
    two = grounded("We saw Ann Lee there.", ("Ann Lee", "Person"), ("Ann Lee", "Company"))
    assert [each.entity_class for each in two[0]] == ["Person"], "the first answer stands"


@pytest.mark.parametrize(
    ("outer", "inner", "entity_class", "both"),
    [
        ("Sydney, Australia", "Sydney", "Location", True),
        ("Sydney, Australia", "Australia", "Location", True),
        ("Bank of Peru", "Peru", "Company", True),
        ("First Bank of Peru", "Peru", "Company", True),
        ("Sydney , Australia", "Sydney", "Location", True),
        ("Acme Foods", "Foods", "Company", False),
        ("Acme Foods", "Acme", "Company", False),
        ("Smith, Jane", "Smith", "Person", False),
    ],
)
def test_of_rivals_the_surest_stand_and_what_stands_alone_inside_them(
    outer: str, inner: str, entity_class: str, both: bool
) -> None:
    start = outer.index(inner)
    places = [(10, 10 + len(outer)), (10 + start, 10 + start + len(inner))]
    for sure, unsure in ((0.9, 0.2), (0.2, 0.9)):
        named = [Named(outer, entity_class, sure), Named(inner, entity_class, unsure)]
        surest = max(named, key=lambda each: each.confidence or 0)
        kept = without_rivals(named, places)
        assert kept == (sorted(named, key=lambda each: -(each.confidence or 0)) if both else [surest])
    other_class = [Named(outer, "Company", 0.9), Named(inner, "Location", 0.2)]
    assert without_rivals(other_class, places) == other_class


def test_rivals_that_overlap_do_not_both_stand_and_neighbours_do() -> None:
    first, second = Named("Ann Lee", "Person", 0.4), Named("Lee Wong", "Company", 0.6)
    assert without_rivals([first, second], [(0, 7), (4, 12)]) == [second]
    assert without_rivals([first, second], [(5, 12), (0, 8)]) == [second]
    assert without_rivals([first, second], [(0, 7), (7, 15)]) == [second, first]
    assert without_rivals([first, second], [(8, 15), (0, 8)]) == [second, first]
    assert without_rivals([first, first], [(0, 7), (0, 7)]) == [first], "the same place"
    # Of equals the first in the text; what has no confidence is the last.
    unsure = Named("Lee Wong", "Company")
    assert without_rivals([unsure, first], [(0, 8), (4, 11)]) == [first]
    even = Named("Lee Wong", "Company", 0.4)
    assert without_rivals([even, first], [(4, 12), (0, 7)]) == [first]


def test_a_cut_off_name_lies_inside_the_whole_one() -> None:
    whole, cut, after = mention("Ann Lee", 10, 0), mention("Lee", 14, 1), mention("Lee", 17, 1)
    assert [each.start for each in settle([cut, whole, after], 0)[0]] == [10, 17]
    crossing = [mention("Ann Lee", 10, 0), mention("Lee Wong", 14, 1)]
    assert [each.name for each in settle(crossing, 0)[0]] == ["Ann Lee"]
    town = [
        mention(name, at, 0, "Location") for name, at in (("Sydney, Australia", 40), ("Sydney", 40), ("Australia", 48))
    ]
    assert [each.name for each in settle(town, 0)[0]] == ["Sydney, Australia", "Sydney", "Australia"]
    inside = [mention("Bank of Peru", 0, 0, "Company"), mention("Bank", 0, 0, "Company")]
    assert [each.name for each in settle(inside, 0)[0]] == ["Bank of Peru"]


def test_of_two_answers_about_one_place_the_surer_one_stands() -> None:
    kept, _ = settle([mention("Ann", 10, 0, "Company", 0.4), mention("Ann", 10, 1, "Person", 0.9)], 0)
    assert [(each.entity_class, each.confidence) for each in kept] == [("Person", 0.9)]


@pytest.mark.parametrize("proven", [False, True])
def test_votes_for_a_class_are_added_up(proven: bool) -> None:
    two = [mention("Ann", 50 * place, 0, "Person", 0.3, proven) for place in range(2)]
    kept, _ = settle([mention("Ann", 200, 0, "Company", 0.5, proven), *two], 0)
    assert {each.entity_class for each in kept} == {"Person"}


# --- one name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("  Ann   Lee , ", "Ann Lee"),
        ("“Ann Lee”", "Ann Lee"),
        ("(Ann Lee)", "Ann Lee"),
        ("Ann Lee)", "Ann Lee"),
        ("Acme (UK)", "Acme (UK)"),
        ("Ann Lee.", "Ann Lee"),
        ("Acme Inc.", "Acme Inc."),
        ("X Corp.", "X Corp."),
        ("John Smith Jr.", "John Smith Jr."),
        ("John F.", "John F."),
        ("the Acme Bank", "Acme Bank"),
        ("an Acme Bank", "Acme Bank"),
        ("The Dalles", "The Dalles"),
        ("Dr. Lena Fischer", "Lena Fischer"),
        ("Ann Lee's", "Ann Lee's"),
        ("spoke with Imani Grove about it", "Imani Grove"),
        ("Bank of Peru", "Bank of Peru"),
        ("met Bank of Peru and Acme there", "Bank of Peru and Acme"),
        ("of Peru called again", "Peru"),
        ("Sparrow Hill redevelopment", "Sparrow Hill redevelopment"),
        ("Alvarez's report", "Alvarez's"),
        ("Alvarez's Acme Bank report", "Acme Bank"),
        ("Alvarez’s Acme Bank report", "Acme Bank"),
        ("met Bank of Peru and there", "Bank of Peru"),
        ("(XBox)", "XBox"),
        ("SpaceX.", "SpaceX"),
        ("told Ann that Bob Ray came", "Bob Ray"),
        ("asked Ann whether Bob came", "Bob"),
        ("asked Ann Lee", "Ann Lee"),
        ("president Ann Lee", "Ann Lee"),
        ("mairie de Vichy", "mairie de Vichy"),
        ("compte Garonne", "compte Garonne"),
        ("vallée du Célé", "vallée du Célé"),
        ("mairie Lefort's", "Lefort's"),
        ("Acme kid's", "Acme kid's"),
        ("Smith and, Jones", "Smith and, Jones"),
        ("nothing at all", "nothing at all"),
        ("", ""),
    ],
)
def test_a_name_is_trimmed_of_what_models_put_around_it(name: str, expected: str) -> None:
    assert trimmed(name) == expected


def test_the_first_place_of_a_name() -> None:
    assert places_of("Ann Lee", "We met Ann Lee and Ann Lee.") == [(7, 14), (19, 26)]
    assert places_of("Ann Lee", "We met Ann Leeson.") == []
    assert places_of("Ann", "JoAnn met Ann_1 and Ann") == [(20, 23)]
    assert places_of("Yahoo!", "At Yahoo they met.") == [(3, 8)]
    assert places_of("Ann's", "They met Ann there.") == [(9, 12)]
    assert places_of("Ann’s", "They met Ann there.") == [(9, 12)]
    assert places_of("", "Ann") == []
    assert places_of("Ann", "JAnn met a JAnn") == []
    assert places_of("SpaceX", "Space is far.") == []
