"""The lease, the handover and the check of the card, with the real driver's library (or a fake one in tests)."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from ec1.errors import BusyError
from ec1.gpu.cards import read_card
from ec1.gpu.lease import GpuLease

HOLDS_MEMORY = (
    "import time, torch; x = torch.ones({count}, device='{device}'); print('held', flush=True); time.sleep(60)"
)


def guarded(kind: Literal["cuda", "cpu"], device: str, gib: float) -> Iterator[dict[str, Any]]:
    """One row for each promise of a lease of that kind. A process under it takes `gib` of the torch device `device`.

    Raises RuntimeError if that process fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder) / "gpu.lock"
        lease = GpuLease(lock, device=kind, min_free_gib=0.1)
        with lease.hold("inference", night="2026-01-01", holder="box", wait_seconds=0) as grant:
            before = grant.cards[0].free_gib
            yield {"what": "memory as the lease measures it", "free_gib": round(before, 2), "card": grant.cards[0].name}
            yield {"what": "a second holder is refused", "kept": _is_refused(lock, kind)}
            log = Path(folder) / "log"
            command = [sys.executable, "-c", HOLDS_MEMORY.format(count=int(gib * 2**28), device=device)]
            process = grant.start(command, env=dict(os.environ), log=log)
            while "held" not in (log.read_text() if log.exists() else ""):
                if (status := process.poll()) is not None:
                    raise RuntimeError(
                        f"the process that was to hold memory ended with status {status}: {log.read_text()}"
                    )
                time.sleep(0.2)
            held = before - read_card(kind).free_gib
            yield {"what": f"a process under the lease takes {gib:g} GiB", "measured_gib": round(held, 2)}
        began = time.monotonic()
        with lease.hold("training", night="2026-01-01", holder="box", wait_seconds=0) as grant:
            yield {
                "what": "the next phase finds its memory free again",
                "seconds": round(time.monotonic() - began, 1),
                "kept": grant.cards[0].free_gib > before - gib / 2,
            }
        greedy = GpuLease(lock, device=kind, min_free_gib=1e6)
        try:
            with greedy.hold("handover", night="2026-01-01", holder="box", wait_seconds=0):
                kept = False
        except BusyError:
            kept = True
        yield {"what": "no handover without the memory that is asked for", "kept": kept}
    if kind == "cuda":
        done = subprocess.run([sys.executable, "-m", "ec1.machines.cuda"], capture_output=True, text=True)
        report = (
            json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else {"cuda": done.stderr[-300:]}
        )
        yield {"what": "check of the card (ec1.machines.cuda)", "kept": report.get("cuda") == "ok", **report}


def _is_refused(lock: Path, kind: str) -> bool:
    code = (
        "import sys; from pathlib import Path; from ec1.gpu.lease import GpuLease; from ec1.errors import BusyError\n"
        f"try:\n with GpuLease(Path({str(lock)!r}), device={kind!r}, min_free_gib=0).hold('training', night='x',"
        " holder='other', wait_seconds=0): sys.exit(1)\nexcept BusyError: sys.exit(0)"
    )
    return subprocess.run([sys.executable, "-c", code]).returncode == 0
