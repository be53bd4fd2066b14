"""A GPU session in a box: what a card gives, in steps of at most nine minutes each, without a network.

Each step is a process of its own; one that has run is not run again, so that the box can be run in parts. What it found
is in OUT: gpu.json and gpu.md. On an image with torch, transformers, peft and accelerate alone it needs
what `python -m benchmarks.gpu.carry` packs.

Run: python -m benchmarks.gpu [--out build/gpu] [--step card --step lora] [--device cuda]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.gpu.steps import STEPS, Session, run_step
from benchmarks.gpu.table import as_markdown, collected
from ec1.home import CHECKOUT
from ec1.launch.environment import process_environment

SECONDS = 9 * 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/gpu"))
    parser.add_argument("--step", action="append", choices=list(STEPS), help="default: all")
    parser.add_argument("--again", action="store_true", help="also steps that have run")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a test of the box itself")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one step, at most")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    options = parser.parse_args()
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if options.here:
        with tempfile.TemporaryDirectory() as scratch:
            run_step(options.here, Session(options.device, options.tiny, Path(scratch)), out)
        return 0
    failed = []
    for name in options.step or STEPS:
        done = out / f"{name}.done"
        if done.exists() and not options.again:
            continue
        command = [sys.executable, "-m", "benchmarks.gpu", "--here", name, "--out", str(out)]
        command += ["--device", options.device, *(["--tiny"] if options.tiny else [])]
        (cut := out / f"{name}.cut").unlink(missing_ok=True)
        began = time.monotonic()
        try:
            env = process_environment(options.device, os.environ)
            with (out / f"{name}.log").open("w") as log:
                status = subprocess.run(command, cwd=CHECKOUT, timeout=options.seconds, env=env, stderr=log).returncode
        except subprocess.TimeoutExpired:
            status = None
            cut.write_text(f"ended after {options.seconds:.0f} s: the rest was not measured")
        if status:
            failed.append(name)
            cut.write_text(f"ended with status {status}: {(out / f'{name}.log').read_text()[-300:]}")
        else:
            done.touch()
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
        found = collected(out)
        (out / "gpu.json").write_text(json.dumps(found, indent=1) + "\n")
        (out / "gpu.md").write_text(as_markdown(found))
    if failed:
        sys.stderr.write(f"failed: {', '.join(failed)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
