"""Generated rows: a real HTTP server proposes, the real sandbox executes; what is not reproducible gives no row."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_openai import FakeServer, Handler, fake_server
from typer.testing import CliRunner, Result

from ec1.cli import app
from ec1.corpus.generated import functions_in, held_rows, literal_call
from ec1.corpus.tuples import parse_record, trainable
from ec1.errors import InputError
from ec1.home import Home
from ec1.sandbox.batch import why_no_python

MODULE = '''\
import random, time
SCALE = 3

def scaled(x):
    """x times three."""
    return x * SCALE

def chance(x):
    return x + random.random()

def now(x):
    return time.time_ns()

def unordered(x):
    return list({"alpha", "beta", "gamma", "delta", str(x)})

def broken(x):
    return x / 0

def strange(x):
    return object()

def _own(x):
    return x
'''
PROPOSED = {
    "scaled": ["scaled(2)", "scaled( 2 )", "scaled(x=5)", "scaled(open('/etc/passwd'))", "print(1)"],
    "chance": ["chance(1)"],
    "now": ["now(1)"],
    "unordered": ["unordered(1)"],
    "broken": ["broken(1)"],
    "strange": ["strange(1)"],
}


class Proposing(Handler):
    """Proposes calls of the function that it is asked about."""

    def _answer(self, text: str, believed: str = "") -> None:
        name = text.removeprefix("def ").partition("(")[0]
        content = "no JSON" if self.state.acts("mute", f"[[{'mute' if name == 'now' else ''}]]") else json.dumps(
            {"calls": PROPOSED.get(name, [f"{name}(1)"])}
        )  # fmt: skip
        choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self._send(200, json.dumps({"choices": [choice], "usage": usage}).encode())


@pytest.fixture
def module(tmp_path: Path) -> Path:
    if (why := why_no_python()) is not None:
        pytest.skip(why)
    path = tmp_path / "functions.py"
    path.write_text(MODULE)
    return path


def ec1(home: Home, *arguments: Any) -> Result:
    return CliRunner().invoke(app, ["--home", str(home.root), "corpus", *map(str, arguments)])


def generated(home: Home, module: Path, server: FakeServer) -> dict[str, Any]:
    options = ("--role", "sums", "--url", server.url, "--model", "m", "--requests", 1, "--json")
    result = ec1(home, "generate", module, *options)
    assert result.exit_code == 0, result.exception
    report: dict[str, Any] = json.loads(result.stdout)
    return report


@pytest.mark.needs("bwrap")
def test_what_is_reproducible_becomes_a_held_task(home: Home, module: Path) -> None:
    with fake_server(Proposing) as server:
        server.times["mute"] = 1
        report = generated(home, module, server)
        assert report["unanswered"] == 1 and server.calls == 6, "one function was not answered"
        report = generated(home, module, server)
        assert server.calls == 7, "only what has no answer is asked again"
        assert generated(home, module, server) == report and server.calls == 7
    counts = {name: report[name] for name in ("proposed", "not_literal", "duplicates", "failed", "unstable", "rows")}
    assert counts == {"proposed": 10, "not_literal": 2, "duplicates": 1, "failed": 2, "unstable": 3, "rows": 2}
    rows = held_rows(home.generated / "sums", report["digest"][:8])
    asked = {row["prompt"].rpartition("\n")[2]: row["checks"][0]["value"] for row in rows}
    assert asked == {"What does scaled(2) give?": {"expected": 6}, "What does scaled(x=5) give?": {"expected": 15}}
    assert {row["metadata"]["origin"] for row in rows} == {f"generated/{report['digest']}"}
    assert len({row["group"] for row in rows}) == 1, "of one function all are on one side of the split"
    assert all(trainable(parse_record(row), "task") is None for row in rows)


@pytest.mark.needs("bwrap")
def test_a_die_gives_no_row_by_chance(home: Home, module: Path) -> None:
    """Of twenty dice two processes agree on about three."""
    dice = "".join(f"def die{number}(x):\n    return random.randrange(6)\n\n" for number in range(20))
    module.write_text(f"import random\n\n{dice}", encoding="utf-8")
    with fake_server(Proposing) as server:
        report = generated(home, module, server)
    assert (report["proposed"], report["unstable"], report["rows"]) == (20, 20, 0)


@pytest.mark.needs("bwrap")
def test_rows_wait_for_a_person_and_come_once(home: Home, module: Path, embedded: Any) -> None:
    bucket = embedded.corpus_root(home) / "sums"
    with fake_server(Proposing) as server:
        digest = generated(home, module, server)["digest"]
        assert not bucket.exists()
        refused = ec1(home, "admit", digest[:8], "--role", "sums")
        assert isinstance(refused.exception, InputError) and "scaled(2)" in refused.stdout and not bucket.exists()
        for _ in range(2):
            assert ec1(home, "admit", digest[:8], "--role", "sums", "--yes").exit_code == 0
        assert len([line for path in bucket.iterdir() for line in path.read_text().splitlines()]) == 2
        again = generated(home, module, server)
    assert (again["known"], again["rows"]) == (2, 0)
    with pytest.raises(InputError, match="name one"):
        held_rows(home.generated / "sums", "zz")


def test_only_literal_calls_of_the_function_count(tmp_path: Path) -> None:
    calls = {"f(1)": "f(1)", "f( [1, 'a'], k = {} )": "f([1, 'a'], k={})", "f(g(1))": None, "g(1)": None, "f": None}
    calls |= {
        "f(*[1])": None,
        "f(**{'a': 1})": None,
        "f(x)": None,
        "f(1); g()": None,
        "(" * 5000: None,
        "f(-1)": "f(-1)",
    }
    assert {text: literal_call(text, "f") for text in calls} == calls
    path = tmp_path / "none.py"
    for text, why in (("x = 1", "no function"), ("def (", "is not Python")):
        path.write_text(text)
        with pytest.raises(InputError, match=why):
            functions_in(path)
