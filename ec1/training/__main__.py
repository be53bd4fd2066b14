"""The trainer's process: `python -m ec1.training SPEC.json`.

If the specification asks for several processes, this one starts them on this machine, each with the same command, and
waits.

Exit status 0: a result was left (its status says how it ended). 1: it could not be trained, one line says why. 75: one
of several failed, perhaps because another one is gone.
130 or 143: it was interrupted after a whole step and can go on. An entry point, so it may look at the environment.
"""

import contextlib
import fcntl
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from ec1.errors import BusyError, EC1Error
from ec1.launch.libraries import hidden, load_libraries
from ec1.launch.ranks import LOST_OTHERS, is_one_of_several, leads
from ec1.launch.reporting import open_reporter
from ec1.models import unneeded_libraries
from ec1.training.monitor import Monitor
from ec1.training.processes import train_together
from ec1.training.spec import SUMMARY, TrainingResult, TrainingSpec

PATIENCE_SECONDS = 120.0
"""For another trainer in the same folder that is about to end: more than its grace period."""


class _Signals:
    """The first signal asks for the end at the next step's edge; the second, or one before training, ends at once."""

    def __init__(self) -> None:
        self.monitor: Monitor | None = None
        self.received = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def watch(self, monitor: Monitor) -> None:
        self.monitor = monitor

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, self.received = self.received, number
        if again or self.monitor is None or not self.monitor.training:
            # No clean-up that could hang in a native library: checkpoints are sealed, everything else is scratch.
            os._exit(128 + number)
        self.monitor.stop_requested = True


def main(arguments: list[str], environment: Mapping[str, str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m ec1.training SPEC.json\n")
        return 2
    several = is_one_of_several(environment)
    if not several and (size := _processes(Path(arguments[0]))) > 1:
        return train_together(Path(arguments[0]), size, environment)
    signals = _Signals()
    # One process reports for all.
    with open_reporter(environment if leads(environment) else {}) as report, contextlib.ExitStack() as whole:
        try:
            spec = TrainingSpec.read(Path(arguments[0]))
            whole.enter_context(hidden(unneeded(spec)))
            # Imported here: torch and its friends take seconds, and a bad specification needs none of them.
            load_libraries("peft", "trl.trainer.base_trainer", "transformers.trainer")
            from ec1.training.trainer import Interrupted, train

            try:
                with alone_in(spec.output) if leads(environment) else contextlib.nullcontext():
                    result = train(spec, report, on_monitor=signals.watch)
            except Interrupted as interruption:
                sys.stderr.write(f"{interruption}\n")
                # Another one of several may have been asked.
                return 128 + (signals.received or signal.SIGINT)
        except EC1Error as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            return 1
        except Exception:
            if not several:
                raise
            traceback.print_exc()
            return LOST_OTHERS
        report.result(figures(result, spec.output / SUMMARY))
    return 0


def unneeded(spec: TrainingSpec) -> set[str]:
    """Libraries that TRL and PEFT import wherever they are installed, and this training does not use."""
    recipe = spec.recipe
    in_few_bits = recipe.method == "qlora" or recipe.optimisation.optimizer == "paged_adamw_8bit"
    return (unneeded_libraries(spec.base_model) | {"wandb"}) - {*spec.tracking, *(["bitsandbytes"] * in_few_bits)}


def _processes(specification: Path) -> int:
    """How many processes it asks for; one if it cannot be read, and then that one says why."""
    try:
        return TrainingSpec.read(specification).processes
    except (EC1Error, OSError):
        return 1


@contextlib.contextmanager
def alone_in(output: Path) -> Iterator[None]:
    """Keep every other trainer out of this folder, on other machines too.

    One whose node counts as lost may still be writing its last checkpoint. Raises BusyError if it does not end.
    """
    output.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + PATIENCE_SECONDS
    with (output / ".trainer.lock").open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BusyError(f"another process still trains in {output}: end it, or wait for it") from None
                time.sleep(0.2)
        yield


def figures(result: TrainingResult, summary: Path) -> dict[str, Any]:
    """What is reported to the launching run at the end."""
    values = result.model_dump(
        mode="json",
        include={
            "status", "verdict", "steps", "planned_steps", "tokens", "loss_first", "loss_last", "tokens_per_second",
            "peak_memory_gib", "seconds", "reference", "notes",
        },
    )  # fmt: skip
    return {**values, "summary": str(summary)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
