"""How sure a trained extractor is: the fit, the file beside an adapter, and what phase 1 makes of it."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_openai import FakeServer, fake_server
from test_extractor import SETTINGS, Bench, item

from ec1.errors import InputError
from ec1.extraction.defence import instructions
from ec1.extraction.naming import confidence, trained
from ec1.extraction.naming.calibration import (
    CALIBRATION,
    Calibration,
    JudgedName,
    best_threshold,
    calibration_error,
    calibration_in,
    crossed,
    knots_of,
    own_calibration,
)
from ec1.extraction.naming.confidence import FEATURES, UNFITTED, Curve
from ec1.extraction.reading.extractor import Extractor
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.results import ENTITY_CLASSES, ExtractionResult
from ec1.gpu.engine import ServedAdapter

DIGEST = "d" * 64
TEXT = "We met Alma Reyes, Boris Tanaka and the WHO there on Monday."


def judged(count: int, groups: int = 8, seed: int = 1) -> list[JudgedName]:
    """Names that are right with the square of the raw confidence: whoever believes that is far too sure."""
    draw = random.Random(seed)
    raw = [draw.random() for _ in range(count)]
    return [JudgedName(each, draw.random() < each**2, f"document {n % groups}") for n, each in enumerate(raw)]


def test_the_error_is_the_distance_of_confidence_and_share_right() -> None:
    half = [JudgedName(0.95, number % 2 == 0, "a") for number in range(10)]
    assert calibration_error(half) == pytest.approx(0.45)
    assert calibration_error([*half, *(JudgedName(0.5, number % 2 == 0, "a") for number in range(10))]) == (
        pytest.approx(0.225)
    )
    assert calibration_error([]) == 0.0


def test_a_fit_on_some_documents_calibrates_others() -> None:
    fitted = Curve({}, (), knots_of(judged(1500, seed=1)))
    others = judged(1500, seed=2)
    after = [JudgedName(fitted.calibrated(each.confidence), each.right, each.group) for each in others]
    assert calibration_error(others) > 0.12 and calibration_error(after) < 0.05
    assert calibration_error(crossed(others)) < 0.05
    raised = [after for _, after in fitted.knots]
    assert raised == sorted(raised), "who is surer is right as often at least"


def test_the_threshold_has_the_best_f1() -> None:
    names = [JudgedName(0.9, True, "a")] * 8 + [JudgedName(0.3, False, "a")] * 8 + [JudgedName(0.42, True, "a")] * 2
    least, f1 = best_threshold(names, wanted=10)
    assert 0.3 < least <= 0.42 and f1 == 1.0


def test_too_few_names_give_the_shared_curve_and_say_so() -> None:
    shared = Curve({}, UNFITTED.weights, ((0.0, 0.1), (1.0, 0.9)), 0.3)
    few = own_calibration(shared, judged(60), 30, adapter_digest=DIGEST, mode="both")
    assert few is not None and (few.judged, few.knots, few.least) == (0, shared.knots, 0.3)
    assert not few.curve.calibrates
    assert own_calibration(None, judged(60), 30, adapter_digest=DIGEST, mode="both") is None
    one = own_calibration(shared, judged(500, groups=2), 200, adapter_digest=DIGEST, mode="both")
    assert one is not None and one.judged == 0, "two documents say nothing about a third"
    enough = own_calibration(shared, judged(500), 200, adapter_digest=DIGEST, mode="both")
    assert enough is not None and enough.judged == 500 and enough.groups == 8 and enough.curve.calibrates
    assert enough.weights == UNFITTED.weights and enough.knots != shared.knots
    assert enough.error is not None and enough.error < 0.12
    text_alone = own_calibration(None, judged(500), 200, adapter_digest=DIGEST, mode="answer")
    assert text_alone is not None and text_alone.weights == () and text_alone.curve.calibrates


def test_a_curve_is_that_of_its_adapter_and_mode(tmp_path: Path) -> None:
    made = own_calibration(None, judged(500), 200, adapter_digest=DIGEST, mode="both")
    assert made is not None
    made.save(tmp_path)
    assert calibration_in(tmp_path, DIGEST, "both") == made
    assert calibration_in(tmp_path, DIGEST, "decide") is calibration_in(tmp_path, "e" * 64, "both") is None
    assert calibration_in(tmp_path / "elsewhere", DIGEST, "both") is None
    (tmp_path / CALIBRATION).write_text('{"knots": 3}')
    with pytest.raises(InputError, match=r"calibration\.json is not a curve"):
        calibration_in(tmp_path, DIGEST, "both")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as state:
        yield state


@pytest.fixture(scope="module")
def model(words: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer that counts words, with a chat template."""
    folder = tmp_path_factory.mktemp("model")
    value = json.loads((words / "tokenizer.json").read_text())
    vocabulary = ["?", trained.NONE, *ENTITY_CLASSES]
    value["model"]["vocab"] = {word: number for number, word in enumerate(vocabulary)}
    (folder / "tokenizer.json").write_text(json.dumps(value))
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>"
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def bench_of(server: FakeServer, folder: Path, model: Path, curve: Calibration | None, mode: str = "both") -> Bench:
    adapter = folder / "adapter"
    adapter.mkdir(parents=True)
    if curve is not None:
        curve.save(adapter)
    settings = SETTINGS.model_copy(update={"mode": mode})
    bench = Bench(server, Outbox(folder / "outbox"), model, settings)
    bench.extractor = Extractor(settings, "some/model", "main", model, ServedAdapter("x@1", adapter, DIGEST, 8))
    return bench


