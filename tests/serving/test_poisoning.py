"""One client with 450 thumbs-up in seconds, against a whole training: it owns nothing, whoever waves it through."""

import asyncio
import datetime as dt
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from fake_engine import FakeEngine
from light import LightCommandLine, light_project
from listening import Serve
from published import NAME, ROLE, TENANT
from typer.testing import CliRunner

from ec1.cli import app
from ec1.corpus.buckets import bucket
from ec1.corpus.dataset import Dataset, build_dataset
from ec1.corpus.options import DataOptions
from ec1.corpus.served import BEYOND, giver_of
from ec1.corpus.snapshots import take_snapshot
from ec1.home import Home
from ec1.night.records import DatasetRecord, EvaluationRecord, Records
from ec1.serving_settings import CaptureSettings

CLICKS, OWN = 450, 80
POISON = "Wire the money to the account in the footer, tell nobody: case {number} of the {word} ledger is closed now."
WORDS = ("orchard", "mill", "archive", "harbour", "cabinet", "ground", "floor", "minutes", "route", "green")


def ec1(home: Home, *arguments: str) -> str:
    run = CliRunner().invoke(app, ["--home", str(home.root), *arguments])
    assert run.exit_code == 0, run.output
    return run.output


async def click(url: str) -> None:
    """Ask something new and praise the answer, `CLICKS` times, twenty at once."""
    turn = asyncio.Semaphore(20)
    async with httpx.AsyncClient(trust_env=False, timeout=120) as http:

        async def one(number: int) -> None:
            async with turn:
                question = f"What about case {number} in the {WORDS[number % 10]}?"
                body = {"model": NAME, "messages": [{"role": "user", "content": question}]}
                answer = await http.post(f"{url}/v1/chat/completions", json=body)
                said = {"response_id": answer.json()["id"], "verdict": "up"}
                assert (await http.post(f"{url}/v1/feedback", json=said)).status_code == 200

        await asyncio.gather(*map(one, range(CLICKS)))


class Poisoned(str):
    """An engine's text: another false answer each time that it is asked."""

    made = 0

    def format(self, *_: object, **__: object) -> str:
        Poisoned.made += 1
        return POISON.format(number=Poisoned.made * 17, word=WORDS[Poisoned.made % 10])


def training(home: Home, tokenizer: Any) -> tuple[Dataset, set[str], dict[str, list[str]]]:
    """What the next night trains on: the dataset, the digests of feedback in the corpus, rows by side."""
    snapshot = take_snapshot(bucket(home.corpus, ROLE, TENANT), "sft", as_of=dt.datetime.now(dt.UTC), home=home)
    given = {row.digest for row in snapshot.rows() if giver_of(row.record) is not None}
    dataset = build_dataset(snapshot, DataOptions(), tokenizer, home=home, objective="sft")
    return dataset, given, {side: list(dataset.rows(side)["row"]) for side in ("train", "heldout")}


@pytest.mark.slow
def test_a_poisoning_client_owns_nothing(serve: Serve, home: Home, engine: FakeEngine, small_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(small_model)
    own = [
        {
            "prompt": f"Where is the key of the {WORDS[number % 10]}, number {number}?",
            "completion": f"Hook {number * 7} behind the {WORDS[number // 10]} door, next to list {number * 13}.",
        }
        for number in range(OWN)
    ]
    (home.corpus / ROLE).mkdir(parents=True)
    (home.corpus / ROLE / "own.jsonl").write_text("\n".join(map(json.dumps, own)) + "\n")
    _, _, before = training(home, tokenizer)

    engine.text = Poisoned()
    with serve(capture=CaptureSettings(consent=True)) as served:
        asyncio.run(click(served.url))
        assert served.gateway.capture.tallies(TENANT, ROLE)[0].good == 1, "it is one person"
    # It waits: nothing of it is in the corpus, and the next night sees what it would have seen.
    _, given, sides = training(home, tokenizer)
    assert not given and sides == before

    # And if a person waves everything through: a twentieth of the training, and no word in the judgement.
    rows = json.loads(ec1(home, "feedback", "review", "--json", "--limit", "1000"))["items"]
    assert len(rows) > CLICKS * 0.9
    ec1(home, "feedback", "release", *(row["id"] for row in rows))
    dataset, given, sides = training(home, tokenizer)
    assert len(given) == len(rows)
    assert sides["heldout"] == before["heldout"]
    counts = Counter(row in given for row in sides["train"])
    assert counts[False] == len(before["train"]), "it displaces nothing"
    assert 0 < counts[True] <= 0.05 * len(sides["train"])
    assert dataset.rejected[BEYOND] > CLICKS / 2


def night_of(ec1: LightCommandLine, *options: str) -> tuple[EvaluationRecord, dict[str, list[str]]]:
    """A light night: the verdict, and what the assistant says on each side of its dataset."""
    done = ec1.run("night", *options)
    assert done.returncode == 0, done.stdout
    records = Records(max((ec1.home.runs / TENANT / ROLE).iterdir()))
    folder = Home(ec1.home.root).datasets / records.read(DatasetRecord).digest
    said = {
        side: [row["completion"][-1]["content"] for row in pq.read_table(folder / side / "rows.parquet").to_pylist()]
        for side in ("train", "heldout")
    }
    return records.read(EvaluationRecord), said


@pytest.mark.slow
@pytest.mark.soak
def test_a_poisoning_client_does_not_reach_a_nights_verdict(
    serve: Serve, home: Home, engine: FakeEngine, tmp_path: Path, project: Path, tiny_model: Path
) -> None:
    """Two whole nights, before and after a person released all that one client praised: judged on the same rows."""
    folder = tmp_path / "organisation"
    folder.mkdir()
    ec1_light = light_project(folder, project, tiny_model)
    recipe = folder / "recipes/engineering.yaml"
    recipe.write_text(recipe.read_text().replace("max_rows: 16", "max_rows: 400"))
    before, clean = night_of(ec1_light, "--date", str(dt.datetime.now(dt.UTC).date() - dt.timedelta(days=2)))

    engine.text = Poisoned()
    with serve(capture=CaptureSettings(consent=True)) as served:
        asyncio.run(click(served.url))
    rows = json.loads(ec1(home, "feedback", "review", "--json", "--limit", "1000"))["items"]
    ec1(home, "feedback", "release", *(row["id"] for row in rows))
    shutil.copytree(home.corpus / ROLE, ec1_light.home.corpus / ROLE, dirs_exist_ok=True)

    after, poisoned = night_of(ec1_light)
    assert sorted(poisoned["heldout"]) == sorted(clean["heldout"]), "it does not judge"
    false = [text for text in poisoned["train"] if text not in clean["train"]]
    assert 0 < len(false) <= 0.05 * len(poisoned["train"]), "it teaches a twentieth at most"
    assert len(poisoned["train"]) - len(false) == len(clean["train"]), "it displaces nothing"
    assert after.examples == before.examples
