from pathlib import Path

import pytest

from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.results import ExtractionResult, Mention

F, C = "f" * 64, "ab" + "0" * 62


def result(status: str, reason: str | None = None) -> ExtractionResult:
    return ExtractionResult.model_validate(
        {"content_sha256": C, "stream": "meeting", "fingerprint": F, "status": status, "reason": reason}
    )


def test_a_result_comes_back_as_it_was(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    mention = Mention(name="Ann Lee", entity_class="Person", confidence=0.7, chunk=0, start=3, end=10)
    kept = result("complete").model_copy(update={"mentions": (mention,), "characters": 11})
    outbox.put(kept)
    assert outbox.get(F, C) == kept
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.json")] == [f"{F}/ab/{C}.json"]


def test_what_a_killed_writer_left_goes_with_the_next_result(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    path = outbox.path(F, C)
    path.parent.mkdir(parents=True)
    (path.parent / f".{path.name}.k1ll3d").write_text("half")
    outbox.put(result("complete"))
    assert list(path.parent.iterdir()) == [path]


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert Outbox(tmp_path / "none").get(F, C) is None


@pytest.mark.parametrize("final", ["complete", "rejected"])
def test_a_final_result_is_immutable(tmp_path: Path, final: str) -> None:
    outbox = Outbox(tmp_path)
    outbox.put(result("deferred", "once"))
    outbox.put(result("deferred", "twice"))
    assert outbox.get(F, C) == result("deferred", "twice")
    outbox.put(result(final))
    before = outbox.path(F, C).read_bytes()
    outbox.put(result("deferred", "late"))
    outbox.put(result("complete"))
    assert outbox.path(F, C).read_bytes() == before


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"status": "complete"}'])
def test_a_damaged_file_is_set_aside_and_its_unit_extracted_again(tmp_path: Path, content: str) -> None:
    outbox = Outbox(tmp_path)
    path = outbox.path(F, C)
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert outbox.get(F, C) is None and not path.exists()
    assert path.with_suffix(".damaged").read_text() == content
    outbox.put(result("complete"))
    assert outbox.has(F, C)


def test_a_file_under_a_wrong_name_is_noticed(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.put(result("complete"))
    other = "cd" + "0" * 62
    outbox.path(F, other).parent.mkdir(parents=True)
    outbox.path(F, C).rename(outbox.path(F, other))
    assert outbox.get(F, other) is None and outbox.path(F, other).with_suffix(".damaged").exists()


@pytest.mark.parametrize("name", ["", "../x", "A" * 64, "a" * 63])
def test_names_are_digests(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a SHA-256 digest"):
        Outbox(tmp_path).path(F, name)
