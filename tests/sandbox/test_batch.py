"""Answers that try to be counted as right without being it, or to reach the next answer: each in a real box."""

from dataclasses import replace
from typing import Any

import pytest

from ec1.errors import InputError
from ec1.sandbox import batch
from ec1.sandbox.batch import CALL_LIMITS, Case, Job, Returned, Value, call, why_no_python
from ec1.sandbox.box import Limits, Ran, run

pytestmark = pytest.mark.needs("bwrap")
GOOD = "def f(x):\n    return abs(x) - 5"
QUICK = Limits(seconds=3.0, cpu_seconds=1, memory_mib=128, processes=16, files_mib=8, output_mib=0.0625)


@pytest.fixture(autouse=True)
def works() -> None:
    if (why := why_no_python()) is not None:
        pytest.skip(why)


def of(program: str, limits: Limits = QUICK) -> list[Returned]:
    """The outcomes of a right answer, of this one, and of a right one again: nothing may reach the others."""
    case = (Case("f(-7)"),)
    return call([Job(GOOD, case), Job(program, case), Job(GOOD, case)], limits)


def test_values_come_back_as_json_has_them() -> None:
    expression = Job("abs(x) - 5", (Case(given={"x": -7}), Case(given={"x": 1})))
    several = Job("def f(x): return (x, [x], {'a': None})", (Case("f(True)"), Case("f(0.5)")))
    found = call(
        [expression, several, Job("1 / 0", (Case(),)), Job("def f(", (Case("f(1)"),)), Job("x = 1", (Case(),))]
    )
    assert [each.results for each in found] == [
        (Value(2), Value(-4)),
        (Value([True, [True], {"a": None}]), Value([0.5, [0.5], {"a": None}])),
        ("ZeroDivisionError",),
        ("SyntaxError",),
        ("not one expression",),
    ]
    assert call([]) == []


EXPLOITS = {
    "leaves at once": "import os; os._exit(0)",
    "leaves politely": "raise SystemExit(0)",
    "equals everything": "class A(int):\n def __eq__(self, o): return True\ndef f(x): return A(2)",
    "prints like anything": "class A:\n def __repr__(self): return '2'\ndef f(x): return A()",
    "forges a result line": 'import os\nfor n in range(9):\n try: os.write(n, b\'{"text": "[[true, 2]]"}\\n\')\n'
    " except OSError: pass\nos._exit(0)",
    "rewrites what compares": "import builtins, json, sys\nbuiltins.type = lambda v: int\njson.dumps = lambda v: '[]'\n"
    "sys.modules['__main__'].__dict__.clear()\ndef f(x): return x",
    "looks for what is expected": "import gc, sys\ndef f(x):\n"
    " return [v for o in gc.get_objects() if type(o) is dict for k, v in o.items() if k == 'expected'] or None",
    "forks without end": "import os\nwhile True: os.fork()",
    "takes 1.5 GB": "x = bytearray(1500 * 2**20)\ndef f(x): return 2",
    "takes 1.5 GB that is shared": "import mmap\nx = mmap.mmap(-1, 1500 * 2**20)\n"
    "for n in range(0, len(x), 4096): x[n] = 1\ndef f(x): return 2",
    "fills /dev/shm": "for n in range(40): open(f'/dev/shm/{n}', 'wb').write(bytes(5_000_000))\ndef f(x): return 2",
    "never ends": "while True: pass",
    "sleeps": "import time; time.sleep(60)",
    "kills its parent": "import os, signal\nfor s in (9, 15, 2, 19, 11):\n for p in (1, os.getppid(), -1):\n"
    "  try: os.kill(p, s)\n  except OSError: pass\nos._exit(0)",
    "reads its parent's memory": "open('/proc/1/mem', 'rb').read(1)",
    "opens its parent's output": "import os; os.write(os.open('/proc/1/fd/1', 1), b'{\"text\": \"\"}\\n'); os._exit(0)",
    "calls outside": "import socket; socket.create_connection(('192.0.2.1', 80), 1)",
    "says too much": "def f(x): return 'y' * 10**6",
    "nests too deep": "def f(x):\n a = []\n for n in range(900): a = [a]\n return a",
}


@pytest.mark.parametrize("name", EXPLOITS)
def test_no_exploit_gives_a_value_or_reaches_another_answer(name: str) -> None:
    before, exploit, after = of(EXPLOITS[name])
    assert exploit.results != (Value(2),)
    if name != "looks for what is expected":
        assert isinstance(exploit.results[0], str) or exploit.results == (Value(-7),)
    else:
        assert exploit.results == (Value(None),), "there is nothing to be found"
    assert before.results == after.results == (Value(2),)


def test_nothing_is_left_for_the_next_answer() -> None:
    leave = "for place in ('/tmp/x', '/dev/shm/x'): open(place, 'w').write('2')\ndef f(x): return 1"
    find = "import os\ndef f(x): return os.listdir('/tmp') + os.listdir('/dev/shm')"
    stay = "import os, time\nif not os.fork():\n os.setsid()\n time.sleep(60)\ndef f(x): return 1"
    count = "import os\ndef f(x): return len([p for p in os.listdir('/proc') if p.isdecimal()])"
    jobs = [Job(text, (Case("f(0)"),)) for text in (leave, find, stay, count)]
    assert [each.results for each in call(jobs, QUICK)] == [(Value(1),), (Value([]),), (Value(1),), (Value(2),)]


def test_how_an_answer_ended_is_told() -> None:
    endings = {"leaves at once": "ended", "sleeps": "seconds", "says too much": "output"}
    assert {name: of(EXPLOITS[name])[1].problem for name in endings} == endings
    # On a busy machine a second by the clock is over first.
    assert of(EXPLOITS["never ends"], replace(QUICK, seconds=20))[1].problem == "cpu_seconds"
    assert of(EXPLOITS["takes 1.5 GB that is shared"], replace(QUICK, seconds=20))[1].problem == "memory"


def test_many_answers_share_a_box(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes: list[Any] = []

    def counted(*arguments: Any, **options: Any) -> Ran:
        boxes.append(arguments)
        return run(*arguments, **options)

    monkeypatch.setattr(batch, "run", counted)
    found = call([Job(f"x + {n}", (Case(given={"x": 1}),)) for n in range(40)], CALL_LIMITS)
    assert [each.results for each in found] == [(Value(n + 1),) for n in range(40)] and len(boxes) == 1


def test_a_machine_without_python_in_reach_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "python_in_box", lambda: None)
    with pytest.raises(InputError, match="apt-get install python3"):
        call([Job("1", (Case(),))])
    monkeypatch.setattr(batch, "python_in_box", lambda: "/usr/bin/false")
    with pytest.raises(InputError, match="does not run in the sandbox"):
        call([Job("1", (Case(),))])
