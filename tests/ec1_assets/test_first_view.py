"""What the UI shows of a night: the verdict first, few figures, no plot without a point, no alarm without a fault."""

from pathlib import Path

import dagster as dg
import pytest

from ec1.adapters.gate import ScoreDifference
from ec1.adapters.manifest import AdapterManifest
from ec1.corpus.threshold import TrainingDecision
from ec1.night.records import GraphRecord, OutcomeRecord
from ec1.night.report.growth import Growth
from ec1.night.steps.document_night import GraphOfNight
from ec1_assets import checks, metadata
from ec1_assets.run_tags import tag_verdict

KEY = dg.AssetKey("threshold_check")
QUIET = TrainingDecision(
    train=False, reason="short", trainable=9, new=9, threshold=50, snapshot="s", trained_snapshot=None
)


@pytest.mark.parametrize(("quiet", "limit", "passed"), [(29, 30, True), (30, 30, False), (400, 0, True)])
def test_a_quiet_role_is_warned_about_when_it_is_stale(quiet: int, limit: int, passed: bool) -> None:
    check = checks.of_threshold(QUIET, KEY, quiet, limit)
    assert check.passed is passed and check.severity == dg.AssetCheckSeverity.WARN
    assert (f"not trained for {quiet} nights" in str(check.description)) is not passed


def test_a_night_has_one_result_of_a_check() -> None:
    nights = dg.DailyPartitionsDefinition("2026-06-01")

    @dg.asset(key=KEY, partitions_def=nights, check_specs=[checks.spec_of_threshold(KEY, nights)])
    def decided() -> dg.MaterializeResult:
        return dg.MaterializeResult(check_results=[checks.of_threshold(QUIET, KEY, 0, 0)])

    with dg.DagsterInstance.ephemeral() as instance:
        for night in ("2026-06-01", "2026-06-02"):
            assert dg.materialize([decided], instance=instance, partition_key=night).success
        key = dg.AssetCheckKey(KEY, "corpus_threshold")
        found = instance.event_log_storage.get_asset_check_execution_history(key, limit=9)
    assert [(each.partition, each.status.value) for each in found] == [
        ("2026-06-02", "SUCCEEDED"),
        ("2026-06-01", "SUCCEEDED"),
    ]


def version(number: int) -> AdapterManifest:
    digest = f"{number:x}" * 64
    gain = ScoreDifference(mean=number, lower=number - 0.5, upper=number + 0.5, examples=60, groups=9, better=True)
    return AdapterManifest.model_validate(
        {
            "tenant": "acme",
            "role": "crew",
            "version": number,
            "night": f"2026-06-0{number}",
            "base_model": {"id": "some/model", "revision": "main"},
            "method": "qlora",
            "objective": "sft",
            "recipe": {"name": "crew", "version": 1, "digest": digest},
            "dataset": {"digest": digest, "train_rows": 50, "heldout_rows": 60},
            "snapshot": {"bucket": "crew-acme", "digest": digest, "tuples": 110},
            "evaluation": {"verdict": "accepted", "objective": "sft", "examples": 60, "differences": {"base": gain}},
        }
    )


def test_accepted_versions_stay_in_sight_with_their_evaluations(tmp_path: Path) -> None:
    outcome = OutcomeRecord(
        outcome="quarantined", verdict="rejected", detail="worse", path=tmp_path, snapshot="5" * 64, dataset="d" * 64
    )
    shown = metadata.of_outcome(outcome, [version(1), version(2)], tmp_path)
    assert next(iter(shown)) == "verdict"
    assert [row.data["version"] for row in shown["versions"].records] == ["acme/crew@v2", "acme/crew@v1"]
    assert "+2.000 [+1.500, +2.500]" in str(shown["versions"].records[0].data)
    assert shown["dataset"] == "d" * 12
    assert (tmp_path / "versions.png").stat().st_size > 1000
    assert "gain_by_version" not in metadata.of_outcome(outcome, [version(1)], tmp_path), "one point is not a curve"


def test_a_graph_without_entities_has_no_plots(tmp_path: Path) -> None:
    from ec1.home import Home

    empty = GraphOfNight(
        applied=GraphRecord(),
        total=GraphRecord(),
        resolution=None,
        unused_overrides=(),
        exported=None,
        delivery=None,
        scores=None,
        waiting=(),
        growth=Growth((), {}, {}),
    )
    shown = metadata.of_graph(empty, Home(tmp_path), tmp_path)
    assert not [name for name, value in shown.items() if isinstance(value, dg.MarkdownMetadataValue)]
    assert not list(tmp_path.glob("*.png"))


def test_one_tag_says_what_became_of_all_recipes() -> None:
    @dg.asset(name="first")
    def first(context: dg.AssetExecutionContext) -> None:
        for recipe, verdict in (("acme/desk", "rejected"), ("acme/crew", "review"), ("acme/crew", "accepted")):
            tag_verdict(context, recipe, verdict)

    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.get_run_by_id(dg.materialize([first], instance=instance).run_id)
    assert run is not None
    ours = {name: value for name, value in run.tags.items() if name.startswith("ec1/")}
    assert ours == {"ec1/verdict": "acme/crew accepted, acme/desk rejected"}
