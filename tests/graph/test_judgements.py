"""What a model judged of pairs that are for a person: what it may settle, what it may not, and how it is asked."""

import datetime as dt
from pathlib import Path

import pytest
from graph_samples import NIGHT, key, result

from ec1.errors import InputError
from ec1.graph import resolved_tables
from ec1.graph.judge import LABELS, Question, Side, excerpt, prompts
from ec1.graph.judgements import Judgement, by_judge, latest, read_judgements, save_judgements, sure
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.model import entity_key
from ec1.graph.overrides import NO_OVERRIDES, Decision, Judged, Overrides, load_overrides, with_judged
from ec1.graph.resolution import Band, Resolution, resolve
from ec1.graph.scoring import Profile
from ec1.graph.weights import NO_WEIGHTS

PAIR = ("Person:j. smith", "Person:jane smith")


def people(*names: str) -> list[Profile]:
    return [Profile(entity_key(name, "Person"), "Person", frozenset([name])) for name in names]


def said(same: bool, pair: tuple[str, str] = PAIR) -> Judged:
    return Judged(one=pair[0], other=pair[1], same=same, says="judged by m")


def bands(resolution: Resolution) -> dict[tuple[str, str], Band]:
    return {(link.one, link.other): link.band for link in resolution.links}


def judgement(probability: float, *, judge: str = "a", day: int = 1, pair: tuple[str, str] = PAIR) -> Judgement:
    return Judgement(
        one=pair[0],
        other=pair[1],
        model="m",
        judge=judge,
        night=f"2026-06-{day:02}",
        at=dt.datetime(2026, 6, day, tzinfo=dt.UTC),
        forward=probability,
        backward=probability,
        sentences=(("1",), ("2",)),
    )


def test_a_judgement_settles_a_pair_that_is_for_a_person() -> None:
    profiles = people("J. Smith", "Jane Smith")
    assert bands(resolve(profiles)) == {PAIR: Band.REVIEW}
    same = resolve(profiles, with_judged(NO_OVERRIDES, [said(True)]))
    assert [each.members for each in same.clusters] == [PAIR] and "judged by m" in same.links[0].reasons
    different = resolve(profiles, with_judged(NO_OVERRIDES, [said(False)]))
    assert different.clusters == () and bands(different) == {PAIR: Band.NEW}
    assert different.links[0].veto == "judged by m"


def test_people_and_rules_come_before_a_judgement() -> None:
    profiles = people("J. Smith", "Jane Smith")
    apart = Overrides(different=(Decision(entities=PAIR, reason="two desks"),))
    assert resolve(profiles, with_judged(apart, [said(True)])).clusters == ()
    together = Overrides(same=(Decision(entities=PAIR, reason="one desk"),))
    assert len(resolve(profiles, with_judged(together, [said(False)])).clusters) == 1
    # A pair that could be either of two stays for a person, and what no comparison speaks for stays two.
    three = people("J. Smith", "Jane Smith", "John Smith")
    (first, second) = (("Person:j. smith", f"Person:{name} smith") for name in ("jane", "john"))
    both = resolve(three, with_judged(NO_OVERRIDES, [said(True, first), said(True, second)]))
    assert both.clusters == () and bands(both)[first] is bands(both)[second] is Band.REVIEW
    strangers = resolve(people("Ada Voss", "Emil Krantz"), with_judged(NO_OVERRIDES, [said(True)]))
    assert strangers.links == ()
    # What the rules merge, a model does not part.
    merged = people("Jane Smith", "Smith, Jane")
    pair = ("Person:jane smith", "Person:smith, jane")
    assert len(resolve(merged, with_judged(NO_OVERRIDES, [said(False, pair)])).clusters) == 1


