"""A trained extractor decides on the spans that its own answer left out, over real HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_openai import FakeServer, fake_server
from test_extractor import SETTINGS, Bench, item

from ec1.errors import InputError
from ec1.extraction.naming import trained
from ec1.extraction.naming.candidates import propose
from ec1.extraction.naming.known import KnownNames
from ec1.extraction.reading.extractor import Extractor
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.results import ENTITY_CLASSES
from ec1.gpu.engine import ServedAdapter

TEXT = "[[first]] We met Alma Reyes, Boris Tanaka and the WHO there on Monday."
ADAPTER = ServedAdapter("extractor@1", Path("extractor"), "d" * 64, 8)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as state:
        yield state


@pytest.fixture(scope="module")
def model(words: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer that counts words, with a chat template."""
    folder = tmp_path_factory.mktemp("model")
    value = json.loads((words / "tokenizer.json").read_text())
    vocabulary = ["?", trained.NONE, *ENTITY_CLASSES]
    value["model"]["vocab"] = {word: number for number, word in enumerate(vocabulary)}
    (folder / "tokenizer.json").write_text(json.dumps(value))
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>"
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def bench_of(server: FakeServer, folder: Path, model: Path, mode: str) -> Bench:
    settings = SETTINGS.model_copy(update={"mode": mode})
    bench = Bench(server, Outbox(folder / mode), model, settings)
    bench.extractor = Extractor(settings, "some/model", "main", model, ADAPTER)
    return bench


@pytest.mark.parametrize(
    ("mode", "found", "asked"),
    [
        ("answer", {"Alma Reyes"}, 0),
        # Of what it left out, it takes the person; `Monday` and what it listed itself are not asked about.
        ("both", {"Alma Reyes", "Boris Tanaka"}, 1),
        ("decide", {"Alma Reyes", "Boris Tanaka"}, 1),
    ],
)
def test_what_the_answer_left_out_is_decided(
    server: FakeServer, tmp_path: Path, model: Path, mode: str, found: set[str], asked: int
) -> None:
    bench, work = bench_of(server, tmp_path, model, mode), item(TEXT)
    bench.run(work)
    result = bench.result(work)
    assert result is not None and result.status == "complete" and not result.calibrated
    assert {mention.name for mention in result.mentions} == found
    questions = [request for request in server.requests if "prompt" in request]
    assert len(questions) == asked, "all questions about a chunk go in one request"
    for request in questions:
        names = [prompt.rpartition('[["')[2].removesuffix('","') for prompt in request["prompt"]]
        assert "Boris Tanaka" in names and "Monday" not in names
        assert ("Alma Reyes" in names) == (mode == "decide")
        # Asked in the template that it was trained with, which brings all special tokens itself.
        assert all(prompt.startswith("<system>Names and their classes.\n<user>") for prompt in request["prompt"])
        assert request["add_special_tokens"] is False
    assert sum(1 for request in server.requests if "messages" in request) == (mode != "decide")


def test_a_name_that_the_graph_knows_is_asked_about_where_no_capital_shows_it(
    server: FakeServer, tmp_path: Path, model: Path
) -> None:
    bench = bench_of(server, tmp_path, model, "both")
    bench.extractor.known = KnownNames(["glass Harbor"])
    bench.run(item("[[first]] We saw the glass Harbor of theirs."))
    asked = [prompt for request in server.requests for prompt in request.get("prompt", ())]
    assert any(prompt.endswith('[["glass Harbor","') for prompt in asked)


def test_what_a_listed_name_covers_is_not_asked_about() -> None:
    text = "Ana Ruiz left, since the Bank of Lisbon met Bo Li. On Monday Ana Ruiz left."
    spans = propose(text)
    answer = json.dumps([["Ana Ruiz", "Person"], ["Bank of Lisbon", "none"]])
    left = trained.left_out(answer, "stop", text, spans, 0)
    assert {text[each.start : each.end] for each in left} == {"Bo Li"}
    for nothing in (("", ""), ("[", "length")):
        everything = {text[each.start : each.end] for each in trained.left_out(*nothing, text, spans, 0)}
        assert {"Ana Ruiz", "Bank of Lisbon", "Bo Li"} <= everything


def test_the_documents_text_cannot_open_a_turn_of_its_own() -> None:
    assert "<|im_end|>" not in trained.opening('x<|im_end|>"')
    assert trained.opening('a "b"\nc') == '[["a \\"b\\" c","'


def test_the_labels_are_those_of_an_answer_in_the_order_of_decisions(model: Path, words: Path) -> None:
    extractor = Extractor(SETTINGS, "some/model", "main", model, ADAPTER)
    assert list(extractor.labels().values()) == [*ENTITY_CLASSES, "none"]
    prints = {
        Extractor(SETTINGS.model_copy(update={"mode": mode}), "m", "main", model, ADAPTER).fingerprint("meeting")
        for mode in ("answer", "decide", "both")
    }
    assert len(prints) == 3


def test_a_model_without_a_chat_template_is_said_to_have_none(words: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((words / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    extractor = Extractor(SETTINGS, "some/model", "main", tmp_path, ADAPTER)
    chunk = extractor.chunks("We met Alma Reyes.")[0]
    with pytest.raises(InputError, match="no chat template"):
        extractor.questions(chunk, ["Alma Reyes"])
