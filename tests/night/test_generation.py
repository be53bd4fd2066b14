"""Nights make the rest of what a person accepted, ask for nothing twice, and touch nothing that nobody accepted."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from fake_openai import FakeServer, Handler, fake_server

from ec1.corpus.generation_recipe import (
    accept,
    note_sample,
    read_recipe,
    save_recipe,
    waiting_recipes,
)
from ec1.errors import InputError
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.settings import ExtractionSettings
from ec1.home import Home
from ec1.night.records import GenerationRecord, Records
from ec1.night.steps import generation
from ec1.night.steps.generation import generate_rows
from ec1_assets.definitions import build_defs
from resources.environment import DeploymentChoice

RECIPE = """\
kind: generation
role: sums
requests: 2
functions: |
  def scaled(x):
      return 3 * x
"""


class Counting(Handler):
    """Proposes calls that no request proposed before."""

    def _answer(self, text: str, believed: str = "") -> None:
        calls = [f"scaled({self.state.calls * 10 + place})" for place in range(2)]
        choice = {"message": {"role": "assistant", "content": json.dumps({"calls": calls})}, "finish_reason": "stop"}
        self._send(200, json.dumps({"choices": [choice], "usage": {}}).encode())


def a_night(home: Home, server: FakeServer, night: str, served: list[str]) -> dict[str, Any]:
    @contextmanager
    def serve() -> Iterator[OpenAIClient]:
        served.append(night)
        yield OpenAIClient(server.url, "m", ExtractionSettings(max_answer_tokens=64))

    def deadline() -> float:
        return time.monotonic() + 60

    return generate_rows(
        home.generated, home.corpus, "m", night, serve, deadline_of=deadline, progress=lambda _: None
    )  # fmt: skip


@pytest.mark.needs("bwrap")
def test_nights_make_what_was_accepted_once(home: Home) -> None:
    kept = save_recipe(home.generated, "calls", RECIPE)
    served: list[str] = []
    with fake_server(Counting) as server:
        assert a_night(home, server, "2026-06-01", served) == {}
        with pytest.raises(InputError, match="make a sample first"):
            accept(kept, "anna")
        note_sample(kept, "0" * 32, "m", "anna")
        accept(read_recipe(home.generated, "sums", "calls"), "anna")
        (report,) = a_night(home, server, "2026-06-02", served).values()
        assert (report.rows, report.unanswered, server.calls) == (4, 0, 2)
        assert waiting_recipes(home.generated) == [] and a_night(home, server, "2026-06-03", served) == {}
        assert served == ["2026-06-02"], "no engine is started without work"
        (path,) = (home.corpus / "sums").iterdir()
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [row["metadata"]["accepted_by"] for row in rows] == ["anna"] * 4
        assert rows[0]["metadata"]["recipe"].startswith("calls@")
        # More of it is another recipe, which somebody has to look at; what is in the bucket does not come twice.
        save_recipe(home.generated, "calls", RECIPE.replace("requests: 2", "requests: 3"))
        assert a_night(home, server, "2026-06-04", served) == {}
        again = read_recipe(home.generated, "sums", "calls")
        note_sample(again, "0" * 32, "m", "anna")
        accept(read_recipe(home.generated, "sums", "calls"), "anna")
        (report,) = a_night(home, server, "2026-06-05", served).values()
        assert (report.rows, report.known, server.calls) == (2, 4, 3)


def test_why_no_rows_were_made_stands_in_the_record_and_stops_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = save_recipe(home.generated, "calls", RECIPE)
    note_sample(kept, "0" * 32, "m", "anna")
    accept(read_recipe(home.generated, "sums", "calls"), "anna")
    monkeypatch.setattr(generation, "why_no_python", lambda: "bubblewrap is not installed")

    def never() -> Any:
        raise AssertionError("no engine is started for what cannot be executed")

    done = generation.generation_of_night(
        home, home.corpus, "m", "2026-06-01", "run-1", never, deadline_of=time.monotonic, progress=lambda _: None
    )
    assert done.problem == "rows cannot be generated: bubblewrap is not installed"
    kept_record = Records(home.night("2026-06-01")).total(GenerationRecord)
    assert kept_record is not None and kept_record.problem == done.problem


def test_the_asset_is_there_while_there_is_something_to_make(project: Path, tmp_path: Path) -> None:
    def assets() -> Any:
        return build_defs(DeploymentChoice("embedded", tmp_path, project)).resolve_asset_graph()

    home, key = Home(tmp_path), dg.AssetKey("generated_rows")
    kept = save_recipe(home.generated, "calls", RECIPE)
    assert not assets().has(key)
    note_sample(kept, "0" * 32, "m", "anna")
    accept(read_recipe(home.generated, "sums", "calls"), "anna")
    graph = assets()
    assert key in graph.get_ancestor_asset_keys(dg.AssetKey("gpu_handover"))
    assert dg.AssetKey("meeting_entities") in graph.get_ancestor_asset_keys(key)
    assert set(graph.get(key).pools) == {"gpu"}


@pytest.mark.parametrize(
    ("text", "says"),
    [("kind: generation\nrole: sums\nfunctions: x = 1\n", "no function"), ("kind: sft\n", "kind"), ("a: [", "a")],
)
def test_what_is_not_a_recipe_is_said(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        save_recipe(tmp_path, "calls", text)
    with pytest.raises(InputError):
        save_recipe(tmp_path, "../calls", RECIPE)
