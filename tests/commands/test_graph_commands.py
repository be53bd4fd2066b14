"""`ec1 graph`: what an auditor sees of the published graph."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from ec1.cli import app
from ec1.commands import shell
from ec1.deployment import Deployment, load_deployment
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import parse_document
from ec1.errors import InputError
from ec1.extraction.results import ChunkAnswer, ExtractionResult, Mention
from ec1.files import sha256_file
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.resolution.overrides import NO_OVERRIDES
from ec1.home import Home

TEXT = (
    "---\ntitle: Stand-up\n---\nThe rain stopped. Then Anna Berg\n"
    "met Acme Inc. in Oslo, said Ben.\nANNA BERG: It works.\nOwner: Berg, Anna\n"
)
DOCUMENT = DocumentKey("meeting", "service-minutebook/assets/a.md")
PEOPLE = (
    ("Anna Berg", "Person"),
    ("Acme Inc", "Company"),
    ("ANNA BERG", "Person"),
    ("Berg, Anna", "Person"),
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with one document and a published graph that holds its mentions."""
    home = Home(tmp_path / "home")
    path = home.documents / DOCUMENT.path
    path.parent.mkdir(parents=True)
    path.write_text(TEXT)
    text = parse_document(DOCUMENT, path.read_bytes()).text
    mentions = tuple(
        Mention(
            name=name,
            entity_class=entity_class,
            confidence=0.75,
            chunk=0,
            start=text.index(name),
            end=text.index(name) + len(name),
        )
        for name, entity_class in PEOPLE
    )
    answers = (ChunkAnswer(chunk=0, start=0, end=len(text), finish_reason="stop", model="small-model"),)
    result = ExtractionResult(
        content_sha256=sha256_file(path),
        stream="meeting",
        fingerprint="ab" * 32,
        status="complete",
        mentions=mentions,
        answers=answers,
    )
    with LadybugStore.open(home.graph, buffer_pool_mib=64, wait_seconds=0) as store:
        store.apply(DOCUMENT, "mk-0123456789ab", result, "2026-06-01")
        store.resolve(NO_OVERRIDES)
        store.publish(home.published_graph)
    return home


