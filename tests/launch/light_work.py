"""A light piece of work: so many steps, a checkpoint after each, and a result that depends on its input.

Run as `python -m light_work SPEC.json`, as a training is. A repeated step would show in `steps.txt`.
"""

import os
import sys
import time
from pathlib import Path

from ec1.errors import PermanentError
from ec1.files import sha256_file, write_json
from ec1.launch.by_spec import run_by_spec
from ec1.launch.reporting import open_reporter
from ec1.settings import Settings


class LightSpec(Settings):
    source: Path
    output: Path
    steps: int = 3
    seconds: float = 0.02
    fail: str = ""
    number: int = 0
    checkpoints: bool = False
    """Go on from the newest checkpoint alone, as a training does."""


def do(spec: LightSpec) -> None:
    with open_reporter(os.environ) as reporter:
        spec.output.mkdir(parents=True, exist_ok=True)
        steps = spec.output / "steps.txt"
        folder = spec.output / "checkpoints"
        if spec.checkpoints:
            sealed = sorted(folder.glob("*/sealed.json"), key=lambda path: int(path.parent.name.removeprefix("step-")))
            mine = (spec.output / "run.json").exists()
            steps.write_text((sealed[-1].parent / "state.txt").read_text() if sealed and mine else "")
            (spec.output / "run.json").write_text("{}")
        done = len(steps.read_text().splitlines()) if steps.exists() else 0
        if spec.checkpoints:
            (spec.output / f"went-on-after-{done}.txt").touch()
        for step in range(done, spec.steps):
            time.sleep(spec.seconds)
            with steps.open("a") as stream:
                stream.write(f"{step}\n")
            reporter.progress(f"step {step}")
            if spec.checkpoints:
                (folder / f"step-{step + 1}").mkdir(parents=True)
                (folder / f"step-{step + 1}" / "state.txt").write_text(steps.read_text())
                (folder / f"step-{step + 1}" / "sealed.json").write_text("{}")
        if spec.fail:
            raise PermanentError(spec.fail)
        if cards := os.environ.get("CUDA_VISIBLE_DEVICES"):
            (spec.output / "card.txt").write_text(cards)
        (spec.output / "checkpoints").mkdir(exist_ok=True)
        (spec.output / "checkpoints" / "big").write_bytes(b"0" * 1000)
        files = sorted(path for path in spec.source.rglob("*") if path.is_file())
        write_json(spec.output / "summary.json", {"sources": [sha256_file(path) for path in files], "n": spec.number})
        reporter.result({"steps": spec.steps})


if __name__ == "__main__":
    sys.exit(run_by_spec("light_work", LightSpec, sys.argv[1:], do))
