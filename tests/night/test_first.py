"""The nights of a home begin when the home does, so that none before it is missing."""

import datetime as dt
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ec1.cli import app
from ec1.deployment import Deployment
from ec1.errors import InputError
from ec1.home import Home
from ec1.night.report.first import begin, first_night
from ec1_assets.definitions import build_defs
from ec1_assets.partitions import nights_of
from resources.environment import DeploymentChoice

NOW = dt.datetime(2026, 6, 10, 23, 30, tzinfo=dt.UTC)


def keys(deployment: Deployment, home: Home, days: int = 0) -> list[str]:
    later = NOW + dt.timedelta(days=days)
    return list(nights_of(deployment, first_night(deployment, home, later)).get_partition_keys(later))


def worked_on(home: Home, night: str, moment: dt.datetime) -> None:
    home.night(night).mkdir(parents=True)
    os.utime(home.night(night), (moment.timestamp(), moment.timestamp()))


def test_a_new_home_has_one_night_and_misses_none_later(embedded: Deployment, home: Home) -> None:
    assert keys(embedded, home) == ["2026-06-10"]
    assert not home.root.exists(), "to look is not to begin"
    assert begin(embedded, home, NOW) == dt.date(2026, 6, 10)
    assert keys(embedded, home, 2) == ["2026-06-10", "2026-06-11", "2026-06-12"]
    assert begin(embedded, home, NOW + dt.timedelta(days=5)) == dt.date(2026, 6, 10)


def test_its_day_is_one_of_the_deployments_time_zone(embedded: Deployment, home: Home) -> None:
    berlin = embedded.schedule.model_copy(update={"timezone": "Europe/Berlin"})
    assert keys(embedded.model_copy(update={"schedule": berlin}), home) == ["2026-06-11"]


def test_an_earlier_night_that_is_asked_for_moves_it_back_once(embedded: Deployment, home: Home) -> None:
    begin(embedded, home, NOW, "2026-06-08")
    assert keys(embedded, home) == ["2026-06-08", "2026-06-09", "2026-06-10"]
    begin(embedded, home, NOW, "2026-06-09")
    assert keys(embedded, home)[0] == "2026-06-08", "the missed nights can still be backfilled"


def test_a_home_of_an_earlier_release_keeps_its_nights(embedded: Deployment, home: Home) -> None:
    worked_on(home, "2026-06-03", NOW - dt.timedelta(days=6))
    assert begin(embedded, home, NOW) == dt.date(2026, 6, 3)


def test_a_clock_that_went_back_moves_nothing(embedded: Deployment, home: Home) -> None:
    begin(embedded, home, NOW)
    worked_on(home, "2026-06-10", NOW)
    for back in (dt.timedelta(days=3), dt.timedelta(days=3000)):
        with pytest.raises(
            InputError, match=r"the clock is wrong, .* the newest record is of 2026-06-10 23:30: set it"
        ):
            begin(embedded, home, NOW - back)
        # Asking for a night by its date does not make the clock right.
        with pytest.raises(InputError, match="the clock is wrong"):
            begin(embedded, home, NOW - back, "2026-06-08")
    assert home.first_night.read_text() == "2026-06-10\n"


def test_a_night_that_has_begun_by_the_records_finds_the_clock_wrong(home: Home) -> None:
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=3)
    home.create()
    worked_on(home, later.date().isoformat(), later)
    begun = (later - dt.timedelta(days=1)).date().isoformat()
    done = CliRunner().invoke(app, ["--home", str(home.root), "night", "--date", begun])
    assert done.exit_code == 1 and "did not begin: the clock says" in " ".join(done.stderr.split()), done.stderr
    for arguments in (["night", "--date", "2199-01-01"], ["plan", "--date", "2199-01-01"], ["plan"]):
        refused = CliRunner().invoke(app, ["--home", str(home.root), *arguments])
        assert isinstance(refused.exception, InputError) and "timedatectl" in str(refused.exception), refused.output
    assert not home.night("2199-01-01").exists()


def test_a_clock_before_the_first_night_of_a_home_without_records_moves_nothing(
    embedded: Deployment, home: Home
) -> None:
    begin(embedded, home, NOW)
    with pytest.raises(
        InputError, match=r"night 2026-06-07 is open now, and the first night of this home is 2026-06-10"
    ):
        begin(embedded, home, NOW - dt.timedelta(days=3))
    assert home.first_night.read_text() == "2026-06-10\n"
    # That is what somebody wants who names it.
    assert begin(embedded, home, NOW - dt.timedelta(days=3), "2026-06-07") == dt.date(2026, 6, 7)


def test_a_date_that_the_deployment_sets_is_fixed(embedded: Deployment, home: Home) -> None:
    fixed = embedded.schedule.model_copy(update={"first_night": dt.date(2026, 6, 1)})
    deployment = embedded.model_copy(update={"schedule": fixed})
    assert begin(deployment, home, NOW, "2026-06-04") == dt.date(2026, 6, 1)
    with pytest.raises(InputError, match=r"night 2026-05-31 is before schedule\.first_night 2026-06-01"):
        begin(deployment, home, NOW, "2026-05-31")


def test_a_damaged_file_says_how_to_mend_it(embedded: Deployment, home: Home) -> None:
    home.create()
    home.first_night.write_text("soon")
    with pytest.raises(InputError, match=r"first-night holds 'soon', not a date: write 2026-06-01 or delete it"):
        begin(embedded, home, NOW)


def test_the_graph_of_a_new_home_has_tonight_alone(project: Path, home: Home) -> None:
    graph = build_defs(DeploymentChoice("embedded", home.root, project)).resolve_asset_graph()
    for node in graph.asset_nodes:
        assert node.partitions_def is not None
        assert len(node.partitions_def.get_partition_keys()) == 1, node.key
