"""`ec1 adapters try`: base and version asked the same, by the server that runs, or by a process under the lease."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from published import BASE, NAME, TENANT, publish
from typer.testing import CliRunner

from ec1.adapters.registry import AdapterRegistry
from ec1.cli import app
from ec1.errors import BusyError, InputError, ServiceError
from ec1.gpu.lease import GpuLease
from ec1.home import Home
from ec1.storage.directory import DirectoryStore

DEPLOYMENT = f"""
tenant: {TENANT}
recipes: []
models: {{{BASE}: {{source: directory, path: MODEL}}}}
inference: {{kind: vllm, model: {BASE}, max_model_len: 512}}
extraction: {{chunk_tokens: 64, overlap_tokens: 8, max_answer_tokens: 128}}
gpu: {{device: cpu, min_free_gib: 1, name: CPU, memory_gib: 8}}
serving: {{port: PORT}}
"""


class Ec1:
    def __init__(self, project: Path, home: Home, model: Path | str = "/nowhere", port: int = 9) -> None:
        text = DEPLOYMENT.replace("MODEL", str(model)).replace("PORT", str(port))
        path = project / "configs" / "deployments" / "tiny.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self._options = ["--project", str(project), "--home", str(home.root), "--deployment", "tiny"]

    def tries(self, *arguments: str) -> dict[str, Any]:
        return dict(json.loads(self.shows("--json", *arguments)))

    def tries_many(self, *arguments: str) -> list[dict[str, Any]]:
        return list(json.loads(self.shows("--json", *arguments)))

    def shows(self, *arguments: str) -> str:
        result = CliRunner().invoke(app, (*self._options, "adapters", "try", *arguments))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout


def hold_out(home: Home) -> None:
    """A dataset's held-out side, as the versions' manifests name it."""
    rows = [
        {"prompt": [{"role": "user", "content": prompt}], "completion": [{"role": "assistant", "content": answer}]}
        for prompt, answer in (("Where does Ilse of the mill team keep the keys?", "In the office."), ("Who?", "Ada."))
    ]
    folder = home.datasets / ("b" * 64) / "heldout"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")


def test_the_server_that_runs_is_asked(serve: Any, tmp_path: Path, home: Home) -> None:
    with serve() as served:
        ec1 = Ec1(tmp_path, home, port=int(served.url.rpartition(":")[2]))
        tried = ec1.tries(NAME, "Good morning")
        assert tried["name"] == f"{NAME}@v2" and tried["asked"].startswith("ec1 serve at http://127.0.0.1:")
        assert tried["base"]["text"] and tried["adapter"]["text"]
        assert tried["base"] != tried["adapter"]
        assert tried["expected"] is None
        assert ec1.tries(f"{NAME}@v1", "Good morning")["adapter"] != tried["adapter"]
        hold_out(home)
        tried = ec1.tries(NAME)
        assert (tried["prompt"], tried["expected"]) == ("Who?", "Ada."), "the shortest held-out prompt"


def test_a_file_of_prompts_is_asked_of_the_server_that_is_named(serve: Any, tmp_path: Path, home: Home) -> None:
    rows = tmp_path / "prompts.jsonl"
    with serve() as served:
        ec1 = Ec1(tmp_path, home)
        said = ec1.tries(NAME, "Who is there?", "--url", served.url + "/")["adapter"]["text"]
        lines = [{"prompt": "Who is there?", "answer": said}, {"prompt": "Good\u2028morning"}]
        rows.write_text("\n\n".join(json.dumps(each, ensure_ascii=False) for each in lines))
        both = ec1.tries_many(NAME, "--prompts", str(rows), "--url", served.url)
        assert [each["prompt"] for each in both] == ["Who is there?", "Good\u2028morning"]
        assert both[0]["adapter"]["text"] == said and both[0]["adapter_right"] and not both[0]["base_right"]
        assert (both[1]["expected"], both[1]["adapter_right"]) == (None, None)
        shown = ec1.shows(NAME, "--prompts", str(rows), "--url", served.url)
        assert "right answers of 1: 1, base 0" in shown and shown.count("prompt:") == 2
    with pytest.raises(ServiceError, match="does not serve both"):
        ec1.tries(NAME, "Hello", "--url", served.url)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("none.txt", "\n \n", "has no prompt"),
        ("cut.jsonl", '{"prompt": "a"}\n{"prompt', "line 2"),
        ("other.jsonl", '["a"]', "line 1: not an object"),
        ("number.jsonl", '{"prompt": "a", "answer": 7}', "line 1: not an object"),
        ("gone.txt", None, "No such file"),
    ],
)
def test_a_file_without_prompts_is_refused(
    registry: AdapterRegistry, tmp_path: Path, home: Home, name: str, text: str | None, reason: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=reason):
        Ec1(tmp_path, home).tries(NAME, "--prompts", str(tmp_path / name))


def test_what_cannot_be_asked_is_said(registry: AdapterRegistry, tmp_path: Path, home: Home) -> None:
    ec1 = Ec1(tmp_path, home)
    with pytest.raises(InputError, match="give a prompt"):
        ec1.tries(NAME)
    with pytest.raises(InputError, match="has no version in use"):
        ec1.tries(f"{TENANT}/nobody", "Hello")
    # Where serving has the card, a trial does not drive it away.
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        (model / name).write_text("{}")
    lease = GpuLease(home.gpu_lock, device="cpu", min_free_gib=0)
    with (
        lease.hold("serving", night="", holder="x", wait_seconds=0),
        pytest.raises(BusyError, match="does not serve"),
    ):
        Ec1(tmp_path, home, model).tries(NAME, "Hello")


@pytest.mark.slow
def test_without_a_server_a_process_under_the_lease_answers(tiny_model: Path, tmp_path: Path, home: Home) -> None:
    registry = AdapterRegistry(DirectoryStore(home.root), home.adapters)
    publish(registry, tmp_path, 1, size=64, outputs=64, layers=2)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Hello\nGood morning, all of you\n")
    ec1 = Ec1(tmp_path, home, tiny_model)
    tried, second = ec1.tries_many(f"{NAME}@v1", "--prompts", str(prompts), "--max-tokens", "8")
    assert tried["asked"] == "this machine (cpu)"
    assert (tried["prompt"], second["prompt"]) == ("Hello", "Good morning, all of you")
    assert tried == ec1.tries(f"{NAME}@v1", "Hello", "--max-tokens", "8")
    # What a model of random weights writes says nothing; that both wrote until they were cut says that both were asked.
    assert tried["base"]["cut"] and tried["adapter"]["cut"]
    lease = GpuLease(home.gpu_lock, device="cpu", min_free_gib=0)
    with (
        lease.hold("training", night="n", holder="a night", wait_seconds=1),
        pytest.raises(BusyError, match="held by a night"),
    ):
        Ec1(tmp_path, home, tiny_model).tries(NAME, "Hello", "--wait", "0")
    assert not list(home.cache.iterdir()), "nothing is left of a trial"
