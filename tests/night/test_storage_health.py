"""What a disk damages is found within two weeks, kept, told once and shown until somebody acknowledges it.

The words are those of the table in docs/operations.md.
"""

import datetime as dt
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from damage import flip
from night_records import NIGHT, a_night, run_of
from notice_sink import notice_sink

from ec1.corpus.threshold import HighWaterMark
from ec1.damage import damaged
from ec1.deployment import Deployment
from ec1.errors import InputError
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.results import ExtractionResult
from ec1.files import write_json
from ec1.home import Home
from ec1.night.health import storage_health
from ec1.night.operations.deep import examine_deeply
from ec1.night.operations.recheck import NIGHTS, recheck
from ec1.night.report.morning import conclude_night
from ec1.night.report.summary import night_report
from ec1.night.report.text import summary
from ec1.night.steps.marks import mend_mark
from ec1.night.stores import open_registry
from ec1.night_settings import NotifySettings

DAY = dt.date(2026, 6, 1)


def put(home: Home, number: int) -> Path:
    outbox = Outbox(home.outbox)
    content = f"{number:064x}"[::-1]
    outbox.put(ExtractionResult(stream="meeting", content_sha256=content, fingerprint="f" * 64, status="complete"))
    return outbox.path("f" * 64, content)


def days_until_found(home: Home, embedded: Deployment) -> int:
    for number in range(2 * NIGHTS):
        recheck(home, open_registry(embedded, home), DAY + dt.timedelta(days=NIGHTS + number))
        if storage_health.open_damage(home):
            return number
    raise AssertionError("never")


def test_everything_is_read_within_two_weeks_and_each_day_once(home: Home, embedded: Deployment) -> None:
    paths = [put(home, number) for number in range(1, 200)]
    registry = open_registry(embedded, home)
    read = [recheck(home, registry, DAY + dt.timedelta(days=number)) for number in range(NIGHTS)]
    assert sum(read) >= sum(path.stat().st_size for path in paths) > 6 * max(read)
    assert recheck(home, registry, DAY + dt.timedelta(days=NIGHTS - 1)) == 0, "a night that is run again reads nothing"
    flip(paths[77])
    assert days_until_found(home, embedded) < NIGHTS
    (found,) = storage_health.open_damage(home)
    assert "is damaged: its document is extracted again when it is next needed" in found.what


def test_what_came_first_is_read_within_two_weeks_however_much_comes_after_it(home: Home, embedded: Deployment) -> None:
    flip(put(home, 0xFF))
    registry = open_registry(embedded, home)
    for number in range(NIGHTS):
        # Each in a folder of its own, whose name comes before the first one's.
        for each in range(4):
            put(home, 4 * number + each)
        recheck(home, registry, DAY + dt.timedelta(days=number))
    (found,) = storage_health.open_damage(home)
    assert found.path.endswith("/ff") and "is damaged" in found.what


def test_what_a_failing_disk_does_not_give_is_told_and_the_rest_is_read(home: Home, embedded: Deployment) -> None:
    paths = [put(home, number) for number in (1, 2, 3)]
    registry = open_registry(embedded, home)
    paths[0].unlink()
    # The kernel answers a read of this one as it does for a dying disk.
    paths[0].symlink_to("/proc/self/mem")
    flip(paths[2])
    for number in range(NIGHTS):
        recheck(home, registry, DAY + dt.timedelta(days=number))
    found = {each.path[-2:]: each.what for each in storage_health.open_damage(home)}
    assert found.keys() == {"10", "30"} and "is damaged" in found["30"]
    assert "Input/output error: " in found["10"] and "the disk fails: look at `dmesg`" in found["10"]
    (deep,) = [each for each in examine_deeply(home, registry) if each.subject == "outbox"]
    assert "2 of 3 damaged" in deep.detail and "the disk fails" in deep.detail


