"""Several processes that train one adapter together: one on each card, of one machine or of several.

Belongs here: starting them on this machine, how they find each other, and what they must agree on. Does not: the
training, which is the same in each of them (`trainer.py`), and processes on several machines (`ec1.gpu.ray_job`).

They find each other by the variables of `ec1.launch.ranks`; the process of rank 0 is the one that reports and writes.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from ec1.errors import InputError
from ec1.launch import warden
from ec1.launch.launcher import GRACE_SECONDS
from ec1.launch.local import free_port
from ec1.launch.process import tail_of
from ec1.launch.ranks import LOST_OTHERS, rank_environment

_LAST_WORDS_SECONDS = 5.0
"""For the others to end by themselves after one has failed: often all fail of the same."""


@dataclass(frozen=True)
class Team:
    """The processes that train together, as one of them sees it."""

    size: int = 1
    rank: int = 0
    state: Any = None
    """Accelerate's, if there are several."""

    @classmethod
    def join(cls, size: int, device: str) -> "Team":
        """Wait for the others. Raises InputError if this process was not started as one of `size`, or has no card."""
        if size == 1:
            return cls()
        import torch
        from accelerate import PartialState
        from accelerate.utils import get_int_from_env

        if device == "cuda" and torch.cuda.device_count() <= get_int_from_env(["LOCAL_RANK"], 0):
            raise InputError(
                f"{size} processes are to train on a card each, and torch sees {torch.cuda.device_count()} cards on "
                "this machine: lower gpu.processes"
            )
        state = PartialState(cpu=device == "cpu")
        if state.num_processes != size:
            raise InputError(f"this training is for {size} processes: start it with `python -m ec1.training SPEC.json`")
        return cls(size, state.process_index, state)

    @property
    def leads(self) -> bool:
        """Whether this is the process that reports and writes."""
        return self.rank == 0

    @property
    def card(self) -> int:
        """Index of this process's card among those that it sees."""
        return 0 if self.state is None else int(self.state.local_process_index)

    def wait(self) -> None:
        """Until all are here."""
        if self.state is not None:
            self.state.wait_for_everyone()

    def any_of(self, *wishes: bool) -> tuple[bool, ...]:
        """For each wish, whether any process has it: all leave the loop at the same step, or they wait forever."""
        if self.state is None:
            return wishes
        import torch

        found = torch.tensor(wishes, dtype=torch.int32, device=self.state.device)
        torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)
        return tuple(bool(each) for each in found.tolist())


def whole(tensor: Any) -> Any:
    """A tensor in one piece; each process may hold a part of it. All processes must ask."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def like(tensor: Any, part: Any) -> Any:
    """A whole tensor, spread over the processes as `part` is."""
    if not hasattr(part, "full_tensor"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(part.device), part.device_mesh, part.placements, src_data_rank=None)


def train_together(specification: Path, size: int, environment: Mapping[str, str]) -> int:
    """Start `size` trainers of one specification on this machine and wait for them. Returns their exit status.

    What rank 0 prints is printed here, what another one prints goes to a file beside the specification, and is shown
    here only if that one failed first. If one fails, or this process is asked to end, all are ended.
    """
    port = free_port()
    ranks = _Ranks()
    logs = [specification.with_name(f"{specification.stem}.rank-{rank}.log") for rank in range(size)]
    for rank in range(size):
        place = rank_environment(rank, rank, size, size, "127.0.0.1", port)
        # They talk through loopback only.
        ranks.start(specification, {"GLOO_SOCKET_IFNAME": "lo", **environment, **place}, logs[rank] if rank else None)
    failed = ranks.wait()
    if failed is None:
        return 0
    if ranks.received:
        return 128 + ranks.received
    rank, status = failed
    if rank:
        sys.stderr.write(f"process {rank} of {size} failed; the end of {logs[rank]}:\n{tail_of(logs[rank])}\n")
    return 1 if status == LOST_OTHERS else status


class _Ranks:
    """Trainers under wardens, which end them if this process dies, and interrupt them when their pipe is closed."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self.received = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._asked_to_end)

    def start(self, specification: Path, environment: Mapping[str, str], log: Path | None) -> None:
        command = [sys.executable, "-m", "ec1.training", str(specification)]
        output = None if log is None else log.open("wb")
        try:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, warden.__file__, str(GRACE_SECONDS), *command],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    env=dict(environment),
                    # A signal to our group is passed on by us, once.
                    start_new_session=True,
                )
            )
        finally:
            if output is not None:
                output.close()

    def wait(self) -> tuple[int, int] | None:
        """Until all have ended. Returns rank and status of the one that tells most of why; None if none failed."""
        failed, deadline = None, float("inf")
        while any(process.poll() is None for process in self._processes):
            if failed is None and (failed := self._failed()) is not None:
                deadline = time.monotonic() + _LAST_WORDS_SECONDS
            if time.monotonic() > deadline:
                for process in self._processes:
                    # Not asked: it waits for the one that failed, and would wait on. It dies with its warden.
                    process.kill()
            time.sleep(0.05)
        killed = self._failed(lambda status: status > 128)
        told = self._failed(lambda status: status == 1)
        # Of one that was killed, or has said why, the others know only that it is gone.
        return killed or told or failed or self._failed()

    def _failed(self, how: Callable[[int], bool] = bool) -> tuple[int, int] | None:
        statuses = ((rank, process.poll() or 0) for rank, process in enumerate(self._processes))
        return next((each for each in statuses if how(each[1])), None)

    def _asked_to_end(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        for process in self._processes:
            _close(process)


def _close(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin is not None and not process.stdin.closed:
        process.stdin.close()
