"""A deployment: which real parts are wired in. One YAML file in `configs/deployments/`, typed and checked here.

Belongs here: which sections there are, and that they fit together. Does not: what a section sets (that is the
`settings.py` of its room), what the settings build (`resources/`), and what a recipe says about training
(`ec1/recipes/schema.py`).
"""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import Field, model_validator

from ec1.adapters.settings import JudgeSettings
from ec1.corpus.settings import CorpusSettings
from ec1.corpus.tombstones import Tombstones
from ec1.documents.convert import Converter
from ec1.documents.reader import DocumentReader
from ec1.documents.settings import DocumentSettings
from ec1.documents.sources.copied import Roots, roots_of
from ec1.errors import InputError
from ec1.extraction.settings import DoormanSettings, ExtractionSettings, ServerSettings
from ec1.gpu.cards import CardName, cards_of
from ec1.gpu.lease import GpuLease, card_lock, shared_lock_folder
from ec1.gpu.settings import WAITING_TOO, VllmSettings
from ec1.graph.settings import LadybugSettings, ServiceContentSettings
from ec1.home import CHECKOUT, Home
from ec1.launch.device import GpuSettings
from ec1.launch.launcher import LocalLauncherSettings
from ec1.launch.ray_launcher import RayLauncherSettings
from ec1.launch.settings import LauncherSettings, WorkerSettings
from ec1.launch.ssh_launcher import SshLauncherSettings
from ec1.machines.settings import MachineChoice
from ec1.models import ModelSource
from ec1.night_settings import BudgetSettings, MetricsSettings, NotifySettings, RetentionSettings, ScheduleSettings
from ec1.nights import Night
from ec1.serving_settings import ServingSettings
from ec1.settings import Name, Settings, ShippedPath, with_absolute_paths
from ec1.storage.settings import DirectoryStoreSettings, StoreSettings
from ec1.strict_yaml import load_mapping, validate
from ec1.training.tracking import Tracker
from ec1.vocabulary import CONTRACT_CLASSES


