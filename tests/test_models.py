"""A branch of the hub is pinned to the commit that it was when the model was fetched; what a model computes in."""

import datetime as dt
import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from loopback_server import free_port, send, serving

from ec1.deployment import Deployment
from ec1.errors import InputError, ServiceError
from ec1.extraction.settings import ServerSettings
from ec1.files import read_json
from ec1.home import Home
from ec1.models import (
    PINNED,
    ModelSource,
    load_model,
    pinned_revision,
    precision_on,
    prepare_model,
    prepare_tokenizer,
    share_for_32_bits,
    weight_bytes_in,
)
from ec1.night.health import preflight
from ec1.night.steps.extractor import extractor_of

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = ("config.json", "model.safetensors", "tokenizer.json", "weights.bin", "consolidated.safetensors")
WANTED = set(FILES[:3])


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that may not ask the hub, and the hub's own cache as it lays it out."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "models--acme--tiny"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for name in FILES:
        (repository / "blobs" / name).write_text(name)
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return repository


def test_the_local_cache_says_what_main_is(cached: Path, home: Home) -> None:
    folder = prepare_model("acme/tiny", "main", {}, home.models)
    assert pinned_revision(folder, "main") == COMMIT
    assert read_json(folder / PINNED) == {"model": "acme/tiny", "asked": "main", "commit": COMMIT}
    assert {path.name for path in folder.iterdir()} == {*WANTED, PINNED}, "no pickle, no second copy"
    assert not any(path.is_symlink() for path in folder.iterdir())
    # Wherever the branch goes, what was fetched stays what it is.
    (cached / "refs" / "main").write_text("f" * 40)
    assert pinned_revision(prepare_model("acme/tiny", "main", {}, home.models), "main") == COMMIT


def test_weights_are_fetched_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hub that speaks as the real one does; many repositories hold them twice, for other programs."""
    from huggingface_hub import constants, hf_api

    asked: set[str] = set()

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            files = [*FILES, "original/model.safetensors", "original/config.json", "model-00001-of-00002.safetensors"]
            if self.path.startswith("/api/"):
                about: object = {"id": "acme/tiny", "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
                if "/tree/" in self.path:
                    about = [{"type": "file", "path": name, "size": len(name), "oid": name} for name in files]
                send(self, 200, json.dumps(about).encode(), None)
                return
            name = self.path.partition(f"/resolve/{COMMIT}/")[2]
            asked.add(name)
            self.send_response(200)
            for key, value in (("ETag", f'"{name}"'), ("X-Repo-Commit", COMMIT), ("Content-Length", str(len(name)))):
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(name.encode())

        do_HEAD = do_GET

        def log_message(self, *arguments: object) -> None: ...

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with serving(Hub) as url:
        for module in (constants, hf_api):
            monkeypatch.setattr(module, "ENDPOINT", url, raising=False)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
        folder = prepare_model("acme/tiny", "main", {}, home.models)
    assert {path.name for path in folder.iterdir()} == {*WANTED, "model-00001-of-00002.safetensors", PINNED}
    assert asked == {*WANTED, "model-00001-of-00002.safetensors"}
    assert weight_bytes_in(folder) == len("model.safetensors") + len("model-00001-of-00002.safetensors")


def test_of_a_model_that_others_serve_no_weights_are_fetched(cached: Path, home: Home, embedded: Deployment) -> None:
    """What is read is counted by its tokenizer; its weights may be more than this machine's disk."""
    served = ServerSettings(kind="server", base_url="http://127.0.0.1:9", model="acme/tiny")
    extraction = embedded.extraction.model_copy(update={"adapter": None, "merge_adapter": False})
    deployment = embedded.model_copy(update={"inference": served, "extraction": extraction, "models": {}})
    extractor = extractor_of(deployment, home)
    assert extractor.revision == COMMIT
    fetched = {path.name for path in home.models.rglob("*") if path.is_file()}
    assert fetched - {".main.lock"} == {"config.json", "tokenizer.json", PINNED}
    seen = {each.subject: each.level for each in preflight.findings(deployment, home, dt.datetime.now(dt.UTC))}
    assert seen["model"] == "ok"
    prepare_model("acme/tiny", "main", {}, home.models)
    before = extractor.fingerprint("meeting")
    assert extractor_of(deployment, home).fingerprint("meeting") == before, "the same, where its weights are here too"


