"""A deployment: which real parts are wired in. One YAML file in `configs/deployments/`, typed and checked here.

Belongs here: the settings and their checks. Does not: what the settings build (that is `resources/`) and what a
recipe says about training (that is `ec1/recipes/schema.py`).
"""

import datetime as dt
import re
import stat
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from ec1.errors import InputError
from ec1.home import CHECKOUT, Home
from ec1.nights import Night
from ec1.settings import Name, Settings
from ec1.streams import STREAMS
from ec1.strict_yaml import load_mapping, validate
from ec1.vocabulary import (
    CONTRACT_CLASSES,
    CONTRACT_RELATIONS,
    MAX_CLASSES,
    ClassEntry,
    RelationEntry,
    RuleGroup,
    Vocabulary,
    vocabulary_of,
)

Tracker = Literal["mlflow", "wandb", "trackio"]


class DocumentSettings(Settings):
    root: Path | None = Field(
        None, description="folder of the document streams (docs/contracts.md); default `<home>/documents`"
    )
    max_vanished_share: float = Field(
        0.3,
        gt=0,
        le=1,
        description="stop if a larger share of the known documents vanished: a lost mount; typically 0.1–0.5",
    )
    max_bytes: int = Field(50 * 2**20, gt=0, description="a larger file is rejected with a reason")
    max_chunks: int = Field(
        5000,
        gt=0,
        description="a document of more chunks is rejected with a reason: it would take the night from others",
    )
    verify_every_days: int = Field(
        30, ge=0, description="read every file again, also those that look unchanged; 0: never"
    )


class CorpusSettings(Settings):
    root: Path | None = Field(
        None, description="folder of the training corpora (docs/contracts.md); default `<home>/training-corpus`"
    )


class ModelSource(Settings):
    """Where the weights of a model id come from."""

    source: Literal["hub", "directory", "gguf-package"] = Field(
        description="the Hugging Face hub, a folder, or a GGUF file inside an installed package"
    )
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
    """`kind: vllm`: an engine that is started for phase 1 and stopped before phase 2."""

    kind: Literal["vllm"] = Field(description="chooses this section")
    model: str = Field(description="model id; a key of `models`")
    revision: str = Field("main", description="of the model: branch, tag or commit")
    max_model_len: int = Field(4096, gt=0, description="tokens of prompt and answer together; typically 2048–16384")
    max_num_seqs: int = Field(8, gt=0, description="requests that the engine runs at once; typically 4–64")
    gpu_memory_utilization: float = Field(
        0.9, gt=0, le=1, description="share of the card that weights and cache may fill; typically 0.85–0.95"
    )
    kv_cache_gib: int = Field(2, gt=0, description="CPU only: GiB for the key-value cache; typically 1–8")
    enforce_eager: bool = Field(False, description="no graph capture: starts faster, runs slower")
    max_lora_rank: int = Field(
        16, description="highest rank of an adapter that the engine can serve; as in the recipes"
    )
    max_loras: int = Field(4, gt=0, description="`ec1 serve`: adapters that one batch may mix")
    reasoning_parser: str | None = Field(
        None, description="vLLM's parser for a model that thinks, such as olmo3; set together with reasoning_tokens"
    )
    ready_timeout_seconds: float = Field(900, gt=0, description="how long the engine may take to load the model")
    extra_args: tuple[str, ...] = Field((), description="further arguments of vLLM's server, as they are")


