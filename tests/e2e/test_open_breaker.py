"""A whole night at a gateway whose breaker opens twice: every document is read and delivered."""

import os
import shutil
from pathlib import Path

import pytest
from fake_doorman import fake_doorman
from fake_service_content import fake_service_content
from light import LightCommandLine

from ec1.home import Home
from ec1.night.report.summary import night_report

NIGHT = "2026-06-05"
DEPLOYMENT = """
tenant: acme
recipes: []
models: {{some/model: {{source: directory, path: model}}}}
inference: {{kind: doorman, base_url: "{doorman}", model: some/model, poll_seconds: 0.5}}
extraction: {{chunk_tokens: 40, overlap_tokens: 0, max_answer_tokens: 100}}
graph_stores: [ladybug, service_content]
service_content: {{base_url: "{service}"}}
graph: {{buffer_pool_mib: 64}}
gpu: {{device: cpu, min_free_gib: 1, name: CPU, memory_gib: 12, tokens_per_second: 100}}
schedule: {{enabled: false, first_night: 2026-06-01}}
"""
FOLDERS = ("service-minutebook/assets", "service-agents")
COOL_DOWN = 12
"""Seconds: more than the client waits by itself before it tries again, so that it must ask how the gateway is."""
SYLLABLES = ("Al", "Bo", "Ce", "Du", "Em", "Fa", "Gi", "Ho")


@pytest.mark.system
def test_a_breaker_that_opens_twice_in_a_night_costs_no_document(project: Path, words: Path, tmp_path: Path) -> None:
    people = [f"{first}ma {second}res" for first in SYLLABLES for second in SYLLABLES]
    with fake_doorman() as doorman, fake_service_content() as service:
        doorman.cool_down = COOL_DOWN
        # The second time its first probe fails, too.
        doorman.outages = [range(10, 15), range(35, 41)]
        (tmp_path / "configs" / "deployments").mkdir(parents=True)
        (tmp_path / "configs" / "deployments" / "light.yaml").write_text(
            DEPLOYMENT.format(doorman=doorman.url, service=service.url)
        )
        shutil.copytree(words, tmp_path / "model")
        (tmp_path / "model" / "config.json").write_text("{}")
        ec1 = LightCommandLine(project, Home(tmp_path / "home"), "light")
        for number, name in enumerate(people):
            file = ec1.home.documents / FOLDERS[number % 2] / f"{number}.md"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{name} came to the hall.")
            os.utime(file, (1780646400, 1780646400))  # 2026-06-05, 08:00 UTC
        night = ec1.run("night", "--date", NIGHT)
        assert night.returncode == 0, night.stdout
        assert doorman.opened_times == 3, "twice, and once more when it was tried too early"
        report = night_report(ec1.home, NIGHT)
        assert (report.status, report.documents_deferred, report.graph_entities) == ("done", 0, len(people))
        assert sorted(name for name, _, _ in service.of("acme").values()) == sorted(people)
        assert doorman.calls < 1.5 * len(people), "while it is open hardly anything is asked"
