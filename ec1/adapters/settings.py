"""What a deployment sets about the evaluation of adapters."""

from pydantic import Field

from ec1.settings import HttpAddress, Settings


class JudgeSettings(Settings):
    """A model of one's own that judges task cases (`check: judge` in recipes). No key is ever sent to it."""

    base_url: HttpAddress = Field(
        description="an OpenAI-compatible server, without /v1, that the machine which evaluates can reach"
    )
    model: str = Field(description="the id under which it serves the model")
    max_seconds: float = Field(300, gt=0, description="for all of its answers; after that the cases are left open")
