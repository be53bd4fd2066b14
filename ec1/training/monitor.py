"""What is monitored while a training runs: its figures, its health, its budget, and requests to stop.

Belongs here: decisions at the edge of a step. Does not: the training loop, which is Trainer's; `callback_of` is the
only thing that it sees.
"""

import math
import resource
import statistics
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ec1.launch.reporting import Reporter
from ec1.recipes.schema import Recipe
from ec1.training.checkpoints import keep_newest, seal
from ec1.training.processes import Team

if TYPE_CHECKING:
    from transformers import TrainerCallback

# Divergence: the median of the last losses against that of the ones before, so that it is noticed at its second step. A
# single odd batch is not a divergence, and neither is a tiny loss that became a small one.
_RECENT = 3
_WINDOW = 20
_MIN_RISE_NATS = 0.5
# Groups whose answers all earn the same teach nothing.
_FLAT_STEPS = 5
_LEARNT_REWARD = 0.95
ROLLOUT_COLUMNS = ("reward", "spread", "entropy", "right", "refused")
"""Of a step whose answers the model wrote: their mean reward, the share of groups that are not all of one reward, the
entropy of a token in nats, and the shares that are right and that were refused as attempts on the check."""
BUSY_SECONDS = 5.0
"""Between two questions to the driver how busy the card is: it answers in milliseconds, and a step may take no more."""
SAVING_SECONDS = 5.0
"""What is kept of the budget for writing the last checkpoint and the adapter."""


@dataclass
class Monitor:
    """The state of one run that its process shares with the training loop."""

    recipe: Recipe
    report: Reporter
    checkpoints: Path
    deadline: float
    """`time.monotonic()` at which the budget ends."""
    cuda: bool
    team: Team = field(default_factory=Team)
    stop_requested: bool = False
    """Set from a signal handler: save at the next step's edge and end."""
    interrupted: bool = False
    """Whether this or another process of the team was asked to, and all end now."""
    training: bool = False
    """Whether steps are being taken; before that there is nothing to save."""
    out_of_time: bool = False
    verdict: str | None = None
    """Why training stopped permanently."""
    notes: list[str] = field(default_factory=list)
    _losses: "deque[float]" = field(default_factory=lambda: deque(maxlen=_WINDOW + _RECENT))
    _step_began: float = 0.0
    _busy: float | None = None
    _busy_at: float = -math.inf
    _flat: int = 0
    """Steps in a row in which no group spread."""
    _saved_at: float = field(default_factory=time.monotonic)
    _slowest_step: float = 0.0
    _step_seconds: float = 0.0
    _tokens_before: float = 0.0

    def note(self, text: str) -> None:
        """Add a remark to the summary, once."""
        if text not in self.notes:
            self.notes.append(text)

    def train_begins(self, tokens: float = 0.0) -> None:
        """`tokens`: those that the training's count begins with, where it goes on."""
        self.training = True
        self._saved_at = time.monotonic()
        self._tokens_before = tokens
        self._losses.clear()
        self._flat = 0

    def step_begins(self) -> None:
        self._step_began = time.monotonic()

    def step_ends(self, step: int, last: int) -> tuple[bool, bool]:
        """Whether to save a checkpoint now, and whether to stop."""
        now = time.monotonic()
        self._step_seconds = now - self._step_began
        self._slowest_step = max(self._slowest_step, self._step_seconds)
        if step >= last:
            return False, False
        late = now + self._slowest_step + SAVING_SECONDS > self.deadline
        due = now - self._saved_at >= self.recipe.optimisation.checkpoint_minutes * 60
        self.interrupted, late, due = self.team.any_of(self.stop_requested, late, due)
        if self.interrupted:
            return True, True
        if late:
            self.out_of_time = True
            return True, True
        return due, False

    def logged(self, step: int, last: int, entry: dict[str, Any]) -> bool:
        """Complete the figures of one step in place. True if the training is lost and must stop."""
        tokens = entry.get("num_tokens", 0.0) - self._tokens_before
        self._tokens_before = entry.get("num_tokens", 0.0)
        entry["tokens"] = tokens
        entry["seconds"] = self._step_seconds
        entry["tokens_per_second"] = tokens / max(self._step_seconds, 1e-9)
        entry["peak_memory_gib"] = peak_memory_gib(self.cuda)
        now = time.monotonic()
        if now - self._busy_at >= BUSY_SECONDS:
            self._busy_at, self._busy = now, gpu_busy(self.cuda)
        if self._busy is not None:
            entry["gpu_busy"] = self._busy
        loss, norm = float(entry["loss"]), float(entry.get("grad_norm", 0.0))
        rolled_out = "frac_reward_zero_std" in entry
        if rolled_out:
            entry["spread"] = 1.0 - entry["frac_reward_zero_std"]
        what = f"loss {loss:.3f}" if not rolled_out else (
            f"reward {entry['reward']:.3f}, {entry['spread']:.0%} of the groups spread, entropy {entry['entropy']:.2f}"
        )  # fmt: skip
        self.report.progress(
            f"step {step} of {last}: {what}, {entry['tokens_per_second']:.0f} tokens/s, "
            f"about {(last - step) * self._step_seconds:.0f} s to go"
        )
        self.verdict = self._health(step, loss, norm)
        if rolled_out and self.verdict is None:
            return self._nothing_spreads(step, entry)
        return self.verdict is not None

    def _nothing_spreads(self, step: int, entry: dict[str, Any]) -> bool:
        """Whether there is nothing more to be learnt: for some steps all answers to each prompt earned the same."""
        self._flat = self._flat + 1 if entry["spread"] == 0 else 0
        if self._flat < _FLAT_STEPS:
            return False
        said = f"in {_FLAT_STEPS} steps no group's answers differed in their reward ({entry['reward']:.2f})"
        if entry["reward"] >= _LEARNT_REWARD:
            self.note(f"ended at step {step}: {said}: all is learnt")
        else:
            self.verdict = f"{said}, so nothing is learnt: raise grpo.temperature, or take other tasks or another start"
        return True

    def _health(self, step: int, loss: float, norm: float) -> str | None:
        # Not `loss > limit`: no comparison with NaN is ever true.
        if not math.isfinite(loss):
            return f"the loss of step {step} is {loss}"
        if not math.isfinite(norm):
            return f"the gradient's norm at step {step} is {norm}"
        self._losses.append(loss)
        losses = list(self._losses)
        if len(losses) < 3:
            return None
        if len(losses) < 2 * _RECENT:
            # So early there is little to compare with: two steps in a row must be far above all that came before.
            before, now = max(losses[:-2]), min(losses[-2:])
        else:
            before, now = statistics.median(losses[:-_RECENT]), statistics.median(losses[-_RECENT:])
        if now > max(before * self.recipe.optimisation.divergence_factor, before + _MIN_RISE_NATS):
            return f"the loss rose from about {before:.3f} to {now:.3f} at step {step}"
        return None

    def saved(self, step: int, best: str | None = None) -> None:
        """Seal the checkpoint that was just written, and delete older ones but the one named `best`."""
        # Each has put its random state into it.
        self.team.wait()
        if self.team.leads:
            seal(self.checkpoints / f"checkpoint-{step}")
            keep_newest(self.checkpoints, self.recipe.optimisation.keep_checkpoints, best)
        self._saved_at = time.monotonic()


