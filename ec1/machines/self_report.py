"""What the machine says of itself: it writes this into its guest attributes (`deploy/gce/machine.py`), and we read it.

Belongs here: the names of what we write for it and it writes for us. Does not: what follows from them (`machine.py`).
"""

from pydantic import BaseModel, ConfigDict, ValidationError

OWNER, KEEP_UNTIL, ENGINE, ENGINE_KEY = "ec1-owner", "ec1-keep-until", "ec1-engine", "ec1-engine-key"
"""Keys of the instance's metadata: who uses it, until when (seconds since the epoch) it stays up without hearing more,
which inference server runs on it (JSON: `id`, `arguments`), and the key that this server asks for."""
NAMESPACE, STATE = "ec1", "state"
"""Where its guest attributes hold the report."""
NO_ENGINE, ARMED = "off", "armed"


class Report(BaseModel):
    """`engine` is `off`, `starting`, `running` or `failed: WHY`, of the server that `engine_id` names; `cuda` is `ok`
    or what is wrong with the card. `at` is the machine's clock, seconds since the epoch; memory is in GiB."""

    model_config = ConfigDict(extra="ignore")

    at: float
    cuda: str = ""
    engine: str = NO_ENGINE
    engine_id: str = ""
    device: str = ""
    free_gib: float = 0.0
    total_gib: float = 0.0
    dead_man: str = "it does not say"
    """`armed` once it powers itself off when nobody asks for it, or what keeps it from that."""
    host_keys: tuple[str, ...] = ()
    """Its sshd's public keys, each as `type base64`."""


def read_report(attributes: dict[str, str]) -> Report | None:
    """The report in a machine's guest attributes; None if there is none that can be read."""
    try:
        return Report.model_validate_json(attributes.get(STATE, ""))
    except ValidationError:
        return None
