"""A deployment: which real parts are wired in. One YAML file in `configs/deployments/`, typed and checked here.

Belongs here: the settings and their checks. Does not: what the settings build (that is `resources/`) and what a
recipe says about training (that is `ec1/recipes/schema.py`).
"""

import datetime as dt
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, Field, field_validator, model_validator

from ec1.errors import InputError
from ec1.home import Home
from ec1.nights import Night
from ec1.settings import Name, Settings
from ec1.streams import STREAMS
from ec1.strict_yaml import load_mapping, validate

Tracker = Literal["mlflow", "wandb", "trackio"]
LauncherKind = Literal["local"]


class DocumentSettings(Settings):
    root: Path | None = Field(
        None, description="folder of the document streams (docs/contracts.md); default `<home>/documents`"
    )
    max_vanished_share: float = Field(
        0.3, gt=0, le=1, description="stop when more of the known documents than this vanished: a lost mount"
    )
    max_bytes: int = Field(50 * 2**20, gt=0, description="a larger file is rejected with a reason")
    verify_every_days: int = Field(
        30, ge=0, description="read every file again, also those that look unchanged; 0: never"
    )


class CorpusSettings(Settings):
    root: Path | None = Field(
        None, description="folder of the training corpora (docs/contracts.md); default `<home>/training-corpus`"
    )


class ModelSource(Settings):
    """Where the weights of a model id come from."""

    source: Literal["hub", "directory", "gguf-package"]
    path: Path | None = Field(None, description="source=directory: a folder of safetensors")
    package: str | None = Field(None, description="source=gguf-package: the installed package that ships the file")
    file: str | None = Field(None, description="source=gguf-package: the GGUF file's name inside the package")

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> "ModelSource":
        needs = {"hub": (), "directory": ("path",), "gguf-package": ("package", "file")}[self.source]
        missing = [key for key in needs if getattr(self, key) is None]
        if missing:
            raise ValueError(f"source {self.source!r} needs {' and '.join(missing)}")
        return self


class VllmSettings(Settings):
    """An engine of our own: started for phase 1 and stopped before phase 2."""

    kind: Literal["vllm"]
    model: str = Field(description="model id; a key of `models`")
    revision: str = "main"
    max_model_len: int = Field(4096, gt=0, description="tokens")
    max_num_seqs: int = Field(8, gt=0, description="requests that the engine runs at once")
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)
    kv_cache_gib: int = Field(2, gt=0, description="CPU only: memory for the key-value cache")
    enforce_eager: bool = Field(False, description="no graph capture: starts faster, runs slower")
    max_lora_rank: int = 16
    reasoning_parser: str | None = None
    ready_timeout_seconds: float = Field(900, gt=0)
    extra_args: tuple[str, ...] = ()


