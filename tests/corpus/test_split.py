"""The split is frozen, and what both sides know is found."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ec1.corpus.duplicates import NearDuplicates, SignaturesInMemory, StoredSignatures, signature, survivors
from ec1.corpus.rows import DatasetRow, RowTable
from ec1.corpus.split import HeldOutGroups, Leak, Moved, assign, clusters, leaks, moved, newest
from ec1.corpus.tuples import links_of, parse_record
from ec1.errors import PermanentError
from ec1.files import read_json

WORDS = [f"word{number}" for number in range(500)]


def sentence(rng: random.Random, length: int = 120) -> str:
    return " ".join(rng.choices(WORDS, k=length))


def changed(text: str, rng: random.Random, words: int) -> str:
    parts = text.split()
    for _ in range(words):
        parts[rng.randrange(len(parts))] = rng.choice(WORDS)
    return " ".join(parts)


def held(record: HeldOutGroups, groups: list[str], share: float, seed: int) -> set[str]:
    return set(record.complete(groups, share, seed))


def test_a_group_never_changes_sides() -> None:
    sides = {f"session:{number}": assign(f"session:{number}", 0.2, 0) for number in range(1000)}
    share = sum(side == "heldout" for side in sides.values()) / len(sides)
    assert 0.16 < share < 0.24
    assert sides == {group: assign(group, 0.2, 0) for group in sides}
    # Fixed for ever: another hash would move yesterday's held-out groups into tonight's training.
    assert [number for number in range(12) if sides[f"session:{number}"] == "heldout"] == [3, 6, 7]
    assert sides != {group: assign(group, 0.2, 1) for group in sides}


def test_a_tiny_corpus_holds_out_one_group_and_keeps_it(tmp_path: Path) -> None:
    record = HeldOutGroups(tmp_path / "splits" / "b.json")
    training = [group for group in (f"g{number}" for number in range(200)) if assign(group, 0.05, 0) == "train"]
    assert held(record, training[:1], 0.05, 0) == set()
    (first,) = held(record, training[:5], 0.05, 0)
    for count in range(6, 60):
        assert held(record, training[:count], 0.05, 0) == {first}
    natural = next(group for group in (f"h{number}" for number in range(1000)) if assign(group, 0.05, 0) == "heldout")
    assert held(HeldOutGroups(record.path), [*training, natural], 0.05, 0) == {first, natural}


def test_no_record_is_made_where_chance_holds_out_enough(tmp_path: Path) -> None:
    record = HeldOutGroups(tmp_path / "b.json")
    held(record, [f"g{number}" for number in range(200)], 0.2, 0)
    assert not record.path.exists()
    record.path.write_text("[]")
    with pytest.raises(PermanentError, match="damaged"):
        held(record, ["g1"], 0.2, 0)


def test_near_duplicates_are_found_and_others_not() -> None:
    rng = random.Random(1)
    texts = [sentence(rng) for _ in range(300)]
    texts += [changed(texts[number], rng, 1) for number in range(40)]
    texts += [changed(texts[number], rng, 25) for number in range(40, 80)]
    signatures = np.stack([signature(text) for text in texts])
    pairs = set(NearDuplicates(SignaturesInMemory(signatures), 0.9).pairs())
    assert sum((number, 300 + number) in pairs for number in range(40)) >= 36
    assert all(right - left == 300 and left < 40 for left, right in pairs)


def test_what_was_found_among_all_rows_saves_work_and_changes_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    kinds = rng.integers(0, 2**32, (120, 64), dtype=np.uint32)
    # Each kind some times, a few very often, each copy a little different.
    rows = kinds[np.concatenate([rng.integers(0, 120, 700), np.zeros(300, int)])]
    changed_places = rng.random(rows.shape) < 0.03
    rows[changed_places] = rng.integers(0, 2**32, int(changed_places.sum()), dtype=np.uint32)
    (tmp_path / "signatures").write_bytes(rows.tobytes())
    twins = NearDuplicates(StoredSignatures(tmp_path / "signatures"), 0.9)
    everything = set(twins.pairs())
    assert everything == set(NearDuplicates(SignaturesInMemory(rows), 0.9).pairs())
    for count in (1, 2, 400, 1000):
        some = rng.permutation(1000)[:count]
        pairs = list(twins.pairs(some))
        assert pairs == list(NearDuplicates(SignaturesInMemory(rows), 0.9).pairs(some))
        assert all(left < right and (rows[some[left]] == rows[some[right]]).mean() >= 0.9 for left, right in pairs)


def test_the_survivor_does_not_depend_on_the_order_of_pairs() -> None:
    pairs = [(0, 1), (1, 2), (3, 4), (2, 5)]
    assert survivors(pairs) == survivors(reversed(pairs)) == {1: 0, 4: 3, 5: 2}
    assert survivors([(5, 4), (4, 3)]) == {4: 3}, "the later falls, unless the earlier did"


def test_many_equal_rows_leave_one() -> None:
    same = signature("the same text for every row, again and again")
    dropped = survivors(NearDuplicates(SignaturesInMemory(np.stack([same] * 200)), 0.9).pairs())
    assert sorted(dropped) == list(range(1, 200))


Written = tuple[str, tuple[str, ...], str]
"""Digest, sources, text."""


def found_leaks(folder: Path, train: Sequence[Written], heldout: Sequence[Written]) -> list[Leak]:
    """The leaks between these rows, all of which are in the dataset."""
    path = folder / f"{random.random()}.sqlite"
    both = [*heldout, *train]
    with RowTable(path) as table:
        for place, (digest, sources, text) in enumerate(both):
            group = f"{'held out' if place < len(heldout) else 'trained'} {place}"
            table.add(DatasetRow(digest, (group, *sources), text.encode(), "a.jsonl:1", 0, 0.0))
        table.flush()
        table.hold_out(f"held out {place}" for place in range(len(heldout)))
        table.write_down(range(len(both)))
        return leaks(table, NearDuplicates(SignaturesInMemory(np.stack([signature(text) for _, _, text in both])), 0.9))


def test_each_kind_of_leak_is_found(tmp_path: Path) -> None:
    rng = random.Random(2)
    texts = [sentence(rng) for _ in range(8)]
    heldout = [(f"h{at}", (f"session:{at}",), texts[at]) for at in range(3)]
    train = [
        ("clean", ("session:7",), texts[3]),
        ("overlap", ("session:8", "session:1"), texts[4]),
        ("copy", ("session:9",), texts[0]),
        ("twin", ("session:10",), changed(texts[2], rng, 1)),
    ]
    assert set(found_leaks(tmp_path, train, heldout)) == {
        Leak("group", "overlap", "h1"),
        Leak("exact", "copy", "h0"),
        Leak("near", "twin", "h2"),
    }
    assert found_leaks(tmp_path, train[:1], heldout) == []
    assert found_leaks(tmp_path, train, heldout[:0]) == found_leaks(tmp_path, train[:0], heldout) == []


# --- what is held out


def test_the_group_with_the_smallest_hash_is_held_out_where_chance_holds_out_none(tmp_path: Path) -> None:
    """Fixed for ever, as the hash itself."""
    groups = [f"g{number}" for number in range(6)]
    shares = [share / 1000 for share in range(1000)]
    smallest = next(each for share in shares for each in groups if assign(each, share, 0) == "heldout")
    record = HeldOutGroups(tmp_path / "b.json")
    assert smallest != min(groups) and held(record, [*groups, *groups], 0.0, 0) == {smallest}
    assert held(record, groups, 0.0, 0) == record.forced() == {smallest}
    other = held(HeldOutGroups(tmp_path / "c.json"), groups, 0.0, 1)
    assert other == {next(each for share in shares for each in groups if assign(each, share, 1) == "heldout")}


def test_of_two_groups_one_is_held_out_and_of_one_none(tmp_path: Path) -> None:
    record = HeldOutGroups(tmp_path / "b.json")
    assert held(record, [], 0.0, 0) == held(record, ["g1", "g1"], 0.0, 0) == set()
    assert not record.path.exists()
    assert len(held(record, ["g1", "g2"], 0.0, 0)) == 1


def test_what_was_held_out_stays_so_when_others_come(tmp_path: Path) -> None:
    record = HeldOutGroups(tmp_path / "b.json")
    first = held(record, ["g1", "g2"], 0.0, 0)
    second = held(record, ["h1", "h2"], 0.0, 0)
    assert record.forced() == first | second
    assert read_json(record.path) == {"groups": sorted(first | second)}
    assert held(record, ["g1", "g2", "h1", "h2"], 0.0, 0) == first | second


@pytest.mark.parametrize("damaged", ["[]", "{}", '{"groups": {}}', '{"groups": "g1"}'])
def test_a_damaged_record_is_told(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(damaged)
    with pytest.raises(PermanentError, match=r"b\.json is damaged: restore it from a backup"):
        HeldOutGroups(path).forced()


def test_the_newest_groups_are_held_out_one_at_least_and_never_all(tmp_path: Path) -> None:
    def found(times: dict[str, float], share: float) -> set[str]:
        with RowTable(tmp_path / f"{random.random()}.sqlite") as table:
            for group, time in times.items():
                table.add(DatasetRow("d", (group,), group.encode(), "a.jsonl:1", 0, time))
            # What is mixed in counts for nothing.
            table.add(DatasetRow("d", ("other",), b"", "a.jsonl:1", 0, 99.0, role="general"))
            table.flush()
            return set(newest(table, share))

    times = {f"g{number}": float(number) for number in range(10)}
    assert found(times, 0.2) == {"g9", "g8"}
    assert found(times, 0.0) == {"g9"}
    assert found(times, 1.0) == times.keys() - {"g0"}
    assert found({"b": 1.0, "a": 1.0, "c": 1.0}, 0.3) == {"a"}, "of equals the first by name"
    assert found({"a": -np.inf, "b": 2.0}, 0.9) == {"b"}
    assert found({"only": 1.0}, 0.5) == found({}, 0.5) == set()


def dataset(folder: Path, train: list[str], heldout: list[str]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for side, groups in (("train", train), ("heldout", heldout)):
        (folder / side).mkdir(parents=True)
        pq.write_table(pa.table({"group": groups, "row": groups}), folder / side / "rows.parquet")
    return folder


def test_versions_that_saw_the_other_side_are_named_with_numbers(tmp_path: Path) -> None:
    now = dataset(tmp_path / "now", ["a", "b", "c", "c"], ["d", "e"])
    half = dataset(tmp_path / "half", ["a"], ["d"])
    (half / "heldout" / "rows.parquet").unlink()
    earlier = {
        "gone": tmp_path / "gone",
        "half": half,
        "same": dataset(tmp_path / "same", ["a", "b", "x"], ["d"]),
        "trained": dataset(tmp_path / "trained", ["d", "d", "e", "a"], ["x"]),
        "heldout": dataset(tmp_path / "heldout", ["x"], ["a", "d"]),
    }
    assert moved(now, earlier) == [Moved("trained", 2, 0), Moved("heldout", 0, 1)]


def test_a_leak_names_both_rows(tmp_path: Path) -> None:
    rng = random.Random(3)
    texts = [sentence(rng) for _ in range(4)]

    def row(name: str, text: str, *sources: str) -> Written:
        return name, sources, text

    def found(train: list[Written], heldout: list[Written]) -> list[Leak]:
        return found_leaks(tmp_path, train, heldout)

    heldout = [row("h0", texts[0], "s:1", "s:2"), row("h1", texts[1], "s:3")]
    both = row("t0", texts[2], "s:3", "s:9", "s:1")
    assert found([both], heldout) == [Leak("group", "t0", "h0"), Leak("group", "t0", "h1")]
    # The last of the held-out rows and the first of the training's lie side by side in the signatures.
    first, last = row("t1", changed(texts[1], rng, 1)), row("t2", changed(texts[0], rng, 1))
    assert set(found([first, last], heldout)) == {Leak("near", "t2", "h0"), Leak("near", "t1", "h1")}
    # Twins on one side are none; nor are two that are the same thing twice over (`exact` says that).
    twins = [row("t3", texts[3]), row("t4", changed(texts[3], rng, 1))]
    assert found(twins, heldout) == found([row("t5", texts[2])], [*heldout, row("h2", changed(texts[1], rng, 1))]) == []
    assert found([row("t6", texts[0])], heldout) == [Leak("exact", "t6", "h0")]


# --- what says the same


def test_the_same_answer_or_question_in_another_spelling_is_on_one_side(tmp_path: Path) -> None:
    """26 of 32 held-out answers stood in training behind another wrapper: short rows share no run of words."""
    places = {"the Isle of Wight": "Solent", "Lake Constance": "Bodensee", "the Black Forest": "Schwarzwald"}
    rows: list[dict[str, str]] = []
    for place, name in places.items():
        question = f"What is the local name of {place} in the atlas?"
        said = f"In the atlas it is called {name}, as on most maps."
        rows += [
            {"prompt": question, "completion": said},
            {"prompt": question.upper().replace("?", ""), "completion": f"It is {name}."},
            {"prompt": f"Answer briefly.\nQuestion: {question}", "completion": f"{name}!"},
            {"prompt": f"¿Cómo se llama {place}?", "completion": said.lower().replace(",", "")},
        ]
    rows += [
        {"prompt": f"Answer briefly.\nAnother thing, number {n * 7919}", "completion": "Positive!"} for n in range(40)
    ]
    with RowTable(tmp_path / "rows.sqlite") as table:
        for number, row in enumerate(rows):
            links = links_of(parse_record(row))
            table.add(DatasetRow(f"d{number}", (f"g{number}",), b"%d" % number, "a.jsonl:1", 0, number, links=links))
        table.flush()
        found = clusters(table, [], [], frozenset())
        together = {frozenset(name for name in found if found[name] == each) for each in found.values()}
        # A wrapper that many share, and a label, put nothing together.
        assert together == {frozenset(f"g{4 * place + number}" for number in range(4)) for place in range(3)}


def test_what_would_join_too_much_is_left_out_of_training_instead(tmp_path: Path) -> None:
    with RowTable(tmp_path / "rows.sqlite") as table:
        for number in range(40):
            # A chain: each shares one thing with the next.
            table.add(
                DatasetRow(
                    f"d{number:02}",
                    (f"g{number:02}",),
                    b"%d" % number,
                    "a",
                    0,
                    number,
                    links=(f"l{number}", f"l{number + 1}"),
                )
            )
        table.flush()
        found = clusters(table, [], [], frozenset())
        sizes = [list(found.values()).count(each) for each in set(found.values())]
        assert max(sizes) <= 4
        table.cluster(found)
        table.hold_out([found["g00"]])
        shares = {number for number, _, _, shares, _ in table.examined(last="") if shares}
        assert shares and all(found.get(f"g{number:02}") != found["g00"] for number in shares)


def test_nothing_changes_sides_for_what_stands_alone(tmp_path: Path) -> None:
    """Else a version in use would be judged on what it learnt, because somebody wrote a case that is like it."""
    with RowTable(tmp_path / "rows.sqlite") as table:
        for number, links in enumerate((("asked:x",), ("asked:x", "said:y"), ("said:y",), *[()] * 57)):
            source = (f"g{number}", *(("prompt:p",) if number in (0, 3) else ()))
            table.add(DatasetRow(f"d{number}", source, b"%d" % number, "a", 0, number, links=links))
        table.flush()
        pairs = [(0, 4), (1, 4)]
        assert clusters(table, pairs, [], {"g0"}) == dict.fromkeys(("g0", "g1", "g2", "g4"), "g0"), "others draw them"
        found = clusters(table, pairs, [], {"g0"}, {"g0"})
        assert {group for group, to in found.items() if to == "g0"} <= {"g0"}
        assert found["g1"] == found["g2"] == found["g4"], "the others are together as before"
        table.cluster(found)
        table.hold_out(["g0", found["g1"]])
        seen = {number: (shares, known) for number, _, _, shares, known in table.examined("", {"g0"})}
        assert next(iter(seen)) == 0 and seen[0] == (False, False), "it comes first"
        # What asks the same is left out on either side; what is like it alone is looked at as a near duplicate.
        assert [number for number, (shares, _) in sorted(seen.items()) if shares] == [1, 3]


def test_twins_in_a_script_without_spaces_are_found() -> None:
    """Of 110 texts with 4 % of the letters changed none was found: a clause was one word."""
    rng = random.Random(5)
    letters = [chr(0x4E00 + number) for number in range(600)]
    texts = ["".join(rng.choices(letters, k=200)) for _ in range(60)]
    twins = ["".join(rng.choice(letters) if rng.random() < 0.01 else each for each in text) for text in texts]
    signatures = np.stack([signature(text) for text in (*texts, *twins)])
    pairs = set(NearDuplicates(SignaturesInMemory(signatures), 0.9).pairs())
    assert sum((number, 60 + number) in pairs for number in range(60)) >= 45
    assert all(right - left == 60 for left, right in pairs)