def test_weights_are_those_of_the_commit_that_was_counted_with(cached: Path, home: Home, embedded: Deployment) -> None:
    """A plan needs the tokenizer; an engine of ours the weights, later, when the branch may have moved."""
    inference = embedded.inference.model_copy(update={"model": "acme/tiny"})
    extraction = embedded.extraction.model_copy(update={"adapter": None})
    deployment = embedded.model_copy(update={"inference": inference, "extraction": extraction, "models": {}})
    planned = extractor_of(deployment, home)
    assert not (home.models / "acme--tiny" / "main").exists(), "no weights were fetched for it"
    other = "f" * 40
    (cached / "snapshots" / COMMIT).rename(cached / "snapshots" / other)
    (cached / "snapshots" / COMMIT).symlink_to(other)
    (cached / "refs" / "main").write_text(other)
    folder = prepare_model("acme/tiny", "main", {}, home.models)
    assert read_json(folder / PINNED) == {"model": "acme/tiny", "asked": "main", "commit": COMMIT}
    assert extractor_of(deployment, home).fingerprint("meeting") == planned.fingerprint("meeting")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "weights.pkl", "model.bin"])
def test_a_folder_of_pickles_is_no_model(name: str, tmp_path: Path, home: Home) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    source = {"acme/own": ModelSource(source="directory", path=tmp_path)}
    with pytest.raises(InputError, match="weights in other formats are never loaded"):
        prepare_model("acme/own", "main", source, home.models)
    assert prepare_tokenizer("acme/own", "main", source, home.models) == tmp_path


def test_transformers_loads_no_pickle(tmp_path: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    narrow = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 8}
    model = LlamaForCausalLM(LlamaConfig(**narrow, num_attention_heads=1, num_key_value_heads=1))
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        load_model(tmp_path)


def test_what_no_cache_has_is_an_error(cached: Path, home: Home) -> None:
    for revision in ("v2", "../blobs/config.json", "../../config.json"):
        with pytest.raises(ServiceError, match="cannot be downloaded"):
            prepare_model("acme/tiny", revision, {}, home.models)
    (cached / "refs" / "main").write_text("f" * 40)
    with pytest.raises(ServiceError, match="not whole in the local cache"):
        prepare_model("acme/tiny", "main", {}, home.models)
    assert not (home.models / "acme--tiny" / "main").exists()


def test_a_hub_that_cannot_be_reached_is_an_error(cached: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants, hf_api

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for module in (constants, hf_api):
        monkeypatch.setattr(module, "ENDPOINT", f"http://127.0.0.1:{free_port()}", raising=False)
    with pytest.raises(ServiceError, match=r"never/cached@main cannot be downloaded: .*refused"):
        prepare_model("never/cached", "main", {}, home.models)


def test_the_commit_is_part_of_what_an_extractor_is(cached: Path, home: Home, embedded: Deployment) -> None:
    inference = embedded.inference.model_copy(update={"model": "acme/tiny"})
    extraction = embedded.extraction.model_copy(update={"adapter": None})
    deployment = embedded.model_copy(update={"inference": inference, "extraction": extraction, "models": {}})
    prepare_model("acme/tiny", "main", {}, home.models)
    extractor = extractor_of(deployment, home)
    assert extractor.revision == COMMIT
    before = extractor.fingerprint("meeting")
    (home.models / "acme--tiny" / "main" / PINNED).unlink()
    old = extractor_of(deployment, home)
    assert old.revision == "main", "a home of an earlier version stays what it was"
    assert old.fingerprint("meeting") != before


def test_a_processor_that_is_slow_in_16_bits_computes_in_32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without AMX it multiplies bfloat16 at half the speed of float32, or worse, but for AMD's with instructions for
    it; what has no list of flags (ARM, macOS) keeps 16 bits."""
    intel, amd = "vendor_id : GenuineIntel\nflags :", "vendor_id : AuthenticAMD\nflags :"
    machines = {"old": f"{intel} avx512f avx512_bf16", "older": f"{amd} avx2", "zen": f"{amd} avx512f avx512_bf16"}
    machines |= {"new": "flags : avx512f avx512_bf16 amx_bf16", "arm": "Features : asimd"}
    for name, text in machines.items():
        (tmp_path / name).write_text(f"processor : 0\n{text}\n")
    shares = {name: share_for_32_bits(tmp_path / name) for name in (*machines, "none")}
    assert shares == {"old": 1 / 8, "older": 1 / 4, "zen": 0, "new": 0, "arm": 0, "none": 0}
    assert precision_on("cuda", 0) == precision_on("cpu", 2**50) == "bfloat16", "a model that is large stays in 16 bits"
    monkeypatch.setattr("ec1.models.share_for_32_bits", lambda: 0)
    assert precision_on("cpu", 0) == "bfloat16", "and so does one whose weights are no safetensors, with AMX"
