"""service-content as a second graph store, against a server with its semantics."""

import itertools
import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import service_content_rules as rules
from fake_service_content import FakeServiceContent, fake_service_content
from graph_samples import FINGERPRINT, NIGHT, key, result

from ec1.documents.ledger import (
    DocumentKey,
    Fingerprints,
    LedgerEntry,
    Status,
    extractor_fingerprint,
    ledger_fingerprints,
)
from ec1.errors import InputError
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.results import EntityClass, ExtractionResult, Mention
from ec1.graph.resolution.clusters import Cluster
from ec1.graph.service_content import ServiceContentClient, ServiceEntity
from ec1.graph.service_content_store import DeliveryRecord, ServiceContentStore
from ec1.graph.service_names import service_key
from ec1.graph.settings import ServiceContentSettings


def unlike(number: int) -> str:
    """A name that none of the hundred others could be taken for."""
    letters = "abcdefghij"
    return f"{letters[number % 10].upper()}{letters[number // 10]}o Lind"


@pytest.fixture
def service() -> Iterator[FakeServiceContent]:
    with fake_service_content() as state:
        yield state


class Bench:
    """A ledger, an outbox and a store, and nights on them."""

    def __init__(self, service: FakeServiceContent, folder: Path, module_id: str = "acme", **settings: object) -> None:
        self.outbox = Outbox(folder / "outbox")
        self.ledger: dict[DocumentKey, LedgerEntry] = {}
        values = {"base_url": service.url, "batch_entities": 3, "request_timeout_seconds": 2, **settings}
        self.client = ServiceContentClient(
            ServiceContentSettings.model_validate(values), module_id, backoff_seconds=0.01
        )
        self.state = folder / "state" / "acme.sqlite"
        self.store = ServiceContentStore(self.state, self.client)

    def says(self, path: str, *said: tuple[str, EntityClass, float], status: Status = Status.APPLIED) -> None:
        """A document has a new version, which names these."""
        found = result(f"{path} {said}", *((name, entity_class) for name, entity_class, _ in said))
        mentions = tuple(
            mention.model_copy(update={"confidence": confidence})
            for mention, (_, _, confidence) in zip(found.mentions, said, strict=True)
        )
        found = found.model_copy(update={"mentions": mentions})
        self.outbox.put(found)
        self.enter(path, found, status)

    def enter(self, path: str, found: ExtractionResult, status: Status) -> None:
        self.ledger[key(path)] = LedgerEntry(
            key(path), f"mk-{path}", found.content_sha256, found.fingerprint, status, NIGHT
        )

    def night(self, night: str = NIGHT) -> DeliveryRecord:
        return self.store.deliver(self.ledger, self.outbox, night)


@pytest.fixture
def bench(service: FakeServiceContent, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(service, tmp_path)
    with made.client:
        yield made


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Maria Alvarez", "maria_alvarez"),
        ("  Maria \t Alvarez ", "maria_alvarez"),
        ("Acme Inc.", "acme"),
        ("ACME™", "acme"),
        ("Acme Incorporated", "acme"),
        ("Acme Company Ltd", "acme_company"),
        ("Tessera Labs GmbH", "tessera_labs"),
        ("Limited", "limited"),
        ("Zinc", "zinc"),
        ("Acme, Inc.", "acme"),
        ("Acme . Ltd ;", "acme"),
        ("Acme Corp., Inc", "acme_corp"),
        ("Orin ™ .", "orin"),
        ("Smith, Jones LLP", "smith,_jones_llp"),
        ("1031 Exchange Corp", "1031_exchange"),
        ("Murfreesboro, Tennessee", "murfreesboro,_tennessee"),
        ("Straße GmbH;:", "straße"),
    ],
)
def test_the_key_is_the_services(service: FakeServiceContent, name: str, expected: str) -> None:
    assert service_key(name) == expected
    assert service.key("acme", name) == f"acme__{expected}"


