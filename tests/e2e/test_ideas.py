"""From an idea to knowledge, as a user goes there: on the home of a real night, with the real small model."""

import json
from pathlib import Path

import pytest
from commandline import RealNight

pytestmark = pytest.mark.soak


def test_a_sweep_on_the_sample_says_which_setting_teaches_more(real_night: RealNight, project: Path) -> None:
    ec1 = real_night.ec1
    before = {path.name for path in ec1.home.adapters.glob("*/*/*")}
    recipe, rates = "examples/recipes/engineering.yaml", "optimisation.learning_rate=1e-3,1e-6"
    sweep = ("sweep", recipe, "--set", rates, "--set", "optimisation.max_steps=8", "--confirm-cost", "0")
    done = ec1.run(*sweep, timeout=3600)
    assert done.returncode == 0, done.stdout
    for number in (1, 2):
        assert done.stdout.count(f"  {number}/2  optimisation.learning_rate=") == 2, "one line before it, one after"
    (table,) = ec1.home.runs.glob("fernhollow/engineering/*/sweeps/*/sweep.json")
    fast, slow = json.loads(table.read_text())["rows"]
    assert "0.001" in fast["setting"] and "1e-06" in slow["setting"]
    assert fast["gain"] > 0.1 > slow["gain"] and slow["behind"]["upper"] < 0
    assert (table.parent / "curves.png").read_bytes().startswith(b"\x89PNG")
    said = done.stdout[done.stdout.index("gain over the base in nats/token") :].splitlines()
    assert "learning_rate=0.001" in said[2] and "learning_rate=1e-06" in said[3], "the best first"
    assert {path.name for path in ec1.home.adapters.glob("*/*/*")} == before, "nothing is published"

    again = ec1.run(*sweep)
    assert again.returncode == 0 and again.stdout.splitlines()[-4:-1] == said[1:4], "nothing is repeated"
