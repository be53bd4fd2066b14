"""Plain numbers of an asset are plotted over the nights: one for each thing that is followed, and none of nothing."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
from test_budgets import trained

from ec1.adapters.gate import judge
from ec1.adapters.scores import ExampleScores, Scores
from ec1.deployment import Deployment
from ec1.extraction.reading.extractor import Extractor
from ec1.extraction.reading.loop import extract
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.reading.progress import ExtractionRecord, StreamCounts
from ec1.home import Home
from ec1.night.records import GraphRecord, Records
from ec1.night.report.growth import Growth
from ec1.night.steps.candidate import CandidateVerdict, TrainedCandidate
from ec1.night.steps.document_night import GraphOfNight
from ec1.recipes.evaluation import EvaluationOptions
from ec1.training.spec import METRICS
from ec1_assets import checks, metadata

NIGHT = "2026-06-05"


def plotted(shown: metadata.Metadata) -> set[str]:
    """What the UI draws a curve of."""
    return {name for name, value in shown.items() if isinstance(value, int | float) and not isinstance(value, bool)}


def graph(total: GraphRecord) -> GraphOfNight:
    return GraphOfNight(total, total, None, (), None, None, None, (), Growth((), {}, {}))


def test_one_loss_has_one_name(tmp_path: Path) -> None:
    losses = {"base": 3.0, "incumbent": 2.0, "candidate": 1.75}
    examples = tuple(
        ExampleScores(
            example=str(number),
            group=str(number),
            tokens=9,
            scores={name: -loss for name, loss in losses.items()},
            losses=dict(losses),
            shuffled=dict.fromkeys(losses, -4.0),
        )
        for number in range(20)
    )
    scores = Scores(objective="sft", models=tuple(losses), examples=examples)
    shown = metadata.of_evaluation(CandidateVerdict(scores, judge(scores, EvaluationOptions())), tmp_path)
    assert {name: shown[name] for name in plotted(shown)} == {
        "eval_loss": 1.75,
        "eval_loss_base": 3.0,
        "eval_loss_incumbent": 2.0,
    }


def test_a_training_is_followed_by_its_speed_memory_and_time(tmp_path: Path) -> None:
    result = trained(loss_first=3.0, loss_last=1.5)
    parquet.write_table(pa.table({"step": [1, 2, 3, 4], "loss": [3.0, 2.5, 2.0, 1.5]}), tmp_path / METRICS)
    shown = metadata.of_candidate(TrainedCandidate(tmp_path, result), tmp_path)
    assert plotted(shown) == {"tokens_per_second", "peak_memory_gib", "gpu_hours"}
    assert "loss 3 at first, 1.5 at last" in shown["training"] and "loss_curve" in shown


def test_a_run_that_finds_nothing_changes_no_figure_of_its_night(home: Home, embedded: Deployment) -> None:
    records = Records(home.night(NIGHT))
    records.write("run-1", GraphRecord(applied=9, entities_before=5, entities_after=9, named=41, kept=39, invented=2))
    first = metadata.of_graph(graph(records.read(GraphRecord)), home, home.root)
    records.write("run-2", GraphRecord(entities_before=9, entities_after=9))
    total = records.total(GraphRecord)
    assert total is not None
    again = metadata.of_graph(graph(total), home, home.root)
    assert {name: again[name] for name in plotted(again)} == {name: first[name] for name in plotted(first)}
    assert (again["hallucination_rate"], again["grounding_rate"]) == (0.049, 0.951)
    (check,) = [each for each in checks.of_graph(graph(total), embedded) if each.check_name == "hallucination"]
    assert check.metadata["named"].value == 41


def test_a_night_that_reads_nothing_has_no_speed_and_a_later_run_does_not_change_one(
    home: Home, embedded: Deployment, tmp_path: Path
) -> None:
    def nothing_read() -> ExtractionRecord:
        extractor = Extractor(embedded.extraction, "some/model", "main", tmp_path)
        return extract(extractor, [], None, Outbox(home.outbox), deadline=None, progress=lambda state: None)

    records = Records(home.night(NIGHT))
    records.write("run-1", nothing_read())
    speeds = {"documents_per_second", "tokens_per_second"}
    assert not speeds & plotted(metadata.of_extraction(records.read(ExtractionRecord), "meeting", tmp_path))
    read = ExtractionRecord(streams={"meeting": StreamCounts(complete=5)}, prompt_tokens=900, seconds=10)
    records.write("run-2", read)
    records.write("run-3", nothing_read())
    total = records.total(ExtractionRecord)
    assert total is not None
    shown = metadata.of_extraction(total, "meeting", tmp_path)
    assert (shown["documents_per_second"], shown["tokens_per_second"]) == (0.5, 90.0)


def test_what_has_no_denominator_has_no_rate(home: Home, embedded: Deployment) -> None:
    quiet = GraphRecord(entities_before=9, entities_after=7, vanished=1)
    shown = metadata.of_graph(graph(quiet), home, home.root)
    assert not [name for name in shown if name.endswith("_rate")]
    (check,) = [each for each in checks.of_graph(graph(quiet), embedded) if each.check_name == "hallucination"]
    assert check.passed and "hallucination_rate" not in check.metadata
    # What went is not what is new.
    assert shown["entities_net_change"] == -2 and "new_entities" not in shown
