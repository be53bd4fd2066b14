"""The second model of a deployment: which extractor that is, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ec1.deployment import Deployment
from ec1.extraction.settings import CascadeSettings, ServerSettings
from ec1.gpu.settings import VllmSettings
from ec1.home import Home
from ec1.night.steps.extractor import extractor_of, second_of

SMALL = "HuggingFaceTB/SmolLM2-135M-Instruct"


def with_cascade(embedded: Deployment, **fields: Any) -> Deployment:
    """The embedded deployment, whose first model has no adapter, with a second one."""
    update = {"cascade": CascadeSettings(**fields), "adapter": None, "mode": "decide", "min_confidence": 0.4}
    return embedded.model_copy(update={"extraction": embedded.extraction.model_copy(update=update)})


def test_the_second_extractor_has_its_own_mode_adapter_and_threshold(
    embedded: Deployment, tmp_path: Path, make_candidate: Callable[..., Path]
) -> None:
    home, adapter = Home(tmp_path / "home"), make_candidate(3)
    engine = VllmSettings(kind="vllm", model=SMALL)
    deployment = with_cascade(embedded, inference=engine, adapter=adapter, mode="both")
    extractor = extractor_of(deployment, home)
    second = extractor.second
    assert second is not None and second.adapter is not None and second.adapter.folder == adapter
    assert (extractor.settings.mode, second.settings.mode) == ("decide", "both")
    assert (extractor.min_confidence, second.min_confidence) == (0.4, 0.0)
    assert second.settings.cascade is None and second.second is None
    # Another second model is another extractor.
    other = with_cascade(embedded, inference=engine, adapter=make_candidate(4, name="other"), mode="both")
    prints = {each.fingerprint("meeting") for each in (extractor, extractor.alone(), extractor_of(other, home))}
    assert len(prints) == 3
    assert extractor_of(embedded, home).second is None and second_of(embedded) is None


def test_a_server_may_be_the_second_model(embedded: Deployment, tmp_path: Path) -> None:
    server = ServerSettings(kind="server", base_url="http://127.0.0.1:8000", model=SMALL)
    deployment = with_cascade(embedded, inference=server)
    second = second_of(deployment)
    assert second is not None and second.inference == server and second.extraction.adapter is None
    with pytest.raises(ValidationError, match=r"extraction\.cascade\.adapter needs an engine of our own"):
        CascadeSettings(inference=server, adapter=tmp_path)