def test_what_is_sent_is_exactly_the_agreed_record(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", ("Maria Alvarez", "Person", 0.93))
    assert bench.night().sent == 1
    assert service.writes == [
        {
            "module_id": "acme",
            "entities": [
                {
                    "entity_name": "Maria Alvarez",
                    "classification": "Person",
                    "confidence": 0.93,
                    "module_id": "acme",
                    "role_vector": None,
                    "location_vector": None,
                    "contact_vector": None,
                    "source_doc": "mk-a.md",
                }
            ],
        }
    ]


def test_a_night_with_nothing_new_writes_nothing(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", ("Ann Lee", "Person", 0.8), ("Acme Inc", "Company", 0.7))
    first, calls = bench.night(), service.calls
    second = bench.night("2026-06-02")
    assert (first.sent, second.sent, service.calls) == (2, 0, calls)
    assert (second.expected, second.held, second.missing, second.differ) == (2, 2, 0, 0)


def test_a_later_worse_mention_does_not_overwrite_a_better_one(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", ("Acme Inc.", "Company", 0.95))
    bench.night()
    bench.says("b.md", ("ACME", "Company", 0.4))
    assert bench.night("2026-06-02").sent == 0
    assert service.of("acme") == {"acme": ("Acme Inc.", "Company", 0.95)}
    bench.says("c.md", ("Acme", "Company", 0.99))
    bench.night("2026-06-03")
    assert service.of("acme") == {"acme": ("Acme Inc.", "Company", 0.99)}


@pytest.mark.slow
def test_a_person_and_a_location_of_one_name_collapse_in_one_way(tmp_path: Path, service: FakeServiceContent) -> None:
    said: list[tuple[str, tuple[str, EntityClass, float]]] = [
        ("a.md", ("Paris", "Location", 0.8)),
        ("b.md", ("Paris", "Person", 0.8)),
        ("c.md", ("PARIS", "Location", 0.6)),
        ("d.md", ("paris", "Person", 0.7)),
        ("e.md", ("Paris Inc", "Company", 0.5)),
    ]
    for number, order in enumerate(list(itertools.permutations(said))[::7]):
        bench = Bench(service, tmp_path / str(number), f"m{number}")
        with bench.client:
            for night, (path, entity) in enumerate(order):
                bench.says(path, entity)
                if number % 5 == night:
                    bench.night()
            assert bench.night().differ == 0
        # As many documents say so of either: then the order of the classes decides.
        assert service.of(f"m{number}") == {"paris": ("Paris", "Person", 0.8)}


@pytest.mark.slow
def test_whatever_the_order_the_service_holds_the_best(tmp_path: Path, service: FakeServiceContent) -> None:
    rng = random.Random(7)
    names = ["Acme", "Acme, Inc", "ACME Inc.", "Acme Ltd", "Orin", "ORIN", "Orin;", "Lake Orin", "Orin Corp"]
    classes: list[EntityClass] = ["Company", "Person", "Location"]
    held = []
    documents = [
        (f"{number}.md", [(rng.choice(names), rng.choice(classes), round(rng.random(), 2)) for _ in range(4)])
        for number in range(12)
    ]
    for number in range(6):
        bench = Bench(service, tmp_path / str(number), f"m{number}")
        rng.shuffle(documents)
        with bench.client:
            for at, (path, said) in enumerate(documents):
                bench.says(path, ("Early Draft", "Project", 0.5), *said)
                bench.says(path, *said)
                if at % (number + 1) == 0:
                    bench.night()
            bench.night()
        found = service.of(f"m{number}")
        found.pop("early_draft", None)
        held.append(found)
    assert all(each == held[0] for each in held)
    best = max(confidence for _, said in documents for name, _, confidence in said if service_key(name) == "acme")
    assert held[0]["acme"][2] == best


def test_the_tenant_is_the_same_everywhere(service: FakeServiceContent, tmp_path: Path) -> None:
    for module_id in ("acme", "globex"):
        bench = Bench(service, tmp_path / module_id, module_id)
        with bench.client:
            bench.says("a.md", ("Ann Lee", "Person", 0.8))
            assert bench.night().held == 1
    for write in service.writes:
        assert {each["module_id"] for each in write["entities"]} == {write["module_id"]}
    assert sorted(service.nodes) == ["acme__ann_lee", "globex__ann_lee"]
    with pytest.raises(InputError, match="module id"):
        Bench(service, tmp_path, "Acme Corp")


def test_what_the_service_would_swallow_is_not_sent(service: FakeServiceContent, bench: Bench) -> None:
    found = result("x", ("Ann Lee", "Person"))
    mentions = [
        Mention(name=name, entity_class="Person", confidence=confidence, chunk=0, start=0, end=1)
        for name, confidence in [
            ("N/A", 0.9), ("unknown", 0.9), ("TBD", 0.9), ("None", 0.9), ("...", 0.9), ("Bo Li", 1.5),
            ("Cy Wu", -0.1), ("Di Xu", float("nan")), ("x" * 300, 0.9), ("Ann Lee", 0.9),
        ]
    ]  # fmt: skip
    found = found.model_copy(update={"mentions": tuple(mentions)})
    delivery = DeliveryRecord()
    entry = LedgerEntry(key("a.md"), "mk-a", found.content_sha256, FINGERPRINT, Status.APPLIED, NIGHT)
    kept = bench.store._claims_of(entry, found, delivery)
    assert kept == [(ServiceEntity("Ann Lee", "Person", 0.9, "mk-a"), "Person:ann lee")]
    assert delivery.refused == {"placeholder": 4, "no name": 1, "confidence out of range": 3, "name too long": 1}


def test_a_name_that_its_clean_up_deletes_is_not_sent(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", ("A/S Norden", "Company", 0.9), ("Acme (UK) Ltd", "Company", 0.9), ("Acme UK", "Company", 0.8))
    first, second = bench.night(), bench.night("2026-06-02")
    assert (first.sent, first.refused) == (1, {"its clean-up deletes such names": 2})
    assert (second.sent, second.missing, second.refused) == (0, 0, {})
    assert service.of("acme").keys() == {"acme_uk"}


def test_batches_are_bounded(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", *((unlike(i), "Person", 0.8) for i in range(10)))
    delivery = bench.night()
    assert (delivery.sent, delivery.batches) == (10, 4)
    assert max(len(write["entities"]) for write in service.writes) == 3


@pytest.mark.parametrize("failure", [429, 500, 503, "drop", "late"])
def test_what_passes_is_tried_again(service: FakeServiceContent, bench: Bench, failure: int | str) -> None:
    bench.says("a.md", *((unlike(i), "Person", 0.8) for i in range(6)))
    service.fail = [failure, failure]
    delivery = bench.night()
    assert (delivery.sent, delivery.deferred, delivery.problem) == (6, 0, None)
    assert len(service.of("acme")) == 6


def test_retry_after_is_honoured(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", ("Ann Lee", "Person", 0.8))
    service.fail, service.retry_after = [503], "1"
    begin = time.monotonic()
    assert bench.night().sent == 1
    assert time.monotonic() - begin >= 1


def test_what_was_not_taken_waits_for_the_next_night(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", *((unlike(i), "Person", 0.8) for i in range(9)))
    service.fail = [*([None] * 1), 500, 500, 500, 500]  # type: ignore[list-item]
    delivery = bench.night()
    assert (delivery.sent, delivery.deferred) == (3, 6)
    assert delivery.problem is not None and "status 500: on purpose" in delivery.problem
    later = bench.night("2026-06-02")
    assert (later.sent, later.deferred, later.problem) == (6, 0, None)
    assert len(service.of("acme")) == 9


def test_a_service_that_is_gone_raises_nothing(tmp_path: Path) -> None:
    gone = FakeServiceContent()
    gone.url = "http://127.0.0.1:9"
    bench = Bench(gone, tmp_path)
    with bench.client:
        bench.says("a.md", ("Ann Lee", "Person", 0.8))
        delivery = bench.night()
    assert (delivery.sent, delivery.deferred, delivery.held) == (0, 1, None)
    assert delivery.problem is not None and "ConnectError" in delivery.problem


def test_a_batch_that_is_refused_does_not_hold_up_the_others(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", *((unlike(i), "Person", 0.8) for i in range(9)))
    service.fail = [422]
    delivery = bench.night()
    assert (delivery.sent, delivery.deferred) == (6, 3)
    assert delivery.problem is not None and "refused POST /v1/graph/mutate with status 422" in delivery.problem


def test_what_no_document_says_any_more_is_counted(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", ("Ann Lee", "Person", 0.8), ("Bo Li", "Person", 0.8))
    bench.says("b.md", ("Bo Li", "Person", 0.6))
    bench.night()
    bench.says("a.md", ("Cy Wu", "Person", 0.8))
    delivery = bench.night("2026-06-02")
    # Ann Lee stays there, as nothing can be taken back; Bo Li is now as sure as the document that is left.
    assert (delivery.expected, delivery.retracted, delivery.held) == (3, 1, 3)
    assert service.of("acme")["bo_li"] == ("Bo Li", "Person", 0.6)
    bench.says("c.md", ("Ann Lee", "Person", 0.7))
    assert bench.night("2026-06-03").retracted == 0
    assert service.of("acme")["ann_lee"] == ("Ann Lee", "Person", 0.7)


@pytest.mark.parametrize("status", [Status.DELETED, Status.REJECTED])
def test_documents_that_went_claim_nothing(service: FakeServiceContent, bench: Bench, status: Status) -> None:
    bench.says("a.md", ("Ann Lee", "Person", 0.8))
    bench.night()
    bench.enter("a.md", result("other bytes"), status)
    assert bench.night("2026-06-02").retracted == 1


@pytest.mark.parametrize("status", [Status.DEFERRED, Status.QUARANTINED])
def test_documents_that_wait_keep_what_they_said(service: FakeServiceContent, bench: Bench, status: Status) -> None:
    bench.says("a.md", ("Ann Lee", "Person", 0.8))
    bench.night()
    bench.enter("a.md", result("other bytes"), status)
    assert bench.night("2026-06-02").retracted == 0


def test_the_comparison_names_what_differs_and_mends_what_was_lost(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", *((name, "Person", 0.8) for name in ("Ann Lee", "Bo Li", "Cy Wu", "Di Xu")))
    bench.night()
    service.nodes["acme__ann_lee"]["confidence"] = 0.1
    del service.nodes["acme__bo_li"]
    delivery = bench.night("2026-06-02")
    assert (delivery.expected, delivery.held, delivery.looked_up) == (3, 3, 4)
    assert (delivery.missing, delivery.differ, delivery.deferred) == (1, 1, 1)
    assert sorted(delivery.examples) == [
        "Ann Lee (Person, 0.8) is there as Ann Lee (Person, 0.1)",
        "Bo Li: not there",
    ]
    assert bench.night("2026-06-03").sent == 1
    assert "bo_li" in service.of("acme")


def test_a_service_that_was_emptied_is_filled_again(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", *((unlike(i), "Person", 0.8) for i in range(100)))
    bench.night()
    service.nodes.clear()
    assert bench.night("2026-06-02").deferred == 100
    assert bench.night("2026-06-03").held == 100


def test_a_night_that_broke_off_is_made_up(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", ("Ann Lee", "Person", 0.8))
    service.always = 500
    bench.night()
    bench.state.unlink()
    service.always = None
    assert bench.night("2026-06-02").sent == 1


def test_a_torn_state_file_costs_only_work(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", ("Ann Lee", "Person", 0.8))
    bench.night()
    with sqlite3.connect(bench.state) as state:
        state.execute("DELETE FROM sent")
    assert bench.night("2026-06-02").problem is None


def test_a_ledger_without_mentions_still_names_the_extractor() -> None:
    marked = ledger_fingerprints(Fingerprints({"meeting": FINGERPRINT}), keep_mentions=False).of("meeting", "")
    assert marked != FINGERPRINT and extractor_fingerprint(marked) == FINGERPRINT
    assert (
        ledger_fingerprints(Fingerprints({"meeting": FINGERPRINT}), keep_mentions=True).of("meeting", "") == FINGERPRINT
    )


def cluster(name: str, *members: str) -> Cluster:
    return Cluster(members[0], name, "Person", members)


def test_two_that_could_be_confused_never_share_a_request(service: FakeServiceContent, tmp_path: Path) -> None:
    bench = Bench(service, tmp_path, batch_entities=50)
    rng = random.Random(3)
    names = [f"{given} {surname}" for given in ("Maria", "Marian", "Jon", "John") for surname in SURNAMES]
    names += [name[:at] + name[at + 1 :] for name in names if (at := rng.randrange(4, len(name)))]
    said = [(name, "Person", 0.8) for name in dict.fromkeys(names)]
    assert len(rules.aliases_in([(name, entity_class) for name, entity_class, _ in said])) > 5
    with bench.client:
        bench.says("a.md", *said)  # type: ignore[arg-type]
        first, second = bench.night(), bench.night("2026-06-02")
    assert service.aliases == {}
    assert first.sent == len(said) and first.batches < len(said) / 5
    assert (second.sent, second.missing, second.differ, second.deferred) == (0, 0, 0, 0)


SURNAMES = ("Alvarez", "Alvares", "Alvarado", "Bergström", "Bergstrom", "Carlsen", "Karlsen", "Carlson", "Dietrich")


def test_what_the_service_does_not_show_is_not_sent_for_ever(service: FakeServiceContent, bench: Bench) -> None:
    # More matches than `/context` looks at, and it is not among those.
    bench.says("a.md", ("Lind", "Person", 0.1))
    for number in range(2000):
        node = {"entity_name": f"Lind {number}", "classification": "Person", "confidence": 0.9, "source_doc": "x"}
        service.nodes[service.key("acme", f"Lind {number}")] = {**node, "module_id": "acme"}
    first, second, third = bench.night(), bench.night("2026-06-02"), bench.night("2026-06-03")
    assert (first.sent, second.sent, third.sent) == (1, 0, 0)
    assert (third.missing, third.unconfirmed) == (0, 1)


def test_an_alias_of_an_earlier_request_is_not_missing(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", ("Maria Alvarez", "Person", 0.8), ("Maria Alvares", "Person", 0.8))
    bench.night()
    service.aliases["acme__maria_alvares"] = "acme__maria_alvarez"
    delivery = bench.night("2026-06-02")
    assert (delivery.missing, delivery.unconfirmed, bench.night("2026-06-03").sent) == (0, 1, 0)


def test_what_resolution_made_one_is_sent_as_one(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", ("Jane Smith", "Person", 0.8), ("Bo Li", "Person", 0.5))
    bench.says("b.md", ("Jane A. Smith", "Person", 0.9))
    bench.says("c.md", ("Dr. Jane Smith", "Person", 0.7))
    home = cluster("Dr. Jane Smith", "Person:dr. jane smith", "Person:jane smith", "Person:jane a. smith")
    delivery = bench.store.deliver(bench.ledger, bench.outbox, NIGHT, [home])
    assert delivery.sent == 2
    assert service.of("acme") == {
        "dr._jane_smith": ("Dr. Jane Smith", "Person", 0.9),
        "bo_li": ("Bo Li", "Person", 0.5),
    }
    # Nothing new: nothing is sent. Told apart again: each is sent as itself.
    assert bench.store.deliver(bench.ledger, bench.outbox, NIGHT, [home]).sent == 0
    assert bench.store.deliver(bench.ledger, bench.outbox, NIGHT, []).sent == 3
    assert service.of("acme")["jane_smith"] == ("Jane Smith", "Person", 0.8)
    # Merged later: what was sent alone stays there, and is counted.
    merged = bench.store.deliver(bench.ledger, bench.outbox, NIGHT, [home])
    assert (merged.sent, merged.retracted, merged.deferred) == (1, 2, 0)


def test_a_state_file_of_an_earlier_version_is_filled_again(service: FakeServiceContent, bench: Bench) -> None:
    bench.says("a.md", ("Ann Lee", "Person", 0.8))
    bench.night()
    with sqlite3.connect(bench.state) as state:
        state.executescript("DROP TABLE claims; CREATE TABLE claims(stream TEXT); PRAGMA user_version=0")
    later = bench.night("2026-06-02")
    assert (later.sent, later.missing, later.problem) == (0, 0, None)
