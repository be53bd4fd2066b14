"""Feedback on served answers becomes tuples that the next night counts, and nothing else is kept; over real HTTP."""

import datetime as dt
import json
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_engine import FakeEngine
from listening import Serve
from published import BASE, NAME, ROLE, TENANT, publish
from pydantic import ValidationError
from typer.testing import CliRunner

from ec1.adapters.registry import AdapterRegistry
from ec1.cli import app
from ec1.corpus.access import access_labels
from ec1.corpus.buckets import bucket
from ec1.corpus.cleaning import scrub
from ec1.corpus.snapshots import Snapshot, take_snapshot
from ec1.corpus.threshold import decide
from ec1.corpus.tuples import Objective, example_of, group_of, metadata_of, parse_record
from ec1.home import Home
from ec1.serving.server import keys_of
from ec1.serving.versions import ServedVersion
from ec1.serving_settings import CaptureSettings

HTTP = httpx.Client(trust_env=False, timeout=30)
CONSENT = {"capture": CaptureSettings(consent=True)}
RIGHT = (
    "The keys are in the green cabinet on the ground floor, behind the second door; sign the list when you take them."
)


def ask(url: str, model: str = NAME, **body: Any) -> str:
    """Ask and return the answer's id, streamed or not."""
    asked = {"model": model, "messages": [{"role": "user", "content": "Where are the keys?"}], **body}
    answer = HTTP.post(f"{url}/v1/chat/completions", json=asked)
    assert answer.status_code == 200, answer.text
    text = answer.text.split("\n")[0].removeprefix("data: ")
    return str(json.loads(text)["id"])


def say(url: str, response_id: str, verdict: str, correction: str | None = None, **headers: str) -> httpx.Response:
    body = {"response_id": response_id, "verdict": verdict, "correction": correction}
    return HTTP.post(f"{url}/v1/feedback", json=body, headers=headers)


def release_all(home: Home) -> list[str]:
    """What a person does who has looked at everything that waits; returns the ids."""
    ec1 = ["--home", str(home.root), "feedback"]
    rows = json.loads(CliRunner().invoke(app, [*ec1, "review", "--json", "--limit", "1000"]).output)["items"]
    ids = [row["id"] for row in rows]
    if ids:
        released = CliRunner().invoke(app, [*ec1, "release", *ids])
        assert released.exit_code == 0, released.output
    return ids


def next_night(home: Home, role: str, objective: Objective) -> Snapshot:
    return take_snapshot(bucket(home.corpus, role, TENANT), objective, as_of=dt.datetime.now(dt.UTC), home=home)


def stored(home: Home) -> str:
    """Everything that the home's database of answers holds, as text."""
    with sqlite3.connect(home.serving / "answers.sqlite") as db:
        return json.dumps([db.execute(f"SELECT * FROM {table}").fetchall() for table in ("answer", "held")])


@pytest.mark.parametrize("stream", [False, True])
def test_a_correction_is_trained_on_in_the_next_night(serve: Serve, home: Home, stream: bool) -> None:
    before = next_night(home, ROLE, "sft")
    with serve(**CONSENT) as served:
        identifier = ask(served.url, stream=stream)
        answer = say(served.url, identifier, "correct", RIGHT)
    assert answer.status_code == 200 and answer.json()["model"] == f"{NAME}@v2", answer.text
    assert next_night(home, ROLE, "sft").lines == 0, "it waits for a person"
    assert release_all(home) == [answer.json()["held"]]
    after = next_night(home, ROLE, "sft")
    assert decide(after, threshold=1, trained=before).train
    assert (after.trainable, after.rejected) == (1, {})
    (row,) = after.rows()
    item = parse_record(row.record)
    assert example_of(item, "sft")["completion"] == [{"role": "assistant", "content": RIGHT}]
    pair = example_of(item, "dpo")
    assert pair["rejected"][0]["content"].startswith(f"An answer by {NAME}@v2")
    metadata = row.record["metadata"]
    assert (metadata["origin"], metadata["adapter"], metadata["verdict"]) == ("ec1-serve", f"{NAME}@v2", "correct")
    assert (item.tenant, item.tier) == (TENANT, "local")
    # Another answer to the same question stays on the same side of the split.
    with serve(**CONSENT) as served:
        say(served.url, ask(served.url), "correct", RIGHT + " Ask Ilse.")
    groups = {group_of(parse_record(row.record)) for row in next_night(home, ROLE, "sft").rows()}
    assert len(groups) == 1


