"""A base model with one adapter's weights added to its own, as a folder that an engine loads like any model.

Belongs here: making that folder once. Does not: which adapter (`ec1.night.steps.extractor`), and how it is served
(`ec1.gpu.engine`).

An engine that holds a LoRA adapter beside the base computes both at each layer. On a CPU that costs two thirds of the
speed or more; the merged model costs nothing, but answers as this adapter only, and takes the base's size on disk.
"""

import fcntl
import shutil
from pathlib import Path

from ec1.files import digest_of, staged_directory
from ec1.gpu.engine import ServedAdapter
from ec1.models import load_model


def merged_model(base: Path, adapter: ServedAdapter, models: Path) -> Path:
    """The folder of `base` with `adapter` merged in, made once. Only the newest is kept in `models`."""
    merged = models / "merged"
    folder = merged / digest_of([str(base.resolve()), adapter.digest])[:16]
    if folder.is_dir():
        return folder
    merged.mkdir(parents=True, exist_ok=True)
    with (merged / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with staged_directory(folder) as staging:
                _merge(base, adapter.folder, staging)
            for other in merged.iterdir():
                if other.is_dir() and other != folder:
                    shutil.rmtree(other)
    return folder


def _merge(base: Path, adapter: Path, destination: Path) -> None:
    from peft import PeftModel
    from transformers import AutoTokenizer

    merged = PeftModel.from_pretrained(load_model(base, dtype="auto"), adapter).merge_and_unload(safe_merge=True)
    merged.save_pretrained(destination)
    AutoTokenizer.from_pretrained(base).save_pretrained(destination)