def _http_address(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError(f"{value!r} is not an http(s) address")
    return value.rstrip("/")


HttpAddress = Annotated[str, AfterValidator(_http_address)]


class ServerSettings(Settings):
    """An OpenAI-compatible server that somebody else keeps running."""

    kind: Literal["server"]
    base_url: HttpAddress = Field(description="such as http://127.0.0.1:8000, without /v1")
    model: str = Field(description="model id; a key of `models`, whose tokenizer counts the chunks")
    revision: str = "main"
    max_model_len: int = Field(4096, gt=0, description="tokens")


class DoormanSettings(Settings):
    """The inference gateway (docs/contracts.md). It decides which model answers; `model` counts the tokens."""

    kind: Literal["doorman"]
    base_url: HttpAddress = "http://127.0.0.1:9080"
    module_id: Name | None = Field(
        None,
        description="scope of the requests; default: `<tenant>-extraction`. Never that of service_content, whose "
        "entities the gateway would put before each question",
    )
    complexity: dict[str, Literal["low", "medium", "high"]] = Field(
        {}, description="by stream; default `high`, where a smaller tier's answer is deferred"
    )
    model: str = Field(description="model id; a key of `models`, whose tokenizer counts the chunks")
    revision: str = "main"
    max_model_len: int = Field(4096, gt=0, description="tokens")
    server_deadline_seconds: float = Field(
        170, gt=0, description="what an answer may take: after 180 s the gateway lets a smaller model answer"
    )
    answer_tokens_per_second: float = Field(
        12, gt=0, description="of one request at the large tier; `ec1 doctor` holds the longest answer against it"
    )
    ready_timeout_seconds: float = Field(5400, gt=0, description="how long its machine may take to boot")
    poll_seconds: float = Field(10, gt=0, description="between two questions whether it is ready")

    @field_validator("complexity")
    @classmethod
    def _known_streams(cls, value: dict[str, str]) -> dict[str, str]:
        if unknown := sorted(set(value) - set(STREAMS)):
            raise ValueError(f"unknown stream {unknown[0]!r}: choose among {', '.join(STREAMS)}")
        return value

    def complexity_of(self, stream: str) -> str:
        """What requests of a stream ask for."""
        return self.complexity.get(stream, "high")


MIN_ANSWER_TOKENS = 64
"""Fewer hold no answer with an entity or two."""


class ExtractionSettings(Settings):
    chunk_tokens: int = Field(900, gt=0)
    overlap_tokens: int = Field(90, ge=0)
    max_answer_tokens: int = Field(512, gt=0, description="all that the model may write, its thoughts included")
    reasoning_tokens: int = Field(0, ge=0, description="of those, how many it may think; 0: a model that does not")
    max_in_flight: int = Field(16, gt=0, description="requests in flight, over all documents")
    request_timeout_seconds: float = Field(300, gt=0)
    max_attempts: int = Field(4, gt=0, description="of one request, for transient errors")
    quarantine_after: int = Field(3, gt=0, description="nights on which a document may be deferred")
    relations: bool = Field(False, description="ask also for what the text states between entities: longer answers")
    fingerprint_policy: Literal["lazy", "budgeted", "full"] = Field(
        "full", description="which documents a changed prompt, schema or model reads again (ec1/documents/refresh.py)"
    )
    refresh_per_night: int = Field(100, gt=0, description="budgeted: documents that are read again a night")
    adapter: Path | None = Field(
        None,
        description="an adapter that makes the model an extractor, for an engine of our own; an accepted version of "
        "<tenant>/extractor takes its place",
    )
    min_confidence: float = Field(0.0, ge=0, le=1)
    max_hallucination_rate: float = Field(
        0.5, ge=0, le=1, description="a larger share of invented names in a night's answers fails a check"
    )
    gold: Path | None = Field(
        None, description="gold file (ec1/extraction/scoring.py) that each night is scored against"
    )

    @model_validator(mode="after")
    def _overlap_fits(self) -> "ExtractionSettings":
        if self.overlap_tokens * 2 > self.chunk_tokens:
            raise ValueError("overlap_tokens must be at most half of chunk_tokens")
        return self

    @model_validator(mode="after")
    def _thoughts_leave_room_for_the_answer(self) -> "ExtractionSettings":
        room = self.max_answer_tokens - self.reasoning_tokens
        if room < MIN_ANSWER_TOKENS:
            raise ValueError(
                f"max_answer_tokens {self.max_answer_tokens} less reasoning_tokens {self.reasoning_tokens} leaves "
                f"{room} tokens for the answer; leave {MIN_ANSWER_TOKENS} or more"
            )
        return self


class LadybugSettings(Settings):
    kind: Literal["ladybug"] = "ladybug"
    buffer_pool_mib: int = Field(256, ge=64)
    keep_exports: int = Field(7, ge=0, description="nights whose Parquet export of the graph is kept; 0: none is made")
    resolution: bool = Field(True, description="say after each night which entities are one; a layer beside the graph")
    overrides: Path | None = Field(None, description="YAML with what operators decided: entities that are one, or not")
    max_shrink_share: float = Field(0.1, ge=0, le=1, description="a larger loss of entities in one night fails a check")


class ServiceContentSettings(Settings):
    """The graph service that other systems read (docs/contracts.md)."""

    base_url: HttpAddress = "http://127.0.0.1:9081"
    module_id: Name | None = Field(None, description="scope of what is sent; default: the tenant")
    batch_entities: int = Field(200, gt=0, description="entities a request")
    request_timeout_seconds: float = Field(60, gt=0)
    max_attempts: int = Field(4, gt=0, description="of one request, for transient errors")


class DirectoryStoreSettings(Settings):
    kind: Literal["directory"] = "directory"
    root: Path | None = Field(None, description="default: the home itself")


class GcsStoreSettings(Settings):
    kind: Literal["gcs"] = "gcs"
    bucket: str
    endpoint: str | None = Field(None, description="for an emulator on loopback; default is Google's")


class ScheduleSettings(Settings):
    cron: str = "0 2 * * *"
    timezone: str = "UTC"
    first_night: dt.date = dt.date(2026, 6, 1)
    enabled: bool = Field(True, description="whether the schedule runs as soon as the Dagster daemon does")
    grace_minutes: int = Field(120, gt=0, description="a tick later than this is left to the catch-up in the window")
    debounce_seconds: int = Field(600, ge=0, description="quiet time before corpus growth asks for a night")

    @field_validator("timezone")
    @classmethod
    def _known_timezone(cls, value: str) -> str:
        if value not in available_timezones():
            raise ValueError(f"{value!r} is not a time zone of the IANA data base, such as UTC or Europe/Berlin")
        return value

    @field_validator("cron")
    @classmethod
    def _five_fields(cls, value: str) -> str:
        if len(value.split()) != 5:
            raise ValueError(f"{value!r} is not a cron line of five fields, such as '0 2 * * *'")
        return value


class BudgetSettings(Settings):
    """Seconds; the clock of a phase starts when its machine is ready."""

    extraction_seconds: float = Field(7200, gt=0)
    training_seconds: float = Field(7200, gt=0)
    lease_wait_seconds: float = Field(14400, gt=0, description="how long a phase queues for the GPU")


class RetentionSettings(Settings):
    """What is kept of each role. Recipe, figures and curves of a run are kept for good, whatever is set here."""

    versions: int = Field(20, ge=1, description="best versions, beside the one in use, the newest and the best")
    runs: int = Field(14, ge=1, description="newest nights whose checkpoints and weights stay in runs/")
    quarantined: int = Field(14, ge=1, description="newest candidates in quarantine")


class GpuSettings(Settings):
    device: Literal["cuda", "cpu"] = "cuda"
    lock: Path | None = Field(None, description="one file for all homes that share a card; default <home>/gpu.lock")
    min_free_gib: float = Field(20.0, ge=0, description="measured free memory before a phase is granted")
    name: str = Field("NVIDIA L4", description="for the plan: the card's name")
    memory_gib: float = Field(24.0, gt=0, description="for the plan: the card's memory")
    tokens_per_second: float = Field(900.0, gt=0, description="for the plan: training tokens a second, measured")
    cost_per_hour: float = Field(0.0, ge=0, description="for the plan: in USD")


class Deployment(Settings):
    """Everything that one deployment sets. Paths in the file are relative to the project's root."""

    name: Name
    description: str = ""
    tenant: Name
    sample: Path | None = Field(None, description="a bundled sample that fills an empty home")
    documents: DocumentSettings = DocumentSettings()
    corpus: CorpusSettings = CorpusSettings()
    recipes: tuple[Path, ...] = Field(description="folders whose recipes run at night")
    models: dict[str, ModelSource] = Field({}, description="where the weights of each model id come from")
    inference: Annotated[VllmSettings | ServerSettings | DoormanSettings, Field(discriminator="kind")]
    extraction: ExtractionSettings = ExtractionSettings()
    graph: LadybugSettings = LadybugSettings()
    graph_stores: tuple[Literal["ladybug", "service_content"], ...] = Field(
        ("ladybug",), description="where entities go; without `ladybug` its file keeps only the ledger"
    )
    service_content: ServiceContentSettings = ServiceContentSettings()
    store: Annotated[DirectoryStoreSettings | GcsStoreSettings, Field(discriminator="kind")] = DirectoryStoreSettings()
    tracking: tuple[Tracker, ...] = Field((), description="experiment trackers beside TensorBoard, which always runs")
    launcher: LauncherKind = Field("local", description="where trainings and evaluations run: on this machine")
    schedule: ScheduleSettings = ScheduleSettings()
    budgets: BudgetSettings = BudgetSettings()
    retention: RetentionSettings = RetentionSettings()
    gpu: GpuSettings = GpuSettings()

    @model_validator(mode="after")
    def _chunks_fit_the_model(self) -> "Deployment":
        room = self.inference.max_model_len - self.extraction.chunk_tokens - self.extraction.max_answer_tokens
        if room < 256:
            raise ValueError(
                f"extraction.chunk_tokens + extraction.max_answer_tokens leave {room} of inference.max_model_len "
                f"{self.inference.max_model_len} tokens for the prompt; leave 256 or more"
            )
        return self

    @model_validator(mode="after")
    def _adapters_need_an_engine(self) -> "Deployment":
        if self.extraction.adapter is None:
            return self
        if not isinstance(self.inference, VllmSettings):
            raise ValueError(
                f"extraction.adapter needs an engine of our own (inference.kind vllm, not {self.inference.kind}); "
                "leave it out"
            )
        if self.extraction.relations:
            raise ValueError("extraction.adapter is trained for entities only: switch extraction.relations off")
        return self

    @model_validator(mode="after")
    def _thinking_is_said_twice(self) -> "Deployment":
        model = self.inference
        if isinstance(model, VllmSettings) and bool(model.reasoning_parser) != bool(self.extraction.reasoning_tokens):
            raise ValueError(
                "a model that thinks needs both inference.reasoning_parser and extraction.reasoning_tokens; set both "
                "or neither"
            )
        return self

    @model_validator(mode="after")
    def _extraction_has_a_module_id_of_its_own(self) -> "Deployment":
        if isinstance(self.inference, DoormanSettings) and self.extraction_module_id == self.content_module_id:
            raise ValueError(
                f"inference.module_id and service_content.module_id are both {self.content_module_id!r}: the gateway "
                "would put the entities of earlier nights before each question as ground truth; name another one"
            )
        return self

    @property
    def extraction_module_id(self) -> str:
        """The scope of what extraction asks of the gateway."""
        own = self.inference.module_id if isinstance(self.inference, DoormanSettings) else None
        return own or f"{self.tenant[:53]}-extraction"

    @property
    def content_module_id(self) -> str:
        """The scope under which entities are stored in service-content."""
        return self.service_content.module_id or self.tenant

    def documents_root(self, home: Home) -> Path:
        return self.documents.root or home.documents

    def corpus_root(self, home: Home) -> Path:
        return self.corpus.root or home.corpus

    def gpu_lock(self, home: Home) -> Path:
        return self.gpu.lock or home.gpu_lock

    def night(self, date: str) -> Night:
        return Night.of(date, self.schedule.timezone)

    def current_night(self, now: dt.datetime) -> Night:
        return Night.containing(now, self.schedule.timezone)

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.schedule.timezone)


