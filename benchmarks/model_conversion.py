"""Converting the sample's model from GGUF to safetensors: reading the file as transformers does, and reading it once.

CPU seconds without the import of libraries, and whether the files are the same.

Run: python -m benchmarks.model_conversion
"""

import argparse
import contextlib
import tempfile
import time
from pathlib import Path
from unittest import mock

from benchmarks.night_cost import apart
from ec1 import models
from ec1.deployment import load_deployment
from ec1.files import sha256_file
from ec1.home import CHECKOUT


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    deployment = load_deployment("embedded", CHECKOUT)
    source = deployment.models[deployment.inference.model]
    (before, theirs), (after, ours) = (apart(converted, source.package, source.file, once) for once in (False, True))
    same = "the same files" if theirs == ours else "OTHER FILES"
    print(f"conversion: {before:.1f} CPU s as transformers reads, {after:.1f} reading once: {same}", flush=True)


if __name__ == "__main__":
    main()