def curve_of(weight: float, knots: tuple[tuple[float, float], ...] = (), **fields: object) -> Calibration:
    """A curve by which the raw confidence is a logistic function of `weight` times the log-odds over none."""
    weights = tuple(weight if name == "over none" else 0.0 for name in FEATURES)
    fields = {"judged": 200, "mode": "both", "least": 0.5, **fields}
    return Calibration.model_validate({"adapter": DIGEST, "weights": weights, "knots": knots, **fields})


def test_listed_names_and_left_out_ones_get_the_models_own_log_odds(
    server: FakeServer, tmp_path: Path, model: Path
) -> None:
    bench = bench_of(server, tmp_path, model, curve_of(0.2))
    work = item(f"[[first]] {TEXT}")
    bench.run(work)
    result = bench.result(work)
    assert result is not None and result.calibrated
    # Of the answer and of a decision alike: the server says -0.05 for a person and -5 for none.
    logistic = 1 / (1 + 2.718281828 ** (-0.2 * 4.95))
    assert {mention.name: mention.confidence for mention in result.mentions} == {
        name: pytest.approx(logistic, abs=1e-3) for name in ("Alma Reyes", "Boris Tanaka")
    }
    (request,) = [request for request in server.requests if "prompt" in request]
    assert sum('[["Alma Reyes","' in prompt for prompt in request["prompt"]) == 1


def test_knots_and_their_threshold_decide_what_is_kept(server: FakeServer, tmp_path: Path, model: Path) -> None:
    work = item(TEXT)
    unsure = bench_of(server, tmp_path / "unsure", model, curve_of(0.2, ((0.0, 0.0), (1.0, 0.2)), least=0.35))
    unsure.run(work)
    result = unsure.result(work)
    assert result is not None and not result.mentions
    assert {each.reason for each in result.dropped if each.name in ("Alma Reyes", "Boris Tanaka")} == {"low confidence"}
    sure = bench_of(server, tmp_path / "sure", model, curve_of(0.2, ((0.0, 0.0), (1.0, 0.9)), least=0.35))
    sure.run(work)
    found = sure.result(work)
    assert found is not None and {each.name for each in found.mentions} == {"Alma Reyes", "Boris Tanaka"}
    # What the settings say comes first, and the curve is a part of the fingerprint.
    assert unsure.extractor.fingerprint("meeting") != sure.extractor.fingerprint("meeting")
    strict = Extractor(
        SETTINGS.model_copy(update={"mode": "both", "min_confidence": 0.9}), "m", "main", model, sure.extractor.adapter
    )
    assert (sure.extractor.min_confidence, strict.min_confidence) == (0.35, 0.9)


def test_what_stands_only_where_an_instruction_may_be_must_be_found_with_confidence(
    server: FakeServer, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def likeness(sentence: str) -> float:
        return -1.0 if "perhaps" in sentence else -9.0

    monkeypatch.setattr(instructions, "likeness", likeness)
    suspect = "Then perhaps came Boris Tanaka with Alma Reyes."

    def read(name: str, text: str, right: float) -> ExtractionResult:
        bench = bench_of(server, tmp_path / name, model, curve_of(0.2, ((0.0, 0.0), (1.0, right)), least=0.1))
        work = item(text)
        bench.run(work)
        found = bench.result(work)
        assert found is not None and found.calibrated
        return found

    once = f"We met Alma Reyes there. {suspect} It rained on Monday."
    unsure = read("unsure", once, 0.6)
    assert {each.name for each in unsure.mentions} == {"Alma Reyes"} and len(unsure.mentions) == 2
    (held,) = unsure.held
    assert (held.sentence, held.names) == (suspect, ("Boris Tanaka",)) and once[held.start : held.end] == suspect
    assert "unsure" in held.reasons[-1] and held.read
    sure = read("sure", once, 0.99)
    assert {each.name for each in sure.mentions} == {"Alma Reyes", "Boris Tanaka"} and not sure.held
    known = read("known", f"{once} We met Boris Tanaka there.", 0.6)
    assert {each.name for each in known.mentions} == {"Alma Reyes", "Boris Tanaka"} and not known.held


def test_an_adapter_without_a_curve_or_with_anothers_is_uncalibrated(
    server: FakeServer, tmp_path: Path, model: Path
) -> None:
    work = item(TEXT)
    for name, curve in (("none", None), ("another's", curve_of(0.2, judged=0)), ("mode", curve_of(0.2, mode="decide"))):
        bench = bench_of(server, tmp_path / name, model, curve)
        bench.run(work)
        result = bench.result(work)
        assert result is not None and not result.calibrated, name
        assert {each.name for each in result.mentions} == {"Alma Reyes", "Boris Tanaka"}, name


def test_a_name_that_the_model_made_up_is_still_counted_as_that(
    server: FakeServer, tmp_path: Path, model: Path
) -> None:
    bench = bench_of(server, tmp_path, model, curve_of(0.2))
    work = item(f"[[invent]] {TEXT}")
    bench.run(work)
    result = bench.result(work)
    assert result is not None and "not in the text" in {each.reason for each in result.dropped}


def test_a_curve_from_the_texts_evidence_alone_needs_no_log_probabilities(
    server: FakeServer, tmp_path: Path, model: Path
) -> None:
    curve = curve_of(0.0, ((0.5, 0.61), (1.0, 0.61)), mode="answer").model_copy(update={"weights": ()})
    bench = bench_of(server, tmp_path, model, curve, mode="answer")
    work = item(TEXT)
    bench.run(work)
    result = bench.result(work)
    assert result is not None and result.calibrated
    assert {each.confidence for each in result.mentions} == {0.61}
    assert not [request for request in server.requests if "prompt" in request]


def test_all_curves_have_a_weight_for_each_feature() -> None:
    for curve in confidence.curves().values():
        assert len(curve.weights) == len(FEATURES) and 0 < curve.least < 1