def test_a_correction_of_the_apprentice_is_a_pair_in_feedback(
    serve: Serve, home: Home, registry: AdapterRegistry, tmp_path: Path
) -> None:
    publish(registry, tmp_path, 5, role="apprenticeship")
    model = f"{TENANT}/apprenticeship"
    with serve(**CONSENT) as served:
        assert say(served.url, ask(served.url, model), "correct", RIGHT).json()["held"]
        # By the rule for pairs of diffs.
        short = say(served.url, ask(served.url, model), "correct", "In the green cabinet.").json()
        assert short["held"] is None and "shorter than 80" in short["reason"]
        accepted = say(served.url, ask(served.url, model), "accept").json()
        assert accepted["held"] is None and "no pair" in accepted["reason"]
    release_all(home)
    night = next_night(home, "apprenticeship", "dpo")
    assert (night.trainable, night.rejected) == (1, {})
    assert [path.parent.name for path in home.corpus.rglob("*.jsonl")] == ["feedback"]


def test_what_a_labelled_version_wrote_has_its_labels(
    serve: Serve, home: Home, registry: AdapterRegistry, tmp_path: Path
) -> None:
    """Its answers may say what only readers of these labels may know; they became rows that anybody learns from."""
    publish(registry, tmp_path, 5, role="people", labels=("hr",))
    with serve(**CONSENT) as served:
        assert say(served.url, ask(served.url, f"{TENANT}/people"), "correct", RIGHT).json()["held"]
    release_all(home)
    assert next_night(home, "people", "sft").trainable == 0, "a recipe that names no labels learns none of it"
    (path,) = home.corpus.rglob("*.jsonl")
    record = json.loads(path.read_text())
    assert access_labels(record, metadata_of(record)) == ("hr",)


@pytest.mark.parametrize(("verdict", "trained"), [("accept", 1), ("up", 1), ("down", 0)])
def test_accepted_answers_are_rows_and_thumbs_down_none(serve: Serve, home: Home, verdict: str, trained: int) -> None:
    with serve(**CONSENT) as served:
        assert say(served.url, ask(served.url), verdict).status_code == 200
    release_all(home)
    night = next_night(home, ROLE, "sft")
    assert (night.trainable, night.rejected) == (trained, {})
    for row in night.rows():
        assert example_of(parse_record(row.record), "sft") == {
            "prompt": [{"role": "user", "content": "Where are the keys?"}],
            "completion": [{"role": "assistant", "content": FakeEngine.TEXT.format(model=f"{NAME}@v2")}],
        }


def test_nothing_is_kept_without_consent(serve: Serve, home: Home) -> None:
    with serve() as served:
        refused = say(served.url, ask(served.url), "correct", RIGHT)
    assert refused.status_code == 403 and "consent is off" in refused.json()["error"]["message"]
    assert not home.corpus.exists() and not (home.serving / "answers.sqlite").exists()
    assert b"keys" not in b"".join(path.read_bytes() for path in home.served.iterdir())


def test_what_cannot_or_must_not_be_kept(serve: Serve, home: Home) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    with serve(**CONSENT) as served:
        for body in ({"store": False}, {"n": 2}, {"tools": tools}, {"model": BASE}):
            assert say(served.url, ask(served.url, **body), "accept").status_code == 404
    assert stored(home) == "[[], []]"


