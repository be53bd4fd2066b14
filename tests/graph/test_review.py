"""The review band for a person: what to decide first, and decisions in the file that the next night follows."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from graph_samples import NIGHT, key, result

from ec1.errors import InputError
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.reader import GraphReader
from ec1.graph.resolution.overrides import NO_OVERRIDES, load_overrides
from ec1.graph.review import pairs_to_decide, undo_decision, write_decisions


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    with LadybugStore.open(folder / "live", buffer_pool_mib=64, wait_seconds=0) as store:
        for number in range(4):
            names = [("Jane Smith", "Person"), ("Carl Sommerfeld", "Person"), (f"Hall {number}", "Location")]
            store.apply(key(f"{number}.md"), f"mk-{number}", result(str(number), *names[: 1 + number]), NIGHT)
        store.apply(key("x.md"), "mk-x", result("x", ("J. Smith", "Person"), ("C. Sommerfeld", "Person")), NIGHT)
        store.apply(key("y.md"), "mk-y", result("y", ("C. Sommerfeld", "Person")), NIGHT)
        store.resolve(NO_OVERRIDES)
        return store.publish(folder / "published")


@pytest.fixture
def reader(published: Path) -> Iterator[GraphReader]:
    with GraphReader(published, buffer_pool_mib=64) as found:
        yield found


def test_what_would_change_most_comes_first(reader: GraphReader) -> None:
    found = [(pair.one.key, pair.other.key, pair.weight) for pair in pairs_to_decide(reader)]
    assert found == [
        ("Person:c. sommerfeld", "Person:carl sommerfeld", 2),
        ("Person:j. smith", "Person:jane smith", 1),
    ]


def test_a_decision_is_added_to_what_a_person_wrote(reader: GraphReader, tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    path.write_text(
        '# ours\nsame:\n  # seen in the register\n  - entities: ["Company:a", "Company:b"]\n    reason: x\n'
    )
    write_decisions(path, [("Person:j. smith", "Person:jane smith")], same=False, reason="two offices")
    write_decisions(path, [("Person:c. sommerfeld", "Person:carl sommerfeld")], same=True, reason="same: desk")
    text = path.read_text()
    assert "# ours" in text and "# seen in the register" in text
    decided = load_overrides(path)
    assert decided.different_pairs() == {("Person:j. smith", "Person:jane smith"): "two offices"}
    assert len(decided.same) == 2
    assert pairs_to_decide(reader, path) == []
    with pytest.raises(InputError, match="remove one of the two decisions"):
        write_decisions(path, [("Person:j. smith", "Person:jane smith")], same=True, reason="after all")
    assert path.read_text() == text and [each.name for each in tmp_path.iterdir()] == ["overrides.yaml"]
    with pytest.raises(InputError, match="needs a reason"):
        write_decisions(path, [("A:a", "A:b")], same=True, reason=" ")
    with pytest.raises(InputError, match="is not a key"):
        write_decisions(path, [("Jane", "Person:jane")], same=True, reason="x")
    assert undo_decision(path, "Person:jane smith", "Person:j. smith") == ["two offices"]
    assert load_overrides(path).different == () and "# ours" in path.read_text()
    with pytest.raises(InputError, match="no decision about just"):
        undo_decision(path, "Person:jane smith", "Person:j. smith")


def test_pairs_of_one_pattern_can_be_decided_together(reader: GraphReader, tmp_path: Path) -> None:
    pairs = pairs_to_decide(reader)
    assert len({pair.pattern for pair in pairs}) == 1
    path = tmp_path / "overrides.yaml"
    write_decisions(path, [(pair.one.key, pair.other.key) for pair in pairs], same=True, reason="initials")
    assert pairs_to_decide(reader, path) == []
