"""A step that waits for its pool begins when another step of its run has ended, and not at Dagster's next look."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from jobs.claims import PromptClaims, claim_promptly
from resources.dagster_private import InstanceConcurrencyContext, multiprocess

POOL = "card"


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        instance.event_log_storage.set_concurrency_slots(POOL, 1)
        yield instance


@dg.job
def nothing() -> None:
    pass


@pytest.mark.parametrize(("kind", "begins"), [(PromptClaims, True), (InstanceConcurrencyContext, False)])
def test_the_next_step_begins_at_once(
    instance: dg.DagsterInstance, kind: type[InstanceConcurrencyContext], begins: bool
) -> None:
    run = instance.create_run_for_job(nothing)
    with kind(instance, run) as claims:
        assert claims.claim(POOL, "first")
        assert not claims.claim(POOL, "second") and not claims.claim(POOL, "third")
        claims.free_step("first")
        assert claims.claim(POOL, "second") is begins, "else Dagster would do so by itself: delete ours"
        assert not claims.claim(POOL, "third"), "one place is one step's"


def test_runs_of_this_process_do_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocess, "InstanceConcurrencyContext", InstanceConcurrencyContext)
    claim_promptly()
    assert multiprocess.InstanceConcurrencyContext is PromptClaims