def _http_address(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError(f"{value!r} is not an http(s) address")
    return value.rstrip("/")


HttpAddress = Annotated[str, AfterValidator(_http_address)]


class ServerSettings(Settings):
    """`kind: server`: an OpenAI-compatible server that somebody else keeps running."""

    kind: Literal["server"] = Field(description="chooses this section")
    base_url: HttpAddress = Field(description="address, such as http://127.0.0.1:8000, without /v1")
    replicas: tuple[HttpAddress, ...] = Field(
        (),
        description="further addresses that serve the same model: each request goes to the one that has the fewest, "
        "and one that fails is left out for the rest of the night; extraction.max_in_flight counts over all of them",
    )
    model: str = Field(description="model id; a key of `models`, whose tokenizer counts the chunks")
    revision: str = Field("main", description="of the model: branch, tag or commit")
    max_model_len: int = Field(4096, gt=0, description="tokens of prompt and answer together")


class JudgeSettings(Settings):
    """A model of one's own that judges task cases (`check: judge` in recipes). No key is ever sent to it."""

    base_url: HttpAddress = Field(
        description="an OpenAI-compatible server, without /v1, that the machine which evaluates can reach"
    )
    model: str = Field(description="the id under which it serves the model")
    max_seconds: float = Field(300, gt=0, description="for all of its answers; after that the cases are left open")


class DoormanSettings(Settings):
    """`kind: doorman`: the inference gateway (docs/contracts.md). It decides which model answers."""

    kind: Literal["doorman"] = Field(description="chooses this section")
    base_url: HttpAddress = Field("http://127.0.0.1:9080", description="address of the gateway")
    module_id: Name | None = Field(
        None,
        description="scope of the requests; default: `<tenant>-extraction`. Never that of service_content, whose "
        "entities the gateway would put before each question",
    )
    complexity: dict[str, Literal["low", "medium", "high"]] = Field(
        {}, description="per stream; default `high`: an answer of a smaller tier is deferred"
    )
    model: str = Field(description="model id; a key of `models`, whose tokenizer counts the chunks")
    revision: str = Field("main", description="of the model: branch, tag or commit")
    max_model_len: int = Field(4096, gt=0, description="tokens of prompt and answer together")
    server_deadline_seconds: float = Field(
        170, gt=0, description="how long an answer may take: after 180 s the gateway uses a smaller model"
    )
    answer_tokens_per_second: float = Field(
        12, gt=0, description="of one request at the large tier; `ec1 doctor` checks the longest answer against it"
    )
    ready_timeout_seconds: float = Field(5400, gt=0, description="how long its machine may take to boot")
    poll_seconds: float = Field(10, gt=0, description="seconds between two readiness checks")

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


class CascadeSettings(Settings):
    """A second, larger model that reads only the chunks of which the first one is unsure (docs/operations.md)."""

    inference: Annotated[VllmSettings | ServerSettings, Field(discriminator="kind")]
    adapter: Path | None = Field(None, description="as `extraction.adapter`, for the second model")
    mode: Literal["answer", "decide", "both"] = Field(
        "answer", description="as `extraction.mode`, for the second model"
    )
    wrong_names: float = Field(
        0.5,
        gt=0,
        description="a chunk is read by the second model if the first expects to be wrong about so many of its names "
        "or more, by its calibrated confidences; typically 0.3–1",
    )
    max_share: float = Field(
        0.3, gt=0, le=1, description="of all chunks at most this share is read by the second model; typically 0.1–0.5"
    )

    @model_validator(mode="after")
    def _adapters_need_an_engine(self) -> "CascadeSettings":
        if self.adapter is not None and not isinstance(self.inference, VllmSettings):
            raise ValueError("extraction.cascade.adapter needs an engine of our own (kind vllm): leave it out")
        return self


class ExtractionSettings(Settings):
    chunk_tokens: int = Field(900, gt=0, description="tokens of text per request; typically 300–1500")
    overlap_tokens: int = Field(
        90, ge=0, description="tokens that neighbouring chunks share; typically a tenth of chunk_tokens, at most half"
    )
    max_answer_tokens: int = Field(
        512, gt=0, description="all that the model may write per chunk, its thoughts included"
    )
    reasoning_tokens: int = Field(
        0, ge=0, description="how many of those may be thoughts; 0: a model that does not think"
    )
    max_in_flight: int = Field(
        16, gt=0, description="requests in flight, over all documents; typically 2 × max_num_seqs"
    )
    request_timeout_seconds: float = Field(300, gt=0, description="of one request, the wait in the queue included")
    max_attempts: int = Field(4, gt=0, description="of one request, for transient errors")
    quarantine_after: int = Field(
        3, gt=0, description="nights on which a document may be deferred before it is given up"
    )
    classes: tuple[ClassEntry, ...] = Field(
        CONTRACT_CLASSES,
        min_length=1,
        max_length=MAX_CLASSES,
        description="what is looked for, the contract's classes by their names (Person, Company, Project, Account, "
        "Location: the default) and classes of your own as sections (docs/classes.md)",
    )
    relations: bool = Field(False, description="also extract relations between entities: longer answers")
    relation_types: tuple[RelationEntry, ...] = Field(
        tuple(CONTRACT_RELATIONS),
        min_length=1,
        max_length=MAX_CLASSES,
        description="with `relations`: the contract's by their names (works_at, located_in, part_of, attends, "
        "owns_account: the default) and relations of your own as sections",
    )
    fingerprint_policy: Literal["lazy", "budgeted", "full"] = Field(
        "full",
        description="which documents are read again after a change of prompt, schema or model (docs/operations.md)",
    )
    refresh_per_night: int = Field(100, gt=0, description="policy budgeted: documents that are read again per night")
    adapter: Path | None = Field(
        None,
        description="an adapter that makes the model an extractor, for `kind: vllm`; an accepted version of "
        "`<tenant>/extractor` takes its place",
    )
    merge_adapter: bool = Field(
        False,
        description="serve the model with that adapter's weights merged in, not beside it: three times as fast on a "
        "CPU, once more the model's size on disk",
    )
    mode: Literal["answer", "decide", "both"] = Field(
        "answer",
        description="answer: the model lists the names of a chunk (large models); decide: it chooses the class of each "
        "span that the text's structure or the graph proposes, by log-probabilities (small models); both: its answer "
        "proposes too, or, with an adapter, it decides on the spans that its answer left out",
    )
    instructions: Literal["hold", "read"] = Field(
        "hold",
        description="hold: sentences of a document that tell whoever reads it by machine what to answer are not read, "
        "and a name that stands only where such a sentence may be must be found with confidence; the report names them "
        "(`ec1 extraction held`); read: all are read alike",
    )
    without_rules: tuple[RuleGroup, ...] = Field(
        (),
        description="groups of rules that do not act: those that know English mend what small models say, and cost a "
        "little where the model is right (docs/operations.md); confidences are not calibrated then",
    )
    min_confidence: float | None = Field(
        None,
        ge=0,
        le=1,
        description="mentions below it are dropped; typically 0–0.5; default: what gave the best F1 when the curve of "
        "confidence of the model or adapter was fitted, 0 without one",
    )
    max_hallucination_rate: float = Field(
        0.5, ge=0, le=1, description="the check fails if a larger share of the names in a night's answers was invented"
    )
    gold: Path | None = Field(
        None, description="gold file (`ec1/extraction/scoring.py`) that each night is scored against"
    )
    cascade: CascadeSettings | None = Field(None, description="a second model for what the first is unsure of")
    learn_from: tuple[Literal["stronger", "reviewed"], ...] = Field(
        (),
        description="what becomes tuples for the extractor without a file of corrections: stronger (what the second "
        "model of `cascade` answered, if we serve it ourselves), reviewed (chunks each of whose names a person decided "
        "about in the review of the graph); docs/recipes.md",
    )

    @model_validator(mode="after")
    def _may_be_learnt(self) -> "ExtractionSettings":
        if self.learn_from and not vocabulary_of(self.classes, self.relation_types).is_contracts:
            raise ValueError("learn_from: an extractor is trained for the contract's classes only")
        if "stronger" in self.learn_from and (
            self.cascade is None or not isinstance(self.cascade.inference, VllmSettings)
        ):
            raise ValueError(
                "learn_from: stronger needs a second model that we serve ourselves (cascade.inference of kind vllm): "
                "what another's model says is never trained on"
            )
        return self

    @model_validator(mode="after")
    def _classes_fit_together(self) -> "ExtractionSettings":
        vocabulary_of(self.classes, self.relation_types)
        return self

    @property
    def vocabulary(self) -> Vocabulary:
        """The classes and relations that are looked for."""
        return vocabulary_of(self.classes, self.relation_types)

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
    kind: Literal["ladybug"] = Field("ladybug", description="the embedded graph store")
    buffer_pool_mib: int = Field(256, ge=64, description="memory of the database, in MiB; typically 256–4096")
    keep_exports: int = Field(7, ge=0, description="nights whose Parquet export of the graph is kept; 0: none is made")
    whole_export_every: int = Field(
        7, ge=1, description="one export in so many holds the whole graph, the others what changed; 1: all do"
    )
    resolution: bool = Field(True, description="decide after each night which entities are one; a separate layer")
    resolution_drift: float = Field(
        0.1,
        ge=0,
        description="share of the entities that may come or go before all are compared again, with frequencies of "
        "then; until then a night compares only what its documents touch; typically 0.05–0.3",
    )
    overrides: Path | None = Field(None, description="YAML file of operators' decisions: entities that are one, or not")
    max_shrink_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="the check fails if a night loses a larger share of the entities; typically 0.05–0.3",
    )


