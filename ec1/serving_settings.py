"""What a deployment sets about `ec1 serve`. Not in `ec1/serving`, because that room knows the deployment."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from ec1.extraction.settings import ServerSettings
from ec1.gpu.settings import VllmSettings
from ec1.settings import Name, Settings


class CaptureSettings(Settings):
    """What served answers leave for training. Nothing at all unless the people who use them agreed."""

    consent: bool = Field(False, description="whether answers are kept, so that feedback on them becomes tuples")
    keep_days: int = Field(
        30,
        gt=0,
        description="how long an answer waits for feedback, and that for its release, until it is deleted",
    )
    release_keys: tuple[Name, ...] = Field(
        (), description="API keys whose feedback is released without a person; of all others it waits"
    )
    recognizers: tuple[str, ...] = Field((), description="more of Presidio's recognisers, such as DeTaxIdRecognizer")
    patterns: tuple[str, ...] = Field(
        (), description="regular expressions of what else is replaced in what is kept, such as (?i)password: *\\S+"
    )

    @field_validator("patterns")
    @classmethod
    def _regular(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return value


class ServingSettings(Settings):
    """`ec1 serve`: the adapters in use behind an OpenAI-compatible address."""

    host: str = Field("127.0.0.1", description="any other address than this machine's own needs API keys")
    port: int = Field(8080, ge=0, lt=65536, description="0: any free one")
    engine: Annotated[VllmSettings | ServerSettings, Field(discriminator="kind")] | None = Field(
        None, description="the base model that the adapters belong to; default: `inference`, where that is vLLM"
    )
    lock: Path | None = Field(
        None, description="lease of the card that serves; default: that of its card, so on the night's it gives way"
    )
    visible_devices: str | None = Field(
        None, description="the cards that serve, by number or UUID, such as 1; default: the night's"
    )
    training_steps: bool = Field(
        False,
        description="whether copies that trainings kept on their way (`optimisation.keep_steps`) can be asked by name, "
        "such as tenant/role@2026-06-01:20; no gate has judged them",
    )
    refresh_seconds: float = Field(1, gt=0, description="how soon a promotion or a withdrawal counts")
    stale_seconds: float = Field(
        300, ge=0, description="how long what was last known counts while the registry does not answer"
    )
    drain_seconds: float = Field(60, ge=0, description="what running answers are given when a night asks for the card")
    return_seconds: float = Field(
        300, ge=0, description="how long nobody must have held the card before serving takes it back"
    )
    max_request_mib: float = Field(8, gt=0, description="a larger request is refused")
    request_timeout_seconds: float = Field(600, gt=0, description="between two bytes of the engine's answer")
    request_log_days: int = Field(
        14,
        ge=0,
        description="days of `served/requests-<day>.jsonl`: who asked whom and how it ended, no contents; 0: none",
    )
    capture: CaptureSettings = CaptureSettings()