def test_secrets_and_people_never_reach_the_disk(serve: Serve, home: Home, engine: FakeEngine) -> None:
    # Loads the libraries, which takes longer than a client waits on a busy machine; `ec1 serve` does it at its start.
    scrub("someone@example.com")
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    engine.text = f"Use {token} as the token, and write to eleanor.voss@fernhollow.com when it has expired, please."
    with serve(**CONSENT) as served:
        prompt = [{"role": "user", "content": f"Is {token} the right token?"}]
        identifier = ask(served.url, messages=prompt, user="eleanor.voss@fernhollow.com")
        wait = say(served.url, ask(served.url), "down")
        assert wait.status_code == 200
        assert token not in stored(home) and "voss" not in stored(home)
        correction = f"Never share {token}; ask eleanor.voss@fernhollow.com for a token of your own, on the usual way."
        assert say(served.url, identifier, "correct", correction).json()["held"]
    release_all(home)
    for path in [*home.serving.iterdir(), *home.corpus.rglob("*.jsonl")]:
        assert token.encode() not in path.read_bytes() and b"voss" not in path.read_bytes(), path
    (row,) = next_night(home, ROLE, "sft").rows()
    assert "<SECRET>" in row.record["chosen"] and "<EMAIL>" in row.record["chosen"]
    assert home.serving.joinpath("answers.sqlite").stat().st_mode & 0o077 == 0


def test_feedback_counts_once(serve: Serve, home: Home) -> None:
    with serve(**CONSENT) as served:
        identifier = ask(served.url)
        assert say(served.url, identifier, "correct", RIGHT).json()["held"]
        assert say(served.url, identifier, "correct", RIGHT).status_code == 200
        assert say(served.url, identifier, "down").status_code == 409
    release_all(home)
    assert next_night(home, ROLE, "sft").lines == 1
    # Its texts are in the corpus now and nowhere else.
    assert "keys" not in stored(home)


def test_the_same_text_counts_once_and_a_dropped_one_never_comes_back(serve: Serve, home: Home) -> None:
    ec1 = ["--home", str(home.root), "feedback"]
    with serve(**CONSENT) as served:
        first, again, third = (
            say(served.url, ask(served.url, user=user), "correct", text).json()["held"]
            for user, text in (("ann", RIGHT), ("bob", RIGHT.upper() + "\n"), ("cem", f"Perhaps: {RIGHT}"))
        )
        assert first == again != third
        shown = CliRunner().invoke(app, [*ec1, "review", "--role", NAME, "--limit", "1"]).output
        assert first in shown and "2 said so" in shown and RIGHT in shown and "more: --cursor 1" in shown
        assert CliRunner().invoke(app, [*ec1, "drop", third]).exit_code == 0
        assert say(served.url, ask(served.url), "correct", f"Perhaps: {RIGHT}").json()["held"] == third
    assert "was dropped" in str(CliRunner().invoke(app, [*ec1, "release", third]).exception)
    assert "no feedback is called" in str(CliRunner().invoke(app, [*ec1, "release", "0" * 12]).exception)
    assert release_all(home) == [first]
    assert next_night(home, ROLE, "sft").lines == 1
    assert "was released before" in CliRunner().invoke(app, [*ec1, "release", first]).output
    assert "no feedback waits" in CliRunner().invoke(app, [*ec1, "review"]).output


def test_what_one_user_gave_is_taken_back(serve: Serve, home: Home) -> None:
    with serve(**CONSENT) as served:
        for user, text in (("ann", RIGHT), ("mallory", f"Not so. {RIGHT}")):
            assert say(served.url, ask(served.url, user=user), "correct", text).json()["held"]
        release_all(home)
        assert say(served.url, ask(served.url, user="mallory"), "correct", f"Never. {RIGHT}").json()["held"]
        forget = ["--home", str(home.root), "feedback", "forget", "--user", "mallory"]
        assert "1 tuple, " in CliRunner().invoke(app, forget).output
        assert next_night(home, ROLE, "sft").lines == 2
        done = CliRunner().invoke(app, [*forget, "--yes"])
        assert done.exit_code == 0, done.output
    (row,) = next_night(home, ROLE, "sft").rows()
    assert row.record["chosen"] == RIGHT
    assert release_all(home) == []
    for path in home.serving.iterdir():
        assert b"mallory" not in path.read_bytes() and b"Never." not in path.read_bytes(), path


