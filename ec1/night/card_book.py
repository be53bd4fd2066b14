"""What cards elsewhere (any launcher but `local`, engines on a cluster) cost: one JSON file of who used how much.

Trainings side by side each count their own cards, and the day's bound (`budgets.daily_cost`) holds over all of them: a
use is written down with the most that it may take before it begins, and with what it took when it has ended. A crash
leaves the first figure. Belongs here: the book, and a launcher that writes into it. Does not: a machine that is booted
for nights, which has a ledger of its own (`ec1/machines/ledger.py`).
"""

import datetime as dt
import fcntl
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict

from ec1.deployment import Deployment
from ec1.errors import BusyError, DeferredError
from ec1.files import read_json, write_json
from ec1.gpu.settings import VllmSettings
from ec1.home import Home
from ec1.launch.launcher import DeviceWork, Launcher, LocalLauncherSettings
from ec1.strict_yaml import validate

KEEP_DAYS = 3
"""What a night cost stands in its own records; the bound looks at one day."""


class Use(BaseModel):
    """One step's use of cards. `at`: when it was asked for, seconds since the epoch."""

    model_config = ConfigDict(extra="ignore")

    id: str
    at: float
    night: str
    what: str
    most: float
    """Card-seconds that it may take."""
    took: float | None = None
    """Card-seconds that it took; None until it has ended."""

    @property
    def card_seconds(self) -> float:
        return self.most if self.took is None else self.took


class _Book(BaseModel):
    uses: list[Use] = []


class CardBook:
    """The file `folder/uses.json`. `daily_cost` is in USD, None: no bound; days are those of `zone`."""

    def __init__(
        self,
        folder: Path,
        usd_per_card_hour: float,
        zone: ZoneInfo,
        daily_cost: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.usd_per_card_hour = usd_per_card_hour
        self._folder = folder
        self._path = folder / "uses.json"
        self._zone = zone
        self._daily_cost = daily_cost
        self._clock = clock

    def cost_of_day(self) -> float:
        """USD of today, what has not ended counted with the most that it may take."""
        return self._seconds_of_day(self._read()) / 3600 * self.usd_per_card_hour

    def seconds_to_have(self, cards: int) -> float | None:
        """How long so many cards may still be used today; None without a bound."""
        if self._daily_cost is None or not self.usd_per_card_hour:
            return None
        return max(0.0, self._daily_cost - self.cost_of_day()) / self.usd_per_card_hour * 3600 / cards

    @contextmanager
    def use(self, what: str, night: str, cards: int, *, needs: float, at_most: float) -> Iterator["Using"]:
        """Book a use of so many cards, which needs about so many seconds and may take at most so many; as long as the
        day's bound still allows. Raises DeferredError if it does not allow what is needed."""
        with self._changed() as book:
            allowed = at_most
            if self._daily_cost is not None and self.usd_per_card_hour:
                spent = self._seconds_of_day(book) / 3600 * self.usd_per_card_hour
                allowed = min(at_most, max(0.0, self._daily_cost - spent) / self.usd_per_card_hour * 3600 / cards)
                if allowed <= 0 or allowed < needs:
                    raise DeferredError(
                        f"cards cost {spent:.2f} USD today, and budgets.daily_cost ({self._daily_cost:g}) leaves "
                        f"{allowed:.0f} s on {cards}: {what} needs about {needs:.0f} s"
                    )
            begun = Use(id=secrets.token_hex(8), at=self._clock(), night=night, what=what, most=allowed * cards)
            book.uses.append(begun)
        using = Using(allowed)
        try:
            yield using
        finally:
            with self._changed() as book:
                for each in book.uses:
                    if each.id == begun.id:
                        each.took = round(using.card_seconds, 1)

    def _read(self) -> _Book:
        return validate(_Book, read_json(self._path), str(self._path)) if self._path.exists() else _Book()

    @contextmanager
    def _changed(self) -> Iterator[_Book]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "uses.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            book = self._read()
            yield book
            oldest = self._clock() - KEEP_DAYS * 86400
            book.uses = [each for each in book.uses if each.at >= oldest]
            write_json(self._path, book.model_dump(mode="json"))

    def _seconds_of_day(self, book: _Book) -> float:
        today = dt.datetime.fromtimestamp(self._clock(), self._zone).date()
        days = ((dt.datetime.fromtimestamp(each.at, self._zone).date(), each) for each in book.uses)
        return sum(each.card_seconds for day, each in days if day == today)


class Using:
    """A use that goes on: how long it may take, and the card-seconds that its works took so far."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.card_seconds = 0.0
        self.waited = 0.0

    def counts(self, card_seconds: float) -> None:
        """So many more were taken."""
        self.card_seconds += card_seconds

    def counted(self, inner: Launcher) -> Launcher:
        """The launcher, with what its works take counted here."""
        return _Counting(inner, self)


class _Counting:
    def __init__(self, inner: Launcher, using: Using) -> None:
        self._inner = inner
        self._using = using

    def run(self, work: DeviceWork, env: Mapping[str, str], log: Path) -> float | None:
        began = time.monotonic()
        taken: float | None = None
        try:
            taken = self._inner.run(work, env, log)
        except BusyError:
            # It never had a card.
            taken = 0.0
            raise
        finally:
            passed = time.monotonic() - began
            # Of work that failed elsewhere it is not known how long it waited first.
            seconds = passed * work.processes if taken is None else taken
            self._using.counts(seconds)
            self._using.waited += max(0.0, passed - seconds / work.processes)
        return taken


def card_book(deployment: Deployment, home: Home) -> CardBook | None:
    """The book of a deployment whose trainings run elsewhere; None where the card is here, or a machine is booted."""
    if deployment.machine is not None or isinstance(deployment.launcher, LocalLauncherSettings):
        return None
    gpu = deployment.gpu
    bound = deployment.budgets.daily_cost
    return CardBook(home.cards, gpu.cost_per_hour / gpu.processes, deployment.zone, bound)


def engine_book(deployment: Deployment, home: Home) -> CardBook | None:
    """The book of engines on a cluster, where the trainings' cards are here and have none; None without such engines,
    or without a price."""
    if card_book(deployment, home) is not None or not isinstance(deployment.inference, VllmSettings):
        return None
    cluster = deployment.inference.cluster
    if cluster is None or not cluster.cost_per_card_hour:
        return None
    return CardBook(home.cards, cluster.cost_per_card_hour, deployment.zone, deployment.budgets.daily_cost)
