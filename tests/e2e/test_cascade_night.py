"""A night with two models in a row: real Dagster runs, one lease, and a stand-in for both engines."""

import json
import shutil
from pathlib import Path

import pytest
from light import MODEL, light_project

from ec1.adapters.extractor import extractor_adapter
from ec1.extraction.naming.calibration import Calibration
from ec1.extraction.naming.trained import SHIPPED
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.graph.reader import GraphReader
from ec1.night.records import Records

pytestmark = pytest.mark.slow
NIGHT, LATER = "2026-06-05", "2026-06-06"
CASCADE = """max_answer_tokens: 400, adapter: {adapter}, cascade: {{inference: {{kind: vllm, model: {model}}},
  wrong_names: 0.4, max_share: 1.0}}, learn_from: [stronger]}}"""


def test_both_models_serve_one_night_under_one_lease(small_model: Path, project: Path, tmp_path: Path) -> None:
    ec1 = light_project(tmp_path, project, small_model, train=False)
    adapter = tmp_path / "adapter"
    shutil.copytree(SHIPPED, adapter)
    # The first model lists one name of a chunk, and expects to be wrong about half of what it says.
    (adapter / "finds").write_text("1")
    digest = extractor_adapter(adapter, MODEL).digest
    Calibration(adapter=digest, mode="answer", knots=((0.0, 0.5), (1.0, 0.5)), judged=200).save(adapter)
    deployment = tmp_path / "configs" / "deployments" / "light.yaml"
    changed = deployment.read_text().replace("max_answer_tokens: 400}", CASCADE.format(adapter=adapter, model=MODEL))
    assert "cascade" in changed
    deployment.write_text(changed)
    said = ec1.run("plan", "--date", NIGHT, "--json").stdout
    assert "{" in said, said
    planned = json.loads(said[said.index("{\n") :])["extraction"]
    assert planned["second_model"] == MODEL and planned["sent_on"] == planned["chunks"] > 0
    night = ec1.run("night", "--date", NIGHT)
    assert night.returncode == 0, night.stdout
    done = Records(ec1.home.night(NIGHT)).total(ExtractionRecord)
    assert done is not None and 0 < done.sent_on < done.llm_calls and done.stopped is None
    for log in (f"inference-{NIGHT}.log", f"inference-{NIGHT}-second.log"):
        assert (ec1.home.logs / log).is_file(), "each engine was started once"
    with GraphReader(ec1.home.published_graph) as reader:
        assert sum(reader.stats().entities.values()) > done.documents, "more than the first model names"
    taught = (ec1.home.root / "training-corpus" / "extractor").glob("stronger-*.jsonl")
    assert [file for file in taught if file.read_text()], "the extractor can learn from what the second model said"
    # Nothing is read twice, by either.
    again = ec1.run("night", "--date", LATER)
    assert again.returncode == 0, again.stdout
    done = Records(ec1.home.night(LATER)).total(ExtractionRecord)
    assert done is None or done.llm_calls == 0