def test_a_rule_releases_what_a_trusted_key_gives_and_more_can_be_scrubbed(serve: Serve, home: Home) -> None:
    token = keys_of(home).add("editors", ())
    headers = {"Authorization": f"Bearer {token}"}
    rules = CaptureSettings(consent=True, release_keys=("editors",), patterns=(r"(?i)password: *\S+",))
    with serve(capture=rules) as served:
        body = {"model": NAME, "messages": [{"role": "user", "content": "Where are the keys?"}]}
        answer = HTTP.post(f"{served.url}/v1/chat/completions", json=body, headers=headers).json()["id"]
        given = say(served.url, answer, "correct", f"{RIGHT} Password: hunter2", **headers).json()
    (row,) = next_night(home, ROLE, "sft").rows()
    assert row.digest == given["tuple"]
    assert row.record["chosen"] == f"{RIGHT} <REDACTED>"
    assert row.record["metadata"]["released_by"] == "the rule for key editors"
    with pytest.raises(ValidationError, match="is not a regular expression"):
        CaptureSettings(patterns=("(",))


@pytest.mark.parametrize(
    "body",
    [
        {"response_id": "x", "verdict": "perfect"},
        {"response_id": "x", "verdict": "correct"},
        {"response_id": "x", "verdict": "correct", "correction": "  "},
        {"response_id": "x", "verdict": "accept", "correction": "Otherwise."},
        {"verdict": "accept"},
        {"response_id": "x", "verdict": "accept", "tenant": "acme"},
    ],
)
def test_feedback_that_is_none(serve: Serve, body: dict[str, Any]) -> None:
    with serve(**CONSENT) as served:
        assert HTTP.post(f"{served.url}/v1/feedback", json=body).status_code == 400


def test_nobody_judges_another_tenants_answers(serve: Serve, home: Home) -> None:
    keys = keys_of(home)
    ours, other = keys.add("ours", (TENANT,)), keys.add("other", ("acme",))
    with serve(**CONSENT) as served:
        body = {"model": NAME, "messages": [{"role": "user", "content": "Where?"}]}
        headers = {"Authorization": f"Bearer {ours}"}
        identifier = HTTP.post(f"{served.url}/v1/chat/completions", json=body, headers=headers).json()["id"]
        assert say(served.url, identifier, "down").status_code == 401
        assert say(served.url, identifier, "down", Authorization=f"Bearer {other}").status_code == 404
        assert say(served.url, identifier, "down", **headers).status_code == 200


def test_answers_are_forgotten_in_time(serve: Serve, home: Home) -> None:
    with serve(**CONSENT) as served:
        identifier = ask(served.url)
        say(served.url, ask(served.url), "up")
        with sqlite3.connect(home.serving / "answers.sqlite") as db:
            db.execute("UPDATE answer SET at = at - 31 * 86400 WHERE verdict IS NULL")
            db.execute("UPDATE held SET at = at - 31 * 86400")
        assert say(served.url, identifier, "accept").status_code == 404
        # The sweep is hourly; this one is the first of another hour.
        served.gateway.capture._swept = 0.0
        say(served.url, ask(served.url), "down")
    assert "keys" not in stored(home)


def test_results_by_version(serve: Serve, home: Home) -> None:
    with serve(**CONSENT) as served:
        said = [(NAME, "accept", user) for user in ("ann", "bob", "cem", "cem")]
        # Who clicks a hundred times is one person.
        said += [(NAME, "down", "dan")] * 3 + [(f"{NAME}@v1", "up", "ann")]
        for model, verdict, user in said:
            say(served.url, ask(served.url, model, user=user), verdict)
        text = HTTP.get(f"{served.url}/metrics").text
        newest, older = served.gateway.capture.tallies(TENANT, ROLE)
    assert f'ec1_feedback_total{{adapter="{NAME}@v2",verdict="accept"}} 4.0' in text
    assert (newest.version, newest.answers, newest.good, newest.bad) == (ServedVersion(TENANT, ROLE, 2), 7, 3, 1)
    # Wilson's interval of 3 of 4, by his formula.
    assert newest.interval() == pytest.approx((0.3006, 0.9544), abs=1e-4)
    assert (older.good, older.bad) == (1, 0)
    shown = CliRunner().invoke(app, ["--home", str(home.root), "serve", "results", NAME])
    assert "3 of 4 people content [30%, 95%]" in shown.output
