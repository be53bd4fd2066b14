"""A night's window is what decides what it reads, also on the days on which the clocks change."""

import datetime as dt
import time
from collections.abc import Iterator

import pytest

from ec1.errors import InputError
from ec1.nights import Night

UTC = dt.UTC


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose own clock shows another zone than UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_night_is_its_day_in_its_zone() -> None:
    night = Night.of("2026-06-01")
    assert (night.start, night.end) == (dt.datetime(2026, 6, 1, tzinfo=UTC), dt.datetime(2026, 6, 2, tzinfo=UTC))
    assert Night.of("2026-06-01", "Europe/Berlin").start == dt.datetime(2026, 5, 31, 22, tzinfo=UTC)


@pytest.mark.parametrize(("date", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)])
def test_the_clocks_change(date: str, hours: int) -> None:
    night = Night.of(date, "Europe/Berlin")
    assert night.end - night.start == dt.timedelta(hours=hours)


def test_neighbours_touch_and_do_not_overlap() -> None:
    for date, following in [("2026-10-25", "2026-10-26"), ("2026-03-28", "2026-03-29")]:
        assert Night.of(date, "Europe/Berlin").end == Night.of(following, "Europe/Berlin").start


def test_the_cut_off_is_the_windows_end_or_now() -> None:
    night = Night.of("2026-06-01")
    noon = dt.datetime(2026, 6, 1, 12, tzinfo=UTC)
    assert night.as_of(noon) == noon
    assert night.as_of(noon + dt.timedelta(days=30)) == night.end
    assert not night.is_past(night.end + dt.timedelta(hours=2))
    assert night.is_past(night.end + dt.timedelta(hours=24))


def test_the_night_of_a_moment() -> None:
    late = dt.datetime(2026, 6, 1, 23, 30, tzinfo=UTC)
    assert Night.containing(late).date == "2026-06-01"
    assert Night.containing(late, "Europe/Berlin").date == "2026-06-02"
    assert Night.containing(late, "Europe/Berlin") == Night.of("2026-06-02", "Europe/Berlin"), "its window, too"


@pytest.mark.usefixtures("far_east")
def test_times_are_utc_wherever_the_machine_is() -> None:
    night = Night.of("2026-06-01", "Europe/Berlin")
    now = night.as_of(dt.datetime(2026, 6, 1, 12, tzinfo=UTC))
    assert [moment.isoformat()[-6:] for moment in (night.start, night.end, now)] == ["+00:00"] * 3


@pytest.mark.parametrize(
    ("bad", "hint"),
    [
        ("today", "use a date such as"),
        ("2026-13-01", "use a date such as"),
        ("2026-6-1", "write it as 2026-06-01"),
        ("20260601", "use a date such as"),
        ("2026-06-01T00:00", "use a date such as"),
        ("", "use a date such as"),
    ],
)
def test_other_words_are_refused_with_a_hint(bad: str, hint: str) -> None:
    with pytest.raises(InputError, match=f"^'{bad}' is not a night: {hint}"):
        Night.of(bad)