def load_deployment(name: str, project: Path) -> Deployment:
    """Load `configs/deployments/<name>.yaml` below the project's root, with its paths made absolute.

    Raises InputError: unknown deployment (the message lists those that exist), unknown key, wrong type.
    """
    folder = project / "configs" / "deployments"
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in known:
        raise InputError(f"unknown deployment {name!r} in {folder}: choose one of {', '.join(known) or '(none)'}")
    path = folder / f"{name}.yaml"
    return _absolute(validate(Deployment, {"name": name, **load_mapping(path)}, str(path)), project)


def _absolute(deployment: Deployment, project: Path) -> Deployment:
    def below(path: Path | None) -> Path | None:
        return None if path is None else project / path.expanduser()

    update: dict[str, object] = {
        "sample": below(deployment.sample),
        "recipes": tuple(project / path.expanduser() for path in deployment.recipes),
        "documents": deployment.documents.model_copy(update={"root": below(deployment.documents.root)}),
        "graph": deployment.graph.model_copy(update={"overrides": below(deployment.graph.overrides)}),
        "corpus": deployment.corpus.model_copy(update={"root": below(deployment.corpus.root)}),
        "extraction": deployment.extraction.model_copy(
            update={"gold": below(deployment.extraction.gold), "adapter": below(deployment.extraction.adapter)}
        ),
        "gpu": deployment.gpu.model_copy(update={"lock": below(deployment.gpu.lock)}),
        "models": {
            key: source.model_copy(update={"path": below(source.path)}) for key, source in deployment.models.items()
        },
    }
    if isinstance(deployment.store, DirectoryStoreSettings):
        update["store"] = deployment.store.model_copy(update={"root": below(deployment.store.root)})
    return deployment.model_copy(update=update)
