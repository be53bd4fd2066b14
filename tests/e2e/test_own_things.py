"""Every command of the page for newcomers, in its order, on 40 mixed files, a repository and a file of rows.

The real conversion, import, fitting, Dagster run, training and gate; the engine is a stand-in that names every pair of
capitalised words: what the real one finds is tested in `test_night.py`.
"""

import json
import shlex
import subprocess
from pathlib import Path

import pytest
import written
from light import LightCommandLine
from page_commands import commands_of

from ec1.graph.reader import GraphReader
from ec1.home import Home

# Takes as long as a newcomer's first half hour.
pytestmark = pytest.mark.soak
CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "your-own-things.md"
EC1 = ".venv/bin/ec1 "


@pytest.fixture
def desk(tmp_path: Path, small_model: Path) -> Path:
    """A newcomer's folder: `share`, `code` and `maths.jsonl`; the model was prepared."""
    texts = [f"{name} of {firm} met José Carreras in Riga." for name, firm in (("Ruth Haldane", "Baltic Timber"),) * 2]
    written.mixed_folder(tmp_path / "share", texts)
    rows = [{"question": f"What is {n} plus {n}?", "answer": f"{n} plus {n} is {2 * n}."} for n in range(60)]
    (tmp_path / "maths.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (repo := tmp_path / "code").mkdir()
    who = ("-c", "user.name=dev", "-c", "user.email=dev@acme.example")

    def git(*arguments: str) -> None:
        subprocess.run(["git", *who, "-C", str(repo), *arguments], check=True, capture_output=True)

    git("init", "-q")
    for number in range(3):
        (repo / "meter.py").write_text(f"limit = {number}\n" + "".join(f"x{n} = {n}\n" for n in range(9)))
        git("add", "-A")
        git("commit", "-q", "-m", f"fix: the meter stops at {number}")
    folder = tmp_path / ".ec1-acme" / "models" / "HuggingFaceTB--SmolLM2-135M-Instruct"
    folder.mkdir(parents=True)
    (folder / "main").symlink_to(small_model)
    return tmp_path


def test_what_a_newcomer_has_is_read_learnt_and_judged(desk: Path) -> None:
    commands = commands_of(PAGE)
    assert len(commands) <= 6, "the promise"
    init, export, night, *looks = commands
    assert export == "export EC1_DEPLOYMENT=acme EC1_HOME=.ec1-acme"
    ec1 = LightCommandLine(CHECKOUT, Home(desk / ".ec1-acme"), "acme")

    def run(command: str) -> str:
        with ec1.start(*shlex.split(command.removeprefix(EC1)), folder=desk) as process:
            output, _ = process.communicate(timeout=900)
        assert process.returncode == 0, output
        return output

    said = run(init)
    for part in ("stream contracts: 6 .docx, 1 .xlsx", "stream mail: 6 .eml", "60 rows", "3 tuples"):
        assert part in said
    # Six mails have an attachment each, which is a document of its own, and no PDF.
    assert "44 to read" in said and "7 rejected" in said
    assert "PDF is password-protected (Annual reports/locked.pdf)" in said
    assert "2 files that no stream reads: 1 .jpg, 1 .mp3" in said
    # The stand-in answers in one way only, and finds names of two words.
    deployment = desk / "configs" / "deployments" / "acme.yaml"
    kept = [
        line
        for line in deployment.read_text().splitlines()
        if not line.startswith(("  adapter:", "  merge_", "  mode:"))
    ]
    deployment.write_text("\n".join(kept) + "\n")
    output = run(night)
    assert "37 read" in output and "7 rejected" in output, output
    with GraphReader(ec1.home.published_graph) as reader:
        assert reader.stats().statuses == {"applied": 37, "rejected": 7}
    show, try_it = (next(each for each in looks if word in each) for word in ("graph show", "adapters try"))
    assert "locked" not in run(show) and "Ruth Haldane" in run(show)
    report = run(f"{EC1}report")
    verdict = next(line for line in report.splitlines() if "acme/maths" in line)
    assert any(word in verdict for word in ("accepted", "review", "no_effect", "rejected")), report
    if "accepted" in verdict:
        assert "base" in run(try_it)
