"""What two waits of a night on a CPU cost, and what is left of them.

`conversion`: the sample's model from GGUF to safetensors, reading the file as transformers does, and once: CPU seconds
without the import of libraries, and whether the files are the same. `libraries`: from asking for a process to its end,
for a new one that loads what a training needs and for a fork of the server that has loaded it; seconds, in turns, the
medians of `--rounds`, and the CPU seconds of the new one.

Run: python -m benchmarks.process_starts [--rounds 5]
"""

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

from benchmarks.night_cost import apart
from ec1 import models
from ec1.deployment import load_deployment
from ec1.files import sha256_file
from ec1.home import CHECKOUT
from ec1.launch.environment import process_environment
from ec1.launch.warm import LIBRARIES, ForkedProcess, environment_for, is_there

SERVE = (
    "import os, sys; from pathlib import Path; from ec1.launch.warm import LIBRARIES, serve; "
    "serve(Path(sys.argv[1]), int(sys.argv[2]), LIBRARIES, ['this'])"
)
"""A server that runs a module which does nothing worth mentioning."""


def converted(package: str, file: str, once: bool) -> tuple[float, dict[str, str]]:
    """CPU seconds, and the digest of each file that is written."""
    import torch  # noqa: F401  not part of the conversion
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: F401

    as_before = contextlib.nullcontext() if once else mock.patch.object(models, "read_once", contextlib.nullcontext)
    with tempfile.TemporaryDirectory() as name, as_before:
        began = time.process_time()
        models._convert_gguf(package, file, Path(name))
        took = time.process_time() - began
        return took, {path.name: sha256_file(path) for path in Path(name).iterdir()}


def new_process(env: dict[str, str]) -> tuple[float, float]:
    """Seconds, and CPU seconds, of a process that loads the libraries and ends."""
    code = f"from ec1.launch.libraries import load_libraries; load_libraries(*{LIBRARIES!r})"
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, env=env, check=True, stderr=subprocess.DEVNULL)
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def forked_process(server: Path, env: dict[str, str]) -> float:
    """Seconds of a fork that ends at once."""
    with tempfile.TemporaryFile() as log:
        began = time.monotonic()
        process = ForkedProcess(str(server), "this", [], 5, env, log.fileno())
        status = process.wait()
        took = time.monotonic() - began
        process.stdin.close()
    if status:
        sys.exit(f"the fork ended with status {status}")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    deployment = load_deployment("embedded", CHECKOUT)
    source = deployment.models[deployment.inference.model]
    (before, theirs), (after, ours) = (apart(converted, source.package, source.file, once) for once in (False, True))
    same = "the same files" if theirs == ours else "OTHER FILES"
    print(f"conversion: {before:.1f} CPU s as transformers reads, {after:.1f} reading once: {same}", flush=True)
    env = process_environment("cpu", dict(os.environ))
    with tempfile.TemporaryDirectory() as name:
        server = Path(name) / "s"
        command = [sys.executable, "-c", SERVE, str(server), str(os.getpid())]
        with subprocess.Popen(command, cwd=CHECKOUT, env=environment_for(env), stderr=subprocess.DEVNULL) as serving:
            while not is_there(server):
                time.sleep(0.1)
            forked_process(server, env)
            turns = [(*new_process(env), forked_process(server, env)) for _ in range(rounds)]
            serving.kill()
    new, cpu, forked = (statistics.median(each) for each in zip(*turns, strict=True))
    print(f"libraries: a new process {new:.1f} s ({cpu:.1f} CPU s), a fork {forked:.2f} s")


if __name__ == "__main__":
    main()
