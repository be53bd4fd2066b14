"""Cards elsewhere are booked by the second and by the card, and the day's bound holds however many are used at once."""

import datetime as dt
import threading
from collections.abc import Mapping
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from ec1.deployment import Deployment
from ec1.errors import BusyError, DeferredError, PermanentError
from ec1.gpu.settings import ClusterSettings
from ec1.home import Home
from ec1.launch.launcher import DeviceWork, Subject
from ec1.launch.worker_launcher import WorkerLauncherSettings
from ec1.night.card_book import CardBook, Using, card_book, engine_book
from ec1.night.records import Part, RunRecord
from ec1.night.report.summary import NightReport

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = "2026-06-01"
HOUR = 3600.0


class Day:
    def __init__(self) -> None:
        self.now = dt.datetime(2026, 6, 2, 1, tzinfo=BERLIN).timestamp()

    def book(self, folder: Path, daily_cost: float | None = None) -> CardBook:
        return CardBook(folder, 2.0, BERLIN, daily_cost, clock=lambda: self.now)


class Elsewhere:
    """A launcher whose works took so many card-seconds, or failed."""

    def __init__(self, took: float | None = None, error: Exception | None = None) -> None:
        self.took = took
        self.error = error

    def run(self, work: DeviceWork, env: Mapping[str, str], log: Path) -> float | None:
        if self.error is not None:
            raise self.error
        return self.took


def work(processes: int = 1) -> DeviceWork:
    path = Path("spec.json")
    return DeviceWork("w", "m", path, "cuda", Subject("a", "b", NIGHT), (), path, processes=processes)


def train(book: CardBook, took: float, cards: int = 1) -> None:
    with book.use("the training", NIGHT, cards, needs=0.5 * HOUR, at_most=2 * HOUR) as using:
        using.counted(Elsewhere(took)).run(work(cards), {}, Path("log"))


def test_three_hours_side_by_side_are_three_hours(tmp_path: Path) -> None:
    book, together = Day().book(tmp_path), threading.Barrier(3)

    def one() -> None:
        with book.use("the training", NIGHT, 1, needs=0.5 * HOUR, at_most=2 * HOUR) as using:
            together.wait(30)
            using.counted(Elsewhere(HOUR)).run(work(), {}, Path("log"))

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert book.cost_of_day() == 3 * 2.0


def test_two_cards_of_one_training_are_two(tmp_path: Path) -> None:
    book = Day().book(tmp_path)
    train(book, 2 * HOUR, cards=2)
    assert book.cost_of_day() == 4.0


def test_the_days_bound_holds_over_what_goes_on_at_the_same_time(tmp_path: Path) -> None:
    day = Day()
    book = day.book(tmp_path, daily_cost=7.0)
    with book.use("the training", NIGHT, 1, needs=HOUR, at_most=2 * HOUR) as first:
        assert first.seconds == 2 * HOUR and book.cost_of_day() == 4.0, "the most that it may take"
        with book.use("the training", NIGHT, 1, needs=HOUR, at_most=2 * HOUR) as second:
            assert second.seconds == 1.5 * HOUR, "what the day still allows"
            with (
                pytest.raises(DeferredError, match=r"cards cost 7\.00 USD today.*daily_cost \(7\) leaves 0 s on 1"),
                book.use("the training", NIGHT, 1, needs=HOUR, at_most=2 * HOUR),
            ):
                raise AssertionError("the day's cost is used up")
            second.counted(Elsewhere(HOUR)).run(work(), {}, Path("log"))
        first.counted(Elsewhere(HOUR)).run(work(), {}, Path("log"))
    assert book.cost_of_day() == 4.0 and book.seconds_to_have(1) == 1.5 * HOUR
    train(book, HOUR)
    with pytest.raises(DeferredError, match=r"budgets\.daily_cost"):
        train(book, HOUR, cards=2)
    day.now += 24 * HOUR
    assert book.cost_of_day() == 0.0
    train(book, HOUR, cards=2)


def test_a_crash_counts_with_the_most_that_it_might_have_taken(tmp_path: Path) -> None:
    book = Day().book(tmp_path, daily_cost=5.0)
    # Its process is killed: nothing after this line runs.
    crashed = book.use("the training", NIGHT, 1, needs=HOUR, at_most=2 * HOUR)
    crashed.__enter__()
    assert Day().book(tmp_path, daily_cost=5.0).cost_of_day() == 4.0


def test_what_never_had_a_card_costs_nothing_and_what_failed_costs_its_time() -> None:
    using = Using(HOUR)
    with pytest.raises(BusyError):
        using.counted(Elsewhere(error=BusyError("no worker took it"))).run(work(), {}, Path("log"))
    assert using.card_seconds == 0.0
    with pytest.raises(PermanentError):
        using.counted(Elsewhere(error=PermanentError("the loss is not a number"))).run(work(2), {}, Path("log"))
    assert using.card_seconds > 0.0


def test_a_report_counts_each_cards_seconds(tmp_path: Path) -> None:
    """An hour in which three trainings ran elsewhere, side by side."""
    began = dt.datetime(2026, 6, 2, 1, tzinfo=dt.UTC)
    parts = [Part(name=f"acme/{role}/adapter_candidate", status="done", gpu=HOUR) for role in ("a", "b", "c")]
    times = {"asked": began, "began": began, "ended": began + dt.timedelta(hours=1)}
    record = RunRecord(job="nightly", status="done", parts=parts, cost_per_card_hour=2.0, **times)
    report = NightReport(night=NIGHT, run="r", timeline={"r": record})
    assert report.cost == 6.0 and report.gpu_seconds == 3 * HOUR
    assert report.costs == {"acme/a": 2.0, "acme/b": 2.0, "acme/c": 2.0}
    here = RunRecord(job="nightly", status="done", parts=parts, cost_per_hour=2.0, **times)
    assert NightReport(night=NIGHT, run="r", timeline={"r": here}).cost == 2.0, "a machine is paid for its time"
    beside = [Part(name="extract_entities", status="done", gpu=HOUR, usd=1.5), *parts]
    both = RunRecord(job="nightly", status="done", parts=beside, cost_per_hour=2.0, **times)
    assert NightReport(night=NIGHT, run="r", timeline={"r": both}).cost == 3.5, "an engine's card on a cluster, too"


def test_engines_on_a_cluster_have_a_book_where_trainings_are_here(embedded: Deployment, home: Home) -> None:
    def with_engines(**cluster: float) -> Deployment:
        engines = ClusterSettings(engines=2, **cluster)  # type: ignore[arg-type]
        bound = embedded.budgets.model_copy(update={"daily_cost": 4.0})
        return embedded.model_copy(
            update={"inference": embedded.inference.model_copy(update={"cluster": engines}), "budgets": bound}
        )

    assert engine_book(embedded, home) is None and engine_book(with_engines(), home) is None
    book = engine_book(with_engines(cost_per_card_hour=3.0), home)
    assert book is not None and card_book(with_engines(cost_per_card_hour=3.0), home) is None
    with book.use("the extraction", NIGHT, 2, needs=0.0, at_most=HOUR) as using:
        assert using.seconds == 4.0 / 3.0 * HOUR / 2, "what the day allows"
        using.counts(HOUR)
    assert book.cost_of_day() == 3.0
    elsewhere = with_engines(cost_per_card_hour=3.0).model_copy(update={"launcher": WorkerLauncherSettings()})
    assert engine_book(elsewhere, home) is None and card_book(elsewhere, home) is not None, "one price for all of them"