def ec1(home: Home, *arguments: str) -> Result:
    done = CliRunner().invoke(app, ["--home", str(home.root), "graph", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_show_gives_the_sentence_with_the_name_marked_and_its_origin(home: Home) -> None:
    shown = ec1(home, "show", "anna berg").stdout
    assert "Person, 3 mentions in 1 document" in shown
    assert "Then »Anna Berg« met Acme Inc. in Oslo, said Ben." in shown
    assert "»ANNA BERG«: It works." in shown
    assert "rain" not in shown
    for evidence in (DOCUMENT.path, "mk-0123456789ab", "2026-06-01", "0.75", "small-model", "extractor abababababab"):
        assert evidence in shown


def test_ask_quotes_a_sentence_with_its_source_or_says_that_there_is_none(home: Home) -> None:
    first, place, *_ = ec1(home, "ask", "Whom did Anna Berg meet in Oslo?").stdout.splitlines()
    assert first == "1. Then Anna Berg met Acme Inc. in Oslo, said Ben."
    assert place.startswith(f"   {DOCUMENT.path}, characters ")
    assert ec1(home, "ask", "What salary does Anna Berg earn?").stdout == "not in the graph\n"
    (source, *_) = json.loads(ec1(home, "ask", "Whom did Anna Berg meet in Oslo?", "--json").stdout)["sources"]
    assert source["sentence"] == "Then Anna Berg\nmet Acme Inc. in Oslo, said Ben."


def test_show_as_json_holds_the_same(home: Home) -> None:
    (entity,) = json.loads(ec1(home, "show", "Person:anna berg", "--json").stdout)
    assert (entity["key"], entity["mentions"]) == ("Person:anna berg", 3)
    first, second, _ = entity["evidence"]
    assert (first["path"], first["model"], first["fingerprint"]) == (DOCUMENT.path, "small-model", "ab" * 32)
    quote = {"before": "", "name": "ANNA BERG", "after": ": It works.", "problem": None, "place": "", "date": None}
    assert second["quote"] == quote


def test_a_document_that_changed_since_is_said_to_have(home: Home) -> None:
    (home.documents / DOCUMENT.path).write_text("all new")
    assert "was changed after it was listed" in ec1(home, "show", "Acme").stdout
    (home.documents / DOCUMENT.path).unlink()
    assert "cannot be read" in ec1(home, "show", "Acme").stdout


def test_a_limit_says_how_much_is_left_out(home: Home) -> None:
    shown = ec1(home, "show", "anna berg", "--limit", "1").stdout
    assert "and 2 more" in shown and "ANNA BERG" not in shown


def test_stats(home: Home) -> None:
    assert "Person     1, mentioned 3 times" in ec1(home, "stats").stdout
    told = json.loads(ec1(home, "stats", "--json").stdout)
    assert (told["entities"], told["resolved"]) == ({"Company": 1, "Person": 2}, {"Company": 1, "Person": 1})


def test_query_reads_and_refuses_to_write(home: Home) -> None:
    query = "MATCH (e:Entity) RETURN e.key AS key, e.name AS name ORDER BY key"
    assert ec1(home, "query", query).stdout.splitlines() == [
        "key\tname",
        "Company:acme\tAcme Inc",
        "Person:anna berg\tAnna Berg",
        "Person:berg, anna\tBerg, Anna",
    ]
    assert json.loads(ec1(home, "query", query, "--json").stdout)[0] == {"key": "Company:acme", "name": "Acme Inc"}
    before = sha256_file(home.published_graph)
    for write in ("CREATE (:Meta {name: 'x', value: 'y'})", "MATCH (e:Entity) SET e.name = 'x'", "CHECKPOINT"):
        with pytest.raises(InputError):
            ec1(home, "query", write)
    assert sha256_file(home.published_graph) == before


def test_show_and_review_tell_which_entities_are_one(home: Home) -> None:
    shown = ec1(home, "show", "anna berg").stdout
    assert "one: Person:anna berg and Person:berg, anna" in " ".join(shown.split()), shown
    (entity,) = json.loads(ec1(home, "show", "anna berg", "--json").stdout)
    assert entity["members"] == ["Person:anna berg", "Person:berg, anna"]
    (joined,) = entity["joined"]
    assert (joined["one"], joined["other"], joined["mentions"]) == ("Person:anna berg", "Person:berg, anna", 1)
    assert "1 clusters; 0 pairs for review" in ec1(home, "review").stdout
    assert json.loads(ec1(home, "review", "--json").stdout) == []


def test_export(home: Home, tmp_path: Path) -> None:
    paths = json.loads(ec1(home, "export", str(tmp_path / "out"), "--json").stdout)
    rows = {Path(path).stem: pq.read_table(path).num_rows for path in paths}
    assert rows == {
        "documents": 1,
        "entities": 3,
        "mentions": 4,
        "relations": 0,
        "traits": 0,
        "clusters": 2,
        "links": 1,
    }


def test_control_characters_of_a_name_do_not_reach_the_terminal(home: Home) -> None:
    shown = ec1(home, "query", "RETURN '\x1b[31mred' AS value").stdout
    assert "\x1b" not in shown and "\\x1b[31mred" in shown


def test_before_the_first_night(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run a night first"):
        ec1(Home(tmp_path), "stats")


def test_decide_asks_and_writes_the_answer(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LadybugStore.open(home.graph, buffer_pool_mib=64, wait_seconds=0) as store:
        more = DocumentKey("meeting", "service-minutebook/assets/b.md")
        path = home.documents / more.path
        path.write_text("A. Berg was there.\n")
        mention = Mention(name="A. Berg", entity_class="Person", confidence=0.5, chunk=0, start=0, end=7)
        found = ExtractionResult(
            content_sha256=sha256_file(path), stream="meeting", fingerprint="ab" * 32, status="complete",
            mentions=(mention,),
        )  # fmt: skip
        store.apply(more, "mk-b", found, "2026-06-02")
        store.resolve(NO_OVERRIDES)
        store.publish(home.published_graph)
    overrides = tmp_path / "overrides.yaml"
    ordinary = load_deployment

    def with_overrides(name: str, project: Path) -> Deployment:
        deployment = ordinary(name, project)
        return deployment.model_copy(update={"graph": deployment.graph.model_copy(update={"overrides": overrides})})

    monkeypatch.setattr(shell, "load_deployment", with_overrides)
    arguments = ["--home", str(home.root), "graph", "decide"]
    answered = CliRunner().invoke(app, arguments, input="y\nshe signs so\ny\nso\n", catch_exceptions=False)
    assert "»A. Berg« was there." in answered.stdout and "would change hands" in answered.stdout
    assert "she signs so" in overrides.read_text()
    assert "0 pairs to decide" in CliRunner().invoke(app, arguments, catch_exceptions=False).stdout
    monkeypatch.undo()
    # Without a file of the deployment's, the home has one.
    arguments = ["--home", str(home.root), "graph", "decide"]
    pair = ["Person:a. berg", "Person:anna berg"]
    CliRunner().invoke(app, [*arguments, "--different", *pair, "--reason", "two"], catch_exceptions=False)
    assert "reason: two" in home.overrides.read_text()
    undone = CliRunner().invoke(app, [*arguments, "--undo", *pair], catch_exceptions=False)
    assert "taken back: two" in undone.stdout and "two" not in home.overrides.read_text()
    with pytest.raises(InputError, match="two keys"):
        CliRunner().invoke(app, [*arguments, *pair], catch_exceptions=False)
