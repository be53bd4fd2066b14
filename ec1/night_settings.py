"""What a deployment sets about its nights: when, how long, what is kept, who is told. Not in `ec1/night`, because that
room knows the deployment.
"""

import datetime as dt
import re
from pathlib import Path
from typing import Literal
from zoneinfo import available_timezones

from pydantic import Field, field_validator, model_validator

from ec1.settings import Settings


class ScheduleSettings(Settings):
    cron: str = Field(
        "0 2 * * *", description="when the night of the day before is run: five fields, as Dagster reads them"
    )
    timezone: str = Field("UTC", description="IANA name, such as Europe/Berlin; nights are calendar days in it")
    first_night: dt.date | None = Field(
        None, description="no night before this one exists; default: the day on which the home was made"
    )
    enabled: bool = Field(True, description="whether the schedule runs as soon as the Dagster daemon does")
    grace_minutes: int = Field(
        120, gt=0, description="a tick that is later than this is skipped; the next one catches up"
    )
    stale_nights: int = Field(
        30,
        ge=0,
        description="a role that was not trained for this many nights is warned about; 0: never; typically 14–60",
    )
    debounce_seconds: int = Field(
        600, ge=0, description="seconds without growth before the corpus-growth sensor asks for a night"
    )

    @field_validator("timezone")
    @classmethod
    def _known_timezone(cls, value: str) -> str:
        if value not in available_timezones():
            raise ValueError(f"{value!r} is not a time zone of the IANA data base, such as UTC or Europe/Berlin")
        return value


class BudgetSettings(Settings):
    """Seconds, and space; the clock of a phase starts when its machine is ready."""

    extraction_seconds: float = Field(7200, gt=0, description="phase 1: no request is started after it")
    training_seconds: float = Field(7200, gt=0, description="one training; the plan is fitted to it")
    night_seconds: float | None = Field(
        None,
        gt=0,
        description="both phases of one run together, as they work; a training that no longer fits waits for a later "
        "night; default: no bound; typically 14400",
    )
    training_floor_seconds: float = Field(
        0,
        ge=0,
        description="what phase 1 leaves to phase 2 of night_seconds, and of what a booted machine's lifetime and cost "
        "allow; typically as training_seconds",
    )
    min_free_gib: float = Field(
        0.25,
        ge=0,
        description="a night does not begin with less free on the home's disk, beside three times the graph; "
        "typically 0.25–50",
    )
    daily_cost: float | None = Field(
        None,
        gt=0,
        description="USD that cards elsewhere (any launcher but local, engines on a cluster) may cost in one calendar "
        "day, at their price; a training that no longer fits waits for a later night; default: no bound",
    )
    lease_wait_seconds: float = Field(14400, gt=0, description="how long a phase queues for the GPU")

    @model_validator(mode="after")
    def _the_floor_fits(self) -> "BudgetSettings":
        if self.night_seconds is not None and self.training_floor_seconds >= self.night_seconds:
            raise ValueError("training_floor_seconds leaves phase 1 nothing of night_seconds: lower it")
        return self


class RetentionSettings(Settings):
    """What is kept, of each role and of the nights. Recipe, figures and curves of a run are always kept."""

    versions: int = Field(
        20, ge=1, description="versions, the best first; the one in use, the newest and the best are always kept"
    )
    runs: int = Field(14, ge=1, description="newest nights whose checkpoints and weights stay in runs/")
    quarantined: int = Field(14, ge=1, description="newest candidates in quarantine")
    nights: int = Field(
        90,
        ge=2,
        description="newest nights that are kept in full: plots, listing, Dagster's run with its events, and the "
        "snapshots and datasets that they used; of older ones the records, reports and evaluations stay; typically "
        "30–365",
    )
    unused_days: int = Field(
        90, ge=1, description="days after which the results of an extractor that no document counts from are removed"
    )
    log_days: int = Field(30, ge=1, description="days that logs/ are kept; typically 14–90")


NotifyEvent = Literal[
    "failure", "interrupted", "partial", "quarantine", "version", "recovery", "missing", "storage", "trial"
]


_PASSWORD = re.compile(r"://[^/@]*:(?!\$\{)[^/@]+@")


class NotifySettings(Settings):
    """Who is told what nights came to: each thing once; what a target did not take is tried again for a week."""

    urls: tuple[str, ...] = Field(
        (),
        description="Apprise addresses, such as `ntfy://ntfy.sh/topic`, `slack://…`, `mailto://…`, `json://…`. No "
        "secret belongs in here: `${NAME}` is taken from the environment, `file:/PATH` is read from that file",
    )
    on: tuple[NotifyEvent, ...] = Field(
        ("failure", "interrupted", "partial", "quarantine", "version", "recovery", "missing", "storage", "trial"),
        description="what is told",
    )
    by: str = Field(
        "07:00",
        pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$",
        description="when the night of the day before must be done, in the schedule's time zone (`ec1 report --check`)",
    )
    ping_url: str | None = Field(
        None,
        description="asked after each night, with `/fail` behind it after a failure, as healthchecks.io wants it; "
        "`${NAME}` and `file:/PATH` as above",
    )

    @field_validator("urls")
    @classmethod
    def _no_secrets(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for number, url in enumerate(value):
            # The address itself is not named: it holds the secret.
            if _PASSWORD.search(url):
                raise ValueError(
                    f"address {number + 1} holds a password: write ${{NAME}} and set NAME where EC1 starts"
                )
            if url.startswith("file:") and not url.startswith("file:/"):
                raise ValueError(f"{url!r}: name the file by its whole path, such as file:/run/secrets/slack")
        return value


class MetricsSettings(Settings):
    """Figures for Prometheus. `ec1 serve` shows them under `/metrics` too."""

    textfile: Path | None = Field(
        None, description="written after each night, for node_exporter's textfile collector; the name ends in `.prom`"
    )

    @field_validator("textfile")
    @classmethod
    def _read_by_node_exporter(cls, value: Path | None) -> Path | None:
        if value is not None and value.suffix != ".prom":
            raise ValueError(f"{value} does not end in .prom: node_exporter would not read it")
        return value
