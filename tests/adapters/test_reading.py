"""An extractor is evaluated by F1, through phase 1's own code, and published only if it reads better."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ec1.adapters.evaluation import EvaluationSpec, evaluate
from ec1.adapters.gate import judge
from ec1.adapters.reading import HeldOutChunk, Reading, ReadingSettings, calibrated_on, shares_of_f1
from ec1.adapters.scores import Scores, load_scores
from ec1.errors import InputError
from ec1.extraction.naming import trained
from ec1.extraction.naming.calibration import CALIBRATION
from ec1.extraction.settings import ExtractionSettings
from ec1.gpu.settings import VllmSettings
from ec1.recipes.evaluation import EvaluationOptions

STAND_IN = Path(__file__).parents[1] / "e2e" / "fake_engine"
BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"
PEOPLE = ("Alma Reyes", "Boris Tanaka", "Clara Osei", "Dmitri Lund")


def row(number: int, named: int = 3) -> dict[str, object]:
    people = [PEOPLE[(number + place) % 4] for place in range(named)]
    text = f"On day {number} it was said that {' and then '.join(people)} came." if people else f"Day {number}: rain."
    answer = trained.answer_of(text, dict.fromkeys(people, "Person"))
    return {
        "prompt": trained.messages(text),
        "completion": [{"role": "assistant", "content": answer}],
        "group": f"minutes/{number // 2}",
        "row": f"r{number}",
    }


@pytest.fixture
def read(words: Path, tmp_path: Path, make_candidate: Callable[..., Path]) -> Callable[..., Scores]:
    """An evaluation with adapters that find so many names in a text, on 16 chunks of 8 documents."""
    heldout = tmp_path / "heldout.jsonl"
    heldout.write_text("".join(json.dumps(row(number, 3 if number % 5 else 0)) + "\n" for number in range(16)))

    def run(**finds: int) -> Scores:
        folders: dict[str, Path | None] = {"base": None}
        for seed, (name, count) in enumerate(finds.items()):
            folders[name] = make_candidate(seed, name=name)
            (tmp_path / name / "finds").write_text(str(count))
        spec = EvaluationSpec(
            model=words,
            device="cpu",
            candidates=folders,
            heldout=heldout,
            objective="sft",
            options=EvaluationOptions(sample_generations=2),
            reading=ReadingSettings(
                engine=VllmSettings(kind="vllm", model=BASE), extraction=ExtractionSettings(chunk_tokens=200)
            ),
            output=tmp_path / "out",
        )
        environment = {**os.environ, "PYTHONPATH": str(STAND_IN)}
        scores = evaluate(spec, lambda _: None, environment)
        assert scores == load_scores(tmp_path / "out")
        return scores

    return run


def test_an_extractor_that_reads_better_than_what_reads_now_is_accepted(read: Callable[..., Scores]) -> None:
    scores = read(candidate=3, incumbent=1)
    assert scores.means()["base"] == pytest.approx(0.0)
    # One of three names is found, and nothing wrong: precision 1, recall 1/3.
    assert scores.means()["incumbent"] == pytest.approx(0.5)
    assert scores.means()["candidate"] == pytest.approx(1.0)
    assert scores.examples[1].counts == {"base": (0, 3, 0), "candidate": (3, 3, 3), "incumbent": (1, 3, 1)}
    assert [sample.answers["candidate"] == sample.expected for sample in scores.samples] == [True, True]
    assert set(scores.scored) == {"candidate", "incumbent"}
    verdict = judge(scores, EvaluationOptions())
    assert verdict.accepted, verdict
    assert verdict.differences["incumbent"].mean == pytest.approx(0.5)
    assert str(verdict.differences["base"]).endswith("F1")


def test_one_that_reads_no_better_or_worse_is_not_published(read: Callable[..., Scores]) -> None:
    scores = read(candidate=2, incumbent=2, best=3)
    assert judge(
        scores.model_copy(update={"models": ("base", "candidate", "incumbent")}), EvaluationOptions()
    ).verdict == ("review")
    verdict = judge(scores, EvaluationOptions())
    assert verdict.verdict == "rejected"
    assert any("worse than best" in reason for reason in verdict.reasons)


def test_a_candidates_curve_lies_beside_its_scores_where_enough_names_were_held_out(
    read: Callable[..., Scores], tmp_path: Path
) -> None:
    read(candidate=3)
    assert not (tmp_path / "out" / CALIBRATION).exists(), "all of 36 names are right: that says little"


def test_a_curve_is_fitted_on_what_was_held_out() -> None:
    settings = ReadingSettings(engine=VllmSettings(kind="vllm", model=BASE), extraction=ExtractionSettings())
    held, found = [], []
    for number in range(120):
        wrong = ("somebody else", "Person")
        gold = frozenset((f"{name.lower()} {number}", "Person") for name in PEOPLE[:2])
        held.append(HeldOutChunk(f"r{number}", f"minutes/{number // 10}", "…", gold))
        sure = {entity: 0.9 for entity in gold} | ({wrong: 0.6} if number % 2 else {})
        found.append(Reading(gold, sure))
    curve = calibrated_on(held, found, settings, "d" * 64)
    assert curve is not None and (curve.judged, curve.groups, curve.mode) == (300, 12, "answer")
    assert curve.curve.calibrated(0.9) > 0.95 and curve.curve.calibrated(0.6) < 0.05
    assert 0.0 < curve.least <= 0.75
    assert calibrated_on(held[:9], found[:9], settings, "d" * 64) is None


def test_the_shares_add_up_to_f1_of_all_texts_together() -> None:
    counts = [(3, 4, 2), (0, 2, 0), (5, 3, 3), (0, 0, 0)]
    shares = shares_of_f1(counts)
    assert sum(shares) / len(shares) == pytest.approx(2 * 5 / (8 + 9))
    assert shares[0] < shares[2] and shares[1] < shares[0]
    assert shares_of_f1([(0, 0, 0)] * 3) == [1.0] * 3


def test_their_spread_is_that_of_f1_over_resampled_texts() -> None:
    """The interval from the shares, against resampling the texts themselves."""
    import numpy as np

    random = np.random.default_rng(3)
    gold = random.integers(0, 9, 60)
    right = random.binomial(gold, 0.7)
    found = right + random.integers(0, 3, 60)
    shares = np.array(shares_of_f1(list(zip(found.tolist(), gold.tolist(), right.tolist(), strict=True))))
    drawn = random.integers(0, 60, (4000, 60))
    f1 = 2 * right[drawn].sum(axis=1) / (found[drawn] + gold[drawn]).sum(axis=1)
    assert shares[drawn].mean(axis=1).std() == pytest.approx(f1.std(), rel=0.1)


def test_a_row_of_another_kind_is_refused(words: Path, tmp_path: Path) -> None:
    (tmp_path / "heldout.jsonl").write_text('{"prompt": [{"role": "user", "content": "Hi"}], "row": "r"}\n')
    spec = EvaluationSpec(
        model=words,
        device="cpu",
        candidates={"base": None},
        heldout=tmp_path / "heldout.jsonl",
        objective="sft",
        reading=ReadingSettings(engine=VllmSettings(kind="vllm", model=BASE), extraction=ExtractionSettings()),
        output=tmp_path / "out",
    )
    with pytest.raises(InputError, match="is not a chunk with what is named in it"):
        evaluate(spec, lambda _: None)
