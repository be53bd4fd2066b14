"""The GPU session in a box, without a card: its steps on a CPU with a tiny model, NVML faked, and its page."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from eight_cards import EightCards

from benchmarks.gpu import carry
from benchmarks.gpu.guards import guarded
from benchmarks.gpu.models import write_config
from benchmarks.gpu.steps import STEPS, Session, run_step
from benchmarks.gpu.table import as_markdown, collected
from benchmarks.gpu.training import Case, measured, planned, two_in_one_process
from ec1.home import CHECKOUT
from ec1.training.shape import ModelShape


def test_a_training_is_measured_beside_its_plan(tmp_path: Path) -> None:
    cases = [Case("lora", 32, 2, True), Case("lora", 32, 2, False, filled=0.25)]
    base, full, padded = measured("tiny", "cpu", cases, 0.01, tmp_path, "NVIDIA H100")
    assert base["load_seconds"] >= 0
    assert full["tokens_per_second"] == full["computed_tokens_per_second"] > 0 and full["tflops"] > 0
    assert padded["tokens_per_second"] == pytest.approx(padded["computed_tokens_per_second"] / 4, rel=0.01)
    assert full["planned_gib"] > 0 and full["planned_tokens_per_second"] > 0 and "left_out" not in full


def test_the_planned_memory_of_a_7b_is_that_of_the_plan(tmp_path: Path) -> None:
    shape = ModelShape.read(write_config("7b", tmp_path, 4096))
    assert shape.parameters == pytest.approx(7.3e9, rel=0.02)
    row = planned(Case("qlora", 2048, 4, True), shape, "cuda", "NVIDIA L4")
    assert row["planned_gib"] == pytest.approx(10.7, abs=0.2), "docs/recipes.md says so too"
    assert "planned_tokens_per_second" not in planned(Case("lora", 2048, 4, True), shape, "cuda", "some other card")


@pytest.mark.slow
def test_four_bits_and_two_trainings_of_one_base(tmp_path: Path) -> None:
    _, row = measured("tiny", "cpu", [Case("qlora", 32, 1, True)], 0.01, tmp_path / "q", "CPU")
    assert row["tokens_per_second"] > 0
    first, second = two_in_one_process("tiny", "cpu", 32, 0.01, tmp_path / "two")
    assert first["load_seconds"] > second["load_seconds"] == 0 and second["tokens_per_second"] > 0


def test_the_card_is_told_by_nvml(eight: EightCards, tmp_path: Path) -> None:
    eight.tell(0, used=4)
    session = Session("cuda", tiny=True, scratch=tmp_path)
    facts = next(STEPS["card"](session))
    assert session.card() == facts["card"] == "NVIDIA L4"
    assert (facts["memory_gib"], facts["free_gib"]) == (24, 20) and "torch" in facts["versions"]


@pytest.mark.slow
def test_the_guards_hold_and_a_phase_does_not_begin_without_memory(eight: EightCards) -> None:
    rows = {row["what"]: row for row in guarded("cuda", "cpu", 0.01)}
    assert rows["a second holder is refused"]["kept"]
    assert rows["the next phase finds its memory free again"]["kept"]
    assert rows["no handover without the memory that is asked for"]["kept"]
    assert not rows["check of the card (ec1.machines.cuda)"]["kept"], "there is no card here, and it says so"
    eight.tell(0, used=24)
    with pytest.raises(Exception, match=r"0\.0 GiB free of 24\.0"):
        list(guarded("cuda", "cpu", 0.01))


def test_a_library_that_is_not_there_is_told_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trl", None)
    run_step("trl", Session("cpu", tiny=True, scratch=tmp_path), tmp_path)
    assert collected(tmp_path) == {"trl": [{"left_out": "trl is not installed"}]}


def test_the_page_shows_shares_of_the_peak_and_of_the_plan() -> None:
    case: dict[str, Any] = vars(Case("lora", 2048, 4, True))
    row = case | {"tokens_per_second": 1000.0, "computed_tokens_per_second": 1000.0, "tflops": 41.0}
    row |= {"peak_gib": 11.0, "planned_gib": 10.0, "planned_tokens_per_second": 800}
    found = {
        "card": [{"card": "NVIDIA L4", "driver": "1.2"}, {"what": "products", "tflops": 82.0}],
        "lora": [row, case | {"planned_gib": 30.0, "left_out": "out of memory"}, {"left_out": "ended after 540 s"}],
    }
    page = as_markdown(found)
    assert "# NVIDIA L4" in page and "- tflops: 82" in page
    assert "| lora | 2048 | 4 | yes | no | 1 | 1000 | 1.25 | 50% | 11.0 | 1.10 |" in page
    assert "out of memory" in page and "ended after 540 s" in page


@pytest.mark.soak
def test_our_engine_is_measured(tmp_path: Path) -> None:
    run_step("engine", Session("cpu", tiny=True, scratch=tmp_path / "scratch"), tmp_path)
    rows = {row.get("what"): row for row in collected(tmp_path)["engine"]}
    assert None not in rows, rows
    assert all(row.get("failed", 0) == 0 for row in rows.values())
    assert rows["grammar"]["requests"] == rows["two adapters"]["requests"] == 8
    assert rows["a version is loaded while requests are in flight"]["load_ms"] > 0


@pytest.mark.slow
def test_a_step_ends_in_its_time_and_what_was_measured_stays(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--tiny", "--out", str(tmp_path)]
    done = subprocess.run(
        [*command, "--step", "card", "--seconds", "0.5"], cwd=CHECKOUT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "ended after 0 s" in (tmp_path / "gpu.md").read_text()
    subprocess.run([*command, "--step", "card", "--again"], cwd=CHECKOUT, check=True)
    rows = json.loads((tmp_path / "gpu.json").read_text())["card"]
    assert rows[0]["card"] == "CPU" and rows[1]["tflops"] > 0 and "left_out" not in rows[-1]


@pytest.mark.slow
def test_the_box_runs_where_only_torch_transformers_peft_and_accelerate_are() -> None:
    """What the image lacks, and the folder of `carry` does not bring, must not be asked for before its step."""
    absent = ("trl", "datasets", "pyarrow", "pandas", "bitsandbytes", "dagster", "vllm", "typer", "sklearn")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({absent!r}))\n"
        "import tempfile; from pathlib import Path; from benchmarks.gpu.steps import STEPS, Session\n"
        "folder = Path(tempfile.mkdtemp()); session = Session('cpu', True, folder)\n"
        "for name in ('card', 'packing', 'two'): print(name, len(list(STEPS[name](session))))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True)
    assert done.stdout.split() == ["card", "3", "packing", "3", "two", "2"], done.stderr[-2000:]


@pytest.mark.slow
def test_what_is_carried_stays_below_its_limit(tmp_path: Path) -> None:
    missing = carry.pack(tmp_path / "carried.tar.gz", "128")
    with tarfile.open(tmp_path / "carried.tar.gz") as archive:
        names = archive.getnames()
    assert "trl" not in missing and "trl/__init__.py" in names
    assert [name for name in names if "_cuda" in name and name.endswith(".so")] == [
        "bitsandbytes/libbitsandbytes_cuda128.so"
    ]
    with pytest.raises(SystemExit, match="no library for CUDA 999"):
        carry.pack(tmp_path / "other.tar.gz", "999")