class ServiceContentSettings(Settings):
    """The graph service that other systems read (docs/contracts.md)."""

    base_url: HttpAddress = Field("http://127.0.0.1:9081", description="address of the service")
    module_id: Name | None = Field(None, description="scope of what is sent; default: the tenant")
    batch_entities: int = Field(200, gt=0, description="entities per request")
    request_timeout_seconds: float = Field(60, gt=0, description="of one request")
    max_attempts: int = Field(4, gt=0, description="of one request, for transient errors")


class DirectoryStoreSettings(Settings):
    """`kind: directory`: adapters and markers in a folder."""

    kind: Literal["directory"] = Field("directory", description="chooses this section")
    root: Path | None = Field(None, description="the folder; default: the home itself")


class GcsStoreSettings(Settings):
    """`kind: gcs`: adapters and markers in Google Cloud Storage."""

    kind: Literal["gcs"] = Field("gcs", description="chooses this section")
    bucket: str = Field(description="name of the bucket")
    endpoint: str | None = Field(None, description="address of an emulator on loopback; default: Google's")


class S3StoreSettings(Settings):
    """`kind: s3`: adapters and markers in a bucket that speaks S3. Credentials come from where Amazon's tools look."""

    kind: Literal["s3"] = Field("s3", description="chooses this section")
    bucket: str = Field(description="name of the bucket")
    endpoint: str | None = Field(
        None, description="address of another provider: https, or http on loopback; default: Amazon's in that region"
    )
    region: str = Field("us-east-1", pattern="^[a-z0-9-]+$", description="of the bucket")


