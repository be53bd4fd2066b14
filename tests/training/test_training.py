"""Real trainings, a few short steps each: of the small model where it matters that something is learnt, else of a tiny
one of the same architecture and tokenizer with random weights, where it matters what happens to a run."""

import contextlib
import datetime as dt
import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from small_trainings import ROWS, losses, run, run_until
from transformers import LlamaForCausalLM, TrainerCallback

from ec1.adapters.likelihood import read_examples
from ec1.corpus.buckets import bucket
from ec1.corpus.dataset import build_dataset
from ec1.corpus.options import DataOptions
from ec1.corpus.snapshots import take_snapshot
from ec1.errors import InputError, PermanentError
from ec1.home import Home
from ec1.launch.checkpoints import bring, keep
from ec1.launch.reporting import JsonLinesReporter
from ec1.night.steps.candidate import RESUMABLE
from ec1.storage.directory import DirectoryStore
from ec1.training.building import build_trainer, load_rows, load_tokenizer
from ec1.training.cpu import attention_to, score_answers_only
from ec1.training.prefix_sharing import shares_prefixes
from ec1.training.spec import METRICS, SUMMARY, StartAdapter, TrainingSpec, check_result, finished, read_result
from ec1.training.trainer import Interrupted, train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def real_sft(
    make: Callable[..., TrainingSpec], small_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> TrainingSpec:
    """The small model, trained with the held-out loss before and after."""
    spec = make("engineering", tmp_path_factory.mktemp("real"), model=small_model, optimisation={"evaluation_steps": 6})
    run(spec)
    return spec


def test_sft_learns_and_leaves_what_serving_needs(real_sft: TrainingSpec) -> None:
    sft, result = real_sft, check_result(real_sft)
    assert result.heldout_loss_first is not None and result.heldout_loss_last is not None
    assert result.heldout_loss_last < result.heldout_loss_first - 0.3
    assert (result.status, result.steps, result.planned_steps, result.rows) == ("finished", 6, 6, ROWS)
    assert result.changed_modules == 60, "two modules in each of 30 layers"
    assert result.reference is None
    config = json.loads((sft.output / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert sorted(path.name for path in (sft.output / "adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "chat_template.jinja",
    ]
    weights = load_file(sft.output / "adapter" / "adapter_model.safetensors")
    assert len(weights) == 120 and {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert not list(sft.output.rglob("*.bin")) and not list(sft.output.rglob("*.pt")), "no pickle is left"
    home = str(Path.home())
    assert not any(home in path.read_text() for path in (sft.output / "adapter").glob("*.json"))


def test_metrics_hold_one_row_a_step(sft: TrainingSpec) -> None:
    table = pq.read_table(sft.output / METRICS).to_pydict()
    assert table["step"] == [1, 2, 3, 4, 5, 6]
    for name in ("loss", "grad_norm", "learning_rate", "tokens_per_second", "seconds", "peak_memory_gib"):
        assert all(math.isfinite(value) for value in table[name]), name
    result = check_result(sft)
    assert result.tokens == sum(table["tokens"])
    assert min(table["peak_memory_gib"]) > 0.2


def test_what_counts_in_a_dataset_is_what_is_learnt(
    make: Callable[..., TrainingSpec], small_model: Path, tmp_path: Path, home: Home
) -> None:
    """From rows of a public format to the labels of the loss, and to what the evaluation scores."""
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"Name tree {number}."},
                {"role": "assistant", "content": f"No idea {number}.", "weight": 0},
                {"role": "user", "content": "Try."},
                {"role": "assistant", "content": f"An oak, {number}."},
                {"role": "user", "content": "Another."},
                {"role": "assistant", "content": f"A birch, {number}."},
            ]
        }
        for number in range(30)
    ]
    path = tmp_path / "corpus/research/all.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = load_tokenizer(small_model)
    snapshot = take_snapshot(
        bucket(tmp_path / "corpus", "research", "acme"), "sft", as_of=dt.datetime.now(dt.UTC), home=home
    )
    options = DataOptions(near_duplicate_similarity=1)
    dataset = build_dataset(snapshot, options, tokenizer, home=home, objective="sft")
    spec = make("engineering", tmp_path, data={"max_length": 256}).model_copy(update={"dataset": dataset.path})
    train_rows, heldout, _ = load_rows(spec, tmp_path / "scratch")
    trainer = build_trainer(spec, tokenizer, train_rows, heldout, 4, 1)
    assert len(trainer.train_dataset) == dataset.train_rows > 10
    for row in trainer.train_dataset:
        learnt = tokenizer.decode([label for label in row["labels"] if label != -100])
        assert re.fullmatch(r"An oak, (\d+)\.<\|im_end\|>\nA birch, \1\.<\|im_end\|>\n", learnt), learnt
    examples, skipped = read_examples(
        dataset.path / "heldout", "sft", tokenizer, system_prompt=None, max_length=512, limit=99
    )
    assert (len(examples), skipped) == (dataset.heldout_rows, 0)
    for example in examples:
        assert re.fullmatch(r"A birch, \d+\.<\|im_end\|>\n", tokenizer.decode(example.answers[0]))
        assert tokenizer.decode(example.prompt).endswith("Another.<|im_end|>\n<|im_start|>assistant\n")


def test_a_finished_training_is_recognised_and_not_repeated(sft: TrainingSpec) -> None:
    before = (sft.output / SUMMARY).stat().st_mtime_ns
    assert run(sft).status == "finished"
    assert (sft.output / SUMMARY).stat().st_mtime_ns == before


def test_the_end_of_the_turn_is_learnt_and_padding_is_not(sft: TrainingSpec, small_model: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(small_model)
    assert tokenizer.pad_token_id == tokenizer.eos_token_id, "the trap that this test is about"
    rows, heldout, _ = load_rows(sft, tmp_path)
    trainer = build_trainer(sft, tokenizer, rows, heldout, 4, 1)
    batch = trainer.data_collator([trainer.train_dataset[number] for number in range(4)])
    for ids, labels, mask in zip(batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True):
        learnt = tokenizer.decode(ids[labels != -100])
        assert learnt.startswith("The word is") and learnt.count("<|im_end|>") == 1
        assert bool((labels[mask == 0] == -100).all())
    assert int((batch["attention_mask"] == 0).sum()) > 0, "rows of different length are padded"


def test_two_runs_of_one_specification_give_the_same_curve(
    sft: TrainingSpec, make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    again = make("engineering", tmp_path)
    run(again)
    assert losses(again) == losses(sft)


def test_a_killed_run_goes_on_with_the_same_curve(
    sft: TrainingSpec, make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    """A separate process, killed without warning in the middle of a step; another one resumes."""
    spec = make("engineering", tmp_path, optimisation={"checkpoint_minutes": 1e-6})
    # The recipe differs from the undisturbed one in when it saves, which must not change the curve.
    path = tmp_path / "spec.json"
    path.write_text(spec.model_dump_json())
    process = subprocess.Popen([sys.executable, "-m", "ec1.training", str(path)], stdout=subprocess.PIPE)
    wanted = spec.checkpoints / "checkpoint-3" / "sealed.json"
    while not wanted.is_file():
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert read_result(tmp_path) is None
    result = run(spec)
    assert result.status == "finished" and result.resumed_from is not None and result.resumed_from >= 3
    assert losses(spec) == losses(sft)
    ours, theirs = (load_file(each.output / "adapter" / "adapter_model.safetensors") for each in (spec, sft))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_checkpoint_that_was_sent_is_gone_on_from_elsewhere_with_the_same_weights(
    sft: TrainingSpec, make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    first, second = (make("engineering", tmp_path / name / "training") for name in ("first", "second"))
    with pytest.raises(Interrupted, match="stopped after step 3"):
        run_until(first, 3)
    store = DirectoryStore(tmp_path / "store")
    assert keep(store, "a" * 64, first.output, RESUMABLE) > 0
    assert bring(store, "a" * 64, second.output, RESUMABLE) == 3
    assert run(second).resumed_from == 3
    ours, theirs = (load_file(each.output / "adapter" / "adapter_model.safetensors") for each in (second, sft))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_an_interrupt_saves_at_the_step_and_exits_non_zero(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    spec = make("engineering", tmp_path, optimisation={"epochs": 100})
    path = tmp_path / "spec.json"
    path.write_text(spec.model_dump_json())
    process = subprocess.Popen(
        [sys.executable, "-m", "ec1.training", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while '"step ' not in (line := process.stdout.readline()):
        assert line, process.communicate()[1]
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert "it can go on from there" in errors
    assert len(list(spec.checkpoints.glob("checkpoint-*/sealed.json"))) == 1
    assert read_result(tmp_path) is None


def test_dpo_learns_against_the_base(make: Callable[..., TrainingSpec], small_model: Path, tmp_path: Path) -> None:
    spec = make("apprenticeship", tmp_path, model=small_model)
    result = run(spec)
    assert result.status == "finished" and result.objective == "dpo"
    assert result.reference == "HuggingFaceTB/SmolLM2-135M-Instruct@main"
    assert result.loss_first == pytest.approx(math.log(2), abs=1e-3), "untrained, nothing is preferred"
    assert result.loss_last is not None and result.loss_last < 0.6


def test_dpo_goes_on_from_the_sft_adapter_and_resumes_its_own_weights(
    sft: TrainingSpec, make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    """The reference is the SFT adapter, frozen. Trainer alone would load only that one back from a checkpoint."""
    start = StartAdapter(folder=sft.output / "adapter", name="fernhollow/engineering@v1", digest="s" * 64)
    whole = make("apprenticeship", tmp_path / "whole", start_adapter=start)
    result = run(whole)
    assert result.reference == result.start_adapter == "fernhollow/engineering@v1"
    assert result.loss_first == pytest.approx(math.log(2), abs=1e-3)
    trained = load_file(whole.output / "adapter" / "adapter_model.safetensors")
    before = load_file(start.folder / "adapter_model.safetensors")
    assert trained.keys() == before.keys()
    assert any(not torch.equal(trained[name], before[name]) for name in before)

    parted = make("apprenticeship", tmp_path / "parted", start_adapter=start, budget_seconds=600)
    with pytest.raises(Exception, match="stopped after step 3 of 6"):
        run_until(parted, 3)
    resumed = run(parted)
    assert resumed.resumed_from == 3
    assert losses(parted) == losses(whole)


class OutOfMemory(TrainerCallback):
    """What CUDA raises, as long as a batch holds more than `rows`."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.per_device_train_batch_size > self.rows and state.global_step == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


def test_out_of_memory_keeps_the_effective_batch_and_the_curve(
    sft: TrainingSpec, make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    spec = make("engineering", tmp_path, lora={"dropout": 0.0}, optimisation={"checkpoint_minutes": 1e-6})
    result = run(spec, OutOfMemory(1))
    assert (result.batch_size, result.gradient_accumulation, result.effective_batch) == (1, 2, 2)
    assert result.steps == 6 and "out of memory: went on with 2 batches of 1 rows in a step" in result.notes
    assert result.resumed_from == 1, "from the newest checkpoint, not from the start"
    undisturbed = make("engineering", tmp_path / "undisturbed", lora={"dropout": 0.0})
    run(undisturbed)
    # Sums over another shape of batch differ in the last bits of bfloat16.
    assert losses(spec) == pytest.approx(losses(undisturbed), rel=0.02)


def test_out_of_memory_with_one_row_is_permanent(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    spec = make("engineering", tmp_path, optimisation={"batch_size": 1, "gradient_accumulation": 2})
    with pytest.raises(PermanentError, match="out of memory with a batch of one row"):
        run(spec, OutOfMemory(0))


class PlantNaN(TrainerCallback):
    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step == 2:
            next(weight for weight in model.parameters() if weight.requires_grad).data[0, 0] = math.nan


def test_a_planted_nan_stops_with_a_verdict_and_no_adapter(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    spec = make("engineering", tmp_path)
    result = run(spec, PlantNaN())
    assert (result.status, result.steps, result.weights) == ("diverged", 3, None)
    assert result.verdict == "the loss of step 3 is nan"
    assert not (tmp_path / "adapter").exists()
    assert check_result(spec).verdict == result.verdict
    assert len(losses(spec)) == 3, "the curve up to the end is kept, it is the evidence"


def test_the_end_of_the_budget_leaves_a_usable_adapter_that_can_go_on(
    sft: TrainingSpec, make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    class Clock(TrainerCallback):
        """The budget ends after the second step."""

        monitor: Any = None

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 1:
                self.monitor.deadline = time.monotonic()

    clock, spec = Clock(), make("engineering", tmp_path)
    result = train(
        spec,
        JsonLinesReporter(sys.stderr),
        on_monitor=lambda monitor: setattr(clock, "monitor", monitor),
        extra_callbacks=[clock],
    )
    assert (result.status, result.steps, result.planned_steps) == ("partial", 2, 6)
    assert check_result(spec).changed_modules == 4, "two modules in each of 2 layers"
    on = run(spec)
    assert (on.status, on.resumed_from) == ("finished", 2)
    assert losses(spec) == losses(sft)


def test_checkpoints_of_another_recipe_are_not_resumed(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    with pytest.raises(Exception, match="stopped after step 2"):
        run_until(make("engineering", tmp_path), 2)
    result = run(make("engineering", tmp_path, optimisation={"learning_rate": 2e-3}))
    assert result.resumed_from is None
    assert any("belong to another recipe" in note for note in result.notes)


def test_misspelt_target_modules_are_refused_even_if_others_match(
    make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    spec = make("engineering", tmp_path, lora={"target_modules": ["q_proj", "query_key_value"]})
    with pytest.raises(PermanentError, match=r"has no module query_key_value; .* down_proj, gate_proj, k_proj"):
        run(spec)


def test_an_adapter_that_did_not_change_is_refused(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    class Freeze(TrainerCallback):
        """The optimiser takes steps of length zero."""

        def on_step_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
            for group in optimizer.param_groups:
                group["lr"] = 0.0

    spec = make("engineering", tmp_path, optimisation={"scheduler": "constant", "epochs": 0.2})
    with pytest.raises(PermanentError, match="every B matrix of the adapter is still zero"):
        run(spec, Freeze())
    assert read_result(tmp_path) is None


def test_rows_without_room_for_an_answer_are_counted(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    short = make("engineering", tmp_path, data={"max_length": 45})
    result = run(short)
    assert result.rows + result.left_out_rows == ROWS
    assert result.full_rows > 0
    none = make("engineering", tmp_path / "none", data={"max_length": 16})
    with pytest.raises(PermanentError, match=r"no row of .* holds an answer within data\.max_length of 16 tokens"):
        run(none)


def test_evaluating_in_between_does_not_stop_the_learning(
    sft: TrainingSpec, make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    """On a CPU bitsandbytes repacks weights at an evaluation, and gradients end there: it must not happen."""
    spec = make("engineering", tmp_path, optimisation={"evaluation_steps": 2})
    assert run(spec).heldout_loss_last is not None
    assert losses(spec) == losses(sft)


SECTIONS: dict[str, dict[str, Any]] = {
    "sft": {},
    "dpo": {"dpo": {"beta": 0.1}},
    "orpo": {"dpo": None, "orpo": {"beta": 0.5}},
    "simpo": {"dpo": None, "simpo": {"beta": 2.0, "gamma": 0.5}},
}


@pytest.mark.parametrize("objective", SECTIONS)
@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_every_method_learns_every_objective(
    make: Callable[..., TrainingSpec],
    tmp_path: Path,
    method: str,
    objective: str,
    request: pytest.FixtureRequest,
) -> None:
    """What was held out became likelier, or is preferred more clearly, than before."""
    real = request.config.getoption("--real-model")
    learning_rate = (2e-5 if real else 1e-3) if method == "full" else (1e-3 if real else 1e-2)
    spec = make(
        "engineering" if objective == "sft" else "apprenticeship",
        tmp_path,
        model=request.getfixturevalue("small_model" if real else "tiny_model"),
        method=method,
        objective=objective,
        quantization={"type": "nf4"} if method == "qlora" else None,
        optimisation={"evaluation_steps": 6, "learning_rate": learning_rate},
        **SECTIONS[objective],
    )
    result = run(spec)
    print(
        f"{method} {objective}: held-out loss {result.heldout_loss_first:.3f} -> {result.heldout_loss_last:.3f}, "
        f"margin {result.heldout_margin_first} -> {result.heldout_margin_last}"
    )
    assert check_result(spec).status == "finished"
    assert result.weights == ("model" if method == "full" else "adapter")
    assert result.heldout_loss_first is not None and result.heldout_loss_last is not None
    assert result.heldout_loss_last < result.heldout_loss_first
    if objective != "sft":
        assert result.heldout_margin_first is not None and result.heldout_margin_last is not None
        assert result.heldout_margin_last > result.heldout_margin_first
    assert result.tokens > 0 and result.reference == (
        "HuggingFaceTB/SmolLM2-135M-Instruct@main" if objective == "dpo" else None
    )


class Moved(TrainerCallback):
    """How many weights of the layers are others in the end than in the beginning, as a share."""

    before: dict[str, torch.Tensor]
    share: float

    @staticmethod
    def _layers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
        return {name: weight.detach() for name, weight in model.named_parameters() if "_proj" in name}

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.before = {name: weight.clone() for name, weight in self._layers(model).items()}

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        after = self._layers(model)
        moved = sum(int((after[name] != weight).sum()) for name, weight in self.before.items())
        self.share = moved / sum(weight.numel() for weight in self.before.values())


def test_all_weights_move_at_the_rate_of_continued_pre_training(
    make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    """Held in 16 bits, most would be rounded back to where they were at each step."""
    spec = make("engineering", tmp_path, method="full", quantization=None, optimisation={"learning_rate": 1e-5})
    moved = Moved()
    assert run(spec, moved).weights == "model"
    assert moved.share > 0.95
    assert {tensor.dtype for tensor in load_file(tmp_path / "model/model.safetensors").values()} == {torch.bfloat16}


def test_a_dataset_of_the_other_objective_is_refused(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    spec = make("apprenticeship", tmp_path)
    wrong = spec.model_copy(update={"dataset": spec.dataset.parent / "sft"})
    with pytest.raises(InputError, match="lacks chosen, rejected: objective dpo"):
        run(wrong)


def test_a_broken_contract_is_seen(sft: TrainingSpec, tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"ended without .*summary\.json"):
        check_result(sft.model_copy(update={"output": tmp_path}))
    copy = tmp_path / "copy"
    shutil.copytree(sft.output, copy)
    with pytest.raises(PermanentError, match="belongs to another recipe or dataset"):
        check_result(sft.model_copy(update={"output": copy, "dataset_digest": "e" * 64}))
    (copy / "adapter" / "adapter_model.safetensors").unlink()
    with pytest.raises(PermanentError, match=r"reported finished but left no .*adapter_model\.safetensors"):
        check_result(sft.model_copy(update={"output": copy}))
    shutil.rmtree(copy / "adapter")
    assert finished(sft.model_copy(update={"output": copy})) is None, "cleaned away: to be trained again if asked for"
    (copy / SUMMARY).write_text("{}")
    with pytest.raises(PermanentError, match="delete the folder to train again"):
        read_result(copy)


@pytest.mark.parametrize(
    ("family", "own"),
    [("llama", {}), ("granite", {"logits_scaling": 0.1}), ("gemma2", {"final_logit_softcapping": 0.5})],
)
def test_scoring_the_answers_alone_gives_what_the_library_gives(family: str, own: dict[str, float]) -> None:
    """Values and gradients of TRL's own head, which scores every position, in 32 bits so that they can be compared."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 512}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    config = AutoConfig.for_model(family, **shape, **heads, **own, attention_dropout=0.0)
    ids = torch.randint(0, 512, (3, 150), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    labels[:, :40] = -100
    labels[1, 90:] = -100
    labels[2, :] = -100
    seen = []
    for ours in (False, True):
        torch.manual_seed(5)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        model.lm_head.weight.requires_grad = False
        add_fused_lm_head(model, outputs=("log_probs", "entropy", "mean_logits", "is_top1"))
        if ours:
            score_answers_only(model)
        output = model(input_ids=ids, labels=labels, fused_lm_head=True)
        (output.log_probs * torch.arange(149.0)).sum().backward()
        gradient = model.model.layers[0].self_attn.q_proj.weight.grad
        assert gradient is not None
        seen.append([output.log_probs, output.entropy, output.mean_logits, output.is_top1.float(), gradient])
        mean = -output.log_probs.detach().sum() / output.label_mask.sum()
        assert float(output.loss.detach()) == pytest.approx(float(mean))
    for theirs, mine in zip(*seen, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-4, atol=2e-5)


def test_a_pair_s_common_beginning_is_computed_once_and_learnt_as_if_twice(tiny_model: Path) -> None:
    """Pairs whose answers part at other places, end at other ones, or are one the beginning of the other."""
    from trl.trainer.utils import add_fused_lm_head

    ids = torch.randint(0, 49152, (8, 60), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    for pair, (common, chosen, rejected) in enumerate([(20, 60, 50), (35, 41, 60), (0, 30, 60), (60, 60, 44)]):
        ids[4 + pair, :common] = ids[pair, :common]
        mask[pair, chosen:] = mask[4 + pair, rejected:] = 0
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :15] = -100
    seen, widths = [], []
    for pairs in (False, True):
        model = LlamaForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
        model.lm_head.weight.requires_grad = False
        add_fused_lm_head(model, outputs=("log_probs", "entropy", "mean_logits", "is_top1"))
        score_answers_only(model, pairs=pairs)
        model.model.embed_tokens.register_forward_hook(lambda _, given, out: widths.append(tuple(out.shape[:2])))
        output = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True, use_cache=False)
        (output.log_probs * torch.arange(59.0)).sum().backward()
        gradient = model.model.layers[0].self_attn.q_proj.weight.grad
        assert gradient is not None
        seen.append([output.log_probs, output.entropy, gradient])
    assert widths == [(8, 60), (4, 90)]
    for twice, once in zip(*seen, strict=True):
        torch.testing.assert_close(once, twice, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("looks_back", ["window", "scores without a mask", "a state"])
def test_a_model_that_does_not_keep_answers_apart_reads_each_pair_twice(tiny_model: Path, looks_back: str) -> None:
    model = LlamaForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    assert shares_prefixes(model)
    if looks_back == "window":
        model.config.sliding_window = 4096
    elif looks_back == "scores without a mask":
        theirs = model.model.forward
        model.model.forward = lambda attention_mask, **others: theirs(**others)
    else:
        model.model.embed_tokens.register_forward_hook(lambda _, given, out: out + 0.3 * out.cumsum(1))
    assert not shares_prefixes(model)


@pytest.mark.parametrize(
    ("width", "precision", "plain"), [(20, "bfloat16", True), (20, "float32", False), (400, "bfloat16", False)]
)
def test_short_rows_learn_the_same_with_plain_attention(
    tiny_model: Path, width: int, precision: str, plain: bool
) -> None:
    """As flash attention does, and only where that is the slower one."""
    from torch.nn.attention import _cur_sdpa_kernel_backends as backends

    model = LlamaForCausalLM.from_pretrained(tiny_model, dtype=getattr(torch, precision))
    ids = torch.randint(0, 49152, (3, width), generator=torch.Generator().manual_seed(1))
    seen, used = [], []
    for within in (contextlib.nullcontext(), attention_to({"input_ids": ids, "labels": ids}, model)):
        model.zero_grad()
        with within:
            used.append(len(backends()) == 1)
            model(input_ids=ids, labels=ids).loss.backward()
        seen.append(model.model.layers[0].self_attn.q_proj.weight.grad.float())
    assert used == [False, plain]
    theirs, mine = seen
    assert float((mine - theirs).norm() / theirs.norm()) < 0.05


def test_what_a_layer_reads_is_cast_once(
    make: Callable[..., TrainingSpec], small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By autocast, to 16 bits: PEFT would cast it to the adapter's 32 before."""
    monkeypatch.setattr("ec1.training.building.precision_on", lambda device, weight_bytes: "bfloat16")
    spec = make("engineering", tmp_path, method="lora", quantization=None)
    tokenizer = load_tokenizer(small_model)
    trainer = build_trainer(spec, tokenizer, *load_rows(spec, tmp_path / "scratch")[:2], 4, 1)
    assert trainer.args.bf16
    read: list[torch.dtype] = []
    for name, module in trainer.model.named_modules():
        if name.endswith("lora_A.default"):
            assert module.weight.dtype == torch.float32
            module.register_forward_pre_hook(lambda _, given: read.append(given[0].dtype))
    trainer.train()
    assert set(read) == {torch.bfloat16}
