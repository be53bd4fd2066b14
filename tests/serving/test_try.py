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
from ec1.errors import BusyError, InputError
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

    def tries(self, *arguments: str, **environment: str) -> dict[str, Any]:
        arguments = (*self._options, "adapters", "try", "--json", *arguments)
        result = CliRunner(env=environment).invoke(app, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return dict(json.loads(result.stdout))


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


def test_what_cannot_be_asked_is_said(registry: AdapterRegistry, tmp_path: Path, home: Home) -> None:
    ec1 = Ec1(tmp_path, home)
    with pytest.raises(InputError, match="give a prompt"):
        ec1.tries(NAME)
    with pytest.raises(InputError, match="has no version in use"):
        ec1.tries(f"{TENANT}/nobody", "Hello")
    # Where serving has the card, a trial does not drive it away.
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
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
    tried = Ec1(tmp_path, home, tiny_model).tries(f"{NAME}@v1", "Hello", "--max-tokens", "8")
    assert tried["asked"] == "this machine (cpu)"
    # What a model of random weights writes says nothing; that both wrote until they were cut says that both were asked.
    assert tried["base"]["cut"] and tried["adapter"]["cut"]
    lease = GpuLease(home.gpu_lock, device="cpu", min_free_gib=0)
    with (
        lease.hold("training", night="n", holder="a night", wait_seconds=1),
        pytest.raises(BusyError, match="held by a night"),
    ):
        Ec1(tmp_path, home, tiny_model).tries(NAME, "Hello", "--wait", "0")
    assert not list(home.cache.iterdir()), "nothing is left of a trial"