StoreSettings = Annotated[DirectoryStoreSettings | GcsStoreSettings | S3StoreSettings, Field(discriminator="kind")]
"""The object stores that a deployment can choose from."""


class LocalLauncherSettings(Settings):
    """`kind: local`: a process on this machine."""

    kind: Literal["local"] = Field("local", description="chooses this section")


class WorkerLauncherSettings(Settings):
    """`kind: worker`: the night puts markers into the store, and `ec1 worker` on another machine does the work."""

    kind: Literal["worker"] = Field("worker", description="chooses this section")
    wait_seconds: float = Field(
        14400, gt=0, description="how long work may wait for a worker, and after one that died for the next"
    )
    follow_seconds: float = Field(5, gt=0, description="seconds between two looks at how far it is")


class SshLauncherSettings(Settings):
    """`kind: ssh`: a machine that ssh reaches, with EC1 of the same version and a deployment for its device."""

    kind: Literal["ssh"] = Field("ssh", description="chooses this section")
    host: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@:\[\]-]*$",
        description="as ssh knows it: `name`, `user@name`, a `Host`; default: the `machine` that is booted for nights, "
        "at the address that it has then",
    )
    options: tuple[str, ...] = Field(
        (), description="further options of ssh, such as `-p` and `2222`, or `-l` and the user's name"
    )
    python: str = Field(description="the Python of EC1 there, such as /opt/ec1/.venv/bin/python")
    folder: str = Field(pattern="^/", description="where the work is kept there, such as /var/lib/ec1-work")
    deployment: Name | None = Field(None, description="its deployment; default: of the same name as this one")
    project: str | None = Field(None, description="its EC1_PROJECT; default: the checkout there")
    wait_seconds: float = Field(14400, gt=0, description="how long work may wait for the machine's worker")
    follow_seconds: float = Field(5, gt=0, description="seconds between two looks at how far it is")


class RayLauncherSettings(Settings):
    """`kind: ray`: jobs of a Ray cluster, whose nodes see the home at the same place and have EC1 installed alike."""

    kind: Literal["ray"] = Field("ray", description="chooses this section")
    address: str = Field("http://127.0.0.1:8265", description="of the cluster's dashboard, which takes jobs")
    retries: int = Field(
        3, ge=0, le=100, description="how often work is started again whose node or process was lost; typically 1–5"
    )
    cpus: float = Field(1, ge=0, description="CPUs that Ray sets aside for one work, beside its card; typically 1–8")