def test_damage_is_told_once_and_shown_until_it_is_acknowledged(home: Home, embedded: Deployment) -> None:
    a_night(home).write("run-1", run_of())
    with notice_sink() as sink:
        deployment = embedded.model_copy(update={"notify": NotifySettings.model_validate({"urls": [sink.target]})})

        def told() -> str:
            report = night_report(home, NIGHT)
            conclude_night(report, deployment, home, {})
            return dict(summary(report)).get("storage", "")

        assert told() == "" and sink.of("the disk damaged") == 0
        for _ in range(2):
            storage_health.note(home, home.graph, f"graph recovered: {home.graph} is not as it was written")
            assert "1 thing was damaged on the disk: graph recovered: graph/live is not" in told()
        assert sink.of("EC1: the disk damaged 1 thing") == 1
        (symptom,) = storage_health.symptoms(home)
        assert symptom.level == "note" and "`ec1 doctor --acknowledge" in symptom.detail
        (seen,) = storage_health.acknowledge(home, [], "maria")
        assert told() == "" and list(storage_health.symptoms(home)) == []
        with pytest.raises(InputError, match="nothing of that id waits"):
            storage_health.acknowledge(home, [seen.id], "maria")
        storage_health.note(home, home.graph, "graph recovered: it is damaged once more")
        assert "once more" in told() and sink.of("the disk damaged") == 2, "what comes back is news"


def test_what_a_room_says_of_damage_is_kept(home: Home) -> None:
    storage_health.recording(home)
    damaged(logging.getLogger("ec1.graph.database"), home.graph, "graph recovered: a flipped bit")
    logging.getLogger("ec1.graph.database").warning("something else")
    assert [each.what for each in storage_health.open_damage(home)] == ["graph recovered: a flipped bit"]


def test_warnings_are_printed_as_before(home: Home) -> None:
    code = f"""
import logging
from pathlib import Path
from ec1.damage import damaged
from ec1.home import Home
from ec1.night.health import storage_health
storage_health.recording(Home(Path({str(home.root)!r})))
log = logging.getLogger("ec1.somewhere")
damaged(log, Path("x"), "x is damaged")
log.warning("something else")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["x is damaged", "something else"]
    assert [each.what for each in storage_health.open_damage(home)] == ["x is damaged"]


def test_what_was_set_aside_is_a_record_of_its_own(home: Home, embedded: Deployment) -> None:
    (home.graph.parent / "live.damaged").mkdir(parents=True)
    for number in range(2):
        recheck(home, open_registry(embedded, home), DAY + dt.timedelta(days=number))
    (found,) = storage_health.open_damage(home)
    assert found.path == "graph/live.damaged" and found.times == 1
    storage_health.acknowledge(home, [], "maria")
    recheck(home, open_registry(embedded, home), DAY + dt.timedelta(days=2))
    assert storage_health.open_damage(home) == []


@pytest.mark.parametrize(
    "break_it",
    [
        lambda path: path.write_bytes(b"x"),
        lambda path: path.write_bytes(b""),
        lambda path: write_json(path, {"history": [{"night": "soon"}]}),
        lambda path: write_json(path, {"history": [7]}),
    ],
)
def test_a_damaged_high_water_mark_is_written_again(home: Home, break_it: Callable[[Path], None]) -> None:
    mark = HighWaterMark(home, "acme", "engineering")
    mark.advance("a" * 64, NIGHT, "run-1")
    break_it(mark.path)
    storage_health.recording(home)
    mend_mark(home, "acme", "engineering")
    assert mark.history() == [], "no training is in the log book"
    assert mark.path.with_name("engineering.json.damaged").exists()
    (found,) = storage_health.open_damage(home)
    assert "written again from 0 trainings of the log book" in found.what
    mark.advance("b" * 64, NIGHT, "run-2")
    mend_mark(home, "acme", "engineering")
    assert [entry["digest"] for entry in mark.history()] == ["b" * 64]
