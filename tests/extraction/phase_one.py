"""Phase 1 of a night by the real functions, on a separate home and a server of the test's choice.

For what spans its steps: listing, extraction, the graph, its publication and export.
"""

import datetime as dt
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ec1.deployment import Deployment
from ec1.documents.listing import Listing
from ec1.extraction.defence.releases import read_releases
from ec1.extraction.reading.client import Circuit
from ec1.extraction.reading.extractor import Extractor
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.rebuild import rebuild_graph
from ec1.home import Home
from ec1.night.records import GraphRecord
from ec1.night.steps.extraction import extract_night, work_of
from ec1.night.steps.graph import apply_night
from ec1.night.steps.listing import list_documents
from ec1.streams import CONTRACT_STREAMS

MEETINGS = "service-minutebook/assets"
MAX_IN_FLIGHT = 4


@dataclass
class Night:
    """What one night came to."""

    listing: Listing
    report: ExtractionRecord
    applied: GraphRecord


@dataclass
class PhaseOne:
    """`model` is a folder with a tokenizer; `settings` are extraction settings other than the usual ones of tests."""

    home: Home
    url: str
    model: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    budget_seconds: float = 600.0

    @property
    def deployment(self) -> Deployment:
        extraction = {"chunk_tokens": 40, "overlap_tokens": 0, "max_answer_tokens": 100, "max_in_flight": MAX_IN_FLIGHT}
        return Deployment.model_validate(
            {
                "name": "test",
                "tenant": "acme",
                "recipes": [],
                "inference": {"kind": "server", "base_url": self.url, "model": "some/model"},
                "extraction": {**extraction, **self.settings},
                "graph": {"buffer_pool_mib": 64},
            }
        )

    def extractor(self) -> Extractor:
        extractor = Extractor(self.deployment.extraction, "some/model", "main", self.model)
        extractor.releases = read_releases(self.home.releases).by_content()
        return extractor

    @contextmanager
    def client(self) -> Iterator[OpenAIClient]:
        yield OpenAIClient(
            self.url, "m", self.deployment.extraction, backoff_seconds=0.01, circuit=Circuit(cool_down_seconds=0.02)
        )

    def write(self, path: str, text: str, date: str) -> Path:
        """A meeting's minutes as they were saved at the beginning of a night."""
        file = self.home.documents / MEETINGS / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        saved = self.deployment.night(date).start.timestamp()
        os.utime(file, (saved, saved))
        return file

    def night(self, date: str, say: Callable[[str], None] = lambda _: None) -> Night:
        """Run phase 1 of a night that is still open; `say` hears where it stands."""
        deployment, home, extractor = self.deployment, self.home, self.extractor()
        fingerprints = extractor.fingerprints()
        outbox, night = Outbox(home.outbox), deployment.night(date)
        now = night.start + dt.timedelta(hours=20)
        live: dict[str, Any] = {"buffer_pool_mib": 64, "wait_seconds": 20, "published": home.published_graph}
        say("listing")
        with LadybugStore.open(home.graph, **live) as store:
            listing, _ = list_documents(
                deployment, home, store.ledger(), fingerprints, outbox, night, as_of=night.as_of(now), now=now
            )
        say("extracting")
        report = extract_night(
            work_of(listing, CONTRACT_STREAMS, deployment.document_reader(home)),
            extractor,
            outbox,
            self.client,
            deadline_of=lambda: time.monotonic() + self.budget_seconds,
            progress=lambda _: None,
        )
        say("applying")
        with LadybugStore.open(home.graph, **live) as store:
            applied = apply_night(
                store,
                listing,
                outbox,
                fingerprints,
                quarantine_after=deployment.extraction.quarantine_after,
                rebuild=None
                if deployment.extraction.fingerprint_policy != "full"
                else lambda results, documents: rebuild_graph(
                    store,
                    results,
                    date,
                    documents=documents,
                    published=home.published_graph,
                    buffer_pool_mib=64,
                    quarantine_after=deployment.extraction.quarantine_after,
                    max_shrink_share=deployment.graph.max_shrink_share,
                ),
            )
            say("publishing")
            store.publish(home.published_graph)
            store.export(home.root / "export")
        say("done")
        return Night(listing, report, applied)
