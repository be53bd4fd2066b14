"""Where files are under EC1_HOME (docs/operations.md). The only module that spells these folder names."""

from dataclasses import dataclass
from pathlib import Path

from ec1.files import checked_name

CHECKOUT = Path(__file__).resolve().parent.parent
"""This checkout, which ships recipes and deployments."""


@dataclass(frozen=True)
class Home:
    """The tree of one deployment's files. Properties give paths; nothing but `create` makes any."""

    root: Path

    def create(self) -> None:
        """Make the home, for its owner alone: documents and answers are nobody else's. One that exists is left."""
        if not self.root.exists():
            self.root.parent.mkdir(parents=True, exist_ok=True)
            self.root.mkdir(mode=0o700, exist_ok=True)

    @property
    def documents(self) -> Path:
        return self.root / "documents"

    @property
    def corpus(self) -> Path:
        return self.root / "training-corpus"

    @property
    def outbox(self) -> Path:
        return self.root / "outbox"

    @property
    def releases(self) -> Path:
        """Who released which sentence that was held back, a line each."""
        return self.root / "releases.jsonl"

    @property
    def graph(self) -> Path:
        """The live database; only its one writer may touch it."""
        return self.root / "graph" / "live"

    @property
    def published_graph(self) -> Path:
        return self.root / "graph" / "published"

    @property
    def overrides(self) -> Path:
        """What operators decided about entities, unless the deployment names another file."""
        return self.root / "overrides.yaml"

    @property
    def graph_exports(self) -> Path:
        """The last nights' graphs as Parquet, `<night>-<digest>/`."""
        return self.root / "graph" / "exports"

    def service_content(self, module_id: str) -> Path:
        """What was sent to service-content for one tenant, and what still has to be."""
        return self.root / "service-content" / f"{checked_name(module_id, 'module id')}.sqlite"

    @property
    def snapshots(self) -> Path:
        return self.root / "snapshots"

    @property
    def high_water_marks(self) -> Path:
        """Which snapshot each role was last trained on, `<tenant>/<role>.json`."""
        return self.root / "high-water-marks"

    @property
    def splits(self) -> Path:
        """Groups that are held out although their hash would not, `<bucket>.json`."""
        return self.root / "splits"

    @property
    def removals(self) -> Path:
        """What was removed from the corpus for good: a record of each removal, and the tombstones."""
        return self.root / "removals"

    @property
    def datasets(self) -> Path:
        return self.root / "datasets"

    @property
    def adapters(self) -> Path:
        """Accepted versions, `<tenant>/<role>/v<N>/`; with a bucket, this machine's copies of them."""
        return self.root / "adapters"

    @property
    def keys(self) -> Path:
        """The key that signs versions, for its owner alone, and the public keys that are trusted."""
        return self.root / "keys"

    @property
    def runs(self) -> Path:
        """The log book, `<tenant>/<role>/<night>/`."""
        return self.root / "runs"

    @property
    def quarantine(self) -> Path:
        return self.root / "quarantine"

    @property
    def serving(self) -> Path:
        """API keys (as digests) and, with consent, answers that wait for feedback."""
        return self.root / "serving"

    @property
    def served(self) -> Path:
        """What the gateway counted, and its log of requests. Not beside its keys: those may be mounted read-only."""
        return self.root / "served"

    @property
    def generated(self) -> Path:
        """Rows that a model proposed, by role, held until somebody admits them; and the answers that they came from."""
        return self.root / "generated"

    @property
    def vibe_checks(self) -> Path:
        """Prompts that people want every version of a role to answer, and the answers, `<tenant>/<role>/`."""
        return self.root / "vibe-checks"

    @property
    def pending(self) -> Path:
        return self.root / "training-pending"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def dagster(self) -> Path:
        return self.root / "dagster"

    @property
    def cache(self) -> Path:
        """What may be deleted at any time and only costs time."""
        return self.root / "cache"

    @property
    def conversions(self) -> Path:
        """Which contents an upgrade of the converter gave another text."""
        return self.root / "conversions.json"

    @property
    def row_indexes(self) -> Path:
        """What rows are searched by, a file for each snapshot and dataset that somebody looked at."""
        return self.cache / "rows"

    @property
    def remembered(self) -> Path:
        """What models said when they were evaluated, a folder for each role."""
        return self.cache / "remembered"

    @property
    def sources(self) -> Path:
        """Copies of the documents of streams that are not folders, by stream."""
        return self.cache / "sources"

    @property
    def unpacked(self) -> Path:
        """What archives, mailboxes and mails below the document root hold."""
        return self.cache / "unpacked"

    @property
    def visible_graphs(self) -> Path:
        """Copies of the published graph for readers that may not read every document."""
        return self.cache / "visible-graphs"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def tracking(self) -> Path:
        """Local files of experiment trackers; TensorBoard's lie beside each run."""
        return self.root / "tracking"

    @property
    def machine(self) -> Path:
        """What is known of a GPU machine that is booted for nights: its ledger, its locks."""
        return self.root / "machine"

    @property
    def cards(self) -> Path:
        """What cards elsewhere were used for, and cost."""
        return self.root / "cards"

    @property
    def machine_off(self) -> Path:
        """While this file is there, no GPU machine is started."""
        return self.root / "machine-off"

    @property
    def gpu_lock(self) -> Path:
        return self.root / "gpu.lock"

    @property
    def reserve(self) -> Path:
        """A file that makes room on a full disk, so that what happened can still be written down."""
        return self.root / ".reserve"

    @property
    def health(self) -> Path:
        """What the disk was seen to damage, and what was compared with its name when."""
        return self.root / "storage-health"

    @property
    def notices(self) -> Path:
        """What was told about nights, and what still has to be."""
        return self.root / "notices"

    @property
    def first_night(self) -> Path:
        """A date: no night before it exists."""
        return self.root / "first-night"

    @property
    def nights(self) -> Path:
        return self.root / "nights"

    def night(self, night: str) -> Path:
        """What one night wrote down: its document listing, its handover and its report."""
        return self.nights / night

    def run(self, tenant: str, role: str, night: str) -> Path:
        """One training run: resolved recipe, lock, checkpoints, metrics."""
        return self.runs / checked_name(tenant, "tenant") / checked_name(role, "role") / night