def _by_kind(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


LauncherSettings = Annotated[
    Annotated[
        LocalLauncherSettings | WorkerLauncherSettings | SshLauncherSettings | RayLauncherSettings,
        Field(discriminator="kind"),
    ],
    BeforeValidator(_by_kind),
]
"""Where trainings and evaluations run. A name alone, such as `worker`, is that kind with its defaults."""


class WorkerSettings(Settings):
    """`ec1 worker`, and what the night expects of it: the same on both sides."""

    poll_seconds: float = Field(30, gt=0, description="seconds between two looks for markers")
    beat_seconds: float = Field(15, gt=0, description="seconds between two heartbeats of a claim")
    expire_seconds: float = Field(
        180, gt=0, description="a claim that was silent for so long is taken up by another worker; several beats"
    )
    max_attempts: int = Field(3, gt=0, description="a marker whose workers died so often is given up")
    keep_days: float = Field(14, gt=0, description="days that files which travelled are kept, on both sides")

    @model_validator(mode="after")
    def _several_beats(self) -> "WorkerSettings":
        if self.expire_seconds < 3 * self.beat_seconds:
            raise ValueError("expire_seconds must be at least three times beat_seconds: one beat may be late")
        return self


_CRON = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_CRON_PART = r"(?:\*|[0-9]+|[a-z]{3})(?:-(?:[0-9]+|[a-z]{3}))?(?:/[1-9][0-9]*)?"
_CRON_FIELD = re.compile(f"{_CRON_PART}(?:,{_CRON_PART})*", re.IGNORECASE)


class ScheduleSettings(Settings):
    cron: str = Field("0 2 * * *", description="when the night of the day before is run, five fields")
    timezone: str = Field("UTC", description="IANA name, such as Europe/Berlin; nights are calendar days in it")
    first_night: dt.date | None = Field(
        None, description="no night before this one exists; default: the day on which the home was made"
    )
    enabled: bool = Field(True, description="whether the schedule runs as soon as the Dagster daemon does")
    grace_minutes: int = Field(
        120, gt=0, description="a tick that is later than this is skipped; the next one catches up"
    )
    stale_nights: int = Field(
        30,
        ge=0,
        description="a role that was not trained for this many nights is warned about; 0: never; typically 14–60",
    )
    debounce_seconds: int = Field(
        600, ge=0, description="seconds without growth before the corpus-growth sensor asks for a night"
    )

    @field_validator("timezone")
    @classmethod
    def _known_timezone(cls, value: str) -> str:
        if value not in available_timezones():
            raise ValueError(f"{value!r} is not a time zone of the IANA data base, such as UTC or Europe/Berlin")
        return value

    @field_validator("cron")
    @classmethod
    def _five_fields(cls, value: str) -> str:
        fields = value.split()
        if len(fields) != len(_CRON):
            raise ValueError(f"{value!r} is not a cron line of five fields, such as '0 2 * * *'")
        for field, (name, low, high) in zip(fields, _CRON, strict=True):
            numbers = [int(number) for number in re.findall(r"(?<!/)\b\d+", field)]
            if not _CRON_FIELD.fullmatch(field) or any(not low <= number <= high for number in numbers):
                raise ValueError(f"{value!r}: {field!r} can never be a {name}: use {low} to {high}, or *")
        _, _, day, month, weekday = fields
        if weekday == "*" and day.isdecimal() and month.isdecimal() and int(day) > _DAYS[int(month) - 1]:
            raise ValueError(f"{value!r} never comes: month {month} has {_DAYS[int(month) - 1]} days")
        return value


class BudgetSettings(Settings):
    """Seconds; the clock of a phase starts when its machine is ready."""

    extraction_seconds: float = Field(7200, gt=0, description="phase 1: no request is started after it")
    training_seconds: float = Field(7200, gt=0, description="one training; the plan is fitted to it")
    night_seconds: float | None = Field(
        None,
        gt=0,
        description="both phases of one run together, as they work; a training that no longer fits waits for a later "
        "night; default: no bound; typically 14400",
    )
    training_floor_seconds: float = Field(
        0,
        ge=0,
        description="what phase 1 leaves to phase 2 of night_seconds, and of what a booted machine's lifetime and cost "
        "allow; typically as training_seconds",
    )
    lease_wait_seconds: float = Field(14400, gt=0, description="how long a phase queues for the GPU")

    @model_validator(mode="after")
    def _the_floor_fits(self) -> "BudgetSettings":
        if self.night_seconds is not None and self.training_floor_seconds >= self.night_seconds:
            raise ValueError("training_floor_seconds leaves phase 1 nothing of night_seconds: lower it")
        return self


class RetentionSettings(Settings):
    """What is kept, of each role and of the nights. Recipe, figures and curves of a run are always kept."""

    versions: int = Field(
        20, ge=1, description="versions, the best first; the one in use, the newest and the best are always kept"
    )
    runs: int = Field(14, ge=1, description="newest nights whose checkpoints and weights stay in runs/")
    quarantined: int = Field(14, ge=1, description="newest candidates in quarantine")
    nights: int = Field(
        90,
        ge=2,
        description="newest nights that are kept in full: plots, listing, Dagster's run with its events, and the "
        "snapshots and datasets that they used; of older ones the records, reports and evaluations stay; typically "
        "30–365",
    )
    unused_days: int = Field(
        90, ge=1, description="days after which the results of an extractor that no document counts from are removed"
    )
    log_days: int = Field(30, ge=1, description="days that logs/ are kept; typically 14–90")


class GpuSettings(Settings):
    """This machine's device. `name`, `memory_gib`, `tokens_per_second` and `cost_per_hour` are for the plan only."""

    device: Literal["cuda", "cpu"] = Field("cuda", description="where models are served and trained")
    lock: Path | None = Field(
        None,
        description="one file for all that share a card; default: on `cuda` `ec1-gpu.lock` in lock_dir, on a CPU "
        "`<home>/gpu.lock`. With several cards, one for each",
    )
    lock_dir: Path | None = Field(
        None,
        description="folder of that lock, the same for all homes; default /run/lock, or /tmp where not all may write",
    )
    min_free_gib: float = Field(
        20.0, ge=0, description="measured free memory that a phase needs before it starts; 20–22 for a card of 24 GiB"
    )
    name: str = Field("NVIDIA L4", description="the card's name")
    memory_gib: float = Field(24.0, gt=0, description="the card's memory")
    tokens_per_second: float = Field(
        900.0, gt=0, description="training tokens per second, measured; 700–1200 for a 7B on an L4"
    )
    cost_per_hour: float = Field(0.0, ge=0, description="USD, of all cards that a training takes")
    processes: int = Field(
        1,
        ge=1,
        le=64,
        description="that share one training, each on a card of its own; the steps have the same rows as with one "
        "(docs/server.md). Without Ray they are the machine's first cards, and the lock stands for all of them",
    )
    fsdp: bool = Field(
        False, description="each of several processes holds a part of the model: for one that does not fit a card"
    )

    @model_validator(mode="after")
    def _parts_of_a_whole(self) -> "GpuSettings":
        if self.fsdp and self.processes == 1:
            raise ValueError("fsdp spreads a model over several cards: set processes to their number, or leave it out")
        return self

    @field_validator("lock_dir")
    @classmethod
    def _the_machine_s(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError(f"{value} is relative: all homes of the machine must mean the same folder")
        return value


class GceSettings(Settings):
    """`kind: gce`: the GPU is in a virtual machine of Google Compute Engine, which is started when a night needs it and
    stopped after use (docs/gce.md). `gpu` then describes its card and its price."""

    kind: Literal["gce"] = Field(description="chooses this section")
    project: str = Field(pattern="^[a-z][a-z0-9-]{4,28}[a-z0-9]$", description="id of the Google Cloud project")
    zones: tuple[str, ...] = Field(
        min_length=1, description="tried in this order until one has the machine, such as [us-central1-a, us-east4-c]"
    )
    instance: str = Field(
        "ec1-gpu", pattern="^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$", description="its name, the same in each zone"
    )
    template: str | None = Field(
        None,
        description="instance template that it is created from where a zone has none, such as "
        "`projects/P/global/instanceTemplates/ec1-gpu-1`; without it such a zone is left out",
    )
    weights: PurePosixPath = Field(
        PurePosixPath("/data/weights"), description="folder on the machine with a folder for each model id"
    )
    engine_port: int = Field(8000, gt=0, lt=65536, description="where its inference server answers")
    ready_timeout_seconds: float = Field(5400, gt=0, description="how long it may take to boot and load the model")
    poll_seconds: float = Field(10, gt=0, description="seconds between two readiness checks")
    dead_man_seconds: int = Field(
        900, ge=60, description="it powers itself off when it has not heard of a phase for so long; typically 600–1800"
    )
    max_lifetime_seconds: int = Field(
        21600, ge=600, le=7 * 86400, description="so long after a start Google stops it, whatever happened to us"
    )
    daily_cost: float = Field(gt=0, description="USD that its running time may cost in one calendar day")
    daily_starts: int = Field(4, gt=0, description="how often it may be asked for in one calendar day")
    endpoint: str | None = Field(None, description="address of an emulator on loopback; default: Google's")

    @field_validator("zones")
    @classmethod
    def _zones(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for zone in value:
            if not re.fullmatch("[a-z]+-[a-z]+[0-9]+-[a-z]", zone):
                raise ValueError(f"{zone!r} is not a zone, such as us-central1-a")
        if len(set(value)) != len(value):
            raise ValueError("a zone is named twice")
        return value

    @model_validator(mode="after")
    def _dead_man_outlives_a_check(self) -> "GceSettings":
        if self.poll_seconds * 3 > self.dead_man_seconds:
            raise ValueError("dead_man_seconds must be at least three times poll_seconds")
        return self


class CaptureSettings(Settings):
    """What served answers leave for training. Nothing at all unless the people who use them agreed."""

    consent: bool = Field(False, description="whether answers are kept, so that feedback on them becomes tuples")
    keep_days: int = Field(30, gt=0, description="how long an answer waits for feedback before it is deleted")


class ServingSettings(Settings):
    """`ec1 serve`: the adapters in use behind an OpenAI-compatible address."""

    host: str = Field("127.0.0.1", description="any other address than this machine's own needs API keys")
    port: int = Field(8080, ge=0, lt=65536, description="0: any free one")
    engine: Annotated[VllmSettings | ServerSettings, Field(discriminator="kind")] | None = Field(
        None, description="the base model that the adapters belong to; default: `inference`, where that is vLLM"
    )
    lock: Path | None = Field(
        None, description="lease of the card that serves; default: the night's, to which serving then gives way"
    )
    visible_devices: str | None = Field(None, description="CUDA_VISIBLE_DEVICES of the engine, such as 1")
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
    capture: CaptureSettings = CaptureSettings()


NotifyEvent = Literal["failure", "partial", "quarantine", "version", "recovery", "missing"]
_PASSWORD = re.compile(r"://[^/@]*:(?!\$\{)[^/@]+@")


class NotifySettings(Settings):
    """Who is told what nights came to: each thing once; what a target did not take is tried again for a week."""

    urls: tuple[str, ...] = Field(
        (),
        description="Apprise addresses, such as `ntfy://ntfy.sh/topic`, `slack://…`, `mailto://…`, `json://…`. No "
        "secret belongs in here: `${NAME}` is taken from the environment, `file:/PATH` is read from that file",
    )
    on: tuple[NotifyEvent, ...] = Field(
        ("failure", "partial", "quarantine", "version", "recovery", "missing"), description="what is told"
    )
    by: str = Field(
        "07:00",
        pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$",
        description="when the night of the day before must be done, in the schedule's time zone (`ec1 report --check`)",
    )
    ping_url: str | None = Field(
        None,
        description="asked after each night, with `/fail` behind it after a failure, as healthchecks.io wants it; "
        "`${NAME}` and `file:/PATH` as above",
    )

    @field_validator("urls")
    @classmethod
    def _no_secrets(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for number, url in enumerate(value):
            # The address itself is not named: it holds the secret.
            if _PASSWORD.search(url):
                raise ValueError(
                    f"address {number + 1} holds a password: write ${{NAME}} and set NAME where EC1 starts"
                )
            if url.startswith("file:") and not url.startswith("file:/"):
                raise ValueError(f"{url!r}: name the file by its whole path, such as file:/run/secrets/slack")
        return value


class MetricsSettings(Settings):
    """Figures for Prometheus. `ec1 serve` shows them under `/metrics` too."""

    textfile: Path | None = Field(
        None, description="written after each night, for node_exporter's textfile collector; the name ends in `.prom`"
    )

    @field_validator("textfile")
    @classmethod
    def _read_by_node_exporter(cls, value: Path | None) -> Path | None:
        if value is not None and value.suffix != ".prom":
            raise ValueError(f"{value} does not end in .prom: node_exporter would not read it")
        return value


class Deployment(Settings):
    """Everything that one deployment sets. Paths in the file are relative to the project's root."""

    name: Name = Field(description="of the deployment: the file's name without `.yaml`")
    description: str = Field("", description="one line for people")
    tenant: Name = Field(description="whose entities and adapters these are")
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
    store: StoreSettings = DirectoryStoreSettings()
    tracking: tuple[Tracker, ...] = Field((), description="experiment trackers beside TensorBoard, which always runs")
    judge: JudgeSettings | None = Field(
        None, description="the model that judges task cases; default: the recipe's base model itself"
    )
    launcher: LauncherSettings = Field(
        LocalLauncherSettings(), description="where trainings and evaluations run; a kind alone takes its defaults"
    )
    worker: WorkerSettings = WorkerSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    budgets: BudgetSettings = BudgetSettings()
    retention: RetentionSettings = RetentionSettings()
    gpu: GpuSettings = GpuSettings()
    machine: GceSettings | None = Field(None, description="a GPU machine that is booted for nights; default: this one")
    serving: ServingSettings = ServingSettings()
    notify: NotifySettings = NotifySettings()
    metrics: MetricsSettings = MetricsSettings()

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
    def _trackers_write_here(self) -> "Deployment":
        if self.tracking and not isinstance(self.launcher, LocalLauncherSettings | RayLauncherSettings):
            raise ValueError(
                f"tracking keeps its files on the machine that trains, and launcher {self.launcher.kind} trains on "
                "another one: leave tracking out; TensorBoard's files come back with each training"
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

    @model_validator(mode="after")
    def _own_classes_have_one_of_the_contracts(self) -> "Deployment":
        if "service_content" in self.graph_stores:
            for own in self.extraction.vocabulary.own:
                if own.sent_as is None:
                    raise ValueError(
                        f"service-content knows the contract's classes only: add `sent_as: "
                        f"{' | '.join(CONTRACT_CLASSES)}` to the class {own.name} in extraction.classes, or leave "
                        "service_content out of graph_stores"
                    )
        return self

    @model_validator(mode="after")
    def _machine_is_used(self) -> "Deployment":
        if self.machine is None:
            return self
        if not isinstance(self.inference, VllmSettings):
            raise ValueError("machine is for an engine of our own (inference.kind vllm): leave it out")
        if not self.gpu.cost_per_hour:
            raise ValueError("machine.daily_cost needs gpu.cost_per_hour, the machine's price in USD")
        if self.extraction.adapter is not None:
            raise ValueError("extraction.adapter is not on the machine: leave it out")
        if self.extraction.cascade is not None:
            raise ValueError("extraction.cascade serves two models here, not on `machine`: leave one of them out")
        if isinstance(self.launcher, LocalLauncherSettings) and self.recipes:
            raise ValueError(
                "launcher local would train on this machine, not on `machine`: set launcher.kind to ssh, without a "
                "host, or recipes: []"
            )
        return self

    @model_validator(mode="after")
    def _ssh_knows_where(self) -> "Deployment":
        if isinstance(self.launcher, SshLauncherSettings) and self.launcher.host is None and self.machine is None:
            raise ValueError("launcher.host is missing: name the machine that ssh is to reach")
        return self

    @property
    def trains_on_machine(self) -> bool:
        """Whether trainings and evaluations run on the `machine` that is booted for nights."""
        launcher = self.launcher
        return self.machine is not None and isinstance(launcher, SshLauncherSettings) and launcher.host is None

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
        """The lock of the card: one for all homes of this machine; on a CPU, and of a machine that is booted for this
        home, each home has its own."""
        if self.machine is not None:
            return self.gpu.lock or home.machine / "gpu.lock"
        if self.gpu.lock is not None or (self.gpu.device == "cpu" and self.gpu.lock_dir is None):
            return self.gpu.lock or home.gpu_lock
        return (self.gpu.lock_dir or shared_lock_folder()) / "ec1-gpu.lock"

    def night(self, date: str) -> Night:
        return Night.of(date, self.schedule.timezone)

    def current_night(self, now: dt.datetime) -> Night:
        return Night.containing(now, self.schedule.timezone)

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.schedule.timezone)


def shared_lock_folder() -> Path:
    """Where locks of all users can be: the same answer for each of them, whoever asks."""
    folder = Path("/run/lock")
    everybody = stat.S_ISVTX | stat.S_IWOTH
    return folder if folder.is_dir() and folder.stat().st_mode & everybody == everybody else Path("/tmp")


def deployment_file(name: str, project: Path) -> Path:
    """Where a deployment's settings are."""
    return project / "configs" / "deployments" / f"{name}.yaml"


def load_deployment(name: str, project: Path) -> Deployment:
    """Load `configs/deployments/<name>.yaml` below the project's root, with its paths made absolute.

    Raises InputError: unknown deployment (the message lists those that exist), unknown key, wrong type.
    """
    folder = project / "configs" / "deployments"
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in known:
        raise InputError(f"unknown deployment {name!r} in {folder}: choose one of {', '.join(known) or '(none)'}")
    path = deployment_file(name, project)
    return _absolute(validate(Deployment, {"name": name, **load_mapping(path)}, str(path)), project)


def _absolute(deployment: Deployment, project: Path) -> Deployment:
    def below(path: Path | None) -> Path | None:
        return None if path is None else project / path.expanduser()

    def shipped(path: Path | None) -> Path | None:
        """What comes with EC1 is found from every project, unless the project has its own of that name."""
        if path is None or (project / path.expanduser()).exists() or not (CHECKOUT / path).exists():
            return below(path)
        return CHECKOUT / path

    update: dict[str, object] = {
        "sample": shipped(deployment.sample),
        "recipes": tuple(found for path in deployment.recipes if (found := shipped(path)) is not None),
        "documents": deployment.documents.model_copy(update={"root": below(deployment.documents.root)}),
        "graph": deployment.graph.model_copy(update={"overrides": below(deployment.graph.overrides)}),
        "corpus": deployment.corpus.model_copy(update={"root": below(deployment.corpus.root)}),
        "extraction": deployment.extraction.model_copy(
            update={
                "gold": below(deployment.extraction.gold),
                "adapter": shipped(deployment.extraction.adapter),
                "cascade": deployment.extraction.cascade
                and deployment.extraction.cascade.model_copy(
                    update={"adapter": shipped(deployment.extraction.cascade.adapter)}
                ),
            }
        ),
        "gpu": deployment.gpu.model_copy(update={"lock": below(deployment.gpu.lock)}),
        "metrics": deployment.metrics.model_copy(update={"textfile": below(deployment.metrics.textfile)}),
        "serving": deployment.serving.model_copy(update={"lock": below(deployment.serving.lock)}),
        "models": {
            key: source.model_copy(update={"path": below(source.path)}) for key, source in deployment.models.items()
        },
    }
    if isinstance(deployment.store, DirectoryStoreSettings):
        update["store"] = deployment.store.model_copy(update={"root": below(deployment.store.root)})
    return deployment.model_copy(update=update)