def test_an_indirect_contradiction_of_a_person_is_left_for_review() -> None:
    profiles = people("J. Smith", "Jane Smith", "Ruth Jones")
    overrides = Overrides(
        same=(Decision(entities=("Person:j. smith", "Person:ruth jones"), reason="a pen name"),),
        different=(Decision(entities=("Person:jane smith", "Person:ruth jones"), reason="met both"),),
    )
    found = resolve(profiles, with_judged(overrides, [said(True)]))
    assert bands(found)[PAIR] is Band.REVIEW
    assert [each.members for each in found.clusters] == [("Person:j. smith", "Person:ruth jones")]


def test_no_file_of_decisions_may_hold_judgements(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    path.write_text(f"judged:\n  - {{one: '{PAIR[0]}', other: '{PAIR[1]}', same: true, says: m}}\n")
    with pytest.raises(InputError, match="judged"):
        load_overrides(path)


def test_without_judgements_a_resolution_is_what_it_was_and_with_them_it_names_them(tmp_path: Path) -> None:
    assert with_judged(NO_OVERRIDES, []) is NO_OVERRIDES
    other = with_judged(NO_OVERRIDES, [said(True)])
    assert resolved_tables.basis("g", other, NO_WEIGHTS) != resolved_tables.basis("g", NO_OVERRIDES, NO_WEIGHTS)
    with LadybugStore.open(tmp_path / "live", buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply(key("a.md"), "mk-a", result("a", ("J. Smith", "Person")), NIGHT)
        store.apply(key("b.md"), "mk-b", result("b", ("Jane Smith", "Person")), NIGHT)
        for whole_below in (2000, 0):
            before = store.resolve(NO_OVERRIDES, whole_below=whole_below), store.digest_with_resolution()
            assert before[0].clusters == ()
            for _ in range(2):
                assert [each.members for each in store.resolve(other, whole_below=whole_below).clusters] == [PAIR]
            assert (store.resolve(NO_OVERRIDES, whole_below=whole_below), store.digest_with_resolution()) == before


def test_judgements_are_kept_by_judge_and_count_from_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "judgements.jsonl"
    assert read_judgements(path) == []
    other = ("Person:a", "Person:b")
    kept = [judgement(0.2), judgement(0.97, day=2), judgement(0.4, judge="b", day=3), judgement(0.01, pair=other)]
    save_judgements(path, kept)
    found = read_judgements(path)
    assert len(found) == 3, "of one judge the last word about a pair"
    assert {pair: each.probability for pair, each in by_judge(found, "a").items()} == {PAIR: 0.97, other: 0.01}
    assert latest(found)[PAIR].judge == "b"
    assert [(each.one, each.same) for each in sure(by_judge(found, "a").values(), 0.95)] == [
        (PAIR[0], True),
        (other[0], False),
    ]
    assert [each.one for each in sure(by_judge(found, "a").values(), 0.98)] == [other[0]]
    path.write_text(path.read_text() + '{"one": "Per')
    with pytest.raises(InputError, match=r"damaged.*ask the model again"):
        read_judgements(path)


def test_a_pair_is_asked_about_in_both_orders_after_the_same_beginning() -> None:
    question = Question("person", Side("J. Smith", ("J. Smith\nsigned <|im_end|> it.",)), Side("Jane Smith", ("x",)))
    forward, backward = prompts(question)
    assert forward.index("J. Smith") < forward.index("Person 2: Jane Smith")
    assert backward.index("Person 1: Jane Smith") < backward.rindex("Person 2: J. Smith")
    assert forward.endswith("Person 1 and person 2 are:") and backward.endswith("Person 1 and person 2 are:")
    beginning = forward[: forward.index("Person 1: J. Smith")]
    assert backward.startswith(beginning)
    assert [beginning.count(f"are:{label}\n") for label in LABELS] == [3, 3], "no word is said more often"
    assert question.sentences[0] != question.sentences[1]


def test_an_excerpt_is_one_line_around_the_name_without_tokens_of_a_chat() -> None:
    text = excerpt("a" * 500 + " said\nto <|im_start|>", "Jane", " and" + "b" * 500)
    assert "\n" not in text and "<|im_start|>" not in text and "Jane" in text and len(text) < 260
    assert excerpt("before", " ", "after") == ""
