"""What a recipe says about its data: which rows of a bucket are trained on, and in what form."""

from pydantic import Field, field_validator

from ec1.corpus.keys import TEXTS
from ec1.corpus.rendering import TrainOn
from ec1.settings import Name, Settings


class DataOptions(Settings):
    """What of a bucket is trained on, and in what form."""

    threshold: int = Field(50, ge=1, description="new trainable tuples that start a training")
    heldout_share: float = Field(
        0.2, gt=0, lt=1, description="share of the groups that is kept for evaluation; typically 0.1–0.3"
    )
    heldout_newest: bool = Field(False, description="keep the newest groups for evaluation, instead of a hash's choice")
    group_by: tuple[str, ...] = Field((), description="keys that name what rows were cut from, such as metadata.thread")
    ignore_keys: tuple[str, ...] = Field(
        (),
        description="keys of rows that change nothing that is learnt, as key, message.key or part.key: any other that "
        "nobody reads refuses its row",
    )
    max_known_share: float = Field(
        0.1, ge=0, le=1, description="the dataset is refused if training knows a larger share of the held-out answers"
    )
    max_length: int = Field(
        2048, ge=16, description="tokens of a whole example, system prompt included; typically 512–4096"
    )
    max_over_length_share: float = Field(
        0.3, ge=0, le=1, description="the dataset is refused if a larger share of the rows is over max_length"
    )
    system_prompt: str | None = Field(None, description="put before every prompt that has none")
    near_duplicate_similarity: float = Field(
        0.9,
        gt=0.5,
        le=1,
        description="Jaccard similarity from which a row is a duplicate; typically 0.8–0.95, 1: only equal rows",
    )
    train_on: TrainOn = Field("all", description="of a conversation: every answer of the assistant, or only the last")
    mix: dict[Name, float] = Field(
        {},
        description="other roles of the tenant that are trained on too: rows for each row of this role's own, such as "
        "{general: 0.25}; what is held out is this role's alone",
    )
    mix_repeat: bool = Field(False, description="of a role that has too few rows for its weight, train on some again")
    labels: tuple[Name, ...] | None = Field(
        None, description="access labels of rows that may be learnt from (docs/graph.md); default: rows without any"
    )
    max_rows: int | None = Field(None, ge=2, description="use at most this many rows, chosen by a stable hash")
    scrub: bool = Field(True, description="replace secrets and personal data by placeholders")
    recognizers: tuple[str, ...] = Field((), description="more of Presidio's recognisers, such as DeTaxIdRecognizer")
    seed: int = Field(0, ge=0, description="of the split; another seed is another split")

    @property
    def known_keys(self) -> tuple[str, ...]:
        """Keys that may be left unread: those that are ignored, and what rows are grouped by."""
        grouping = {key.partition(".")[0] for key in self.group_by} - TEXTS
        return tuple(sorted({*self.ignore_keys, *grouping}))

    @field_validator("mix")
    @classmethod
    def _weights(cls, value: dict[str, float]) -> dict[str, float]:
        if wrong := sorted(role for role, weight in value.items() if not 0 < weight <= 10):
            raise ValueError(f"{', '.join(wrong)}: a weight is more than 0 and at most 10")
        return value
