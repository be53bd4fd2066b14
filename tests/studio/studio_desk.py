"""A Studio on a home that a test fills."""

import datetime as dt
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fake_engine import FakeEngine
from listening import listening
from loopback_server import free_port
from published import BASE

from ec1.corpus.buckets import bucket
from ec1.corpus.dataset import build_dataset
from ec1.corpus.options import DataOptions
from ec1.corpus.snapshots import Snapshot, take_snapshot
from ec1.extraction.settings import ServerSettings
from ec1.gpu.engine import Endpoint
from ec1.queries.desk import Desk
from ec1.serving.backend import Backend
from ec1.serving.server import build_gateway
from jobs.guard import Guard
from studio.app import application
from studio.web import StudioState

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

ROLE = "fernhollow/notes"
WRONG = "The wrong berth. " + "This is said at length so that it can be one side of a pair. " * 2
RIGHT = WRONG.replace("wrong", "right")
RECIPE = """
extends: pointsav/engineering
version: 1
tenant: fernhollow
role: notes
base_model: {id: small}
hardware: {device: cpu, memory_gib: 12}
"""
"""What a role of judged rows is made with: its answers, and its recipe."""


@contextmanager
def served(state: StudioState, token: str | None = None) -> Iterator[str]:
    """The address of a Studio, behind its guard, while the block runs."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(Guard(application(state), token), port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "Studio ended before it answered"
        thread.join(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)


def state_at(desk: Desk, **changes: Any) -> StudioState:
    return StudioState(lambda: desk, "anna", **changes)


DEPLOYMENT = """
tenant: fernhollow
recipes: [recipes]
models: {small: {source: directory, path: small}}
inference: {kind: vllm, model: small, max_model_len: 2048}
gpu: {device: cpu}
graph: {overrides: configs/overrides.yaml}
"""
TEMPLATE = (
    "{% for each in messages %}<|{{ each.role }}|> {{ each.content }} <|end|> {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|> {% endif %}"
)
HOSTILE = [
    "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">",
    "\x1b[2J\x1b[31mred\x07 and \u202egpj.exe\u202c and \u200bnothing",
    "{{ 7 * 7 }} {% raw %} ${7*7} </textarea></pre></body>",
    "javascript:alert(1) https://evil.example/ \"quoted' `ticks`",
]


def snapshot_of(desk: Desk, records: list[Any], role: str = "notes", objective: Any = "sft") -> Snapshot:
    """The records in a bucket's snapshot; texts stand as lines of their own."""
    folder = desk.home.corpus / {"apprenticeship": "apprenticeship/t"}.get(role, role)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [each if isinstance(each, str) else json.dumps(each) for each in records]
    (folder / "all.jsonl").write_text("".join(f"{line}\n" for line in lines))
    found = bucket(desk.home.corpus, role, "fernhollow")
    return take_snapshot(found, objective, as_of=dt.datetime.now(dt.UTC), home=desk.home)


def dataset_of(desk: Desk, snapshot: Snapshot, words: Path, **options: Any) -> str:
    """The key of a dataset that was built of a snapshot, with a tokenizer of words."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(words / "tokenizer.json"), chat_template=TEMPLATE)
    data = DataOptions(**{"scrub": False, **options})
    built = build_dataset(snapshot, data, tokenizer, home=desk.home, objective=snapshot.objective)
    return f"dataset/{built.digest}"


def records(count: int) -> list[dict[str, Any]]:
    """Rows of different lengths that share nothing but a common word."""
    return [
        {
            "prompt": f"Where does ship {number} lie, called {hashlib.sha256(b'%d' % number).hexdigest()[:12]}?",
            "completion": f"Common berth {number}." + f" More about it {number}." * (number % 7),
            "created_at": f"2026-01-{1 + number % 28:02}T00:00:00",
        }
        for number in range(count)
    ]


@contextmanager
def foreign_page(html: str) -> Iterator[str]:
    """The address of another site's page, while the block runs."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


@contextmanager
def gateway(desk: Desk, **changes: Any) -> Iterator[tuple[str, FakeEngine]]:
    """The real gateway of the desk's registry, and the stand-in for the engine behind it. `changes` of its settings."""
    engine = FakeEngine(desk.registry, BASE)
    engine.runs = desk.home.runs if changes.get("training_steps") else None
    server = ServerSettings(kind="server", base_url="http://127.0.0.1:1", model=BASE)
    serving = desk.deployment.serving.model_copy(update={"engine": server, "refresh_seconds": 0.02, **changes})
    deployment = desk.deployment.model_copy(update={"serving": serving})
    backend = Backend(timeout_seconds=20)
    built = build_gateway(deployment, desk.home, desk.registry, backend, "127.0.0.1", lambda *notice: None)
    with listening(engine.app) as behind, listening(built.app) as address:
        backend.open(Endpoint(behind, BASE))
        yield address, engine
    built.close()


def training_spec(folder: Path, words: Path) -> dict[str, Any]:
    """The specification of a training, as JSON; nothing trains it."""
    from ec1.recipes.resolution import SHIPPED, find_recipe
    from ec1.training.spec import TrainingSpec

    recipe = find_recipe("pointsav/engineering", [SHIPPED]).recipe
    spec = TrainingSpec(
        recipe=recipe, recipe_digest="a" * 64, dataset=folder, dataset_digest="b" * 64, base_model=words, output=folder,
        budget_seconds=60, device="cpu",
    )  # fmt: skip
    found: dict[str, Any] = spec.model_dump(mode="json")
    return found