def peak_memory_gib(cuda: bool) -> float:
    """The most memory that this process has held: of the card, or resident memory on a CPU."""
    if cuda:
        import torch

        return float(torch.cuda.max_memory_reserved() / 2**30)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def gpu_busy(cuda: bool) -> float | None:
    """The share of the last moments (up to a second) in which the card computed, 0 to 1; None on a CPU, or where the
    driver does not say."""
    if not cuda:
        return None
    import torch

    try:
        return torch.cuda.utilization() / 100
    except (ImportError, RuntimeError):
        return None


def callback_of(monitor: Monitor) -> "TrainerCallback":
    """The monitor in the form that Trainer calls."""
    from transformers import TrainerCallback

    class MonitorCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            monitor.train_begins(float(state.num_input_tokens_seen))

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            monitor.step_begins()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            save, stop = monitor.step_ends(state.global_step, state.max_steps)
            control.should_save = control.should_save or save
            control.should_training_stop = control.should_training_stop or stop

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            # Trainer has just appended these figures; what is added here travels with its checkpoints.
            entry = state.log_history[-1]
            if "loss" not in entry:
                return
            if monitor.logged(state.global_step, state.max_steps, entry):
                control.should_training_stop = True
                control.should_save = False
            # The trackers, which are called after this, are given `logs`.
            logs.update({key: value for key, value in entry.items() if key not in ("step", "epoch")})

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            monitor.saved(state.global_step, state.best_model_checkpoint and Path(state.best_model_checkpoint).name)

    return MonitorCallback()
