"""The manifest of an adapter: from it an auditor finds the tuples, the recipe and the verdict behind a version.

Belongs here: the record and its checks. Does not: where manifests are kept (`registry.py`).
"""

import datetime as dt
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from ec1.adapters.gate import ScoreDifference, VerdictName
from ec1.adapters.scores import Judge, Overlap, Success
from ec1.errors import InputError
from ec1.files import digest_of
from ec1.nights import Night
from ec1.settings import Name, Settings

MANIFEST = "manifest.json"
WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
ADAPTER_FILES = (
    WEIGHTS,
    CONFIG,
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)
"""What makes up an adapter. Nothing else in a candidate's folder is published: no pickle, optimiser or checkpoint."""
ATTACHMENTS = (
    "evaluation.json",
    "examples.jsonl",
    "calibration.json",
    "recipe.json",
    "recipe.yaml",
    "plan.json",
    "metrics.parquet",
)
"""What may lie beside an adapter to explain it."""
CARD = "README.md"
"""The model card, which publishing writes from the manifest."""

_MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_model_id(value: str) -> bool:
    """Whether `value` can be a model's id (`name` or `owner/name`), and is not a path of some machine."""
    return bool(_MODEL_ID.fullmatch(value)) and ".." not in value


def _model_id(value: str) -> str:
    if not is_model_id(value):
        raise ValueError(f"{value!r} is not a model id such as owner/name")
    return value


def _sha256(value: str) -> str:
    if not _SHA256.fullmatch(value):
        raise ValueError(f"{value!r} is not a SHA-256 in hex")
    return value


def _night(value: str) -> str:
    try:
        return Night.of(value).date
    except InputError as error:
        raise ValueError(str(error)) from None


Sha256 = Annotated[str, AfterValidator(_sha256)]
ModelId = Annotated[str, AfterValidator(_model_id)]
NightDate = Annotated[str, AfterValidator(_night)]


class AdapterBase(Settings):
    """The model that the adapter belongs to. An id, never a path of the machine that trained."""

    id: ModelId
    revision: str
    commit: str | None = Field(None, description="what the revision was when the model was fetched from the hub")
    license: str | None = Field(None, description="the model's own, as an SPDX id or a hub's name")


class RecipeRef(Settings):
    name: str
    version: str | int
    digest: Sha256


class SnapshotRef(Settings):
    """The immutable copy of the bucket: `snapshots/<bucket>/<digest>/` holds the tuples themselves."""

    bucket: Name
    digest: Sha256
    tuples: int = Field(ge=0)


class DatasetRef(Settings):
    """What became of the snapshot: `datasets/<digest>/`."""

    digest: Sha256
    train_rows: int = Field(ge=0)
    heldout_rows: int = Field(ge=0)


class FileEntry(Settings):
    sha256: Sha256
    size: int = Field(ge=0, description="bytes")


class EvaluationSummary(Settings):
    """The gate's verdict and what it rests on; the whole of it lies beside the manifest in `evaluation.json`."""

    verdict: VerdictName
    reasons: tuple[str, ...] = ()
    objective: str
    examples: int = Field(ge=0)
    scores: dict[str, float | None] = Field({}, description="mean per model, nats per token, or F1; null is not finite")
    differences: dict[str, ScoreDifference] = Field({})
    scored: dict[str, Sha256] = Field({}, description="SHA-256 of each file of the adapter as it was scored")
    judge: Judge | None = Field(None, description="the model that judged task cases, if one did")
    success: Success | None = Field(
        None, description="how many answers were right; null: nobody counted, as before 0.5"
    )
    right: dict[str, ScoreDifference] = Field(
        {}, description="per reference, the candidate's share of right answers less its"
    )
    general: dict[str, int] = Field({}, description="per model, general questions whose right answer it finds likelier")
    general_asked: int = Field(0, ge=0)
    overlap: Overlap | None = Field(None, description="with the training side")
    looks: float = Field(0.0, ge=0, description="how often the held-out groups were looked at before")


class AdapterManifest(Settings):
    """One adapter. A candidate has no version and no files yet: publishing fills them in, with `created_at`."""

    format: Literal[1] = 1
    tenant: Name
    role: Name
    version: int | None = Field(None, ge=1)
    night: NightDate
    status: Literal["candidate", "accepted", "review", "no_effect", "rejected"] = "candidate"
    base_model: AdapterBase
    method: str
    objective: str
    recipe: RecipeRef
    dataset: DatasetRef
    snapshot: SnapshotRef
    reference: str | None = Field(None, description="preference training: what it was measured against")
    labels: tuple[Name, ...] = Field((), description="access labels of all that it has learnt from, its start included")
    started_from: str | None = Field(None, description="the version that training went on from")
    composed_of: dict[str, float] = Field(
        {}, description="versions that release 0.4 could add up, with their weights; none that this one makes"
    )
    tokenizer: dict[str, Sha256] = Field(
        {}, description="SHA-256 of the base's tokenizer files that it was trained with"
    )
    evaluation: EvaluationSummary | None = None
    override: str | None = Field(None, description="a person's reason for publishing against the gate's verdict")
    files: dict[str, FileEntry] = Field({}, description="everything beside the manifest itself")
    created_at: dt.datetime | None = None
    git_commit: str | None = None
    packages: dict[str, str] = Field({}, description="name -> version")
    hardware: dict[str, str | int | float] = Field({})
    seeds: dict[str, int] = Field({})
    training: dict[str, str | int | float] = Field(
        {}, description="rank, rate, steps, as the card calls them; empty: published before this was kept"
    )

    @field_validator("created_at")
    @classmethod
    def _aware(cls, value: dt.datetime | None) -> dt.datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("needs a time zone")
        return value

    @field_validator("files")
    @classmethod
    def _allowed(cls, value: dict[str, FileEntry]) -> dict[str, FileEntry]:
        if strange := sorted(value.keys() - {*ADAPTER_FILES, *ATTACHMENTS, CARD}):
            raise ValueError(f"{', '.join(strange)} may not be part of an adapter")
        return value

    @property
    def name(self) -> str:
        """`tenant/role@vN`, or `tenant/role` of a candidate."""
        return f"{self.tenant}/{self.role}" + (f"@v{self.version}" if self.version else "")

    @property
    def identity(self) -> str:
        """What makes two candidates the same one: the bytes of the adapter, the recipe and the dataset."""
        return digest_of(
            {
                "files": {name: entry.sha256 for name, entry in self.files.items() if name in ADAPTER_FILES},
                "recipe": self.recipe.digest,
                "dataset": self.dataset.digest,
                "base_model": self.base_model.model_dump(include={"id", "revision"}),
            }
        )