class Deployment(Settings):
    """Everything that one deployment sets. Paths in the file are relative to the project's root."""

    name: Name = Field(description="of the deployment: the file's name without `.yaml`")
    description: str = Field("", description="one line for people")
    tenant: Name = Field(description="whose entities and adapters these are")
    sample: ShippedPath | None = Field(None, description="a bundled sample that fills an empty home")
    documents: DocumentSettings = DocumentSettings()
    corpus: CorpusSettings = CorpusSettings()
    recipes: tuple[ShippedPath, ...] = Field(description="folders whose recipes run at night")
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
    machine: MachineChoice | None = Field(
        None, description="a GPU machine that is booted for nights; default: this one"
    )
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
    def _asks_as_much_as_its_engines_take(self) -> "Deployment":
        if isinstance(self.inference, VllmSettings) and "max_in_flight" not in self.extraction.model_fields_set:
            engines = self.inference.cluster.engines if self.inference.cluster is not None else 1
            most = {"max_in_flight": WAITING_TOO * self.inference.max_num_seqs * engines}
            # Settings do not change; these are still being made.
            object.__setattr__(self, "extraction", self.extraction.model_copy(update=most))
        return self

    @model_validator(mode="after")
    def _names_streams_that_are_there(self) -> "Deployment":
        streams = self.documents.all_streams
        named = self.inference.complexity if isinstance(self.inference, DoormanSettings) else {}
        if unknown := sorted(set(named) - set(streams)):
            raise ValueError(f"unknown stream {unknown[0]!r}: choose among {', '.join(streams)}")
        known = self.extraction.vocabulary.classes
        for stream in streams.values():
            if unknown := sorted(set(stream.classes) - set(known)):
                raise ValueError(
                    f"documents.streams.{stream.name} names the class {unknown[0]!r}, which extraction.classes does "
                    f"not have: choose among {', '.join(known)}"
                )
        return self

    @model_validator(mode="after")
    def _trackers_write_here(self) -> "Deployment":
        on_ray = isinstance(self.launcher, RayLauncherSettings) and self.launcher.files == "home"
        if self.tracking and not (on_ray or isinstance(self.launcher, LocalLauncherSettings)):
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
        if self.inference.cluster is not None:
            raise ValueError("inference.cluster and machine both say where the engine runs: leave one out")
        if not self.gpu.cost_per_hour:
            raise ValueError("machine.daily_cost needs gpu.cost_per_hour, the machine's price in USD")
        if self.extraction.adapter is not None:
            raise ValueError("extraction.adapter is not on the machine: leave it out")
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

    def document_reader(self, home: Home) -> DocumentReader:
        """Reads the documents below the root; what was converted is kept in the home's cache."""
        converter = Converter(self.documents.conversion, home.cache / "converted")
        roots = Roots(self.documents_root(home), home.unpacked)
        copied = [stream.name for stream in self.documents.all_streams.values() if stream.copied]
        others = {name: roots_of(home.sources, name) for name in copied}
        return DocumentReader(
            roots, self.documents.max_bytes, converter, others=others, is_removed=Tombstones(home).refuses_text
        )

    def documents_root(self, home: Home) -> Path:
        return self.documents.root or home.documents

    def corpus_root(self, home: Home) -> Path:
        return self.corpus.root or home.corpus

    def gpu_locks(self, home: Home, cards: Sequence[CardName] = (0,)) -> tuple[Path, ...]:
        """The locks of these cards: one for all homes of this machine, each; on a CPU, and of a machine that is booted
        for this home, each home has its own."""
        if self.machine is not None:
            return (self.gpu.lock or home.machine / "gpu.lock",)
        if self.gpu.lock is not None or (self.gpu.device == "cpu" and self.gpu.lock_dir is None):
            return (self.gpu.lock or home.gpu_lock,)
        folder = self.gpu.lock_dir or shared_lock_folder()
        if self.gpu.device == "cpu":
            return (card_lock(folder, 0),)
        return tuple(sorted(card_lock(folder, each) for each in cards))

    def gpu_lease(
        self, home: Home, *, processes: int = 1, cards: Sequence[CardName] = (), min_free_gib: float | None = None
    ) -> GpuLease:
        """The lease on the deployment's card, or on those of `processes`, or on these `cards`. Raises InputError for
        cards that are not there. Of a machine that is booted it is this home's own: its card is elsewhere, and it says
        itself how much of it is free."""
        if self.machine is not None:
            return GpuLease(self.gpu_locks(home)[0], device="cpu", min_free_gib=0)
        names = tuple(cards) or cards_of(self.gpu, processes)
        first, *others = self.gpu_locks(home, names)
        bound = self.gpu.min_free_gib if min_free_gib is None else min_free_gib
        return GpuLease(first, device=self.gpu.device, min_free_gib=bound, cards=names, more_locks=others)

    def on_cards(self, visible: str | None) -> "Deployment":
        """The deployment on a machine where `CUDA_VISIBLE_DEVICES` is `visible`; its own setting goes before."""
        if visible is None or self.gpu.visible is not None:
            return self
        return self.model_copy(update={"gpu": self.gpu.model_copy(update={"visible": visible})})

    @property
    def own_engine(self) -> VllmSettings | None:
        """The engine that phase 1 starts here or on a cluster; None if others serve, or a machine that is booted."""
        return self.inference if isinstance(self.inference, VllmSettings) and self.machine is None else None

    @property
    def uses_own_card(self) -> bool:
        """Whether a night needs this machine's card, or its memory in place of one."""
        own, trains = self.own_engine, bool(self.recipes) and isinstance(self.launcher, LocalLauncherSettings)
        return trains or (own is not None and own.cluster is None)

    def night(self, date: str) -> Night:
        return Night.of(date, self.schedule.timezone)

    def current_night(self, now: dt.datetime) -> Night:
        return Night.containing(now, self.schedule.timezone)

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.schedule.timezone)


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
    deployment = validate(Deployment, {"name": name, **load_mapping(path)}, str(path))
    return with_absolute_paths(deployment, project, CHECKOUT)
